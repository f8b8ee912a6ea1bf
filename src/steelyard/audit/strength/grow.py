"""Inputs for a task without a generator: the arguments of its own tests, changed by their type."""

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from steelyard.tasks.probes import Args
from steelyard.types import Plain, Suite

_SMALL = 6
_CHANGES = 3
"""Largest number of changes to one input."""
_ATTEMPTS = 5
"""Changes made for each input that is wanted; a domain may be small."""
_CALLED = frozenset({"candidate"})
"""What the test code of HumanEval calls the program."""


def arguments_of(suite: Suite) -> list[Args]:
    """Return the arguments of every call in a suite that stand there as plain values.

    `calls`: those of each case. `asserts`: of each call of the entry point (or of `candidate`) in the test source whose
    arguments are literals, and the rows of a literal list that is called `inputs` or looped over as arguments; what is
    computed is not followed. `stdin` has none.
    """
    if suite.form == "calls":
        return [case.args for case in suite.cases]
    if suite.form == "stdin":
        return []
    sources = [str(case.args[-1]) for case in suite.cases]
    return [args for source in sources for args in literal_calls(source, _CALLED | {suite.entry_point})]


def literal_calls(source: str, names: frozenset[str]) -> list[Args]:
    """Return the positional arguments of each call of one of `names` in a source, where all are literals."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call) and not node.keywords]
    found = [_literals(call.args) for call in calls if isinstance(call.func, ast.Name) and call.func.id in names]
    rows = [row for node in nodes for row in _rows(node)]
    return [args for args in [*found, *rows] if args is not None]


def _rows(node: ast.AST) -> list[Args | None]:
    """The rows of `inputs = [[...], ...]` and of `for arguments in [[...], ...]`, as arguments."""
    named = isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "inputs" for t in node.targets)
    looped = isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == "arguments"
    items = (
        node.value
        if isinstance(node, ast.Assign) and named
        else node.iter
        if isinstance(node, ast.For) and looped
        else None
    )
    if not isinstance(items, ast.List):
        return []
    return [_literals(row.elts) for row in items.elts if isinstance(row, ast.List | ast.Tuple)]


def _literals(nodes: Sequence[ast.expr]) -> Args | None:
    try:
        return tuple(ast.literal_eval(node) for node in nodes)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def grown(seeds: Sequence[Args], seed: int, count: int) -> list[Args]:
    """Return up to `count` distinct inputs: the seeds, then copies of earlier ones with one to three changes each.

    A change keeps the type of a value: numbers move, turn their sign or become 0; texts and lists lose, repeat or exchange
    parts, or take a part of another input's value at the same place. Whether the result lies in the domain is not known.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    made = {repr(args): args for args in seeds[:count]}
    for _ in range(_ATTEMPTS * count if seeds else 0):
        if len(made) >= count:
            break
        parents = seeds if rng.integers(2) else list(made.values())
        args = _child(parents[int(rng.integers(len(parents)))], seeds, rng)
        made.setdefault(repr(args), args)
    return list(made.values())


def _child(parent: Args, seeds: Sequence[Args], rng: np.random.Generator) -> Args:
    args = list(parent)
    for _ in range(rng.integers(1, _CHANGES + 1) if args else 0):
        place = int(rng.integers(len(args)))
        donors = [other[place] for other in seeds if len(other) > place] or [args[place]]
        args[place] = _changed(args[place], donors[int(rng.integers(len(donors)))], rng)
    return tuple(args)


def _changed(value: Plain, donor: Plain, rng: np.random.Generator) -> Plain:
    change = _CHANGE.get(type(value))
    if change is None:
        return donor if type(donor) is type(value) else value
    return change(value, donor, rng)


def _bool(value: bool, _donor: Plain, _rng: np.random.Generator) -> bool:  # noqa: FBT001 - a value, no switch
    return not value


def _int(value: int, donor: Plain, rng: np.random.Generator) -> int:
    choices = [value + 1, value - 1, 0, 1, -value, 2 * value, value // 2, int(rng.integers(-_SMALL, 10 * _SMALL))]
    choices += [donor] if type(donor) is int else []
    return choices[int(rng.integers(len(choices)))]


def _float(value: float, donor: Plain, rng: np.random.Generator) -> float:
    choices = [
        value + 1,
        value - 1,
        0.0,
        -value,
        value / 2,
        value * 1.001,
        round(value, 1) if math.isfinite(value) else 0.0,
    ]
    choices += [donor] if type(donor) is float else []
    return choices[int(rng.integers(len(choices)))]


def _list(value: list[Plain], donor: Plain, rng: np.random.Generator) -> list[Plain]:
    others = donor if isinstance(donor, list) else []
    return [*_sequence(value, others, rng)]


def _tuple(value: tuple[Plain, ...], donor: Plain, rng: np.random.Generator) -> tuple[Plain, ...]:
    """Tuples keep their length, which often has a meaning."""
    if not value:
        return value
    place = int(rng.integers(len(value)))
    other = donor[place] if isinstance(donor, tuple) and len(donor) > place else value[place]
    return (*value[:place], _changed(value[place], other, rng), *value[place + 1 :])


def _str(value: str, donor: Plain, rng: np.random.Generator) -> str:
    return "".join(map(str, _sequence(list(value), list(donor) if isinstance(donor, str) else [], rng)))


def _dict(value: dict[Plain, Plain], donor: Plain, rng: np.random.Generator) -> dict[Plain, Plain]:
    pairs = list(value.items()) + (list(donor.items()) if isinstance(donor, dict) else [])
    return dict(pair for pair in pairs if rng.random() < 0.6)


Items = Sequence[Plain]
Edit = Callable[[Items, Items, int, np.random.Generator], Items]
"""(items, those of another input, a place among the items, random choices) → changed items."""


def _cut(items: Items, _others: Items, at: int, rng: np.random.Generator) -> Items:
    return items[:at] if rng.integers(2) else []


def _insert(items: Items, others: Items, at: int, rng: np.random.Generator) -> Items:
    return [*items[:at], others[int(rng.integers(len(others)))], *items[at:]] if others else items


def _remove(items: Items, _others: Items, at: int, _rng: np.random.Generator) -> Items:
    return [*items[:at], *items[at + 1 :]]


def _repeat(items: Items, _others: Items, at: int, _rng: np.random.Generator) -> Items:
    return [*items[:at], *items[at : at + 1], *items[at:]]


def _reverse(items: Items, _others: Items, _at: int, _rng: np.random.Generator) -> Items:
    return items[::-1]


def _shuffle(items: Items, _others: Items, _at: int, rng: np.random.Generator) -> Items:
    return [items[i] for i in rng.permutation(len(items))]


def _append(items: Items, others: Items, _at: int, rng: np.random.Generator) -> Items:
    return [*items, *others[: int(rng.integers(1, _SMALL))]]


def _change_one(items: Items, _others: Items, at: int, rng: np.random.Generator) -> Items:
    if not items:
        return items
    at = min(at, len(items) - 1)
    neighbour = items[(at + 1) % len(items)]
    changed = neighbour if isinstance(items[at], str) else _changed(items[at], neighbour, rng)
    return [*items[:at], changed, *items[at + 1 :]]


_EDITS: Sequence[Edit] = (_cut, _insert, _remove, _repeat, _reverse, _shuffle, _append, _change_one)


def _sequence(items: Items, others: Items, rng: np.random.Generator) -> Items:
    """One change of a list or a text."""
    edit = _EDITS[int(rng.integers(len(_EDITS)))]
    return edit(items, others, int(rng.integers(len(items) + 1)), rng)


_CHANGE: Mapping[type, Callable[..., Plain]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    list: _list,
    tuple: _tuple,
    dict: _dict,
}


def leaves(value: Plain) -> Iterator[Plain]:
    """Yield every number, text and other single value inside a value."""
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(key)
            yield from leaves(item)
    else:
        yield value
