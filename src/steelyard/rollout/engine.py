"""The embedded sampler: cached decoding of one prompt group at a time, on the trainer's own weights.

The prompt is computed once per group and its cache repeated; a row that has finished leaves the batch.
The unit of work is a whole group, so the same group is always decoded with the same row schedule and the
float logits of a re-run are equal to the bit on the same machine and thread count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from steelyard.rollout.draws import DrawKey, uniforms
from steelyard.rollout.prompts import decode_answer
from steelyard.types import Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn."""

    temperature: float
    """Divides the logits; above 0. Log-probs are recorded at this temperature."""
    max_new_tokens: int
    """Limit on sampled tokens."""
    stop_ids: tuple[int, ...]
    """Any of these ends a completion and is its last token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """One group to sample."""

    group_id: str
    """Travels with every completion of the group, up to the loss."""
    prompt_ids: tuple[int, ...]
    """Rendered prompt."""
    samples: Sequence[int]
    """Sample indices, one per row."""
    draws: DrawKey
    """Keys the uniforms, together with the sample index."""
    policy_version: int
    """State number of the weights."""


class TorchSampler:
    """Samples completions from a transformers causal language model in this process."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, params: SamplingParams, *, row_limit: int = 64
    ) -> None:
        """Wrap a model; `row_limit` caps the rows of one decode (a larger group is cut in fixed chunks)."""
        self.model = model
        self.tokenizer = tokenizer
        self.params = params
        self.row_limit = row_limit

    @torch.inference_mode()
    def sample(self, request: GroupRequest) -> list[Completion]:
        """Return one completion per sample index, in that order."""
        rows: list[_Row] = []
        samples = list(request.samples)
        for start in range(0, len(samples), self.row_limit):
            rows += self._decode(request, samples[start : start + self.row_limit])
        return [self._completion(request, row) for row in rows]

    def _decode(self, request: GroupRequest, samples: list[int]) -> list["_Row"]:
        limit = self.params.max_new_tokens
        draws_GT = np.stack([uniforms(request.draws, sample=sample, count=limit) for sample in samples])
        rows = [_Row(sample=sample) for sample in samples]
        alive = np.arange(len(rows))
        prompt = torch.tensor([request.prompt_ids], device=self.model.device)
        cache = DynamicCache(config=self.model.config)
        logits = self.model(input_ids=prompt, cache=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
        logits = logits.expand(len(rows), -1)
        _select_rows(cache, np.zeros(len(rows), dtype=np.int64), prompt.device)
        for step in range(limit):
            tokens, logprobs = draw_tokens(logits, draws_GT[alive, step], temperature=self.params.temperature)
            for index, token, logprob in zip(alive, tokens.tolist(), logprobs.tolist(), strict=True):
                rows[index].append(token, logprob)
            live = ~np.isin(tokens, self.params.stop_ids)
            for index in alive[~live]:
                rows[index].stopped = True
            alive, tokens = alive[live], tokens[live]
            if not alive.size or step + 1 == limit:
                break
            if not live.all():
                _select_rows(cache, np.flatnonzero(live), prompt.device)
            inputs = torch.from_numpy(tokens)[:, None].to(prompt.device)
            logits = self.model(input_ids=inputs, cache=cache, use_cache=True).logits[:, -1]
        return rows

    def _completion(self, request: GroupRequest, row: "_Row") -> Completion:
        return Completion(
            prompt_id=request.draws.prompt_id,
            group_id=request.group_id,
            sample=row.sample,
            policy_version=request.policy_version,
            prompt_ids=request.prompt_ids,
            token_ids=tuple(row.token_ids),
            logprobs=tuple(row.logprobs),
            text=decode_answer(self.tokenizer, row.token_ids, self.params.stop_ids),
            finish="stop" if row.stopped else "length",
        )


class _Row:
    """A completion while it grows."""

    def __init__(self, *, sample: int) -> None:
        self.sample = sample
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.stopped = False

    def append(self, token: int, logprob: float) -> None:
        self.token_ids.append(token)
        self.logprobs.append(logprob)


def _select_rows(cache: DynamicCache, rows: NDArray[np.int64], device: torch.device) -> None:
    """Keep these rows of the cache, repeats included: one row becomes a group, a group loses finished rows."""
    cache.reorder_cache(cast(torch.LongTensor, torch.from_numpy(rows).to(device)))


def draw_tokens(
    logits_BV: torch.Tensor, uniforms_B: NDArray[np.float64], *, temperature: float
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Draw one token per row by the inverse CDF of the float64 softmax, and its log-prob.

    token_b = min { v : Σ_{w<=v} p_bw > u_b · Σ_w p_bw },  p = softmax(logits / temperature)

    A token of probability 0 is never drawn: uniforms are multiples of 2^-53 below 1, so u · total rounds below total
    and some v qualifies. The log-prob is that of the drawn id, rounded to float32.
    """
    logp_BV = torch.log_softmax(logits_BV.double() / temperature, dim=-1)
    cdf_BV = logp_BV.exp().cumsum(dim=-1)
    totals_B1 = cdf_BV[:, -1:]
    targets_B1 = torch.from_numpy(uniforms_B)[:, None].to(cdf_BV.device) * totals_B1
    tokens_B1 = torch.searchsorted(cdf_BV, targets_B1, right=True)
    logprobs_B1 = logp_BV.gather(1, tokens_B1)
    return tokens_B1[:, 0].cpu().numpy(), logprobs_B1[:, 0].float().cpu().numpy()
