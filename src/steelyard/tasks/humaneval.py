"""HumanEval and HumanEval+: a function's head and docstring to complete, judged by the data set's own test code."""

import ast

from steelyard.errors import TaskError
from steelyard.tasks.differential import EQUAL, differential_tests, inputs_of
from steelyard.tasks.problems import SUITE, Problem, functions_of, parsed, prompt_of, text_of
from steelyard.tasks.sources import Row
from steelyard.types import Case, Suite

ROOT = "abs(poly(*arguments, got)) <= tolerance"
"""HumanEval/32: any root of the polynomial is right, so its value is looked at, not the root's."""


def humaneval_problem(row: Row, *, task: str) -> Problem:
    """Return the problem in a row with prompt, canonical_solution, entry_point and test, which defines check(candidate)."""
    test = text_of(row, "test")
    if "check" not in functions_of(parsed(row, "test", test)):
        raise TaskError(f"{row.where}: column 'test' defines no function check(candidate). Correct or remove the row.")
    return _problem(row, task, {"check": test.rstrip("\n") + "\n\n\ncheck(candidate)\n"})


def plus_problem(row: Row, *, task: str) -> Problem:
    """Return the problem in a row of HumanEval+ in EvalPlus's own form: inputs, and a solution that has the outputs."""
    entry_point = text_of(row, "entry_point")
    solution = text_of(row, "prompt") + text_of(row, "canonical_solution")
    inputs = (inputs_of(row, "base_input"), inputs_of(row, "plus_input"))
    rule = ROOT if entry_point == "find_zero" else EQUAL
    return _problem(row, task, differential_tests(row, *inputs, solution=solution, entry_point=entry_point, rule=rule))


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
