"""The update: one batch of scored completions becomes one or more optimizer steps.

The learner applies the objective it is handed. One optimizer step has one denominator, taken over the
whole batch before the first micro-batch, so that cutting the batch differently changes memory and nothing
else. Four policies are never one variable: the sampler μ (its log-probs are stored with the tokens), π_old
(the trainer's own, before the first step on this batch), π_θ (being trained) and π_ref (the KL anchor).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from steelyard.numerics import reductions
from steelyard.numerics.kl import KL_ESTIMATORS
from steelyard.numerics.logprobs import token_entropy, token_logprobs
from steelyard.numerics.reductions import AGGREGATIONS, Denominators
from steelyard.numerics.surrogates import SurrogateTerms, surrogate
from steelyard.numerics.variants import Objective
from steelyard.update.batching import MicroBatch, TrainRow, cut
from steelyard.update.config import OptimizerSection, UpdateSection
from steelyard.update.optimizer import AdamW


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What one optimizer step saw. Values that do not apply are None, never 0."""

    loss: float
    """-surrogate + β·kl, the number that was minimised."""
    surrogate: float
    """The aggregated surrogate J, to be maximised."""
    kl: float | None
    """Aggregated KL estimate to the reference, before β; None without a reference."""
    grad_norm: float | None
    """Euclidean norm over all parameters, before clipping; None when there was no gradient."""
    grad_norm_clipped: float | None
    """The norm that the optimizer saw; None when no step was taken."""
    lr: float
    """Learning rate of the step."""
    ratio_min: float | None
    """Smallest ratio π_θ/π_old over the trained tokens."""
    ratio_max: float | None
    """Largest ratio."""
    ratio_mean: float | None
    """Mean ratio."""
    clip_share_low: float | None
    """Share of trained tokens held by the lower clip (flat branch active)."""
    clip_share_high: float | None
    """Share of trained tokens held by the upper clip."""
    entropy: float | None
    """Mean entropy of the policy over the trained tokens, nats, at the sampling temperature."""
    sampler_gap: float | None
    """Largest |log π_θ − log μ| over the trained tokens; on a fresh batch this is engine noise."""
    skipped: str | None
    """Why no step was taken; None when one was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What one update did to the weights."""

    steps: list[StepStats]
    """One per pass over the batch."""
    param_change_norm: float
    """Euclidean norm of the change of all parameters; exactly 0 only when none moved."""


class Learner:
    """Owns the trained model, its optimizer and the frozen reference."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        objective: Objective,
        optimizer: OptimizerSection,
        update: UpdateSection,
        total_updates: int,
        temperature: float,
        max_length: int,
        reference: PreTrainedModel | None,
    ) -> None:
        """Take over `model` for training.

        Args:
            model: π_θ, in evaluation mode (no dropout while scoring).
            objective: What to optimise.
            optimizer: AdamW settings.
            update: Passes and token budget.
            total_updates: Length of the schedule, in updates.
            temperature: Sampling temperature; every log-prob is taken at it.
            max_length: L_max, the sampling limit in tokens.
            reference: π_ref; required when the objective has a KL penalty.
        """
        if objective.kl_coef > 0 and reference is None:
            raise ValueError(f"objective.kl.coef = {objective.kl_coef} needs a reference policy")
        self.model = model
        self.objective = objective
        self.settings = update
        self.temperature = temperature
        self.max_length = max_length
        self.reference = reference
        self.optimizer = AdamW(model.parameters(), optimizer, total_steps=total_updates * update.passes)

    def update(self, rows: Sequence[TrainRow]) -> UpdateStats:
        """Take `update.passes` optimizer steps on one batch and return what each of them saw."""
        before = [parameter.detach().clone() for parameter in self.optimizer.parameters]
        steps = self._passes(rows)
        changes = zip(self.optimizer.parameters, before, strict=True)
        squares = sum((now.detach() - then).double().square().sum().item() for now, then in changes)
        return UpdateStats(steps=steps, param_change_norm=math.sqrt(squares))

    def _passes(self, rows: Sequence[TrainRow]) -> list[StepStats]:
        batches = cut(rows, token_budget=self.settings.token_budget, pad_id=0)
        denominators = Denominators(
            n_sequences=len(rows), n_tokens=sum(len(row.token_ids) for row in rows), max_length=self.max_length
        )
        reference = [self._reference_logprobs(batch) for batch in batches]
        fixed_old = [self.logprobs(batch) for batch in batches] if self.settings.passes > 1 else [None] * len(batches)
        return [self._step(rows, batches, fixed_old, reference, denominators) for _ in range(self.settings.passes)]

    @torch.no_grad()
    def logprobs(self, batch: MicroBatch) -> Tensor:
        """Log-probs of the completion tokens under the weights as they stand."""
        return token_logprobs(self._logits(self.model, batch), batch.token_BT, temperature=self.temperature)

    @torch.no_grad()
    def _reference_logprobs(self, batch: MicroBatch) -> Tensor | None:
        if self.reference is None:
            return None
        return token_logprobs(self._logits(self.reference, batch), batch.token_BT, temperature=self.temperature)

    def _logits(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        """Logits that predict the completion tokens: positions one before each of them, and no others."""
        width = batch.token_BT.shape[1]
        inputs = batch.input_BS[:, :-1].to(model.device)
        return model(input_ids=inputs, use_cache=False, logits_to_keep=width).logits

    def gradient(
        self,
        rows: Sequence[TrainRow],
        batches: Sequence[MicroBatch],
        old: Sequence[Tensor | None],
        reference: Sequence[Tensor | None],
        denominators: Denominators,
    ) -> "Tally":
        """Accumulate the gradient of the loss over the whole batch and count what was seen on the way."""
        self.optimizer.zero_grad()
        tally = Tally(denominators=denominators)
        for batch, old_BT, ref_BT in zip(batches, old, reference, strict=True):
            logits_BTV = self._logits(self.model, batch)
            logp_BT = token_logprobs(logits_BTV, batch.token_BT, temperature=self.temperature)
            terms = self._surrogate(logp_BT, logp_BT.detach() if old_BT is None else old_BT, rows, batch)
            weights_BT = AGGREGATIONS[self.objective.aggregation](batch.mask_BT, denominators=denominators)
            value = reductions.weighted_sum(terms.term_BT, weights_BT, batch.mask_BT)
            loss = -value
            kl = None
            if ref_BT is not None and self.objective.kl_estimator is not None:
                kl_BT = KL_ESTIMATORS[self.objective.kl_estimator](logp_BT, ref_BT, batch.mask_BT)
                kl = reductions.weighted_sum(kl_BT, weights_BT, batch.mask_BT)
                loss = loss + self.objective.kl_coef * kl
            loss.backward()
            entropy_BT = token_entropy(logits_BTV.detach(), temperature=self.temperature)
            tally.add(batch, rows, terms, logp_BT.detach(), entropy_BT, value=value.item(), kl=kl)
        return tally

    def _surrogate(
        self, logp_BT: Tensor, old_BT: Tensor, rows: Sequence[TrainRow], batch: MicroBatch
    ) -> SurrogateTerms:
        advantages_B = torch.tensor([rows[index].advantage for index in batch.rows], dtype=logp_BT.dtype)
        return surrogate(
            self.objective.surrogate,
            logp_BT,
            old_BT,
            advantages_B.to(logp_BT.device),
            batch.mask_BT,
            eps_low=self.objective.eps_low,
            eps_high=self.objective.eps_high,
        )

    def _step(
        self,
        rows: Sequence[TrainRow],
        batches: Sequence[MicroBatch],
        old: Sequence[Tensor | None],
        reference: Sequence[Tensor | None],
        denominators: Denominators,
    ) -> StepStats:
        if not rows:
            return self._stats(Tally(denominators=denominators), None, None, skipped="no completion was scored")
        tally = self.gradient(rows, batches, old, reference, denominators)
        norm, clipped_norm = self.optimizer.clip()
        if not math.isfinite(norm):
            self.optimizer.zero_grad()
            return self._stats(tally, norm, None, skipped=f"the gradient norm is {norm}")
        stats = self._stats(tally, norm, clipped_norm, skipped=None)
        self.optimizer.step()
        return stats

    def _stats(
        self, tally: "Tally", norm: float | None, clipped_norm: float | None, *, skipped: str | None
    ) -> StepStats:
        share = None if not tally.tokens else 1.0 / tally.tokens
        kl = tally.kl if self.reference is not None and tally.tokens else None
        return StepStats(
            loss=-tally.surrogate + self.objective.kl_coef * (kl or 0.0),
            surrogate=tally.surrogate,
            kl=kl,
            grad_norm=norm,
            grad_norm_clipped=clipped_norm,
            lr=self.optimizer.lr,
            ratio_min=tally.ratio_min if share else None,
            ratio_max=tally.ratio_max if share else None,
            ratio_mean=tally.ratio_sum * share if share else None,
            clip_share_low=tally.clipped_low * share if share else None,
            clip_share_high=tally.clipped_high * share if share else None,
            entropy=tally.entropy_sum * share if share else None,
            sampler_gap=tally.sampler_gap if share else None,
            skipped=skipped,
        )


class Tally:
    """Sums over the micro-batches of one optimizer step."""

    def __init__(self, *, denominators: Denominators) -> None:
        self.denominators = denominators
        self.tokens = 0
        self.surrogate = 0.0
        self.kl = 0.0
        self.ratio_min, self.ratio_max, self.ratio_sum = math.inf, -math.inf, 0.0
        self.clipped_low = self.clipped_high = 0
        self.entropy_sum = 0.0
        self.sampler_gap = 0.0

    def add(
        self,
        batch: MicroBatch,
        rows: Sequence[TrainRow],
        terms: SurrogateTerms,
        logp_BT: Tensor,
        entropy_BT: Tensor,
        *,
        value: float,
        kl: Tensor | None,
    ) -> None:
        """Count one micro-batch."""
        mask_BT = batch.mask_BT
        ratios = terms.ratio_BT[mask_BT]
        behaviour = torch.tensor([value for index in batch.rows for value in rows[index].logprobs])
        self.tokens += int(mask_BT.sum())
        self.surrogate += value
        self.kl += 0.0 if kl is None else kl.item()
        self.ratio_min = min(self.ratio_min, ratios.min().item())
        self.ratio_max = max(self.ratio_max, ratios.max().item())
        self.ratio_sum += ratios.double().sum().item()
        self.clipped_low += int(terms.clipped_low_BT.sum())
        self.clipped_high += int(terms.clipped_high_BT.sum())
        self.entropy_sum += entropy_BT[mask_BT].double().sum().item()
        self.sampler_gap = max(self.sampler_gap, (logp_BT[mask_BT].cpu() - behaviour).abs().max().item())
