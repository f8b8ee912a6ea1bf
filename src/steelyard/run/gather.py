"""Sampling and judging the groups of one update, until the batch is full."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steelyard.errors import NoSignalError
from steelyard.evals.judges import Judge, Judgement
from steelyard.rollout.engine import TorchSampler
from steelyard.run.batch import Batch, Shaping
from steelyard.run.feed import Feed
from steelyard.run.history import History
from steelyard.run.stopwatch import Stopwatch
from steelyard.types import Completion

Record = Callable[[Sequence[Completion], Sequence[Judgement]], None]
"""Keeps one group's answers and judgements as they arrive."""

WAYS_OUT = {
    "all 0": "the prompts are too hard or the reward never pays: try easier prompts, a warmer policy or larger groups",
    "all 1": "everything is solved: use harder prompts, or stop here",
    "all errors": "the verifier could not judge: look at the verdicts' details in the ledger",
    "masked": "nearly every completion is cut at the limit: raise rollout.max_new_tokens",
    "constant": "all rewards of a group are equal: a reward with more levels would tell its answers apart",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gatherer:
    """The stages before the advantages."""

    feed: Feed
    sampler: TorchSampler
    judge: Judge
    shaping: Shaping
    history: History
    max_dead_groups: int | None
    """With dynamic sampling, dead groups in one update before it gives up; None: dead groups stay in the batch."""

    def gather(self, update: int, *, record: Record, watch: Stopwatch) -> Batch:
        """Sample and judge the groups of update N; every one is recorded, whether it is kept or not.

        Raises:
            NoSignalError: If dynamic sampling met too many groups without a mixed outcome.
        """
        completions: list[Completion] = []
        judgements: list[Judgement] = []
        dropped: list[str] = []
        causes: Counter[str] = Counter()
        kept = 0
        for prompt, request in self.feed.stream(update, self.history):
            with watch("rollout"):
                group = self.sampler.sample(request)
            with watch("verify"):
                found = self.judge.check([prompt] * len(group), group)
            record(group, found)
            completions += group
            judgements += found
            self.history.add(prompt.id, found)
            cause = None if self.max_dead_groups is None else self._why_dead(group, found)
            if cause is None:
                kept += 1
            else:
                dropped.append(request.group_id)
                causes[cause] += 1
                self._give_up(update, causes)
            if kept == self.feed.prompts_per_update:
                break
        return self._batch(completions, judgements, frozenset(dropped))

    def _batch(
        self, completions: Sequence[Completion], judgements: Sequence[Judgement], dropped: frozenset[str] = frozenset()
    ) -> Batch:
        return Batch(
            completions=completions,
            judgements=judgements,
            shaping=self.shaping,
            resolution=self.judge.resolution,
            dropped=dropped,
        )

    def _why_dead(self, group: Sequence[Completion], found: Sequence[Judgement]) -> str | None:
        """Say why a group has no mixed outcome; None when it has one. The primary reward decides alone."""
        batch = self._batch(group, found)
        signal = batch.signal
        if signal.n_informative:
            return None
        if signal.n_short:
            return "masked" if sum(judgement.verdict.scored for judgement in found) >= 2 else "all errors"
        reward = next(
            judgement.verdict.reward for judgement, counts in zip(found, batch.in_baseline, strict=True) if counts
        )
        return {0.0: "all 0", 1.0: "all 1"}.get(reward or 0.0, "constant")

    def _give_up(self, update: int, causes: Counter[str]) -> None:
        if self.max_dead_groups is None or causes.total() < self.max_dead_groups:
            return
        counts = ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
        raise NoSignalError(
            f"update {update} met {causes.total()} groups without a mixed outcome ({counts}), as many as "
            f"rollout.max_dead_groups allows: {WAYS_OUT[causes.most_common(1)[0][0]]}. Everything sampled is in the "
            "ledger; rollout.dynamic_sampling = false keeps such groups in the batch instead."
        )
