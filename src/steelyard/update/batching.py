"""Rows of one update, cut into micro-batches under a token budget and padded on the right.

Rows are padded after their last token and attention is causal, so no padding is ever read by a real
token; the mask comes from lengths, never from ids (a pad id may equal the stop id).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRow:
    """One completion that enters the loss."""

    prompt_ids: tuple[int, ...]
    """Rendered prompt."""
    token_ids: tuple[int, ...]
    """Sampled ids, exactly as sampled."""
    logprobs: tuple[float, ...]
    """Behaviour log-probs of `token_ids`, as the sampler recorded them."""
    advantage: float
    """Its advantage, in reward units."""

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Padded rows that share one prompt length, so that logits are taken for completion tokens only."""

    rows: tuple[int, ...]
    """Positions of the rows in the whole batch."""
    input_BS: torch.Tensor
    """Prompt and completion ids, padded on the right."""
    token_BT: torch.Tensor
    """Completion ids, padded on the right."""
    mask_BT: torch.Tensor
    """True on sampled tokens."""
    prompt_length: int
    """Tokens before the first completion token."""


def cut(rows: Sequence[TrainRow], *, token_budget: int, pad_id: int) -> list[MicroBatch]:
    """Cut rows into micro-batches of at most `token_budget` padded tokens, never changing their content.

    Rows are ordered by prompt length, then length; a row longer than the budget stands alone.
    """
    order = sorted(range(len(rows)), key=lambda index: (len(rows[index].prompt_ids), rows[index].length, index))
    batches: list[list[int]] = []
    for index in order:
        if batches and _fits(rows, [*batches[-1], index], token_budget):
            batches[-1].append(index)
        else:
            batches.append([index])
    return [_pad(rows, members, pad_id) for members in batches]


def _fits(rows: Sequence[TrainRow], members: list[int], token_budget: int) -> bool:
    same_prompt_length = len({len(rows[index].prompt_ids) for index in members}) == 1
    return same_prompt_length and len(members) * max(rows[index].length for index in members) <= token_budget


def _pad(rows: Sequence[TrainRow], members: list[int], pad_id: int) -> MicroBatch:
    width = max(len(rows[index].token_ids) for index in members)
    prompt_length = len(rows[members[0]].prompt_ids)
    token_BT = torch.full((len(members), width), pad_id, dtype=torch.long)
    mask_BT = torch.zeros((len(members), width), dtype=torch.bool)
    for line, index in enumerate(members):
        count = len(rows[index].token_ids)
        token_BT[line, :count] = torch.tensor(rows[index].token_ids)
        mask_BT[line, :count] = True
    prompt_BS = torch.tensor([rows[index].prompt_ids for index in members])
    return MicroBatch(
        rows=tuple(members),
        input_BS=torch.cat([prompt_BS, token_BT], dim=1),
        token_BT=token_BT,
        mask_BT=mask_BT,
        prompt_length=prompt_length,
    )
