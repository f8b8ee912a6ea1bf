"""Programming problems that bring tests of their own: one prompt, one suite, one right program each."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.errors import TaskError
from steelyard.tasks.sources import Row, check_plain, short
from steelyard.types import Prompt, Suite, Task

SUITE = "tests"
"""Name of each problem's suite, whatever the data set."""
NUMPY = "numpy"
"""The one installed package that test code may import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One row of a data set of programming problems."""

    prompt: Prompt
    """What the model reads."""
    suite: Suite
    """What judges its programs."""
    reference: str
    """The data set's own right program, as source."""
    where: str
    """File and line."""


def problem_task(name: str, train: Sequence[Prompt], measured: Sequence[Prompt], problems: Sequence[Problem]) -> Task:
    """Return a task whose prompts have a suite each.

    Raises:
        TaskError: Two problems share an id and differ.
    """
    seen: dict[str, Problem] = {}
    for problem in problems:
        other = seen.setdefault(problem.prompt.id, problem)
        if (other.suite.hash, other.reference) != (problem.suite.hash, problem.reference):
            raise TaskError(
                f"{problem.where}: task_id {problem.prompt.id!r} is another problem in {other.where}; rename one."
            )
    return Task(
        name=name,
        train_prompts=tuple(train),
        eval_prompts=tuple(measured),
        own_suites={id_: problem.suite for id_, problem in seen.items()},
        references={id_: problem.reference for id_, problem in seen.items()},
        packages=(NUMPY,) if any(_needs_numpy(problem.suite) for problem in seen.values()) else (),
    )


def prompt_of(row: Row, id_: str, content: str, *, without: Sequence[str]) -> Prompt:
    """Return the prompt of a row; its other columns go with it, but for those in `without`."""
    columns = {name: value for name, value in row.values.items() if name not in without}
    for name, value in columns.items():
        check_plain(value, name, row.where)
    return Prompt(id=id_, content=content, columns=columns)


def text_of(row: Row, column: str, *, empty: bool = False) -> str:
    """Return the text in a column.

    Raises:
        TaskError: It holds something else, or nothing (unless `empty` allows that).
    """
    value = row.values.get(column)
    if not isinstance(value, str) or not (value.strip() or empty):
        raise TaskError(f"{row.where}: column {column!r} must be text, got {short(value)}. Correct or remove the row.")
    check_plain(value, column, row.where)
    return value


def texts_of(row: Row, column: str) -> list[str]:
    """Return the list of texts in a column; null and a missing column are an empty list.

    Raises:
        TaskError: It holds something else.
    """
    value = row.values.get(column)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TaskError(
            f"{row.where}: column {column!r} must be a list of texts, got {short(value)}. Correct or remove the row."
        )
    return list(value)


def parsed(row: Row, column: str, source: str) -> ast.Module:
    """Parse source of a data set; nothing of it runs here.

    Raises:
        TaskError: It is no Python; the message names file, line and column.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"{row.where}: column {column!r} is no Python: {error}. Correct or remove the row.") from None


def functions_of(tree: ast.Module) -> list[str]:
    """Return the names of the functions defined at the top level, in order."""
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def _needs_numpy(suite: Suite) -> bool:
    return any(
        name.split(".")[0] == NUMPY for case in suite.cases for source in case.args for name in _imports(str(source))
    )


def _imports(source: str) -> list[str]:
    if NUMPY not in source:
        return []
    nodes = list(ast.walk(ast.parse(source)))
    return [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names] + [
        node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)
    ]
