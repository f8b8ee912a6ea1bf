"""The loss of one micro-batch: surrogate, KL, entropy bonus and value loss under one set of denominators."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from steelyard.numerics.kl import KL_ESTIMATORS, k3
from steelyard.numerics.logprobs import token_entropy, token_logprobs
from steelyard.numerics.mismatch import MismatchWeights, mismatch_weight
from steelyard.numerics.reductions import AGGREGATIONS, Denominators, weighted_sum
from steelyard.numerics.surrogates import SurrogateTerms, surrogate
from steelyard.numerics.values import value_loss
from steelyard.numerics.variants import Objective
from steelyard.update.batching import MicroBatch, TrainRow, padded
from steelyard.update.critic import Critic
from steelyard.update.tally import LossParts, Seen


class Loss:
    """An objective bound to the model it trains."""

    def __init__(
        self, model: PreTrainedModel, objective: Objective, critic: Critic | None, *, temperature: float
    ) -> None:
        """Bind `objective` to `model`; `temperature` is the one the tokens were sampled at."""
        self.model = model
        self.objective = objective
        self.critic = critic
        self.temperature = temperature
        self.shared = critic is not None and critic.backbone is None

    @property
    def value_coef(self) -> float | None:
        """Weight of the value loss in the policy's loss; None when it has a backbone, and a loss, of its own."""
        return self.critic.settings.coef if self.critic is not None and self.shared else None

    def forward(self, model: PreTrainedModel, batch: MicroBatch) -> tuple[Tensor, Tensor | None]:
        """Return logits, and the hidden states behind them for a shared value network.

        Positions are the ones before each completion token, and no others.
        """
        width = batch.token_BT.shape[1]
        wanted = self.shared and model is self.model
        out = model(
            input_ids=batch.input_BS[:, :-1].to(model.device),
            use_cache=False,
            logits_to_keep=width,
            output_hidden_states=wanted,
        )
        return out.logits, out.hidden_states[-1][:, -width:] if wanted else None

    def of(
        self, rows: Sequence[TrainRow], batch: MicroBatch, denominators: Denominators
    ) -> tuple[Tensor, LossParts, Seen]:
        """Return the loss to go backward from, its parts, and what the metrics need."""
        logits_BTV, hidden_BTH = self.forward(self.model, batch)
        device = logits_BTV.device
        mask_BT = batch.mask_BT.to(device)
        weights_BT = AGGREGATIONS[self.objective.aggregation](mask_BT, denominators=denominators)
        logp_BT = token_logprobs(logits_BTV, batch.token_BT.to(device), temperature=self.temperature)
        has_old = rows[batch.rows[0]].old is not None
        old_BT = padded(rows, batch, "old").to(device) if has_old else logp_BT.detach()

        terms = self._surrogate(logp_BT, old_BT, mask_BT, rows, batch)
        mismatch = self._mismatch(old_BT, mask_BT, rows, batch)
        term_BT = terms.term_BT if mismatch is None else terms.term_BT * mismatch.weights_BT
        surrogate_value = weighted_sum(term_BT, weights_BT, mask_BT)
        kl, kl_in_loss = self._kl(logp_BT, weights_BT, mask_BT, rows, batch)
        entropy_BT = self._entropy(logits_BTV)
        entropy = weighted_sum(entropy_BT, weights_BT, mask_BT) if self.objective.entropy_coef else None
        value, value_clipped = self._value(batch, hidden_BTH, weights_BT, mask_BT, rows)

        loss = -surrogate_value
        if kl is not None and kl_in_loss:
            loss = loss + self.objective.kl_coef * kl
        if entropy is not None:
            loss = loss - self.objective.entropy_coef * entropy
        if value is not None:
            # A backbone of its own shares no parameter with the policy: adding its loss mixes no gradient.
            loss = loss + (1.0 if self.value_coef is None else self.value_coef) * value
        parts = LossParts(
            surrogate=surrogate_value.detach(),
            kl=None if kl is None else kl.detach(),
            entropy=None if entropy is None else entropy.detach(),
            value=None if value is None else value.detach(),
            value_clipped=value_clipped,
        )
        seen = Seen(
            terms=terms,
            logp_BT=logp_BT.detach(),
            drift_BT=k3(old_BT.detach(), logp_BT.detach(), mask_BT),
            entropy_BT=entropy_BT.detach(),
            mismatch=mismatch,
        )
        return loss, parts, seen

    def _surrogate(
        self, logp_BT: Tensor, old_BT: Tensor, mask_BT: Tensor, rows: Sequence[TrainRow], batch: MicroBatch
    ) -> SurrogateTerms:
        if rows[batch.rows[0]].token_advantages is not None:
            advantages = padded(rows, batch, "token_advantages").to(logp_BT)
        else:
            advantages = torch.tensor([rows[index].advantage for index in batch.rows], dtype=torch.float64).to(logp_BT)
        objective = self.objective
        return surrogate(
            objective.surrogate,
            logp_BT,
            old_BT,
            advantages,
            mask_BT,
            eps_low=objective.eps_low,
            eps_high=objective.eps_high,
            dual_clip=objective.dual_clip,
            eps_max=objective.eps_max,
        )

    def _mismatch(
        self, old_BT: Tensor, mask_BT: Tensor, rows: Sequence[TrainRow], batch: MicroBatch
    ) -> MismatchWeights | None:
        if self.objective.mismatch_weight == "none":
            return None
        behaviour_BT = torch.zeros(mask_BT.shape, dtype=old_BT.dtype)
        for line, index in enumerate(batch.rows):
            behaviour_BT[line, : len(rows[index].logprobs)] = torch.tensor(rows[index].logprobs)
        return mismatch_weight(
            self.objective.mismatch_weight,
            old_BT,
            behaviour_BT.to(old_BT.device),
            mask_BT,
            cap=self.objective.mismatch_cap,
        )

    def _kl(
        self, logp_BT: Tensor, weights_BT: Tensor, mask_BT: Tensor, rows: Sequence[TrainRow], batch: MicroBatch
    ) -> tuple[Tensor | None, bool]:
        """Return the aggregated KL estimate to the reference, and whether it is a term of the loss."""
        if self.objective.kl_estimator is None:
            return None, False
        in_loss = self.objective.kl_placement == "loss"
        ref_BT = padded(rows, batch, "reference").to(logp_BT.device)
        kl_BT = KL_ESTIMATORS[self.objective.kl_estimator](logp_BT if in_loss else logp_BT.detach(), ref_BT, mask_BT)
        return weighted_sum(kl_BT, weights_BT, mask_BT), in_loss

    def _entropy(self, logits_BTV: Tensor) -> Tensor:
        wanted = logits_BTV if self.objective.entropy_coef else logits_BTV.detach()
        return token_entropy(wanted, temperature=self.temperature)

    def _value(
        self,
        batch: MicroBatch,
        hidden_BTH: Tensor | None,
        weights_BT: Tensor,
        mask_BT: Tensor,
        rows: Sequence[TrainRow],
    ) -> tuple[Tensor | None, int]:
        if self.critic is None:
            return None, 0
        values_BT = self.critic.values(batch, hidden_BTH)
        old_BT = padded(rows, batch, "values").to(values_BT)
        returns_BT = padded(rows, batch, "returns").to(values_BT)
        terms = value_loss(values_BT, old_BT, returns_BT, mask_BT, clip=self.critic.settings.clip)
        return weighted_sum(terms.term_BT, weights_BT, mask_BT), int(terms.clipped_BT.sum())
