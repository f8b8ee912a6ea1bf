"""From an input on which two programs differ to a smallest one: parts are left out, numbers come nearer to 0."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from steelyard.audit.strength.grow import leaves
from steelyard.audit.strength.programs import input_key
from steelyard.tasks.probes import Args
from steelyard.types import Plain

Check = Callable[[Sequence[Args]], list[bool]]
"""Whether the programs still differ, for each of several inputs."""
_ROUNDS = 40
_EXACT = 2.0**50
"""Floats below this have a fraction to shorten; infinities and nan are not below it."""
_LOW = 11
"""Whole numbers below this are tried in the place of any other: some mistakes show at few of them."""
_CANDIDATES = 400
"""Inputs tried in one round."""


def shrink(args: Args, differs: Check, valid: Callable[[Args], bool]) -> Args:
    """Return an input on which the programs differ and that no single step makes smaller.

    Args:
        args: An input on which they differ.
        differs: Runs the programs.
        valid: Whether an input lies in the domain.
    """
    for _ in range(_ROUNDS):
        here = size(args)
        smaller = {input_key(each): each for each in _smaller(args) if size(each) < here and valid(each)}
        candidates = sorted(smaller.values(), key=size)[:_CANDIDATES]
        if not candidates:
            return args
        found = next((each for each, still in zip(candidates, differs(candidates), strict=True) if still), None)
        if found is None:
            return args
        args = found
    return args


def size(args: Args) -> tuple[int, float, int, str]:
    """How large an input is: values and containers in it, then their magnitudes, then how it is written."""
    text = repr(args)
    return _count(args), sum(_magnitude(leaf) for leaf in leaves(args)), len(text), text


def _count(value: Plain) -> int:
    if isinstance(value, list | tuple | set | frozenset):
        return 1 + sum(map(_count, value))
    if isinstance(value, dict):
        return 1 + sum(_count(key) + _count(item) for key, item in value.items())
    return 1 + len(value) if isinstance(value, str | bytes) else 1


def _magnitude(leaf: Plain) -> float:
    if isinstance(leaf, int | float):
        return min(abs(float(leaf)), 1e18) if abs(leaf) < 10**18 else 1e18
    return float(sum(map(ord, leaf))) if isinstance(leaf, str) else 0.0


def _smaller(args: Args) -> Iterator[Args]:
    """Yield the arguments with one step made: ranks for numbers, one number lower wherever it stands, one value smaller.

    In order counts as smaller than out of order, so that order is left only where it matters.
    """
    numbers = sorted({leaf for leaf in leaves(args) if type(leaf) is int})
    ranks = dict(zip(numbers, range(len(numbers)), strict=True))
    yield _tuple(_replaced(args, ranks))
    for number in numbers:
        for lower in _int(number):
            yield _tuple(_replaced(args, {number: lower}))
    for place, value in enumerate(args):
        for smaller in _reduced(value):
            yield (*args[:place], smaller, *args[place + 1 :])


def _tuple(value: Plain) -> Args:
    assert isinstance(value, tuple)
    return value


def _replaced(value: Plain, table: dict[int, int]) -> Plain:
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_replaced(item, table) for item in value)
    if isinstance(value, dict):
        return {key: _replaced(item, table) for key, item in value.items()}
    return table.get(value, value) if type(value) is int else value


def _reduced(value: Plain) -> Iterator[Plain]:
    if type(value) is bool:
        yield from (False,) if value else ()
    elif type(value) is int:
        yield from _int(value)
    elif type(value) is float:
        whole = abs(value) < _EXACT
        yield from (0.0, 1.0, float(int(value)) if whole else 0.0, int(value * 10) / 10 if whole else 0.0, abs(value))
    elif isinstance(value, str):
        yield from ("".join(part) for part in _parts(value))
        yield from (value[:i] + "a" + value[i + 1 :] for i in range(min(len(value), 20)))
    elif isinstance(value, list | tuple):
        yield from _reduced_items(value)
    elif isinstance(value, set | frozenset):
        yield from (type(value)(part) for part in _parts(sorted(value, key=repr)))
    elif isinstance(value, dict):
        yield from (dict(part) for part in _parts(list(value.items())))


def _reduced_items(value: list[Plain] | tuple[Plain, ...]) -> Iterator[Plain]:
    """A tuple keeps its length, which often has a meaning."""
    kind = type(value)
    if isinstance(value, list):
        yield from _parts(value)
        yield sorted(value, key=repr)
    for i, item in enumerate(value[:20]):
        for smaller in _reduced(item):
            yield kind([*value[:i], smaller, *value[i + 1 :]])


def _int(value: int) -> Iterator[int]:
    yield from dict.fromkeys((*range(_LOW), value // 2, abs(value), value - 1 if value > 0 else value + 1))


def _parts(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the items with a half, a quarter, ... and at last a single one left out."""
    width = len(items)
    while width:
        for start in range(0, len(items), width):
            yield [*items[:start], *items[start + width :]]
        width //= 2
