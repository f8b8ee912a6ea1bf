"""MBPP, sanitized MBPP and MBPP+: a sentence that asks for a function, judged by assertions."""

import ast
from collections.abc import Sequence

from steelyard.errors import TaskError
from steelyard.tasks.problems import SUITE, Problem, functions_of, parsed, prompt_of, text_of, texts_of
from steelyard.tasks.sources import Row, short
from steelyard.types import Case, Suite


def mbpp_problem(row: Row, *, task: str) -> Problem:
    """Return the problem in a row with text (or prompt), code and test_list, and a further `test` in MBPP+.

    The function's name stands nowhere but in the assertions, so the prompt shows the first of them. The others are
    tests that the model does not see. `challenge_test_list` is not used.
    """
    sentence = "text" if "text" in row.values else "prompt"
    code, tests = text_of(row, "code"), texts_of(row, "test_list")
    if not tests:
        raise TaskError(f"{row.where}: test_list is empty, so every program would pass. Correct or remove the row.")
    entry_point = _entry_point(row, code, tests)
    setup = "\n".join([*texts_of(row, "test_imports"), _setup_code(row)])
    cases = [
        Case(id=f"test-{number}", family="base", args=(setup, test), expected=True)
        for number, test in enumerate(tests, start=1)
    ]
    if "test" in row.values:
        cases.append(Case(id="plus", family="plus", args=(setup, text_of(row, "test")), expected=True))
    suite = Suite(task=task, name=SUITE, version=1, entry_point=entry_point, cases=tuple(cases), form="asserts")
    content = f"{text_of(row, sentence).rstrip()}\nYour code should pass tests like this one:\n{tests[0].strip()}\n"
    prompt = prompt_of(row, _id(row), content, without=("task_id", sentence))
    return Problem(prompt=prompt, suite=suite, reference=code, where=row.where)


def _setup_code(row: Row) -> str:
    value = row.values.get("test_setup_code")
    return "" if value is None else text_of(row, "test_setup_code", empty=True)


def _entry_point(row: Row, code: str, tests: Sequence[str]) -> str:
    """Return the one function of the code that every test calls; of several, the last that is defined."""
    defined = functions_of(parsed(row, "code", code))
    called = [_names(parsed(row, "test_list", test)) for test in tests]
    common = [name for name in defined if all(name in names for names in called)]
    if not common:
        raise TaskError(
            f"{row.where}: no function of `code` ({', '.join(defined) or 'none'}) is called by every test of test_list. "
            "Correct or remove the row."
        )
    return common[-1]


def _names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _id(row: Row) -> str:
    value = row.values.get("task_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"MBPP/{value}"
    if isinstance(value, str) and value:
        return value
    raise TaskError(f"{row.where}: column 'task_id' must be a whole number or text, got {short(value)}.")
