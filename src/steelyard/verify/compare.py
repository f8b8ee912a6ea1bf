"""Whether a returned value is the expected one; strict, and on plain data only."""

import math
from collections.abc import Hashable
from typing import cast

from steelyard.types import Plain

RELATIVE_TOLERANCE = 1e-9
"""Where the expected value is a float: far above rounding in another order, far below any wrong answer."""
ABSOLUTE_TOLERANCE = 1e-9
"""For expected floats near zero."""


def equal(expected: Plain, got: Plain) -> bool:
    """Return whether `got` is the expected value.

    Types are exact at every level: True is not 1, 1 is not 1.0, a list is no tuple. Order counts in lists and tuples, not
    in sets and dicts. Floats are equal within 1e-9, relative or absolute; infinities are equal to themselves; NaN is equal
    to NaN, because a test that expects it can be passed in no other way. Keys and set members are compared exactly.

    >>> equal([1, 2.0], [1, 2.0 + 1e-12]), equal([1], [True]), equal(float("nan"), float("nan"))
    (True, False, True)
    """
    if type(expected) is not type(got):
        return False
    if type(expected) is float:
        return _close(expected, cast(float, got))
    if type(expected) in (list, tuple):
        left, right = cast("list[Plain]", expected), cast("list[Plain]", got)
        return len(left) == len(right) and all(map(equal, left, right))
    if type(expected) is dict:
        return _equal_dicts(cast("dict[Hashable, Plain]", expected), cast("dict[Hashable, Plain]", got))
    if type(expected) in (set, frozenset):
        sizes = [len(cast("frozenset[Hashable]", each)) for each in (expected, got)]
        return sizes[0] == sizes[1] and _tagged(expected) == _tagged(got)
    return expected == got


def same_output(expected: Plain, got: Plain) -> bool:
    r"""Return whether a printed text is the expected one.

    Blanks at the end of each line and one newline at the end of the text do not count. Everything else does: the number
    of lines, empty ones too, leading blanks, letter case, and how a number is written.

    >>> same_output("1\n2", "1 \n2\n"), same_output("1\n2", "1\n2\n\n"), same_output("1", "1.0")
    (True, False, False)
    """
    if not isinstance(expected, str) or not isinstance(got, str):
        return False
    return _lines(expected) == _lines(got)


def _lines(text: str) -> list[str]:
    """Lines end at a newline only; a carriage return before it counts as a blank."""
    return [line.rstrip(" \t\r") for line in text.removesuffix("\n").split("\n")]


def _close(expected: float, got: float) -> bool:
    if math.isnan(expected):
        return math.isnan(got)
    return math.isclose(expected, got, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)


def _equal_dicts(expected: dict[Hashable, Plain], got: dict[Hashable, Plain]) -> bool:
    left = {_tagged(key): value for key, value in expected.items()}
    right = {_tagged(key): value for key, value in got.items()}
    return (
        len(expected) == len(got)
        and left.keys() == right.keys()
        and all(equal(value, right[key]) for key, value in left.items())
    )


def _tagged(key: object) -> Hashable:
    """Return a stand-in whose equality is exact in type: 1, True and 1.0 differ."""
    if isinstance(key, tuple):
        return ("tuple", tuple(_tagged(item) for item in cast("tuple[object, ...]", key)))
    if isinstance(key, (set, frozenset)):
        return (type(cast(object, key)).__name__, frozenset(_tagged(item) for item in cast("frozenset[object]", key)))
    if isinstance(key, float) and math.isnan(key):
        return ("float", "nan")
    return (type(key).__name__, cast(Hashable, key))
