"""The update: one batch of scored completions becomes one or more optimizer steps.

The learner applies the objective it is handed. One optimizer step has one denominator, taken over all its
rows before the first micro-batch, so that cutting them differently changes memory and nothing else. Four
policies are never one variable: the sampler μ (its log-probs are stored with the tokens), π_old (the trainer's
own, before the first step on this batch), π_θ (being trained) and π_ref (the KL anchor).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from steelyard.numerics.logprobs import token_logprobs
from steelyard.numerics.reductions import Denominators
from steelyard.numerics.values import explained_variance
from steelyard.numerics.variants import Objective
from steelyard.update.batching import MicroBatch, TrainRow, cut
from steelyard.update.config import OptimizerSection, UpdateSection
from steelyard.update.critic import Critic
from steelyard.update.loss import Loss
from steelyard.update.optimizer import AdamW
from steelyard.update.tally import StepStats, Tally, stats_of


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What one update did to the weights."""

    steps: list[StepStats]
    """One per optimizer step, in order; the last may be one that was not taken."""
    param_change_norm: float
    """Euclidean norm of the change of all policy parameters; exactly 0 only when none moved."""
    explained_variance: float | None = None
    """1 − Var(returns − values)/Var(returns) before the first step; None without a value network."""
    left_out: int = 0
    """Completions with advantage 0 that were not computed."""
    stopped: str | None = None
    """Why the steps on this batch ended early; None when all were taken."""


class Learner:
    """Owns the trained model, its optimizer, the frozen reference and the value network."""

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
        critic: Critic | None = None,
    ) -> None:
        """Take over `model` for training.

        Args:
            model: π_θ, in evaluation mode (no dropout while scoring).
            objective: What to optimise.
            optimizer: AdamW settings.
            update: Passes, minibatches and token budget.
            total_updates: Length of the schedule, in updates.
            temperature: Sampling temperature; every log-prob is taken at it.
            max_length: L_max, the sampling limit in tokens.
            reference: π_ref; required when the objective has a KL penalty.
            critic: The value network; required when the advantage is gae.
        """
        if objective.kl_coef > 0 and reference is None:
            raise ValueError(f"objective.kl.coef = {objective.kl_coef} needs a reference policy")
        if objective.needs_critic and critic is None:
            raise ValueError(f"objective.advantage = {objective.advantage!r} needs a value network")
        self.model = model
        self.objective = objective
        self.settings = update
        self.max_length = max_length
        self.reference = reference
        self.critic = critic
        self.temperature = temperature
        self.loss = Loss(model, objective, critic, temperature=temperature)
        shared = critic.head.parameters() if critic is not None and critic.optimizer is None else ()
        self.steps_per_update = update.passes * update.minibatches
        self.updates = 0
        total_steps = total_updates * self.steps_per_update
        self.optimizer = AdamW([*model.parameters(), *shared], optimizer, total_steps=total_steps)

    # ---------------------------------------------------------------- before the first step

    def look(self, rows: Sequence[TrainRow]) -> list[TrainRow]:
        """Return the rows with what their advantages depend on: π_old and π_ref for a KL in the reward, and values."""
        in_reward = self.objective.kl_placement == "reward"
        return self._scored(rows, old=in_reward, reference=in_reward, values=self.critic is not None)

    def _scored(self, rows: Sequence[TrainRow], *, old: bool, reference: bool, values: bool = False) -> list[TrainRow]:
        """Return the rows with the wanted scores under the weights as they stand, keeping those they have."""
        wanted = {"old": old, "reference": reference, "values": values}
        missing = [name for name, want in wanted.items() if want and any(getattr(row, name) is None for row in rows)]
        if not missing:
            return list(rows)
        scores = {"old": self.logprobs, "reference": self._reference_logprobs, "values": self._values}
        scored = list(rows)
        for batch in cut(rows, token_budget=self.settings.token_budget, pad_id=0):
            found = {name: scores[name](batch).cpu() for name in missing}
            for line, index in enumerate(batch.rows):
                live_T = batch.mask_BT[line]
                scored[index] = replace(scored[index], **{name: x_BT[line][live_T] for name, x_BT in found.items()})
        return scored

    @torch.no_grad()
    def logprobs(self, batch: MicroBatch) -> Tensor:
        """Log-probs of the completion tokens under the weights as they stand."""
        logits_BTV, _ = self.loss.forward(self.model, batch)
        return token_logprobs(logits_BTV, batch.token_BT.to(self.model.device), temperature=self.temperature)

    @torch.no_grad()
    def _reference_logprobs(self, batch: MicroBatch) -> Tensor:
        if self.reference is None:
            raise ValueError("there is no reference policy")
        logits_BTV, _ = self.loss.forward(self.reference, batch)
        return token_logprobs(logits_BTV, batch.token_BT.to(self.model.device), temperature=self.temperature)

    @torch.no_grad()
    def _values(self, batch: MicroBatch) -> Tensor:
        if self.critic is None:
            raise ValueError("there is no value network")
        return self.critic.values(batch, self.loss.forward(self.model, batch)[1])

    # ---------------------------------------------------------------- the steps

    def update(self, rows: Sequence[TrainRow], shuffle: np.random.Generator | None = None) -> UpdateStats:
        """Take the optimizer steps on one batch and return what each of them saw.

        Args:
            rows: The completions that enter the loss, with their advantages.
            shuffle: Deals the completions to the minibatches of each pass; needed with more than one.
        """
        before = [parameter.detach().clone() for parameter in self.optimizer.parameters]
        several = self.settings.passes * self.settings.minibatches > 1
        dull = [self.settings.skip_zero_advantages and self._skippable and row.is_silent for row in rows]
        live = [row for row, skip in zip(rows, dull, strict=True) if not skip]
        scored = iter(self._scored(live, old=several, reference=self.objective.kl_coef > 0))
        rows = [row if skip else next(scored) for row, skip in zip(rows, dull, strict=True)]
        self._start_schedule()
        steps, stopped = self._steps(rows, dull, shuffle)
        changes = zip(self.optimizer.parameters, before, strict=True)
        squares = sum((now.detach() - then).double().square().sum().item() for now, then in changes)
        return UpdateStats(
            steps=steps,
            param_change_norm=math.sqrt(squares),
            explained_variance=_explained(rows) if self.critic is not None else None,
            left_out=sum(dull),
            stopped=stopped,
        )

    def _start_schedule(self) -> None:
        """The schedule goes by updates: steps that were skipped or stopped early do not hold it back."""
        self.optimizer.seek(self.updates * self.steps_per_update)
        if self.critic is not None:
            self.critic.seek(self.updates * self.steps_per_update)
        self.updates += 1

    @property
    def _skippable(self) -> bool:
        """Whether a completion with advantage 0 contributes exactly nothing: no KL or entropy term, no value loss."""
        kl_in_loss = self.objective.kl_coef > 0 and self.objective.kl_placement == "loss"
        return not kl_in_loss and self.objective.entropy_coef == 0 and self.critic is None

    def _steps(
        self, rows: Sequence[TrainRow], dull: Sequence[bool], shuffle: np.random.Generator | None
    ) -> tuple[list[StepStats], str | None]:
        steps: list[StepStats] = []
        for _ in range(self.settings.passes):
            for share in self._shares(len(rows), shuffle):
                counted = [rows[index] for index in share]
                stats, stopped = self._step(counted, [rows[index] for index in share if not dull[index]])
                steps.append(stats)
                if stopped is not None:
                    return steps, stopped
        return steps, None

    def _shares(self, n: int, shuffle: np.random.Generator | None) -> list[list[int]]:
        """Deal the rows to the minibatches of one pass; those that stay empty fall away."""
        if self.settings.minibatches == 1:
            return [list(range(n))]
        if shuffle is None:
            raise ValueError("several minibatches need a generator that deals the rows to them")
        dealt = np.array_split(shuffle.permutation(n), self.settings.minibatches)
        return [sorted(share.tolist()) for share in dealt if len(share)] or [[]]

    def gradient(self, counted: Sequence[TrainRow], computed: Sequence[TrainRow] | None = None) -> Tally:
        """Accumulate the gradient of the loss of one optimizer step and count what was seen on the way.

        Args:
            counted: The rows in the denominators.
            computed: Those of them that are computed; all by default.
        """
        self.optimizer.zero_grad()
        if self.critic is not None:
            self.critic.zero_grad()
        computed = counted if computed is None else computed
        denominators = Denominators(
            n_sequences=len(counted), n_tokens=sum(len(row.token_ids) for row in counted), max_length=self.max_length
        )
        tally = Tally()
        for batch in cut(computed, token_budget=self.settings.token_budget, pad_id=0):
            loss, parts, seen = self.loss.of(computed, batch, denominators)
            loss.backward()
            tally.add(batch, computed, parts, seen)
        if not tally.tokens:
            self.optimizer.zero_gradient()
        return tally

    def _step(self, counted: Sequence[TrainRow], computed: Sequence[TrainRow]) -> tuple[StepStats, str | None]:
        lr = self.optimizer.lr
        if not counted:
            return stats_of(self.objective, Tally(), lr=lr, skipped="no completion entered the loss"), None
        tally = self.gradient(counted, computed)
        early = self._early_stop(tally)
        norm, clipped_norm = self.optimizer.clip()
        critic_norm = None if self.critic is None else self.critic.clip()
        skipped = early or (None if math.isfinite(norm) else f"the gradient norm is {norm}")
        stats = stats_of(
            self.objective,
            tally,
            lr=lr,
            norm=norm,
            clipped_norm=None if skipped else clipped_norm,
            critic_norm=critic_norm,
            value_coef=self.loss.value_coef,
            skipped=skipped,
        )
        if skipped is None:
            self.optimizer.step()
            if self.critic is not None:
                self.critic.step(critic_norm)
        self.optimizer.zero_grad()
        return stats, early

    def _early_stop(self, tally: Tally) -> str | None:
        drift = tally.mean("drift")
        clipped = None if not tally.tokens else ((tally.mean("low") or 0.0) + (tally.mean("high") or 0.0))
        checks = [
            ("the approximate KL(π_old‖π)", drift, "update.max_kl", self.settings.max_kl),
            ("the share of clipped tokens", clipped, "update.max_clip_share", self.settings.max_clip_share),
        ]
        for what, value, key, limit in checks:
            if limit is not None and value is not None and value > limit:
                return f"stopped early: {what} is {value:.4g}, above {key} = {limit:g}"
        return None


def _explained(rows: Sequence[TrainRow]) -> float | None:
    values = [row.values for row in rows if row.values is not None and row.returns is not None]
    returns = [row.returns for row in rows if row.values is not None and row.returns is not None]
    if not values:
        return None
    values_1T, returns_1T = torch.cat(values).double()[None], torch.cat(returns).double()[None]
    return explained_variance(values_1T, returns_1T, torch.ones_like(values_1T, dtype=torch.bool))
