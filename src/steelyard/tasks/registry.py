"""Finds the task that a recipe names: a built-in one, or your own rows."""

import difflib
from collections.abc import Callable, Mapping

from steelyard.errors import TaskError
from steelyard.tasks.arithmetic import arithmetic_task
from steelyard.tasks.blind_spots import SPOTS
from steelyard.tasks.booking import booking_task
from steelyard.tasks.files import file_task
from steelyard.tasks.packaged import humaneval_task
from steelyard.tasks.reasoning import PREFIX, reasoning_task
from steelyard.types import Task

BUILT_IN: Mapping[str, Callable[[], Task]] = {
    "booking": booking_task,
    "arithmetic": arithmetic_task,
    **{name: spot.task for name, spot in SPOTS.items()},
}
"""Tasks that need no data file, by name."""
HUMANEVAL = "humaneval"
"""A task whose data a package carries."""


def load_task(
    name: str | None = None, data: str | None = None, *, held_out: float = 0.2, eval_data: str | None = None
) -> Task:
    """Return a built-in task by name, or a task made of your own rows.

    Args:
        name: A built-in task. `booking` and `arithmetic` bring their own held-out prompts; `humaneval` needs the extra
            of that name.
        data: A .jsonl, .jsonl.gz or .parquet file, a hub data set, or `reasoning-gym:NAME?size=500`. Give exactly one of
            `name` and `data`.
        held_out: Share of the prompts of `data` or `humaneval` to hold out, in [0, 1).
        eval_data: Rows to measure on, instead of a share of `data`.

    Raises:
        TaskError: If there is no such task, or its rows cannot be used.
    """
    if data is not None and name is None:
        if data.startswith(PREFIX):
            return reasoning_task(data, held_out=held_out, eval_data=eval_data)
        return file_task(data, held_out=held_out, eval_data=eval_data)
    if name is None or data is not None:
        raise TaskError("give exactly one of task.name (a built-in task) and task.data (your own rows).")
    if name not in BUILT_IN and name != HUMANEVAL:
        near = difflib.get_close_matches(name, [*BUILT_IN, HUMANEVAL], n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise TaskError(
            f"no built-in task {name!r}{hint} Built in: {', '.join([*BUILT_IN, HUMANEVAL])}. Your own rows: task.data."
        )
    if eval_data is not None:
        raise TaskError(f"task.eval_data = {eval_data!r} goes with task.data; the task {name} measures on its own.")
    return humaneval_task(held_out=held_out) if name == HUMANEVAL else BUILT_IN[name]()
