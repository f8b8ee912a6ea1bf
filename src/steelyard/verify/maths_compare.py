# pyright: basic
# ruff: noqa: ANN401, FBT001
"""Whether two formulas say the same: math-verify parses, our own rules compare. Runs in a worker process only.

(Checked less strictly than its neighbours: sympy and math-verify have no types.)

A formula that does not parse to its end equals nothing. Where our rules decide, they decide alone: exact numbers, a relative
comparison at fifty digits for the others, sets with all their members, intervals with their ends, equations up to a factor.
Only for what they do not know (None) is math-verify's own comparison asked.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any

import sympy
from latex2sympy2_extended.logic import And
from math_verify import verify
from math_verify.grader import should_treat_as_complex
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from steelyard.verify.maths_read import Unreadable, parse, text_of

DIGITS = 50
"""Decimal digits of the comparison of numbers that are not rational."""
SAME = sympy.Float(10) ** -40
"""Largest relative difference of two equal numbers at that many digits."""
ROUNDED = sympy.Float(10) ** -6
"""Largest relative difference where one side is a decimal and the other has no finite decimal."""
_POINTS = ((13, 7), (-29, 11), (41, 17), (3, 19), (-5, 23), (101, 31))
_UNIT = re.compile(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}\s*(?:\^\s*\{?([0-9])\}?)?\s*$")


def setup() -> Any:
    """Return the handler of an `AnswerPool`: it reads one formula, or compares two."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own alarm is off
    compare("x + \\frac{1}{2}", "x + 0.5")  # imports and tables, once

    def handle(request: Sequence[str]) -> object:
        gold, *answer = request
        if not answer:
            return readable(gold)
        return compare(gold, answer[0])

    return handle


def readable(gold: str) -> str | None:
    """Return why a right answer cannot be compared with; None where it can."""
    try:
        parse(gold)
    except Unreadable as error:
        return str(error)
    return None


def compare(gold: str, answer: str) -> list[object]:
    """Return [whether they are equal, why not]."""
    try:
        right = parse(gold)
    except Unreadable as error:
        return [None, f"the right answer does not parse: {error}"]
    try:
        given = parse(answer, complex_too=should_treat_as_complex(gold))
    except Unreadable as error:
        return [False, f"the answer does not parse: {error}"]
    if not _units_agree(gold, answer):
        return [False, "another unit"]
    if isinstance(right, str) or isinstance(given, str):
        return [text_of(right, gold) == text_of(given, answer), ""]
    if should_treat_as_complex(answer) and not should_treat_as_complex(gold):
        right = parse(gold, complex_too=True)
    exact = "." not in gold + answer
    found = same(right, given, exact=exact)
    if found is None:
        found = bool(verify(right, given, timeout_seconds=None))
    return [found, ""]


def _units_agree(gold: str, answer: str) -> bool:
    """A unit on one side only is taken off; two must be the same. A percent sign is one."""
    left, right = (_unit(text.strip().strip("$").strip()) for text in (gold, answer))
    return "" in (left, right) or left == right


def _unit(plain: str) -> str:
    found = _UNIT.search(plain)
    if found is None:
        return "%" if plain.endswith("%") else ""
    return re.sub(r"[\s.]", "", f"{found[1]}{found[2] or ''}").lower().rstrip("s")


# ------------------------------------------------------------------ comparing


def same(gold: Any, given: Any, *, exact: bool) -> bool | None:
    """Whether two parsed formulas say the same; None where these rules do not know.

    Args:
        gold: The right one.
        given: The answer.
        exact: Whether neither is a decimal; otherwise a number without a finite decimal may be rounded.
    """
    gold, given = _unwrapped(gold, given)
    for kind, rule in _RULES:
        if isinstance(gold, kind) or isinstance(given, kind):
            return rule(gold, given, exact)
    if isinstance(gold, sympy.Expr) and isinstance(given, sympy.Expr):
        return _expressions(gold, given, exact=exact)
    return True if gold == given else None


def _unwrapped(gold: Any, given: Any) -> tuple[Any, Any]:
    """`x = 5` beside `5` is 5; a set of one member beside a number is that number."""
    gold, given = _last(gold), _last(given)
    if _assigns(gold) and not isinstance(given, Relational):
        gold = gold.rhs
    elif _assigns(given) and not isinstance(gold, Relational):
        given = given.rhs
    sets = [isinstance(each, sympy.FiniteSet) and len(each.args) == 1 for each in (gold, given)]
    if sets[0] and not isinstance(given, sympy.Set):
        gold = gold.args[0]
    elif sets[1] and not isinstance(gold, sympy.Set):
        given = given.args[0]
    return gold, given


def _last(found: Any) -> Any:
    """Of a chain a = b = c of equations: a = c."""
    if isinstance(found, And) and all(isinstance(part, sympy.Eq) for part in found.args):
        parts = list(found._unsorted_args)  # pyright: ignore[reportAttributeAccessIssue]
        return sympy.Eq(parts[0].lhs, parts[-1].rhs, evaluate=False)
    return found


def _assigns(found: Any) -> bool:
    return isinstance(found, sympy.Eq) and isinstance(found.lhs, sympy.Symbol | AppliedUndef)


def _conjunctions(gold: Any, given: Any, exact: bool) -> bool | None:
    if not (isinstance(gold, And) and isinstance(given, And)):
        return None
    return _members(gold.args, given.args, exact)


def _relations(gold: Any, given: Any, exact: bool) -> bool | None:
    if not (isinstance(gold, Relational) and isinstance(given, Relational)):
        return None if isinstance(gold, sympy.Set) or isinstance(given, sympy.Set) else False
    if _assigns(gold) and _assigns(given) and gold.lhs == given.lhs:
        return same(gold.rhs, given.rhs, exact=exact)
    if not all(isinstance(side, sympy.Expr) for each in (gold, given) for side in (each.lhs, each.rhs)):
        return False
    if (
        isinstance(gold, sympy.Ne)
        or isinstance(given, sympy.Ne)
        or isinstance(gold, sympy.Eq) != isinstance(given, sympy.Eq)
    ):
        return None if type(gold) is type(given) else False
    left, right = _difference(gold), _difference(given)
    if (gold.free_symbols or given.free_symbols) and gold.free_symbols != given.free_symbols:
        return False
    if not isinstance(gold, sympy.Eq) and _strict(gold) != _strict(given):
        return False
    return _proportional(left, right, both_signs=isinstance(gold, sympy.Eq))


def _difference(relation: Any) -> Any:
    """What the relation says is 0, or at most 0."""
    turned = isinstance(relation, sympy.Ge | sympy.Gt)
    lower, upper = (relation.rhs, relation.lhs) if turned else (relation.lhs, relation.rhs)
    return (lower - upper).doit()  # pyright: ignore[reportOperatorIssue]


def _strict(relation: Any) -> bool:
    return isinstance(relation, sympy.Gt | sympy.Lt)


def _proportional(left: Any, right: Any, *, both_signs: bool) -> bool:
    """Whether one is a constant times the other: a positive one, or any but 0."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    factors = []
    for shift in range(len(_POINTS)):
        point = _point(symbols, shift)
        above, below = (_number(each.subs(point)) for each in (left, right))
        if above is None or below is None:
            continue
        if below == 0 or above == 0:
            if (below == 0) != (above == 0):
                return False
            continue
        factors.append(above / below)
    if len(factors) < 2 or not all(_close(factors[0], factor) for factor in factors[1:]):
        return False
    return both_signs or bool(sympy.re(factors[0]) > 0)


def _members(gold: Sequence[Any], given: Sequence[Any], exact: bool) -> bool:
    """Whether every member of one has its own equal in the other."""
    rest = list(given)
    if len(gold) != len(rest):
        return False
    for member in gold:
        match = next((i for i, other in enumerate(rest) if same(member, other, exact=exact)), None)
        if match is None:
            return False
        rest.pop(match)
    return True


def _sets(gold: Any, given: Any, exact: bool) -> bool | None:
    if isinstance(gold, sympy.FiniteSet) and isinstance(given, sympy.FiniteSet):
        return _members(gold.args, given.args, exact)
    if isinstance(gold, sympy.Interval) and isinstance(given, sympy.Interval):
        open_ends = (gold.left_open, gold.right_open) == (given.left_open, given.right_open)
        return open_ends and bool(same(gold.start, given.start, exact=exact) and same(gold.end, given.end, exact=exact))
    if not (isinstance(gold, sympy.Set) and isinstance(given, sympy.Set)):
        relation = isinstance(gold, Relational | And) or isinstance(given, Relational | And)
        return None if relation else False
    return bool(gold == given or gold.symmetric_difference(given).is_empty)


def _tuples(gold: Any, given: Any, exact: bool) -> bool | None:
    if not (isinstance(gold, sympy.Tuple) and isinstance(given, sympy.Tuple)) or len(gold) != len(given):
        return False
    return all(same(a, b, exact=exact) for a, b in zip(gold, given, strict=True))


def _matrices(gold: Any, given: Any, exact: bool) -> bool | None:
    if not (isinstance(gold, sympy.MatrixBase) and isinstance(given, sympy.MatrixBase)) or gold.shape != given.shape:
        return False
    return all(same(a, b, exact=exact) for a, b in zip(gold.flat(), given.flat(), strict=True))


_RULES = (
    (sympy.MatrixBase, _matrices),
    (sympy.Tuple, _tuples),
    (sympy.Set, _sets),
    (And, _conjunctions),
    (Relational, _relations),
)


def _expressions(gold: Any, given: Any, *, exact: bool) -> bool | None:
    if gold == given:
        return True
    if gold.has(AppliedUndef) or given.has(AppliedUndef):
        return None
    symbols = sorted(gold.free_symbols | given.free_symbols, key=str)
    if not symbols:
        return _numbers(gold, given, exact=exact)
    valid = 0
    for shift in range(len(_POINTS)):
        point = _point(symbols, shift)
        left, right = (_number(each.subs(point)) for each in (gold, given))
        if left is None and right is None:
            continue
        if left is None or right is None or not _close(left, right):
            return False
        valid += 1
    return True if valid >= 2 else None


def _point(symbols: Sequence[Any], shift: int) -> dict[Any, Any]:
    """Rational values for the symbols, the same for equal names, not near any whole number."""
    return {
        symbol: sympy.Rational(*_POINTS[(index + shift) % len(_POINTS)]) + index // len(_POINTS)
        for index, symbol in enumerate(symbols)
    }


def _numbers(gold: Any, given: Any, *, exact: bool) -> bool:
    """Whether two numbers without symbols are the same; a percentage also agrees with the number before its sign."""
    left, right = _values(gold), _values(given)
    return any(_same_number(a, b, exact=exact) for a in left for b in right)


def _values(number: Any) -> list[Any]:
    percent = isinstance(number, sympy.Mul) and sympy.UnevaluatedExpr(sympy.Rational(1, 100)) in number.args
    return [number.doit(), (number * 100).doit()] if percent else [number.doit()]


def _same_number(left: Any, right: Any, *, exact: bool) -> bool:
    if left.is_Rational and right.is_Rational and (exact or (_finite_decimal(left) and _finite_decimal(right))):
        return left == right
    if left.is_infinite or right.is_infinite:
        return left == right
    a, b = _number(left), _number(right)
    if a is None or b is None:
        return False
    if not exact and _finite_decimal(left) != _finite_decimal(right):
        return _close(a, b, ROUNDED)
    return _close(a, b)


def _finite_decimal(number: Any) -> bool:
    """Whether a number can be written with finitely many decimal digits."""
    if not number.is_Rational:
        return False
    below = int(number.q)
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    return below == 1


def _number(expression: Any) -> Any:
    """Its value at fifty digits; None where it has none that is finite."""
    value = sympy.N(expression.doit(), DIGITS)
    if (
        not value.is_number
        or value.has(sympy.nan, sympy.zoo, sympy.oo)
        or not all(p.is_Float or p.is_Integer or p.is_Rational for p in value.as_real_imag())
    ):
        return None
    return value


def _close(left: Any, right: Any, share: Any = SAME) -> bool:
    """Whether they differ by no more than this share of the larger one."""
    largest = max(abs(sympy.N(left, DIGITS)), abs(sympy.N(right, DIGITS)))
    return bool(abs(sympy.N(left - right, DIGITS)) <= share * largest)
