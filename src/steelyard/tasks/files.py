"""A task from your own rows: each row is a prompt, its other columns go to the reward function."""

import difflib
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from steelyard.content import content_hash
from steelyard.errors import TaskError
from steelyard.tasks.formats import read_problems
from steelyard.tasks.problems import Problem, problem_task
from steelyard.tasks.sources import Row, check_plain, read_rows, short, task_name
from steelyard.types import Prompt, Task

SYNONYMS = ("question", "instruction", "problem", "query", "messages", "input", "text")
"""What other data sets call the prompt."""
TAKEN = ("prompts", "completions")
"""Argument names of every reward function; a column cannot have them too."""
FEWEST_TO_SPLIT = 5
"""Distinct prompts below which nothing is held out: a rate over no or one prompt measures nothing."""

_log = logging.getLogger(__name__)


def file_task(data: str, *, held_out: float, eval_data: str | None = None) -> Task:
    """Return a task made of your own rows.

    A row has a `prompt` (text, or a list of {"role", "content"} messages) and optionally an `id`; without
    one, the id is a hash of the row. All rows have the same columns. Rows in a published format of programming problems
    with tests (see `steelyard.tasks.formats`) become prompts with a suite each.

    Args:
        data: A .jsonl, .jsonl.gz or .parquet file, or a hub data set (see `read_rows`).
        held_out: Share of the prompts to hold out, in [0, 1). Which ones follows from their ids alone, so that
            rows added later do not move the others; equal prompts stay together. Not used with `eval_data`.
        eval_data: Rows to measure on, instead of a share of `data`.

    Raises:
        TaskError: If a row cannot be used; the message names file, line, column, value and the way out.
    """
    name = task_name(data)
    prompts, problems = _read(data, task=name)
    if eval_data is None:
        train, measured = split(prompts, held_out=held_out)
        if held_out > 0 and not measured:
            _log.warning(
                "%s: no prompts are held out, for there are fewer than %d different ones; nothing will be measured on "
                "unseen prompts. Add rows, or name a file in task.eval_data.",
                data,
                FEWEST_TO_SPLIT,
            )
        return _task(name, train, measured, problems)
    measured, others = _read(eval_data, task=name)
    if (problems is None) != (others is None):
        with_tests, without = (data, eval_data) if others is None else (eval_data, data)
        raise TaskError(
            f"{with_tests} has rows with tests of their own, {without} has none; one run judges all answers in one way. "
            "Name files of one kind."
        )
    _note_overlap(prompts, measured, data=data, eval_data=eval_data)
    return _task(name, prompts, measured, None if problems is None or others is None else [*problems, *others])


def _read(data: str, *, task: str) -> tuple[tuple[Prompt, ...], list[Problem] | None]:
    """Return the prompts of the rows, and their problems where the rows have tests of their own."""
    problems = read_problems(read_rows(data), task=task)
    return (read_prompts(data), None) if problems is None else (tuple(each.prompt for each in problems), problems)


def _task(name: str, train: Sequence[Prompt], measured: Sequence[Prompt], problems: Sequence[Problem] | None) -> Task:
    if problems is None:
        return Task(name=name, train_prompts=tuple(train), eval_prompts=tuple(measured))
    return problem_task(name, train, measured, problems)


def split(prompts: Sequence[Prompt], *, held_out: float) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    """Return (training prompts, held-out prompts), each in their order.

    A prompt is held out when the hash of its id, read as a number in [0, 1), lies below `held_out`; prompts of
    equal content follow the first of them. At least one content is on either side, unless `held_out` is 0 or
    there are fewer than five different contents: then nothing is held out.
    """
    if not 0 <= held_out < 1:
        raise TaskError(f"task.held_out must be at least 0 and below 1, got {held_out}.")
    place: dict[str, float] = {}
    for prompt in prompts:
        place.setdefault(_content_key(prompt), _uniform(prompt.id))
    if held_out == 0 or len(place) < FEWEST_TO_SPLIT:
        return tuple(prompts), ()
    ranked = sorted(place, key=place.__getitem__)
    count = sum(place[key] < held_out for key in ranked)
    chosen = set(ranked[: min(max(count, 1), len(ranked) - 1)])
    return (
        tuple(prompt for prompt in prompts if _content_key(prompt) not in chosen),
        tuple(prompt for prompt in prompts if _content_key(prompt) in chosen),
    )


def read_prompts(data: str) -> tuple[Prompt, ...]:
    """Return one prompt per row, with unique ids; rows of equal content are kept apart as id, id-2, id-3."""
    rows = read_rows(data)
    for row in rows:
        _check_columns(row, rows[0])
        for column, value in row.values.items():
            check_plain(value, column, row.where)
    contents = [_content(row) for row in rows]
    ids = _given_ids(rows) if "id" in rows[0].values else _hashed_ids(rows)
    return tuple(
        Prompt(
            id=name,
            content=content,
            columns={column: value for column, value in row.values.items() if column not in ("prompt", "id")},
        )
        for name, content, row in zip(ids, contents, rows, strict=True)
    )


# ------------------------------------------------------------------ columns


def _check_columns(row: Row, first: Row) -> None:
    if "prompt" not in row.values:
        raise TaskError(f"{row.where}: no column `prompt`{_prompt_hint(row.values)}")
    for name in TAKEN:
        if name in row.values:
            raise TaskError(f"{row.where}: a column cannot be called {name!r}, reward functions get that; rename it.")
    missing, extra = (sorted(a.keys() - b.keys()) for a, b in ((first.values, row.values), (row.values, first.values)))
    if missing or extra:
        said = (
            f"has no {missing[0]!r}, which {first.where} has" if missing else f"has {extra[0]!r}, unlike {first.where}"
        )
        raise TaskError(f"{row.where}: this row {said}. Give every row the same columns; null where there is no value.")


def _prompt_hint(columns: Iterable[str]) -> str:
    names = list(columns)
    lowered = {name.lower().strip(): name for name in reversed(names)}
    near = difflib.get_close_matches("prompt", lowered, n=1) or [name for name in SYNONYMS if name in lowered]
    hint = f"; did you mean {lowered[near[0]]!r}? Rename it to prompt." if near else "."
    return f"{hint} Columns here: {', '.join(names) or 'none'}."


# ------------------------------------------------------------------ prompts and ids


def _content(row: Row) -> str | tuple[Mapping[str, str], ...]:
    value = row.values["prompt"]
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value:
        return tuple(_message(message, row.where, number) for number, message in enumerate(value, start=1))
    if value in ("", []):
        raise TaskError(f"{row.where}: the prompt is empty; give it some text or remove the row.")
    raise TaskError(
        f"{row.where}: prompt is {short(value)}, {_kind(value)}; write text, or a list of messages "
        '[{"role": "user", "content": "..."}].'
    )


def _message(message: object, where: str, number: int) -> Mapping[str, str]:
    """Return one chat message with exactly the keys role and content, both text."""
    if not isinstance(message, Mapping) or message.keys() != {"role", "content"}:
        raise TaskError(
            f"{where}: message {number} of the prompt is {short(message)}; write exactly "
            '{"role": "user", "content": "..."}.'
        )
    for key in ("role", "content"):
        if not isinstance(message[key], str):
            raise TaskError(
                f"{where}: message {number} of the prompt has {key} = {short(message[key])}, {_kind(message[key])}; "
                "it must be text."
            )
    return {"role": message["role"], "content": message["content"]}


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), f"a {type(value).__name__}")


def _given_ids(rows: Sequence[Row]) -> list[str]:
    first: dict[str, str] = {}
    for row in rows:
        value = row.values["id"]
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise TaskError(f"{row.where}: id is {short(value)}; it must be text or a whole number, or leave ids out.")
        if str(value) in first:
            raise TaskError(
                f"{row.where}: id {short(value)} was given before, in {first[str(value)]}; ids must differ "
                "(leave the column out and they are made from the rows)."
            )
        first[str(value)] = row.where
    return list(first)


def _hashed_ids(rows: Sequence[Row]) -> list[str]:
    seen: Counter[str] = Counter()
    ids: list[str] = []
    for row in rows:
        name = content_hash(row.values)[:16]
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids


# ------------------------------------------------------------------ splitting


def _content_key(prompt: Prompt) -> str:
    return content_hash(prompt.content)


def _uniform(prompt_id: str) -> float:
    """A number in [0, 1) that depends on the id alone; `held_out` keeps this hash apart from other uses."""
    digest = hashlib.blake2b(prompt_id.encode("utf-8"), digest_size=8, person=b"held_out").digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _note_overlap(train: Sequence[Prompt], measured: Sequence[Prompt], *, data: str, eval_data: str) -> None:
    trained = {_content_key(prompt) for prompt in train}
    both = sum(_content_key(prompt) in trained for prompt in measured)
    if both:
        _log.warning(
            "%d of the %d prompts in %s are also trained on (%s); a rate over them measures memory.",
            both,
            len(measured),
            eval_data,
            data,
        )
