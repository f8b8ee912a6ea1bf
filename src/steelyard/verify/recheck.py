"""Does a program give the same answer wherever it is asked? A sample is run again, a process per input, in other order.

All inputs of a program run in one process, which is quick; a program may then carry something from one input to the
next, and be right, or wrong, only for that. This finds it out for a share of the programs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.content import content_hash
from steelyard.types import Status, Verdict
from steelyard.verify.compare import equal
from steelyard.verify.judge import judge
from steelyard.verify.programs import Plan, ProgramCheck
from steelyard.verify.sandbox.pool import Sandbox
from steelyard.verify.sandbox.records import InputOutcome, ProgramJob

_BY_THE_CLOCK = frozenset({Status.TIMEOUT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT, Status.CHECKER_FAILED})
"""Outcomes that another process may rightly have otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """A program that was run a second time."""

    verdict: Verdict
    """By the main suite, with a process per input; it is reported, and pays nothing."""
    different: int
    """Inputs whose outcome was another one."""
    compared: int
    """Inputs whose outcomes could be compared."""

    @property
    def keeps_state(self) -> bool:
        """Whether the program answers by more than its input."""
        return self.different > 0


class Rechecker:
    """Runs a share of the distinct programs a second time; which ones follows from their source alone."""

    def __init__(self, sandbox: Sandbox, plan: Plan, *, share: float) -> None:
        """Take what the first run was made with.

        Args:
            sandbox: Where programs run.
            plan: The suites and their inputs.
            share: Share of the distinct programs, in [0, 1].
        """
        self.sandbox, self.plan, self.share = sandbox, plan, share
        self._found: dict[str, Recheck] = {}

    def look(self, checks: Sequence[ProgramCheck]) -> Mapping[str, Recheck]:
        """Return the second run of each sampled program among these, by source; each is run once in all."""
        if self.plan.suite.form != "calls" or self.plan.strict:
            return {}
        first = {check.source: check for check in checks if check.source is not None and self._sampled(check.source)}
        fresh = [source for source in sorted(first) if source not in self._found]
        keys = list(self.plan.inputs)
        orders = [_order(source, len(keys)) for source in fresh]
        jobs = [self._job(source, [keys[i] for i in order]) for source, order in zip(fresh, orders, strict=True)]
        for source, order, run in zip(fresh, orders, self.sandbox.run(jobs) if jobs else [], strict=True):
            outcomes = {keys[i]: outcome for i, outcome in zip(order, run.outcomes, strict=True)}
            self._found[source] = _compare(self.plan, first[source].outcomes, outcomes, seconds=run.seconds)
        return {source: self._found[source] for source in first}

    def _sampled(self, source: str) -> bool:
        return int(content_hash(["recheck", source])[:12], 16) < self.share * 16**12

    def _job(self, source: str, keys: Sequence[str]) -> ProgramJob:
        return ProgramJob(
            id=content_hash(source),
            source=source,
            entry_point=self.plan.suite.entry_point,
            inputs=tuple(self.plan.inputs[key] for key in keys),
            strict=True,
        )


def _order(source: str, count: int) -> list[int]:
    """Return an order of the inputs that follows from the program alone."""
    seed = int(content_hash(["order", source])[:16], 16)
    return [int(i) for i in np.random.Generator(np.random.Philox(seed)).permutation(count)]


def _compare(
    plan: Plan, first: Mapping[str, InputOutcome], second: Mapping[str, InputOutcome], *, seconds: float
) -> Recheck:
    pairs = [(first[key], second[key]) for key in plan.inputs]
    comparable = [(a, b) for a, b in pairs if a.fault not in _BY_THE_CLOCK and b.fault not in _BY_THE_CLOCK]
    different = sum(a.fault != b.fault or not equal(a.value, b.value) for a, b in comparable)
    detail = f"keeps state: {different} of {len(comparable)} inputs have another outcome in a process of their own"
    verdict = judge(plan.suite, second, seconds=seconds, detail=detail if different else "")
    return Recheck(verdict=verdict, different=different, compared=len(comparable))
