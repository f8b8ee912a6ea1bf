"""Tasks from reasoning-gym: `reasoning-gym:NAME?size=500&seed=1`, any setting of the data set as key=value."""

import difflib
import importlib
import importlib.util
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from steelyard.errors import TaskError
from steelyard.tasks.files import split
from steelyard.types import Prompt, Task

PREFIX = "reasoning-gym:"
"""What task.data begins with."""
DEFAULTS: Mapping[str, object] = {"size": 500, "seed": 0}
"""Settings where none are written."""
_log = logging.getLogger(__name__)


def reasoning_task(data: str, *, held_out: float, eval_data: str | None = None) -> Task:
    """Return a task of generated problems; the same text makes the same problems.

    Each prompt is the question; its columns are `answer` and `metadata` as the data set gives them, and `reasoning_gym`,
    which says which problem it is, for the data set's own scoring rule.

    Args:
        data: reasoning-gym:NAME, then ?key=value&key=value with settings of the data set. Values are JSON, or text.
        held_out: Share of the problems to hold out, in [0, 1).
        eval_data: Another such text whose problems are measured on instead.

    Raises:
        TaskError: If the package is missing, or has no such data set or setting.
    """
    prompts = _prompts(data)
    if eval_data is not None:
        if not eval_data.startswith(PREFIX):
            raise TaskError(f"task.eval_data = {eval_data!r} must begin with {PREFIX} as task.data does.")
        return Task(name=data, train_prompts=prompts, eval_prompts=_prompts(eval_data))
    train, measured = split(prompts, held_out=held_out)
    return Task(name=data, train_prompts=train, eval_prompts=measured)


def _prompts(data: str) -> tuple[Prompt, ...]:
    name, _, query = data.removeprefix(PREFIX).partition("?")
    config = {**DEFAULTS, **{key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}}
    rows = _data_set(data, name, config)
    try:
        return tuple(_prompt(name, config, index, rows[index]) for index in range(len(rows)))
    except Exception as error:
        raise TaskError(
            f"{data}: making its problems raised {type(error).__name__}: {error}. Change its settings."
        ) from error


def _prompt(name: str, config: Mapping[str, object], index: int, row: Mapping[str, Any]) -> Prompt:
    which = {"name": name, "config": dict(config), "index": index}
    return Prompt(
        id=f"{name}-{config['seed']}-{index}",
        content=str(row["question"]),
        columns={"answer": _plain(row["answer"]), "metadata": _plain(row["metadata"]), "reasoning_gym": which},
    )


def _data_set(data: str, name: str, config: Mapping[str, object]) -> Any:  # noqa: ANN401 - the package has its own types
    if importlib.util.find_spec("reasoning_gym") is None:
        raise TaskError(f"{data} needs the optional package reasoning-gym: pip install 'steelyard[reasoning]'.")
    known = importlib.import_module("reasoning_gym.factory").DATASETS
    importlib.import_module("reasoning_gym")
    if name not in known:
        near = difflib.get_close_matches(name, list(known), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise TaskError(f"{data}: reasoning-gym has no data set {name!r}{hint} It has {len(known)}.")
    try:
        return importlib.import_module("reasoning_gym").create_dataset(name, **config)
    except (TypeError, AssertionError, ValueError) as error:
        fields = ", ".join(known[name][1].__dataclass_fields__)
        raise TaskError(
            f"{data}: {error or 'the settings do not go together'}. Settings of {name}: {fields}."
        ) from None


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _plain(value: object) -> object:
    """Return JSON data; what has no JSON form becomes text."""
    return json.loads(json.dumps(value, default=str))
