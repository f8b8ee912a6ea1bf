"""Which suites can judge: every test has the shape of its form, and one that could pay for nothing is refused."""

import ast
from collections import Counter
from collections.abc import Sequence

from steelyard.errors import TaskError
from steelyard.types import Case, Plain, Suite

STAND_IN = "candidate"
"""The other name of the entry point in test code."""


def require_cases(suite: Suite) -> None:
    """Refuse an empty suite, and one whose tests share an id.

    Raises:
        TaskError: The suite has no tests, or the result of one test would stand for two.
    """
    name = f"Suite {suite.task}:{suite.name}"
    if not suite.cases:
        raise TaskError(f"{name} has no tests, so every program would pass; give it at least one.")
    if len({case.id for case in suite.cases}) != len(suite.cases):
        twice, _ = Counter(case.id for case in suite.cases).most_common(1)[0]
        raise TaskError(
            f"{name} has two tests with the id {twice!r}, and the result of one would stand for both; give each its own."
        )


def check_suite(suite: Suite) -> None:
    """Refuse a suite whose tests do not have the shape of its form.

    Raises:
        TaskError: No tests; an id used twice; arguments of another number or type; test code that does not parse or never calls the program;
            printed output that is expected to be empty in every test.
    """
    require_cases(suite)
    if suite.form == "calls":
        return
    for case in suite.cases:
        _check_texts(suite, case, count=1 if suite.form == "stdin" else 2)
        if suite.form == "asserts":
            _check_test_code(suite, case)
    if suite.form == "stdin":
        _check_outputs(suite)


def union_of_inputs(suite: Suite, extra_suites: Sequence[Suite]) -> dict[str, tuple[Plain, ...]]:
    """Return every input once, by key, the main suite's first.

    Raises:
        TaskError: Suites that one run of a program cannot serve, or that cannot judge.
    """
    names = [other.name for other in extra_suites]
    if len(set(names)) != len(names):
        raise TaskError(f"Two further suites share a name: {', '.join(sorted(names))}; rename one.")
    inputs: dict[str, tuple[Plain, ...]] = {}
    for one in (suite, *extra_suites):
        check_suite(one)
        _check_agreement(suite, one)
        for case in one.cases:
            inputs.setdefault(case.key, case.args)
    return inputs


def _check_agreement(suite: Suite, other: Suite) -> None:
    if other.entry_point != suite.entry_point:
        raise TaskError(
            f"Suite {other.task}:{other.name} calls {other.entry_point!r}, but {suite.task}:{suite.name} calls "
            f"{suite.entry_point!r}; one program is run once for all of them, so they must agree."
        )
    if other.form != suite.form:
        raise TaskError(
            f"The tests of suite {other.task}:{other.name} are {other.form!r}, those of {suite.task}:{suite.name} "
            f"{suite.form!r}; one program is run once for all of them, so they must agree."
        )
    if (other.preamble, other.stem) != (suite.preamble, suite.stem):
        raise TaskError(
            f"Suites {other.task}:{other.name} and {suite.task}:{suite.name} put different source before a program; "
            "one program is run once for all of them, so they must agree."
        )


def _check_texts(suite: Suite, case: Case, *, count: int) -> None:
    if len(case.args) != count or not all(isinstance(value, str) for value in case.args):
        want = "one text, the standard input" if count == 1 else "two texts, setup and test code"
        raise TaskError(
            f"Test {case.id!r} of suite {suite.task}:{suite.name} must have {want}; it has {case.args!r:.80}."
        )
    if suite.form == "stdin" and not isinstance(case.expected, str):
        raise TaskError(
            f"Test {case.id!r} of suite {suite.task}:{suite.name} must expect a text, got {case.expected!r:.80}."
        )
    if suite.form == "asserts" and case.expected is not True:
        raise TaskError(
            f"Test {case.id!r} of suite {suite.task}:{suite.name} must expect True, got {case.expected!r:.80}."
        )


def _check_test_code(suite: Suite, case: Case) -> None:
    where = f"Test {case.id!r} of suite {suite.task}:{suite.name}"
    for part, source in zip(("setup", "test code"), case.args, strict=True):
        try:
            tree = ast.parse(str(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise TaskError(f"{where}: its {part} cannot be parsed: {error}. Correct it.") from None
        if part == "test code" and not _uses(tree, {suite.entry_point, STAND_IN}):
            raise TaskError(
                f"{where} never calls {suite.entry_point!r} or {STAND_IN!r}, so every program would pass it. Correct or "
                "remove it."
            )


def _uses(tree: ast.Module, names: set[str]) -> bool:
    """Whether the code loads one of the names: to call it, or to hand it to something that does."""
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names for node in ast.walk(tree)
    )


def _check_outputs(suite: Suite) -> None:
    if not any(str(case.expected).strip() for case in suite.cases):
        raise TaskError(
            f"Suite {suite.task}:{suite.name} expects nothing to be printed in any test, so a program that does nothing "
            "would pass; give it a test with output."
        )
