"""Completions that are programs: extract, run once on every input that any suite asks for, judge by each suite."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steelyard.content import content_hash
from steelyard.errors import TaskError, VerificationError
from steelyard.types import Plain, Status, Suite, Verdict
from steelyard.verify.extract import extract_program
from steelyard.verify.judge import judge, judge_no_answer
from steelyard.verify.sandbox.pool import Sandbox
from steelyard.verify.sandbox.records import InputOutcome, ProgramJob, ProgramRun

_CACHE_SIZE = 4096
"""Runs kept; a warmed-up policy samples the same program many times."""
_CACHED_VALUE_BYTES = 1 << 16
"""A run that returned more than this is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCheck:
    """One answer, checked."""

    id: str
    """As given."""
    source: str | None
    """The program found in the completion; None where there is none."""
    verdict: Verdict
    """By the main suite: the reward."""
    extra: Mapping[str, Verdict] = field(default_factory=dict[str, Any])
    """By each further suite, by its name."""
    outcomes: Mapping[str, InputOutcome] = field(default_factory=dict[str, Any])
    """By input key, for every input of every suite; empty without a program."""


class ProgramVerifier:
    """Checks completions against one suite that pays and further ones that only watch."""

    def __init__(
        self, sandbox: Sandbox, suite: Suite, *, extra_suites: Sequence[Suite] = (), strict: bool = False
    ) -> None:
        """Take the suites; the union of their inputs is what each program runs on.

        Args:
            sandbox: Where programs run; it stays the caller's to close.
            suite: The main suite.
            extra_suites: Further suites for the same entry point, under distinct names.
            strict: Give every input a process of its own, so that a program cannot carry anything from one to the next.

        Raises:
            TaskError: An empty suite, another entry point, a name used twice, or inputs that share a key.
        """
        self.sandbox = sandbox
        self.suite = suite
        self.extra_suites = tuple(extra_suites)
        self.strict = strict
        self.inputs = _union_of_inputs(suite, self.extra_suites)
        self._inputs_hash = content_hash(list(self.inputs))
        self._runs: OrderedDict[str, ProgramRun] = OrderedDict()

    def check(self, answers: Sequence[tuple[str, str]]) -> list[ProgramCheck]:
        """Check completions; one check per answer, in order.

        Args:
            answers: Pairs of id and completion text; ids are distinct.
        """
        ids = [id_ for id_, _ in answers]
        if len(set(ids)) != len(ids):
            raise VerificationError("Two answers share an id, so their verdicts could be swapped; give each its own.")
        sources = [extract_program(text, entry_point=self.suite.entry_point) for _, text in answers]
        runs = self._run({source for source in sources if source is not None})
        return [self._check_one(id_, source, runs) for id_, source in zip(ids, sources, strict=True)]

    def _check_one(self, id_: str, source: str | None, runs: Mapping[str, ProgramRun]) -> ProgramCheck:
        if source is None:
            extra = {suite.name: judge_no_answer(suite) for suite in self.extra_suites}
            return ProgramCheck(id=id_, source=None, verdict=judge_no_answer(self.suite), extra=extra)
        run = runs[source]
        outcomes = dict(zip(self.inputs, run.outcomes, strict=True))
        verdict, *others = (
            judge(suite, outcomes, seconds=run.seconds, detail=run.detail) for suite in (self.suite, *self.extra_suites)
        )
        names = [suite.name for suite in self.extra_suites]
        return ProgramCheck(
            id=id_, source=source, verdict=verdict, extra=dict(zip(names, others, strict=True)), outcomes=outcomes
        )

    def _run(self, sources: set[str]) -> dict[str, ProgramRun]:
        """Run each distinct program once, or take its run from the cache."""
        keys = {source: self._key(source) for source in sorted(sources)}
        jobs = [
            ProgramJob(
                id=key,
                source=source,
                entry_point=self.suite.entry_point,
                inputs=tuple(self.inputs.values()),
                strict=self.strict,
            )
            for source, key in keys.items()
            if key not in self._runs
        ]
        fresh = {run.id: run for run in self.sandbox.run(jobs)} if jobs else {}
        found = {source: fresh.get(key) or self._runs[key] for source, key in keys.items()}
        for source, run in found.items():
            judged = all(outcome.fault is not Status.CHECKER_FAILED for outcome in run.outcomes)
            if judged and run.value_bytes <= _CACHED_VALUE_BYTES:
                self._runs[keys[source]] = run
                self._runs.move_to_end(keys[source])
        while len(self._runs) > _CACHE_SIZE:
            self._runs.popitem(last=False)
        return found

    def _key(self, source: str) -> str:
        limits = self.sandbox.limits
        settings = [getattr(limits, name) for name in limits.__slots__]
        return content_hash(
            [source, self.suite.entry_point, self._inputs_hash, settings, self.sandbox.unconfined, self.strict]
        )


def check_references(sandbox: Sandbox, suite: Suite, references: Mapping[str, str]) -> None:
    """Refuse a task whose right programs do not pass its suite.

    Args:
        sandbox: Where programs run.
        suite: The suite.
        references: Source of each right program, by name; at least one.

    Raises:
        TaskError: A reference fails; the message names it, the first test, and what happened.
        VerificationError: The sandbox could not judge one.
    """
    if not references:
        raise TaskError(
            f"Suite {suite.task}:{suite.name} has no reference program to check it against; give at least one."
        )
    checks = ProgramVerifier(sandbox, suite).check(list(references.items()))
    for check in checks:
        verdict = check.verdict
        if verdict.status is Status.CHECKER_FAILED:
            raise VerificationError(f"Reference {check.id!r} could not be judged: {verdict.detail}")
        if verdict.status is not Status.PASSED:
            test, status = next((t, s) for t, s in verdict.tests.items() if s is not Status.PASSED)
            raise TaskError(
                f"Reference {check.id!r} fails its own suite {suite.task}:{suite.name}: {verdict.passed} of "
                f"{verdict.expected} tests pass, test {test!r} is {status}. {verdict.detail} Correct the one or the other."
            )


def _union_of_inputs(suite: Suite, extra_suites: Sequence[Suite]) -> dict[str, tuple[Plain, ...]]:
    """Return every input once, by key, the main suite's first."""
    names = [other.name for other in extra_suites]
    if len(set(names)) != len(names):
        raise TaskError(f"Two further suites share a name: {', '.join(sorted(names))}; rename one.")
    inputs: dict[str, tuple[Plain, ...]] = {}
    for one in (suite, *extra_suites):
        if not one.cases:
            raise TaskError(
                f"Suite {one.task}:{one.name} has no tests, so every program would pass; give it at least one."
            )
        if one.entry_point != suite.entry_point:
            raise TaskError(
                f"Suite {one.task}:{one.name} calls {one.entry_point!r}, but {suite.task}:{suite.name} calls "
                f"{suite.entry_point!r}; one program is run once for all of them, so they must agree."
            )
        for case in one.cases:
            inputs.setdefault(case.key, case.args)
    return inputs
