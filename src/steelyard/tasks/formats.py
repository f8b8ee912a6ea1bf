"""Recognises the published formats of programming problems by their columns."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from steelyard.errors import TaskError
from steelyard.tasks import humaneval, mbpp, mbpp_plus
from steelyard.tasks.problems import Problem
from steelyard.tasks.sources import Row

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One published format."""

    columns: frozenset[str]
    """Columns that a row of it has, among others."""
    read: Callable[..., Problem]
    """Makes a problem of a row."""


FORMATS: Mapping[str, Format] = {
    "HumanEval": Format(
        columns=frozenset({"task_id", "prompt", "canonical_solution", "entry_point", "test"}),
        read=humaneval.humaneval_problem,
    ),
    "MBPP+ (EvalPlus)": Format(
        columns=frozenset(
            {"task_id", "prompt", "canonical_solution", "entry_point", "base_input", "plus_input", "assertion"}
        ),
        read=mbpp_plus.mbpp_plus_problem,
    ),
    "HumanEval+ (EvalPlus)": Format(
        columns=frozenset({"task_id", "prompt", "canonical_solution", "entry_point", "base_input", "plus_input"}),
        read=humaneval.plus_problem,
    ),
    "MBPP": Format(columns=frozenset({"task_id", "text", "code", "test_list"}), read=mbpp.mbpp_problem),
    "sanitized MBPP": Format(columns=frozenset({"task_id", "prompt", "code", "test_list"}), read=mbpp.mbpp_problem),
}
"""By name; the first whose columns are all there is taken. Files with test code of HumanEval+ and MBPP+ fall under
HumanEval and sanitized MBPP."""


def read_problems(rows: Sequence[Row], *, task: str) -> list[Problem] | None:
    """Return the problems in rows of a published format; None where the first row has the columns of none.

    Raises:
        TaskError: A later row lacks a column, a row cannot be used, or an id comes twice.
    """
    first = rows[0].values.keys()
    name = next((name for name, each in FORMATS.items() if each.columns <= first), None)
    if name is None:
        _note_near(rows[0])
        return None
    found = FORMATS[name]
    for row in rows:
        missing = sorted(found.columns - row.values.keys())
        if missing:
            raise TaskError(f"{row.where}: no column {missing[0]!r}, which {name} has. Correct or remove the row.")
    problems = [found.read(row, task=task) for row in rows]
    counts = Counter(problem.prompt.id for problem in problems)
    for problem in problems:
        if counts[problem.prompt.id] > 1:
            raise TaskError(
                f"{problem.where}: task_id {problem.prompt.id!r} comes {counts[problem.prompt.id]} times; ids must differ."
            )
    return problems


def _note_near(row: Row) -> None:
    """Say so where one column is all that keeps rows from being judged by their tests."""
    for name, each in FORMATS.items():
        missing = each.columns - row.values.keys()
        if len(missing) == 1:
            _log.warning(
                "%s: these rows would be %s if they had a column %r; as they are, a reward function has to judge them.",
                row.where,
                name,
                *missing,
            )
            return
