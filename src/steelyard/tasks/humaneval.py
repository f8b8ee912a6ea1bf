"""HumanEval and HumanEval+: a function's head and docstring to complete, judged by the data set's own test code."""

import ast
import logging
from collections.abc import Sequence

from steelyard.errors import TaskError
from steelyard.tasks.problems import SUITE, Problem, functions_of, parsed, prompt_of, text_of
from steelyard.tasks.sources import Row, short
from steelyard.types import Case, Suite

CHUNK = 100
"""Inputs of HumanEval+ in one test, which has the time limit of one input."""
ROOT_FINDER = "find_zero"
"""HumanEval/32: any root of the polynomial is right, so its value is looked at, not the root's."""

_log = logging.getLogger(__name__)


def humaneval_problem(row: Row, *, task: str) -> Problem:
    """Return the problem in a row with prompt, canonical_solution, entry_point and test, which defines check(candidate)."""
    test = text_of(row, "test")
    if "check" not in functions_of(parsed(row, "test", test)):
        raise TaskError(f"{row.where}: column 'test' defines no function check(candidate). Correct or remove the row.")
    return _problem(row, task, {"check": test.rstrip("\n") + "\n\n\ncheck(candidate)\n"})


def plus_problem(row: Row, *, task: str) -> Problem:
    """Return the problem in a row of HumanEval+ in EvalPlus's own form: inputs, and a solution that has the outputs.

    The outputs are not in the file. The test code, which runs in the judge's process in the sandbox, calls the solution for
    them. `base_input` and `plus_input` become tests of at most 100 inputs each; a plus input that is also a base input
    is left out.
    """
    base, plus = (_inputs(row, column) for column in ("base_input", "plus_input"))
    known = {repr(arguments) for arguments in base}
    extra = [arguments for arguments in plus if repr(arguments) not in known]
    if len(extra) < len(plus):
        _log.warning(
            "%s: %d of %d plus inputs are base inputs too; left out.", row.where, len(plus) - len(extra), len(plus)
        )
    chunks = {
        f"{family}-{start // CHUNK}": inputs[start : start + CHUNK]
        for family, inputs in (("base", base), ("plus", extra))
        for start in range(0, len(inputs), CHUNK)
    }
    return _problem(row, task, {name: _differential_test(row, inputs) for name, inputs in chunks.items()})


def _problem(row: Row, task: str, tests: dict[str, str]) -> Problem:
    stem, entry_point = text_of(row, "prompt"), text_of(row, "entry_point")
    solution = stem + text_of(row, "canonical_solution")
    if entry_point not in functions_of(parsed(row, "canonical_solution", solution)):
        raise TaskError(
            f"{row.where}: prompt and canonical_solution define no function {entry_point!r}, the entry_point. Correct or "
            "remove the row."
        )
    preamble = _preamble(row, stem, entry_point)
    suite = Suite(
        task=task,
        name=SUITE,
        version=1,
        entry_point=entry_point,
        cases=tuple(
            Case(id=name, family=name.partition("-")[0], args=(preamble, test), expected=True)
            for name, test in tests.items()
        ),
        form="asserts",
        preamble=preamble,
        stem=stem,
    )
    without = ("task_id", "prompt", "base_input", "plus_input")
    prompt = prompt_of(row, text_of(row, "task_id"), stem, without=without)
    return Problem(prompt=prompt, suite=suite, reference=solution, where=row.where)


def _preamble(row: Row, stem: str, entry_point: str) -> str:
    """Return what stands in a prompt before the definition of the entry point."""
    try:
        tree = ast.parse(stem)
    except SyntaxError:  # a head without a docstring has no body yet
        tree = parsed(row, "prompt", stem.rstrip() + "\n    pass\n")
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.FunctionDef) or last.name != entry_point:
        raise TaskError(
            f"{row.where}: column 'prompt' does not end with the head of {entry_point!r}, the entry_point. Correct or "
            "remove the row."
        )
    first = min([last.lineno, *(decorator.lineno for decorator in last.decorator_list)])
    return "".join(line + "\n" for line in stem.split("\n")[: first - 1]).lstrip("\n")


def _inputs(row: Row, column: str) -> list[list[object]]:
    value = row.values.get(column)
    if not isinstance(value, list) or not all(isinstance(arguments, list) for arguments in value):
        raise TaskError(
            f"{row.where}: column {column!r} must be a list of lists of arguments, got {short(value)}. Correct or remove "
            "the row."
        )
    return value


_COMPARISON = '''\
import copy
import math

inf, nan = math.inf, math.nan


def agree(got, expected, tolerance):
    """Equal, or close where a float is expected: what EvalPlus's own judge asks for."""
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


def _differential_test(row: Row, inputs: Sequence[object]) -> str:
    entry_point, tolerance = text_of(row, "entry_point"), row.values.get("atol", 0)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise TaskError(f"{row.where}: column 'atol' must be a number of at least 0, got {short(tolerance)}.")
    solution = text_of(row, "prompt") + text_of(row, "canonical_solution")
    if entry_point == ROOT_FINDER:
        test = f"    assert abs(poly(*copy.deepcopy(arguments), got)) <= {tolerance!r}, arguments\n"
    else:
        test = (
            f"    expected = space[{entry_point!r}](*copy.deepcopy(arguments))\n"
            f"    assert agree(got, expected, {tolerance!r}), (arguments, got, expected)\n"
        )
    return (
        f"{_COMPARISON}exec({solution!r}, space)\n\n"
        f"for arguments in {inputs!r}:\n    got = candidate(*copy.deepcopy(arguments))\n{test}"
    )
