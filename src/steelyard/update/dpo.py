"""Direct preference optimisation: one optimizer step on a batch of pairs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from steelyard.errors import UpdateError
from steelyard.numerics.logprobs import token_logprobs
from steelyard.numerics.preference import DpoTerms, dpo
from steelyard.update.batching import MicroBatch
from steelyard.update.config import OptimizerSection
from steelyard.update.optimizer import AdamW
from steelyard.update.pairs import PreferencePair, cut_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLogprobs:
    """Summed log-probs of both answers of N pairs."""

    chosen_N: Tensor
    """Σ log π of the tokens of the chosen answer, end token included; nats, float64."""
    rejected_N: Tensor
    """The same of the rejected answer."""

    def at(self, places: Sequence[int]) -> "PairLogprobs":
        """Return those of some pairs."""
        chosen = list(places)
        return PairLogprobs(chosen_N=self.chosen_N[chosen], rejected_N=self.rejected_N[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoStats:
    """What one optimizer step saw, before it moved anything."""

    loss: float
    """Mean −log σ(margin) over the pairs, nats."""
    margin: float
    """Mean of β [(logp_w − ref_w) − (logp_l − ref_l)], nats."""
    ranked_rightly: float
    """Share of pairs with a margin above 0; a margin of 0 is not ranked."""
    chosen_logp: float
    """Mean log-prob of the chosen answers, nats. It can fall while the margin grows."""
    rejected_logp: float
    """Mean log-prob of the rejected answers, nats."""
    grad_norm: float
    """Euclidean norm over all parameters before clipping."""
    grad_norm_clipped: float
    """The norm that the optimizer saw."""
    lr: float
    """Learning rate of the step."""


class DpoLearner:
    """Owns the trained model and its optimizer. The reference enters as numbers: its model need not stay in memory."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        beta: float,
        optimizer: OptimizerSection,
        total_steps: int,
        token_budget: int,
    ) -> None:
        """Take over `model` for training; in evaluation mode (no dropout while scoring)."""
        self.model = model
        self.beta = beta
        self.token_budget = token_budget
        self.optimizer = AdamW(model.parameters(), optimizer, total_steps=total_steps)

    @torch.no_grad()
    def logprobs(self, pairs: Sequence[PreferencePair]) -> PairLogprobs:
        """Score both answers of every pair under the weights as they stand."""
        chosen_N = torch.zeros(len(pairs), dtype=torch.float64)
        rejected_N = torch.zeros(len(pairs), dtype=torch.float64)
        for batch in cut_pairs(pairs, token_budget=self.token_budget, pad_id=0):
            members = list(batch.members)
            chosen_N[members] = answer_logprobs(self.model, batch.chosen).cpu()
            rejected_N[members] = answer_logprobs(self.model, batch.rejected).cpu()
        return PairLogprobs(chosen_N=chosen_N, rejected_N=rejected_N)

    def terms(self, scores: PairLogprobs, reference: PairLogprobs) -> DpoTerms:
        """Return loss terms, implicit rewards and margins of scored pairs.

        Raises:
            UpdateError: If a log-prob is not finite.
        """
        try:
            return dpo(scores.chosen_N, scores.rejected_N, reference.chosen_N, reference.rejected_N, beta=self.beta)
        except ValueError as error:
            raise UpdateError(f"the policy has diverged: {error}. Lower optimizer.lr or raise dpo.beta.") from None

    def step(self, pairs: Sequence[PreferencePair], reference: PairLogprobs) -> DpoStats:
        """Take one step on the mean loss of `pairs`; the denominator is their number, however they are cut.

        Raises:
            UpdateError: If a log-prob or the gradient is not finite; no step was taken.
        """
        self.optimizer.zero_grad()
        lr, seen = self.optimizer.lr, []
        for batch in cut_pairs(pairs, token_budget=self.token_budget, pad_id=0):
            scores = PairLogprobs(
                chosen_N=answer_logprobs(self.model, batch.chosen),
                rejected_N=answer_logprobs(self.model, batch.rejected),
            )
            terms = self.terms(scores, reference.at(batch.members))
            (terms.term_B.sum() / len(pairs)).backward()
            logp_2B = torch.stack([scores.chosen_N, scores.rejected_N]).detach()
            seen.append(torch.cat([torch.stack([terms.term_B.detach(), terms.margin_B]), logp_2B]))
        norm, clipped_norm = self.optimizer.clip()
        if not math.isfinite(norm):
            raise UpdateError(f"the gradient norm is {norm}; no step was taken. Lower optimizer.lr or raise dpo.beta.")
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss, margin, chosen, rejected = (row_N.tolist() for row_N in torch.cat(seen, dim=1))
        return DpoStats(
            loss=_mean(loss),
            margin=_mean(margin),
            ranked_rightly=_mean([float(value > 0) for value in margin]),
            chosen_logp=_mean(chosen),
            rejected_logp=_mean(rejected),
            grad_norm=norm,
            grad_norm_clipped=clipped_norm,
            lr=lr,
        )


def answer_logprobs(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """Return Σ_t log π(y_bt) over the tokens of each answer, temperature 1, nats, float64; shape (B,).

    Prompt and padding are outside the sum. Gradient flows into the model.
    """
    width = batch.token_BT.shape[1]
    logits_BTV = model(input_ids=batch.input_BS[:, :-1].to(model.device), use_cache=False, logits_to_keep=width).logits
    logp_BT = token_logprobs(logits_BTV, batch.token_BT.to(model.device), temperature=1.0)
    return logp_BT.masked_fill(~batch.mask_BT.to(model.device), 0.0).sum(dim=-1, dtype=torch.float64)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
