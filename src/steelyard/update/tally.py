"""What an optimizer step saw: sums over its micro-batches, and the record they become."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steelyard.numerics.mismatch import MismatchWeights
from steelyard.numerics.surrogates import SurrogateTerms
from steelyard.numerics.variants import Objective
from steelyard.update.batching import MicroBatch, TrainRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What one optimizer step saw. Values that do not apply are None, never 0.

    Means, shares and extremes are over the tokens that were computed: completions with advantage 0 may have been
    left out (`update.skip_zero_advantages`).
    """

    loss: float
    """The number that was minimised: -surrogate + loss_kl + loss_entropy + loss_value, as far as they exist."""
    surrogate: float
    """The aggregated surrogate J, to be maximised."""
    kl: float | None
    """Aggregated KL estimate to the reference, before β; None without a reference."""
    loss_kl: float | None
    """β·kl where the penalty is a term of the loss."""
    loss_entropy: float | None
    """-c·(aggregated entropy) with an entropy bonus."""
    loss_value: float | None
    """Weighted value loss where the value network shares the policy's backbone."""
    value_loss: float | None
    """Aggregated loss of the value network, before its coefficient; None without one."""
    value_clip_share: float | None
    """Share of tokens whose value loss is flat."""
    grad_norm: float | None
    """Euclidean norm over all parameters, before clipping; None when there was no gradient."""
    grad_norm_clipped: float | None
    """The norm that the optimizer saw; None when no step was taken."""
    critic_grad_norm: float | None
    """The same of a value network with a backbone of its own, before clipping."""
    lr: float
    """Learning rate of the step."""
    ratio_min: float | None
    """Smallest ratio π_θ/π_old over the trained tokens; of whole completions for sequence_clipped."""
    ratio_max: float | None
    """Largest ratio."""
    ratio_mean: float | None
    """Mean ratio."""
    approx_kl: float | None
    """Mean of ρ − 1 − log ρ over the tokens: how far π has left π_old, KL(π_old‖π), nats per token."""
    clip_share_low: float | None
    """Share of trained tokens held by the lower clip (flat branch active)."""
    clip_share_high: float | None
    """Share of trained tokens held by the upper clip."""
    cap_share: float | None
    """Share of trained tokens whose ratio is held at a cap (dual clip, or CISPO's weight)."""
    mismatch_mean: float | None
    """Mean mismatch weight; None without one."""
    mismatch_share: float | None
    """Share of trained tokens whose mismatch weight was held or left out."""
    entropy: float | None
    """Mean entropy of the policy over the trained tokens, nats, at the sampling temperature."""
    sampler_gap: float | None
    """Largest |log π_θ − log μ| over the trained tokens; on a fresh batch this is engine noise."""
    tokens: int
    """Tokens that were computed."""
    skipped: str | None
    """Why no step was taken; None when one was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParts:
    """The scalars of one micro-batch's loss; they add up over the micro-batches of a step."""

    surrogate: Tensor
    kl: Tensor | None
    entropy: Tensor | None
    value: Tensor | None
    value_clipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The token-level tensors of one micro-batch, detached."""

    terms: SurrogateTerms
    logp_BT: Tensor
    drift_BT: Tensor
    entropy_BT: Tensor
    mismatch: MismatchWeights | None


class Tally:
    """Sums over the micro-batches of one optimizer step."""

    def __init__(self) -> None:
        self.tokens = 0
        self.sums: dict[str, float] = {}
        self.ratio_min, self.ratio_max = math.inf, -math.inf
        self.sampler_gap = 0.0

    def add(self, batch: MicroBatch, rows: Sequence[TrainRow], parts: LossParts, seen: Seen) -> None:
        """Count one micro-batch."""
        mask_BT = batch.mask_BT
        live = mask_BT.sum().item()
        ratios = seen.terms.ratio_BT.cpu()[mask_BT]
        behaviour = torch.tensor([value for index in batch.rows for value in rows[index].logprobs])
        self.tokens += int(live)
        self._sum("surrogate", parts.surrogate.item())
        for name, part in (("kl", parts.kl), ("entropy_loss", parts.entropy), ("value", parts.value)):
            if part is not None:
                self._sum(name, part.item())
        self.ratio_min = min(self.ratio_min, ratios.min().item())
        self.ratio_max = max(self.ratio_max, ratios.max().item())
        self._sum("ratio", ratios.double().sum().item())
        self._sum("drift", seen.drift_BT.cpu()[mask_BT].double().sum().item())
        self._sum("low", float(seen.terms.clipped_low_BT.sum()))
        self._sum("high", float(seen.terms.clipped_high_BT.sum()))
        self._sum("capped", float(seen.terms.capped_BT.sum()))
        self._sum("value_clipped", float(parts.value_clipped))
        self._sum("entropy", seen.entropy_BT.cpu()[mask_BT].double().sum().item())
        if seen.mismatch is not None:
            self._sum("mismatch", seen.mismatch.weights_BT.cpu()[mask_BT].double().sum().item())
            self._sum("mismatch_acted", float(seen.mismatch.acted_BT.sum()))
        self.sampler_gap = max(self.sampler_gap, (seen.logp_BT.cpu()[mask_BT] - behaviour).abs().max().item())

    def total(self, name: str) -> float | None:
        """Sum of a part over the micro-batches; None where none had it."""
        return self.sums.get(name)

    def mean(self, name: str) -> float | None:
        """Sum over tokens divided by the tokens computed; None where there is nothing to divide."""
        return self.sums[name] / self.tokens if self.tokens and name in self.sums else None

    def _sum(self, name: str, value: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + value


def stats_of(
    objective: Objective,
    tally: Tally,
    *,
    lr: float,
    norm: float | None = None,
    clipped_norm: float | None = None,
    critic_norm: float | None = None,
    value_coef: float | None = None,
    skipped: str | None,
) -> StepStats:
    """Return the record of a step; of an empty tally every term is 0, and every mean None."""
    kl, entropy, value = tally.total("kl"), tally.total("entropy_loss"), tally.total("value")
    in_loss = kl is not None and objective.kl_placement == "loss"
    loss_kl = objective.kl_coef * kl if kl is not None and in_loss else None
    loss_entropy = None if entropy is None else -objective.entropy_coef * entropy
    loss_value = None if value is None or value_coef is None else value_coef * value
    surrogate = tally.total("surrogate") or 0.0
    any_token = tally.tokens > 0
    return StepStats(
        loss=-surrogate + (loss_kl or 0.0) + (loss_entropy or 0.0) + (loss_value or 0.0),
        surrogate=surrogate,
        kl=kl,
        loss_kl=loss_kl,
        loss_entropy=loss_entropy,
        loss_value=loss_value,
        value_loss=value,
        value_clip_share=None if value is None else tally.mean("value_clipped"),
        grad_norm=norm,
        grad_norm_clipped=clipped_norm,
        critic_grad_norm=critic_norm,
        lr=lr,
        ratio_min=tally.ratio_min if any_token else None,
        ratio_max=tally.ratio_max if any_token else None,
        ratio_mean=tally.mean("ratio"),
        approx_kl=tally.mean("drift"),
        clip_share_low=tally.mean("low"),
        clip_share_high=tally.mean("high"),
        cap_share=tally.mean("capped"),
        mismatch_mean=tally.mean("mismatch"),
        mismatch_share=tally.mean("mismatch_acted"),
        entropy=tally.mean("entropy"),
        sampler_gap=tally.sampler_gap if any_token else None,
        tokens=tally.tokens,
        skipped=skipped,
    )
