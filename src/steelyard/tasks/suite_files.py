"""A suite as a JSON file: written by `steelyard suite repair`, read where `task.suite` is a path."""

import json
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import cast

from steelyard.content import plain_json
from steelyard.errors import TaskError
from steelyard.types import Case, Form, Plain, Suite, Task

FORMAT = 1
"""Of the file."""


def looks_like_file(name: str) -> bool:
    """Whether a suite is named by a path rather than by its name in the task."""
    return name.endswith((".json", "/"))


def write_suite(
    suite: Suite, path: Path, *, prompt_id: str | None = None, made: Mapping[str, object] | None = None
) -> None:
    """Write a suite; `made` says where it comes from, for people, and is no part of its hash.

    `prompt_id` is the prompt that it belongs to, for tasks whose prompts have a suite each.

    Raises:
        TaskError: The file exists, or its directory does not.
    """
    rows = [
        {"id": c.id, "family": c.family, "args": [plain_json(v) for v in c.args], "expected": plain_json(c.expected)}
        for c in suite.cases
    ]
    head = {"format": FORMAT, "hash": suite.hash, "task": suite.task, "name": suite.name, "version": suite.version}
    kind = {"entry_point": suite.entry_point, "form": suite.form, "prompt": prompt_id}
    given = {"preamble": suite.preamble, "stem": suite.stem}
    text = json.dumps({**head, **kind, **given, "made": dict(made or {}), "cases": rows}, indent=1, ensure_ascii=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError as error:
        raise TaskError(
            f"{path} exists already; a version of a suite is never overwritten. Name another file."
        ) from error
    except OSError as error:
        raise TaskError(f"{path} cannot be written ({error}). Name a file in a directory that exists.") from error


def read_suite(path: Path) -> Suite:
    """Return the suite of a file; errors as of `read_suite_of_prompt`."""
    return read_suite_of_prompt(path)[0]


def read_suite_of_prompt(path: Path) -> tuple[Suite, str | None]:
    """Return the suite of a file, and the prompt that it belongs to, if to one.

    Raises:
        TaskError: The file is missing, is no suite, or its cases are not those that its hash names.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise TaskError(f"{path} has suite format {data['format']!r}; this Steelyard reads {FORMAT}.")
        suite = _suite(data)
        promised, prompt_id = str(data["hash"]), data.get("prompt")
    except OSError as error:
        raise TaskError(f"the suite {path} cannot be read ({error}).") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(f"{path} is no suite file ({error!r}). `steelyard suite repair` writes one.") from error
    if suite.hash != promised:
        raise TaskError(
            f"{path} says that its suite has hash {promised[:12]}…, but its cases have another: it was changed by hand. Raise "
            f"`version`, so that runs can tell the two apart, and write the hash {suite.hash}."
        )
    if len({case.id for case in suite.cases}) != len(suite.cases):
        raise TaskError(f"{path} has tests that share an id; give each its own.")
    if not suite.cases:
        raise TaskError(f"{path} has no tests, so every program would pass; give it at least one.")
    return suite, None if prompt_id is None else str(prompt_id)


def with_suite_file(task: Task, name: str | None) -> tuple[Task, str | None]:
    """Return the task with the suite of a file in the place of the one that it is a version of, and that one's name.

    Anything but the path of a JSON file comes back as it is. Where prompts have a suite each, the file takes the place of
    its prompt's, and a folder (a path that ends in `/`) those of several; then there is no name to return.

    Raises:
        TaskError: The file cannot be used, or holds a suite of another task or of another function.
    """
    if name is None or not looks_like_file(name):
        return task, name
    path = Path(name).expanduser()
    if task.own_suites:
        return _with_own(task, path), None
    suite = read_suite(path)
    _check_belongs(suite, name, task, {each.entry_point for each in task.suites.values()})
    return replace(task, suites={**task.suites, suite.name: suite}), suite.name


def _with_own(task: Task, path: Path) -> Task:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise TaskError(f"task.suite = {str(path)!r} has no .json file; `steelyard suite repair` writes one.")
    suites = dict(task.own_suites)
    for file in files:
        suite, prompt_id = read_suite_of_prompt(file)
        if prompt_id is None or prompt_id not in suites:
            raise TaskError(
                f"{file} is the suite of {'no prompt' if prompt_id is None else f'prompt {prompt_id!r}'}; task {task.name} has "
                f"{', '.join(list(suites)[:3])} …"
            )
        _check_belongs(suite, str(file), task, {suites[prompt_id].entry_point})
        suites[prompt_id] = suite
    return replace(task, own_suites=suites)


def _check_belongs(suite: Suite, name: str, task: Task, entries: Set[str]) -> None:
    if suite.task != task.name or suite.entry_point not in entries:
        raise TaskError(
            f"task.suite = {name!r} holds a suite of task {suite.task} for {suite.entry_point!r}; "
            f"task {task.name} asks for {', '.join(sorted(entries)) or 'no function'}."
        )


def plain_value(data: object) -> Plain:
    """Return the value that `content.plain_json` wrote as JSON data."""
    if isinstance(data, list):
        return [plain_value(item) for item in cast("list[object]", data)]
    if not isinstance(data, dict):
        return data
    pairs = cast("dict[str, object]", data)
    tag = next(iter(pairs)) if len(pairs) == 1 else ""
    if tag in _READERS:
        return _READERS[tag](pairs[tag])
    return {key: plain_value(item) for key, item in pairs.items()}


def _items(data: object) -> list[Plain]:
    return [plain_value(item) for item in cast("list[object]", data)]


_READERS = {
    "$tuple": lambda data: tuple(_items(data)),
    "$set": lambda data: set(_items(data)),
    "$frozenset": lambda data: frozenset(_items(data)),
    "$bytes": lambda data: bytes.fromhex(cast("str", data)),
    "$int": lambda data: int(cast("str", data), 16),
    "$dict": lambda data: {
        plain_value(key): plain_value(item) for key, item in cast("list[tuple[object, object]]", data)
    },
}


def _suite(data: dict[str, object]) -> Suite:
    rows = cast("list[dict[str, object]]", data["cases"])
    cases = tuple(
        Case(
            id=str(row["id"]),
            family=str(row["family"]),
            args=tuple(_items(row["args"])),
            expected=plain_value(row["expected"]),
        )
        for row in rows
    )
    form = str(data["form"])
    if form not in ("calls", "stdin", "asserts"):
        raise ValueError(f"form {form!r}")
    if not isinstance(data["version"], int) or data["version"] < 1:
        raise ValueError(f"version {data['version']!r}")
    if (
        not all(isinstance(data[key], str) for key in ("task", "name", "entry_point", "preamble", "stem"))
        or not data["name"]
    ):
        raise ValueError("a name or a source that is no text")
    return Suite(
        task=str(data["task"]),
        name=str(data["name"]),
        version=int(cast("int", data["version"])),
        entry_point=str(data["entry_point"]),
        cases=cases,
        form=cast("Form", form),
        preamble=str(data["preamble"]),
        stem=str(data["stem"]),
    )
