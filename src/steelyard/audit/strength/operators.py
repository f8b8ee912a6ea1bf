"""Small changes to a right program: each operator is one function from a syntax node to its replacements.

An operator never changes the node that it is given. A replacement of a statement is a statement, of an expression an
expression. `OPERATORS` is the table, in the order in which a change that two operators make is attributed.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

Operator = Callable[[ast.AST], Iterator[ast.AST]]
"""From a node to what may stand in its place."""

_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.FloorDiv,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_PLAIN_CALLS = frozenset({"abs", "set", "frozenset", "list", "tuple", "round", "int", "float", "str", "reversed"})
"""Calls of one argument that a forgetful author leaves out."""
_SIZED_CALLS = frozenset({"sorted", "sum", "len", "max", "min", "Counter"})
_DROPPED = (ast.Expr, ast.AugAssign, ast.If, ast.For, ast.While, ast.Delete, ast.Continue, ast.Break)


def comparison_boundary(node: ast.AST) -> Iterator[ast.AST]:
    """`<` becomes `<=`, and so on."""
    yield from _compared(node, _BOUNDARY)


def comparison_turned(node: ast.AST) -> Iterator[ast.AST]:
    """`<` becomes `>`, `==` becomes `!=`, `in` becomes `not in`, and so on."""
    yield from _compared(node, _TURNED)


def _compared(node: ast.AST, table: Mapping[type[ast.cmpop], type[ast.cmpop]]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            if type(operator) in table:
                ops = [*node.ops[:i], table[type(operator)](), *node.ops[i + 1 :]]
                yield ast.Compare(left=node.left, ops=ops, comparators=node.comparators)


def constant(node: ast.AST) -> Iterator[ast.AST]:
    """A number becomes one more, one less, or 0; a text becomes empty."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return
    if isinstance(node.value, int | float):
        for value in dict.fromkeys((node.value + 1, node.value - 1, type(node.value)(0))):
            if value != node.value:
                yield ast.Constant(value=value)
    elif isinstance(node.value, str) and node.value:
        yield ast.Constant(value="")


def arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    """`+` becomes `-`, `//` becomes `/`, and so on; a minus in front goes."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield ast.BinOp(left=node.left, op=_ARITHMETIC[type(node.op)](), right=node.right)
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield ast.AugAssign(target=node.target, op=_ARITHMETIC[type(node.op)](), value=node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


def boolean_part(node: ast.AST) -> Iterator[ast.AST]:
    """`and` becomes `or`; one part of a condition goes; `not` goes; True becomes False."""
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(op=ast.Or() if isinstance(node.op, ast.And) else ast.And(), values=node.values)
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(value=not node.value)
    if isinstance(node, ast.comprehension):
        for i in range(len(node.ifs)):
            ifs = node.ifs[:i] + node.ifs[i + 1 :]
            yield ast.comprehension(target=node.target, iter=node.iter, ifs=ifs, is_async=node.is_async)


def drop_statement(node: ast.AST) -> Iterator[ast.AST]:
    """A statement goes; assignments to a name stay, since without them nothing runs."""
    to_item = isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript | ast.Attribute) for t in node.targets)
    if isinstance(node, _DROPPED) or to_item:
        yield ast.Pass()


def drop_keyword(node: ast.AST) -> Iterator[ast.AST]:
    """One keyword argument goes."""
    if isinstance(node, ast.Call):
        for i in range(len(node.keywords)):
            yield ast.Call(func=node.func, args=node.args, keywords=node.keywords[:i] + node.keywords[i + 1 :])


def drop_sort(node: ast.AST) -> Iterator[ast.AST]:
    """`sorted(x)` becomes `list(x)`; the statement `x.sort()` goes."""
    if _is_sorted(node):
        yield _call("list", node.args[0])
    if isinstance(node, ast.Expr) and _is_sort_method(node.value):
        yield ast.Pass()


def sort_key_part(node: ast.AST) -> Iterator[ast.AST]:
    """One part of a sort key goes; a sort of pairs without a key looks at their first part alone."""
    if not isinstance(node, ast.Call):
        return
    for i, keyword in enumerate(node.keywords):
        body = keyword.value.body if isinstance(keyword.value, ast.Lambda) else None
        if keyword.arg == "key" and isinstance(keyword.value, ast.Lambda) and isinstance(body, ast.Tuple):
            for part in range(len(body.elts)):
                rest = body.elts[:part] + body.elts[part + 1 :]
                shorter = rest[0] if len(rest) == 1 else ast.Tuple(elts=rest, ctx=ast.Load())
                key = ast.keyword(arg="key", value=ast.Lambda(args=keyword.value.args, body=shorter))
                yield ast.Call(
                    func=node.func, args=node.args, keywords=[*node.keywords[:i], key, *node.keywords[i + 1 :]]
                )
    if (_is_sorted(node) or _is_sort_method(node)) and not any(keyword.arg == "key" for keyword in node.keywords):
        key = ast.keyword(arg="key", value=ast.parse("lambda item: item[0]", mode="eval").body)
        yield ast.Call(func=node.func, args=node.args, keywords=[*node.keywords, key])


def sort_ties(node: ast.AST) -> Iterator[ast.AST]:
    """Items with equal keys come out in the reverse of their order."""
    if _is_sorted(node) and any(keyword.arg == "key" for keyword in node.keywords):
        backwards = ast.Subscript(value=_call("list", node.args[0]), slice=_slice(step=-1), ctx=ast.Load())
        yield ast.Call(func=node.func, args=[backwards], keywords=node.keywords)


def duplicates(node: ast.AST) -> Iterator[ast.AST]:
    """Equal items are taken once: in a loop, and in what is sorted, summed or counted."""
    if isinstance(node, ast.For):
        yield ast.For(target=node.target, iter=_once(node.iter), body=node.body, orelse=node.orelse)
    if isinstance(node, ast.comprehension):
        yield ast.comprehension(target=node.target, iter=_once(node.iter), ifs=node.ifs, is_async=node.is_async)
    if isinstance(node, ast.Call) and _name(node.func) in _SIZED_CALLS and len(node.args) == 1:
        yield ast.Call(func=node.func, args=[_call("list", _once(node.args[0]))], keywords=node.keywords)


def drop_call(node: ast.AST) -> Iterator[ast.AST]:
    """`abs(x)`, `set(x)`, `round(x)` and the like become `x`; `min` becomes `max`."""
    if not isinstance(node, ast.Call):
        return
    if _name(node.func) in _PLAIN_CALLS and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        yield node.args[0]
    other = {"min": "max", "max": "min"}.get(_name(node.func))
    if other is not None:
        yield ast.Call(func=ast.Name(id=other, ctx=ast.Load()), args=node.args, keywords=node.keywords)


def swap_arguments(node: ast.AST) -> Iterator[ast.AST]:
    """Two neighbouring arguments of a call change places."""
    if isinstance(node, ast.Call):
        for i in range(len(node.args) - 1):
            args = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
            yield ast.Call(func=node.func, args=args, keywords=node.keywords)


def loop_bounds(node: ast.AST) -> Iterator[ast.AST]:
    """A range begins or ends one step elsewhere; a loop leaves out the first or the last item."""
    if isinstance(node, ast.Call) and _name(node.func) == "range":
        for i, bound in enumerate(node.args[:2]):
            for step in (ast.Add(), ast.Sub()):
                moved = ast.BinOp(left=bound, op=step, right=ast.Constant(value=1))
                yield ast.Call(func=node.func, args=[*node.args[:i], moved, *node.args[i + 1 :]], keywords=[])
    if isinstance(node, ast.For):
        for part in (_slice(lower=1), _slice(upper=-1)):
            items = ast.Subscript(value=_call("list", node.iter), slice=part, ctx=ast.Load())
            yield ast.For(target=node.target, iter=items, body=node.body, orelse=node.orelse)


def constant_return(node: ast.AST) -> Iterator[ast.AST]:
    """A result becomes a constant."""
    if isinstance(node, ast.Return) and node.value is not None:
        for text in ("None", "0", "1", "True", "False", "''", "[]"):
            yield ast.Return(value=ast.parse(text, mode="eval").body)


OPERATORS: Mapping[str, Operator] = {
    "comparison boundary": comparison_boundary,
    "comparison turned": comparison_turned,
    "sort dropped": drop_sort,
    "sort key part": sort_key_part,
    "sort ties": sort_ties,
    "duplicates lost": duplicates,
    "keyword dropped": drop_keyword,
    "arguments swapped": swap_arguments,
    "loop bounds": loop_bounds,
    "constant": constant,
    "arithmetic": arithmetic,
    "boolean part": boolean_part,
    "call dropped": drop_call,
    "statement dropped": drop_statement,
    "constant return": constant_return,
}
"""Every operator by the name that reports give it."""


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_sorted(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and _name(node.func) == "sorted" and len(node.args) == 1


def _is_sort_method(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sort"


def _call(name: str, argument: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=[argument], keywords=[])


def _once(items: ast.expr) -> ast.expr:
    """The items without repetition, in the order of their first places."""
    function = ast.Attribute(value=ast.Name(id="dict", ctx=ast.Load()), attr="fromkeys", ctx=ast.Load())
    return ast.Call(func=function, args=[items], keywords=[])


def _slice(*, lower: int | None = None, upper: int | None = None, step: int | None = None) -> ast.Slice:
    bounds = [None if each is None else ast.Constant(value=each) for each in (lower, upper, step)]
    return ast.Slice(lower=bounds[0], upper=bounds[1], step=bounds[2])
