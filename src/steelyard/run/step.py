"""The story of one update: prompts → rollout → verify → advantages → objective → update → record.

Nothing here reads or writes a file; what arrives is handed to `record`, which the loop binds to the ledger.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steelyard.evals.judges import Judge, Judgement
from steelyard.numerics.advantages import GroupSignal, advantages, group_signal
from steelyard.numerics.variants import Objective
from steelyard.rollout.engine import TorchSampler
from steelyard.run.batch import reward_tensors, train_rows
from steelyard.run.feed import Feed
from steelyard.run.stopwatch import Stopwatch
from steelyard.types import Completion
from steelyard.update.learner import Learner, UpdateStats

Record = Callable[[Sequence[Completion], Sequence[Judgement]], None]
"""Keeps one group's answers and judgements as they arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The stages that meet in an update."""

    feed: Feed
    sampler: TorchSampler
    judge: Judge
    objective: Objective
    learner: Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What one update did."""

    completions: list[Completion]
    judgements: list[Judgement]
    advantages: list[float]
    """One per completion; 0 for unscored ones, which are not in the loss."""
    signal: GroupSignal
    """How many groups could teach anything."""
    stats: UpdateStats
    """What the optimizer saw and moved."""


def train_step(update: int, parts: Parts, *, record: Record, watch: Stopwatch) -> StepOutcome:
    """Take update N, from state N-1 to state N."""
    completions: list[Completion] = []
    judgements: list[Judgement] = []
    for prompt, request in parts.feed.groups(update):
        with watch("rollout"):
            group = parts.sampler.sample(request)
        with watch("verify"):
            found = parts.judge.check([prompt] * len(group), group)
        record(group, found)
        completions += group
        judgements += found
    batch = reward_tensors(completions, judgements)
    resolution = parts.judge.resolution
    advantages_B = advantages(parts.objective.advantage, *batch, ddof=parts.objective.ddof, resolution=resolution)
    rows = train_rows(completions, judgements, advantages_B.tolist())
    with watch("train"):
        stats = parts.learner.update(rows)
    return StepOutcome(
        completions=completions,
        judgements=judgements,
        advantages=advantages_B.tolist(),
        signal=group_signal(*batch, resolution=resolution),
        stats=stats,
    )
