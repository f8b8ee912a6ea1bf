"""A reward model: a language model's network with one linear number at the last token of an answer.

Saved in the sequence-classification format of transformers, so that any tool loads it. The number is read here at the
last token by length. The stock forward pass looks for the right-most id that is not padding instead, and reads another
place where padding and end token are one id.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as hf_logging

from steelyard.errors import ModelError, UpdateError
from steelyard.numerics.preference import bradley_terry
from steelyard.update.batching import MicroBatch, TrainRow, cut
from steelyard.update.config import OptimizerSection
from steelyard.update.models import check_source
from steelyard.update.optimizer import AdamW
from steelyard.update.pairs import PreferencePair, cut_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRewards:
    """Rewards of both answers of N pairs."""

    chosen_N: Tensor
    """Of the preferred answer, float64."""
    rejected_N: Tensor
    """Of the other answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardStats:
    """What one optimizer step saw, before it moved anything."""

    loss: float
    """Mean −log σ(r_w − r_l) over the pairs, nats."""
    margin: float
    """Mean of r_w − r_l."""
    ranked_rightly: float
    """Share of pairs with r_w above r_l."""
    grad_norm: float
    """Euclidean norm over all parameters before clipping."""
    grad_norm_clipped: float
    """The norm that the optimizer saw."""
    lr: float
    """Learning rate of the step."""


def new_reward_model(source: str, *, generator: torch.Generator) -> PreTrainedModel:
    """Load a language model's network and put a fresh head on it, float32.

    The head is drawn from N(0, 1/(H+1)) with H the hidden size, as Stiennon 2020 (arXiv:2009.01325) does, so that first
    rewards are of order 1 and members of an ensemble differ. No global generator is moved.

    Raises:
        ModelError: If there is nothing to load, or the network takes no linear head.
    """
    model, _ = _load(source)
    head = _head(model, source)
    with torch.no_grad():
        head.weight.normal_(0.0, 1.0 / math.sqrt(head.in_features + 1), generator=generator)
    return model


def load_reward_model(source: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a trained reward model and its tokenizer, float32.

    Raises:
        ModelError: If there is nothing to load, or it has no trained head of one number.
    """
    check_source(source)
    model, missing = _load(source)
    _head(model, source)
    if missing:  # transformers fills them with random numbers, which would be paid as a reward
        raise ModelError(
            f"{source!r} is no trained reward model: its weights lack {', '.join(missing)}. Name a member that "
            "`steelyard reward-model` wrote."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ModelError(f"the tokenizer of reward model {source!r} cannot be loaded: {_first_line(error)}") from None
    return model.requires_grad_(requires_grad=False), tokenizer


def answer_rewards(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """Return the reward of each answer, read at its last token; shape (B,), float64. Gradient flows into the model."""
    inputs = batch.input_BS.to(model.device)
    hidden_BSH: Tensor = model.base_model(input_ids=inputs, use_cache=False).last_hidden_state
    last_B = batch.prompt_length + batch.mask_BT.sum(dim=-1) - 1  # from lengths, never from ids
    hidden_BH = hidden_BSH[torch.arange(len(last_B)), last_B.to(model.device)]
    # A sum of products instead of a matrix product: its order does not depend on the number of rows.
    return (hidden_BH.double() * cast(nn.Linear, model.score).weight[0].double()).sum(dim=-1)


@torch.no_grad()
def score(model: PreTrainedModel, rows: Sequence[TrainRow], *, token_budget: int) -> Tensor:
    """Return the reward of every row; shape (N,), float64."""
    rewards_N = torch.zeros(len(rows), dtype=torch.float64)
    for batch in cut(rows, token_budget=token_budget, pad_id=0):
        rewards_N[list(batch.rows)] = answer_rewards(model, batch).cpu()
    return rewards_N


class RewardLearner:
    """Owns a reward model and its optimizer."""

    def __init__(
        self, model: PreTrainedModel, *, optimizer: OptimizerSection, total_steps: int, token_budget: int
    ) -> None:
        """Take over `model` for training; in evaluation mode (no dropout)."""
        self.model = model
        self.token_budget = token_budget
        self.optimizer = AdamW(model.parameters(), optimizer, total_steps=total_steps)

    @torch.no_grad()
    def rewards(self, pairs: Sequence[PreferencePair]) -> PairRewards:
        """Score both answers of every pair under the weights as they stand."""
        chosen_N = torch.zeros(len(pairs), dtype=torch.float64)
        rejected_N = torch.zeros(len(pairs), dtype=torch.float64)
        for batch in cut_pairs(pairs, token_budget=self.token_budget, pad_id=0):
            members = list(batch.members)
            chosen_N[members] = answer_rewards(self.model, batch.chosen).cpu()
            rejected_N[members] = answer_rewards(self.model, batch.rejected).cpu()
        return PairRewards(chosen_N=chosen_N, rejected_N=rejected_N)

    def step(self, pairs: Sequence[PreferencePair]) -> RewardStats:
        """Take one step on the mean loss of `pairs`; the denominator is their number, however they are cut.

        Raises:
            UpdateError: If a reward or the gradient is not finite; no step was taken.
        """
        self.optimizer.zero_grad()
        lr, seen = self.optimizer.lr, []
        for batch in cut_pairs(pairs, token_budget=self.token_budget, pad_id=0):
            chosen_B, rejected_B = (answer_rewards(self.model, side) for side in (batch.chosen, batch.rejected))
            try:
                term_B = bradley_terry(chosen_B, rejected_B)
            except ValueError as error:
                raise UpdateError(f"the reward model has diverged: {error}. Lower optimizer.lr.") from None
            (term_B.sum() / len(pairs)).backward()
            seen.append(torch.stack([term_B, chosen_B - rejected_B]).detach())
        norm, clipped_norm = self.optimizer.clip()
        if not math.isfinite(norm):
            raise UpdateError(f"the gradient norm is {norm}; no step was taken. Lower optimizer.lr.")
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss_N, margin_N = torch.cat(seen, dim=1)
        return RewardStats(
            loss=loss_N.mean().item(),
            margin=margin_N.mean().item(),
            ranked_rightly=(margin_N > 0).double().mean().item(),
            grad_norm=norm,
            grad_norm_clipped=clipped_norm,
            lr=lr,
        )


def _load(source: str) -> tuple[PreTrainedModel, list[str]]:
    """Return the model, and the names of weights that were not in the files."""
    # transformers reports a missing head, and fills it from the global generator; neither is of use here.
    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        with torch.random.fork_rng(devices=[]):
            model, found = AutoModelForSequenceClassification.from_pretrained(
                source, num_labels=1, dtype=torch.float32, output_loading_info=True
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{source!r} cannot be loaded as a reward model: {_first_line(error)}") from None
    finally:
        hf_logging.set_verbosity(verbosity)
    return model.eval(), sorted(found["missing_keys"])


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _head(model: PreTrainedModel, source: str) -> nn.Linear:
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Linear) or head.out_features != 1 or head.bias is not None:
        raise ModelError(
            f"{source!r} ({type(model).__name__}) has no linear head `score` of one number without bias, which a reward "
            "model needs; use a decoder such as Llama, Qwen or Mistral."
        )
    return head
