"""Test code from inputs and a solution, where a data set has no outputs: EvalPlus's own form of HumanEval+ and MBPP+."""

import logging
from collections.abc import Sequence

from steelyard.errors import TaskError
from steelyard.tasks.sources import Row, short

CHUNK = 100
"""Inputs in one test, which has the time limit of one input."""
EQUAL = "agree(got, expected, tolerance)"
"""The rule for a value: equal, or close where a float is expected."""

_log = logging.getLogger(__name__)

_COMPARISON = '''\
import copy
import math

inf, nan = math.inf, math.nan


def agree(got, expected, tolerance):
    """Equal, or close where a float is expected."""
    if got == expected:
        return True
    if isinstance(expected, (list, tuple)):
        return (
            type(got) is type(expected)
            and len(got) == len(expected)
            and all(agree(g, e, tolerance) for g, e in zip(got, expected))
        )
    if not (tolerance or isinstance(expected, float)) or not isinstance(got, (int, float)):
        return False
    return isinstance(expected, (int, float)) and abs(got - expected) <= (tolerance or 1e-6) + 1e-7 * abs(expected)


space = {"__name__": "solution"}
'''


def inputs_of(row: Row, column: str) -> list[list[object]]:
    """Return the inputs in a column, each a list of arguments.

    Raises:
        TaskError: It holds something else.
    """
    value = row.values.get(column)
    if not isinstance(value, list) or not all(isinstance(arguments, list) for arguments in value):
        raise TaskError(
            f"{row.where}: column {column!r} must be a list of lists of arguments, got {short(value)}. Correct or remove "
            "the row."
        )
    return value


def differential_tests(
    row: Row, base: Sequence[object], plus: Sequence[object], *, solution: str, entry_point: str, rule: str
) -> dict[str, str]:
    """Return test code by name: `base-0`, ..., `plus-0`, ..., with at most 100 inputs each.

    It runs in the judge's process in the sandbox, and there calls the data set's solution for the outputs. A plus input
    that is also a base input is left out.

    Args:
        row: For `atol` and messages.
        base: Inputs of the original data set.
        plus: Further inputs.
        solution: The data set's own right program, as source.
        entry_point: Its function.
        rule: An expression over arguments, got, expected and tolerance that says whether `got` is right.
    """
    tolerance = row.values.get("atol", 0)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise TaskError(f"{row.where}: column 'atol' must be a number of at least 0, got {short(tolerance)}.")
    known = {repr(arguments) for arguments in base}
    extra = [arguments for arguments in plus if repr(arguments) not in known]
    if len(extra) < len(plus):
        _log.warning(
            "%s: %d of %d plus inputs are base inputs too; left out.", row.where, len(plus) - len(extra), len(plus)
        )
    head = f"{_COMPARISON}exec({solution!r}, space)\ntolerance = {tolerance!r}\n\n"
    body = (
        "    got = candidate(*copy.deepcopy(arguments))\n"
        f"    expected = space[{entry_point!r}](*copy.deepcopy(arguments))\n"
        f"    assert {rule}, (arguments, got, expected)\n"
    )
    return {
        f"{family}-{start // CHUNK}": f"{head}for arguments in {inputs[start : start + CHUNK]!r}:\n{body}"
        for family, inputs in (("base", base), ("plus", extra))
        for start in range(0, len(inputs), CHUNK)
    }
