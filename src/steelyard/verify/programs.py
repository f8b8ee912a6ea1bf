"""Completions that are programs: extract, run once on every input that any suite asks for, judge by each suite."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steelyard.content import content_hash
from steelyard.errors import TaskError, VerificationError
from steelyard.types import Plain, Status, Suite, Verdict
from steelyard.verify.extract import extract_program, extract_script
from steelyard.verify.judge import judge, judge_no_answer
from steelyard.verify.sandbox.pool import Sandbox
from steelyard.verify.sandbox.records import InputOutcome, ProgramJob, ProgramRun
from steelyard.verify.suites import union_of_inputs

_CACHE_SIZE = 4096
"""Runs kept; a warmed-up policy samples the same program many times."""
_CACHED_VALUE_BYTES = 1 << 16
"""A run that returned more than this is not kept."""
_RAISES = "def {}(*arguments, **keywords):\n    raise NotImplementedError\n"
"""The program that no suite may pay for; an entry point that is no name cannot be defined, and is no answer."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one completion is run on and judged by."""

    suite: Suite
    """The main suite."""
    extra_suites: tuple[Suite, ...] = ()
    """Further suites for the same entry point, under distinct names."""
    strict: bool = False
    """Give every input a process of its own."""
    inputs: Mapping[str, tuple[Plain, ...]]
    """The union of the suites' inputs, by key."""
    inputs_hash: str
    """Names the inputs."""

    @classmethod
    def of(cls, suite: Suite, *, extra_suites: Sequence[Suite] = (), strict: bool = False) -> "Plan":
        """Return the plan for these suites.

        Raises:
            TaskError: A suite that cannot judge, or suites that one run of a program cannot serve.
        """
        inputs = union_of_inputs(suite, extra_suites)
        named = content_hash([suite.form, suite.entry_point, list(inputs), strict])
        return cls(suite=suite, extra_suites=tuple(extra_suites), strict=strict, inputs=inputs, inputs_hash=named)

    def extract(self, text: str) -> str | None:
        """Return the program in a completion, as it is run."""
        suite = self.suite
        if suite.form == "stdin":
            return extract_script(text)
        return extract_program(text, entry_point=suite.entry_point, preamble=suite.preamble, stem=suite.stem)

    def job(self, id_: str, source: str) -> ProgramJob:
        """Return the job that runs a program on all inputs."""
        return ProgramJob(
            id=id_,
            source=source,
            entry_point=self.suite.entry_point,
            inputs=tuple(self.inputs.values()),
            form=self.suite.form,
            strict=self.strict,
        )

    def check(self, id_: str, source: str | None, run: ProgramRun | None) -> ProgramCheck:
        """Judge a run by every suite; without a program there is no run."""
        if source is None or run is None:
            extra = {suite.name: judge_no_answer(suite) for suite in self.extra_suites}
            return ProgramCheck(id=id_, source=None, verdict=judge_no_answer(self.suite), extra=extra)
        outcomes = dict(zip(self.inputs, run.outcomes, strict=True))
        verdict, *others = (
            judge(suite, outcomes, seconds=run.seconds, detail=run.detail) for suite in (self.suite, *self.extra_suites)
        )
        names = [suite.name for suite in self.extra_suites]
        return ProgramCheck(
            id=id_, source=source, verdict=verdict, extra=dict(zip(names, others, strict=True)), outcomes=outcomes
        )


class Checker:
    """Runs programs and judges them; remembers the runs."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Take the sandbox; it stays the caller's to close."""
        self.sandbox = sandbox
        self._runs: OrderedDict[str, ProgramRun] = OrderedDict()

    def check(self, answers: Sequence[tuple[str, Plan, str]]) -> list[ProgramCheck]:
        """Check completions, all in one call of the sandbox; one check per answer, in order.

        Args:
            answers: Id, plan and text of each completion; ids are distinct.
        """
        ids = [id_ for id_, _, _ in answers]
        if len(set(ids)) != len(ids):
            raise VerificationError("Two answers share an id, so their verdicts could be swapped; give each its own.")
        sources = [plan.extract(text) for _, plan, text in answers]
        keys = [
            None if source is None else self._key(plan, source)
            for (_, plan, _), source in zip(answers, sources, strict=True)
        ]
        jobs = {
            key: plan.job(key, source)
            for (_, plan, _), source, key in zip(answers, sources, keys, strict=True)
            if key is not None and source is not None
        }
        runs = self._run(jobs)
        return [
            plan.check(id_, source, None if key is None else runs[key])
            for (id_, plan, _), source, key in zip(answers, sources, keys, strict=True)
        ]

    def _run(self, jobs: Mapping[str, ProgramJob]) -> dict[str, ProgramRun]:
        """Run each distinct program once, or take its run from the cache."""
        missing = [jobs[key] for key in sorted(jobs) if key not in self._runs]
        fresh = {run.id: run for run in self.sandbox.run(missing)} if missing else {}
        found = {key: fresh.get(key) or self._runs[key] for key in jobs}
        for key, run in found.items():
            judged = all(outcome.fault is not Status.CHECKER_FAILED for outcome in run.outcomes)
            if judged and run.value_bytes <= _CACHED_VALUE_BYTES:
                self._runs[key] = run
                self._runs.move_to_end(key)
        while len(self._runs) > _CACHE_SIZE:
            self._runs.popitem(last=False)
        return found

    def _key(self, plan: Plan, source: str) -> str:
        limits = self.sandbox.limits
        settings = [getattr(limits, name) for name in limits.__slots__]
        return content_hash([source, plan.inputs_hash, settings, self.sandbox.unconfined])


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
            TaskError: A suite that cannot judge, suites that do not fit together, or a name used twice.
        """
        self.suite = suite
        self.plan = Plan.of(suite, extra_suites=extra_suites, strict=strict)
        self._checker = Checker(sandbox)

    def check(self, answers: Sequence[tuple[str, str]]) -> list[ProgramCheck]:
        """Check completions; one check per answer, in order.

        Args:
            answers: Pairs of id and completion text; ids are distinct.
        """
        return self._checker.check([(id_, self.plan, text) for id_, text in answers])


class OwnSuiteVerifier:
    """Checks completions of prompts that have a suite each."""

    def __init__(self, sandbox: Sandbox, suites: Mapping[str, Suite]) -> None:
        """Take the suite of each prompt, by prompt id.

        Raises:
            TaskError: A suite that cannot judge.
        """
        self.plans = {prompt_id: Plan.of(suite) for prompt_id, suite in suites.items()}
        self._checker = Checker(sandbox)

    def check(self, answers: Sequence[tuple[str, str, str]]) -> list[ProgramCheck]:
        """Check completions, all in one call of the sandbox; one check per answer, in order.

        Args:
            answers: Id, prompt id and completion text of each; ids are distinct.
        """
        return self._checker.check([(id_, self.plans[prompt_id], text) for id_, prompt_id, text in answers])


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


def check_own_references(
    sandbox: Sandbox, suites: Mapping[str, Suite], references: Mapping[str, str]
) -> dict[str, str]:
    """Return the prompts whose suite judges wrong here, and why: its right program fails, or one that only raises passes.

    Args:
        sandbox: Where programs run.
        suites: By prompt id.
        references: Source of one right program for each, by prompt id.

    Raises:
        TaskError: A suite without a reference.
        VerificationError: The sandbox could not judge one.
    """
    missing = sorted(suites.keys() - references.keys())
    if missing:
        raise TaskError(
            f"Prompt {missing[0]!r} has a suite and no reference program; give it one, or remove the prompt."
        )
    answers = [(f"right {name}", name, references[name]) for name in suites]
    answers += [(f"wrong {name}", name, _RAISES.format(suite.entry_point)) for name, suite in suites.items()]
    checks = OwnSuiteVerifier(sandbox, suites).check(answers)
    for check in checks:
        if check.verdict.status is Status.CHECKER_FAILED:
            raise VerificationError(f"The {check.id!r} program could not be judged: {check.verdict.detail}")
    troubles: dict[str, str] = {}
    for name, right, wrong in zip(suites, checks[: len(suites)], checks[len(suites) :], strict=True):
        if right.verdict.status is not Status.PASSED:
            troubles[name] = f"its own solution is {right.verdict.status}: {right.verdict.detail}".rstrip(": ")
        elif wrong.verdict.passed:
            troubles[name] = "a program that only raises an exception passes a test"
    return troubles
