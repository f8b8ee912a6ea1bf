"""Rows of one update, cut into micro-batches under a token budget and padded on the right.

Rows are padded after their last token and attention is causal, so no padding is ever read by a real
token; the mask comes from lengths, never from ids (a pad id may equal the stop id).

A row's numbers must not depend on its company. The width of the padding changes the order of the sums in
attention, and so the last bits of every log-prob. The width of a row is therefore a function of the row alone,
its length rounded up, and a micro-batch holds rows of one width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

WIDTH_STEP = 32
"""Completion lengths are padded up to a multiple of this."""


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
    def width(self) -> int:
        """Completion tokens after padding; depends on this row alone."""
        return WIDTH_STEP * math.ceil(len(self.token_ids) / WIDTH_STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Rows of one prompt length and one width, so that logits are taken for completion positions only."""

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

    A row that is longer than the budget stands alone.
    """
    alike: dict[tuple[int, int], list[int]] = {}
    for index, row in enumerate(rows):
        alike.setdefault((len(row.prompt_ids), row.width), []).append(index)
    batches: list[MicroBatch] = []
    for (prompt_length, width), members in sorted(alike.items()):
        count = max(1, token_budget // (prompt_length + width))
        batches += [_pad(rows, members[first : first + count], pad_id) for first in range(0, len(members), count)]
    return batches


def _pad(rows: Sequence[TrainRow], members: list[int], pad_id: int) -> MicroBatch:
    width = rows[members[0]].width
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
