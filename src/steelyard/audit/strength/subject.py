"""What `TASK:SUITE` names: a suite, its right programs, and the suite that measures it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from steelyard.errors import RequestError, TaskError
from steelyard.tasks import load_task
from steelyard.tasks.probes import Probe, probe_of
from steelyard.tasks.suite_files import looks_like_file, read_suite_of_prompt, with_suite_file
from steelyard.types import Plain, Suite, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One suite with everything that is known of its task."""

    task: str
    """Name of the task."""
    suite: Suite
    """The suite in question."""
    references: Mapping[str, str]
    """Right programs by name, as source; at least one."""
    known: tuple[Suite, ...] = ()
    """The other suites of the task; their inputs belong to the pool."""
    yardstick: Suite | None = None
    """The suite that measures and never trains; None where the task has none, or where it is the one in question."""
    prompt_id: str | None = None
    """The prompt that the suite belongs to, for tasks whose prompts have a suite each."""
    probe: Probe | None = None
    """The task's own generator of inputs; None where inputs are grown from those of the suite."""
    packages: tuple[str, ...] = ()
    """Installed packages that programs may import."""
    signatures: Mapping[str, Mapping[str, Plain]] | None = None
    """Outputs of known wrong programs, as in `Task.signatures`."""

    @property
    def name(self) -> str:
        """As it is written on the command line."""
        return f"{self.task}:{self.prompt_id or self.suite.name}"

    @property
    def judge(self) -> str:
        """Name of the suite as a judge in ledgers."""
        return f"{self.task}:{self.suite.name}"


def find_subject(spec: str) -> Subject:
    """Return the subject that `TASK:SUITE` names.

    TASK is a built-in task, or a file of rows that bring tests of their own. SUITE is a name, a prompt id, or a JSON file of
    a suite.

    Raises:
        RequestError: There is no such task or suite, the file cannot be used, or the suite has a form without inputs.
    """
    name, colon, suite = spec.partition(":")
    if not colon or not suite:
        raise RequestError(f"{spec!r} names no suite; write TASK:SUITE, such as booking:weak.")
    task = load_task(data=name) if Path(name).is_file() else load_task(name)
    subject = _from_file(task, suite) if looks_like_file(suite) else _named(task, suite)
    if subject.suite.form == "stdin":
        raise RequestError(
            f"suite {subject.name} runs whole programs on stdin; strength is measured for functions only."
        )
    if not subject.references:
        raise TaskError(f"task {name} has no right program; at least one is needed to make mutants of.")
    return subject


def _from_file(task: Task, path: str) -> Subject:
    suite, prompt_id = read_suite_of_prompt(Path(path))
    if suite.task != task.name:
        raise TaskError(f"{path} holds a suite of task {suite.task}, not of {task.name}.")
    if not task.own_suites:
        return _of_task(task, suite)
    changed, _ = with_suite_file(task, path)
    return _own(changed, prompt_id or "")


def _named(task: Task, name: str) -> Subject:
    if name in task.suites:
        return _of_task(task, task.suites[name])
    if name in task.own_suites:
        return _own(task, name)
    names = [*task.suites, *list(task.own_suites)[:3]]
    known = ", ".join(names) if names else "none: its answers are scored by a reward function"
    raise RequestError(f"task {task.name} has no suite {name!r}; it has {known}.")


def _of_task(task: Task, suite: Suite) -> Subject:
    probe = probe_of(task.name)
    measures = task.suites.get(task.eval_suite or "")
    return Subject(
        task=task.name,
        suite=suite,
        references={**task.references, **(probe.references if probe else {})},
        known=tuple(each for each in task.suites.values() if each.name != suite.name),
        yardstick=None if measures is None or measures.name == suite.name else measures,
        probe=probe,
        packages=task.packages,
        signatures=task.signatures,
    )


def _own(task: Task, prompt_id: str) -> Subject:
    reference = task.references.get(prompt_id)
    return Subject(
        task=task.name,
        suite=task.own_suites[prompt_id],
        references={} if reference is None else {"canonical": reference},
        prompt_id=prompt_id,
        packages=task.packages,
    )
