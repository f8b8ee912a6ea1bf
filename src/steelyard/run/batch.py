"""The batch of one update: answers, judgements, who counts where; and the advantages they come to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from steelyard.evals.judges import Judgement
from steelyard.numerics.advantages import GroupSignal, advantages, group_signal
from steelyard.numerics.kl import KL_ESTIMATORS
from steelyard.numerics.shaping import soft_overlong
from steelyard.numerics.values import gae, token_rewards, whitened
from steelyard.numerics.variants import Objective
from steelyard.types import Completion
from steelyard.update.batching import TrainRow

FLOAT32 = torch.finfo(torch.float32).eps
"""Rounding unit of log-probs and values."""

Truncated = Literal["keep", "mask", "mask_loss_only"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How a recipe treats completions that came near the limit, or were cut at it."""

    max_length: int
    """Limit on sampled tokens."""
    overlong_buffer: int = 0
    """Last tokens over which the reward falls; 0: off."""
    overlong_penalty: float = 1.0
    """What a completion at the limit loses."""
    truncated: Truncated = "keep"
    """Whether completions cut at the limit count in loss and baseline, in neither, or in the baseline only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Everything that was sampled for one update, in the order in which it was recorded."""

    completions: Sequence[Completion]
    judgements: Sequence[Judgement]
    shaping: Shaping
    resolution: float
    """Rounding unit of the dtype in which the rewards were computed."""
    dropped: frozenset[str] = frozenset()
    """Groups that dynamic sampling left out."""

    @property
    def in_baseline(self) -> list[bool]:
        """Whether a reward enters the baseline: scored, of a group that was kept, and not masked."""
        whole = self._unmasked if self.shaping.truncated == "mask" else [True] * len(self.completions)
        return self._kept(whole)

    @property
    def in_loss(self) -> list[bool]:
        """Whether a completion enters the loss; as the baseline but for truncated = "mask_loss_only"."""
        return self._kept([True] * len(self.completions) if self.shaping.truncated == "keep" else self._unmasked)

    @property
    def signal(self) -> GroupSignal:
        """How many of the sampled groups could teach anything, by the primary reward before any shaping."""
        everything = replace(self, dropped=frozenset())
        rewards_B, group_ids_B, counts_B = everything.primary
        return group_signal(rewards_B, group_ids_B, counts_B, resolution=self.resolution)

    @property
    def primary(self) -> tuple[Tensor, Tensor, Tensor]:
        """Primary rewards (nan where unscored), group numbers, and who is in the baseline; groups go by id."""
        numbers: dict[str, int] = {}
        groups = [numbers.setdefault(completion.group_id, len(numbers)) for completion in self.completions]
        rewards = [judgement.verdict.reward for judgement in self.judgements]
        known = [float("nan") if reward is None else reward for reward in rewards]
        return torch.tensor(known, dtype=torch.float64), torch.tensor(groups), torch.tensor(self.in_baseline)

    @property
    def shaped(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same with the further parts of the reward and the soft overlong penalty."""
        rewards_B, group_ids_B, counts_B = self.primary
        if any(judgement.total is not None for judgement in self.judgements):
            totals = [float("nan") if judgement.total is None else judgement.total for judgement in self.judgements]
            rewards_B = torch.tensor(totals, dtype=torch.float64)
        if self.shaping.overlong_buffer:
            rewards_B = rewards_B + soft_overlong(
                torch.tensor([len(completion.token_ids) for completion in self.completions]),
                max_length=self.shaping.max_length,
                buffer=self.shaping.overlong_buffer,
                penalty=self.shaping.overlong_penalty,
            )
        return rewards_B, group_ids_B, counts_B

    def rows(self) -> list[TrainRow]:
        """Return the completions whose rewards count, in order, without their advantages."""
        return [
            TrainRow(prompt_ids=completion.prompt_ids, token_ids=completion.token_ids, logprobs=completion.logprobs)
            for completion, counts in zip(self.completions, self.in_baseline, strict=True)
            if counts
        ]

    @property
    def _unmasked(self) -> list[bool]:
        return [completion.finish != "length" for completion in self.completions]

    def _kept(self, wanted: Sequence[bool]) -> list[bool]:
        return [
            want and judgement.verdict.scored and completion.group_id not in self.dropped
            for want, completion, judgement in zip(wanted, self.completions, self.judgements, strict=True)
        ]


def credited(batch: Batch, rows: Sequence[TrainRow], objective: Objective) -> list[TrainRow]:
    """Return the rows that enter the loss, with the advantages that the objective gives them.

    Args:
        batch: The whole batch.
        rows: `batch.rows()`, with π_old, π_ref and values where the objective needs them for its advantages.
        objective: What is optimised.
    """
    rewards_B, group_ids_B, counts_B = batch.shaped
    enters = [loss for loss, counts in zip(batch.in_loss, batch.in_baseline, strict=True) if counts]
    if not rows:
        return []
    mask_BT = _mask(rows)
    kl_BT = _reward_kl(rows, objective, mask_BT)
    if objective.needs_critic:
        credited_rows = _by_value(rows, rewards_B[counts_B], kl_BT, mask_BT, torch.tensor(enters), objective)
    else:
        rewards_B = rewards_B.clone()
        rewards_B[counts_B] = token_rewards(rewards_B[counts_B], kl_BT, mask_BT, kl_coef=objective.kl_coef).sum(dim=1)
        # A KL in the reward brings the rounding of float32 log-probs with it.
        resolution = max(batch.resolution, FLOAT32) if objective.kl_placement == "reward" else batch.resolution
        advantages_B = advantages(
            objective.advantage, rewards_B, group_ids_B, counts_B, resolution=resolution, ddof=objective.ddof
        )
        credited_rows = [
            replace(row, advantage=advantage)
            for row, advantage in zip(rows, advantages_B[counts_B].tolist(), strict=True)
        ]
    return [row for row, keep in zip(credited_rows, enters, strict=True) if keep]


def _by_value(
    rows: Sequence[TrainRow],
    rewards_B: Tensor,
    kl_BT: Tensor,
    mask_BT: Tensor,
    enters_B: Tensor,
    objective: Objective,
) -> list[TrainRow]:
    """Generalised advantages against the value network, whitened over the tokens that enter the loss."""
    if objective.gamma is None or objective.lam is None or objective.ddof is None:
        raise ValueError(f"advantage {objective.advantage!r} needs gamma, lam and ddof")
    values_BT = _stacked([row.values for row in rows], mask_BT)
    rewards_BT = token_rewards(rewards_B, kl_BT, mask_BT, kl_coef=objective.kl_coef)
    found = gae(rewards_BT, values_BT, mask_BT, gamma=objective.gamma, lam=objective.lam)
    trained_BT = mask_BT & enters_B[:, None]
    white_BT = whitened(found.advantages_BT, trained_BT, ddof=objective.ddof, resolution=FLOAT32)
    return [
        replace(row, advantage=a_T[live].mean().item(), token_advantages=a_T[live], returns=r_T[live])
        for row, a_T, r_T, live in zip(rows, white_BT, found.returns_BT, mask_BT, strict=True)
    ]


def _reward_kl(rows: Sequence[TrainRow], objective: Objective, mask_BT: Tensor) -> Tensor:
    """KL estimate of π_old to π_ref per token where the penalty is taken off the reward, else 0."""
    if objective.kl_placement != "reward" or objective.kl_estimator is None:
        return torch.zeros(mask_BT.shape, dtype=torch.float64)
    old_BT, ref_BT = (_stacked([getattr(row, name) for row in rows], mask_BT) for name in ("old", "reference"))
    return KL_ESTIMATORS[objective.kl_estimator](old_BT, ref_BT, mask_BT)


def _mask(rows: Sequence[TrainRow]) -> Tensor:
    lengths_B = torch.tensor([len(row.token_ids) for row in rows])
    return torch.arange(int(lengths_B.max())) < lengths_B[:, None]


def _stacked(rows: Sequence[Tensor | None], mask_BT: Tensor) -> Tensor:
    """Pad what each row holds token by token to float64 (B, T)."""
    out_BT = torch.zeros(mask_BT.shape, dtype=torch.float64)
    for line, values_T in enumerate(rows):
        if values_T is None:
            raise ValueError(f"row {line} was not scored before its advantages were asked for")
        out_BT[line, : len(values_T)] = values_T.double()
    return out_BT
