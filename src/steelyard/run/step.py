"""The story of one update: prompts → rollout → verify → advantages → objective → update → record.

Nothing here reads or writes a file; what arrives is handed to `record`, which the loop binds to the ledger.
"""

from dataclasses import dataclass

import numpy as np

from steelyard.errors import UpdateError
from steelyard.evals.judges import Judgement
from steelyard.numerics.advantages import GroupSignal
from steelyard.numerics.variants import Objective
from steelyard.rollout.draws import DrawKey, generator
from steelyard.run.batch import credited
from steelyard.run.gather import Gatherer, Record
from steelyard.run.stopwatch import Stopwatch
from steelyard.types import Completion
from steelyard.update.learner import Learner, UpdateStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The stages that meet in an update."""

    gatherer: Gatherer
    objective: Objective
    learner: Learner
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What one update did."""

    completions: list[Completion]
    judgements: list[Judgement]
    in_loss: list[bool]
    """Whether a completion entered the loss: scored, of a kept group, not masked."""
    advantages: list[float]
    """Of the completions in the loss, in order; with one per token, their mean."""
    signal: GroupSignal
    """How many of the sampled groups could teach anything."""
    stats: UpdateStats
    """What the optimizer saw and moved."""


def train_step(update: int, parts: Parts, *, record: Record, watch: Stopwatch) -> StepOutcome:
    """Take update N, from state N-1 to state N.

    Raises:
        UpdateError: If its numbers cannot be computed: a value network or a policy that has diverged.
    """
    batch = parts.gatherer.gather(update, record=record, watch=watch)  # prompts → rollout → verify
    with watch("train"):
        try:
            seen = parts.learner.look(batch.rows())  # π_old, π_ref and values, where advantages depend on them
            rows = credited(batch, seen, parts.objective)  # rewards → advantages
            stats = parts.learner.update(rows, shuffle=shuffle(parts.seed, update))  # objective → optimizer steps
        except ValueError as error:
            raise UpdateError(f"update {update} cannot be computed: {error}") from error
    return StepOutcome(
        completions=list(batch.completions),
        judgements=list(batch.judgements),
        in_loss=list(batch.in_loss),
        advantages=[row.advantage for row in rows],
        signal=batch.signal,
        stats=stats,
    )


def shuffle(seed: int, update: int) -> np.random.Generator:
    """Return the generator that deals the completions of an update to its minibatches."""
    return generator(DrawKey(seed=seed, purpose="minibatches", update=update, prompt_id=""), sample=0)
