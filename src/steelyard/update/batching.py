"""Rows of one update, cut into micro-batches under a token budget and padded on the right.

Rows are padded after their last token and attention is causal, so no padding is ever read by a real
token; the mask comes from lengths, never from ids (a pad id may equal the stop id).

A row's numbers must not depend on its company. The width of the padding changes the order of the sums in
attention, and so the last bits of every log-prob. The width of a row is therefore a function of the row alone,
its length rounded up, and a micro-batch holds rows of one width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

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
    advantage: float = 0.0
    """Its advantage, in reward units; with one per token, their mean."""
    token_advantages: Tensor | None = field(default=None, compare=False)
    """One advantage per token, as GAE gives; None where the completion has one for all."""
    returns: Tensor | None = field(default=None, compare=False)
    """What the value network should have said at each token; None without one."""
    old: Tensor | None = field(default=None, compare=False)
    """log π_old of each token, recorded before the first step on the batch; None where nothing needed it."""
    reference: Tensor | None = field(default=None, compare=False)
    """log π_ref of each token; None where nothing needed it."""
    values: Tensor | None = field(default=None, compare=False)
    """Value of the state before each token, recorded before the first step; None without a value network."""

    @property
    def width(self) -> int:
        """Completion tokens after padding; depends on this row alone."""
        return WIDTH_STEP * math.ceil(len(self.token_ids) / WIDTH_STEP)

    @property
    def is_silent(self) -> bool:
        """Whether its surrogate is exactly 0, in value and in gradient."""
        if self.token_advantages is not None:
            return not bool(self.token_advantages.any())
        return self.advantage == 0.0


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


def padded(rows: Sequence[TrainRow], batch: MicroBatch, name: str) -> Tensor:
    """Return what the rows of a micro-batch hold token by token under `name`, padded with 0 to (B, T)."""
    first = getattr(rows[batch.rows[0]], name)
    out_BT = torch.zeros(batch.mask_BT.shape, dtype=first.dtype)
    for line, index in enumerate(batch.rows):
        values_T = getattr(rows[index], name)
        out_BT[line, : len(values_T)] = values_T
    return out_BT


def cut(rows: Sequence[TrainRow], *, token_budget: int, pad_id: int) -> list[MicroBatch]:
    """Cut rows into micro-batches of at most `token_budget` padded tokens, never changing their content.

    A row that is longer than the budget stands alone.

    Raises:
        ValueError: If a row has no sampled token.
    """
    _check_tokens(rows)
    alike: dict[tuple[int, int], list[int]] = {}
    for index, row in enumerate(rows):
        alike.setdefault((len(row.prompt_ids), row.width), []).append(index)
    batches: list[MicroBatch] = []
    for (prompt_length, width), members in sorted(alike.items()):
        count = max(1, token_budget // (prompt_length + width))
        batches += [pad(rows, members[first : first + count], pad_id=pad_id) for first in range(0, len(members), count)]
    return batches


def _check_tokens(rows: Sequence[TrainRow]) -> None:
    empty = [index for index, row in enumerate(rows) if not row.token_ids]
    if empty:
        raise ValueError(
            f"rows {empty[:8]} have no sampled token: even an answer that stops at once has its stop token. Leave "
            "completions without one out of the batch"
        )


def pad(rows: Sequence[TrainRow], members: list[int], *, pad_id: int) -> MicroBatch:
    """Return a micro-batch of the rows at `members`, which have one prompt length and one width."""
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
