"""The loss of a warm-up step, with every prompt computed once however many answers follow it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache, PreTrainedModel

from steelyard.run.sft_data import Row

CHUNKS = 4
"""A step's rows are sorted by length and computed in this many parts: less padding, the same sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """Keys and values of the distinct prompts of a step, the last prompt token left out."""

    layers: list[tuple[Tensor, Tensor]]
    """Per layer: keys and values of U prompts, padded on the right."""
    lengths_U: Tensor
    """Tokens of each."""
    index: dict[tuple[int, ...], int]
    """Prompt → its place."""


def negative_log_likelihood(model: PreTrainedModel, rows: Sequence[Row], *, pad: int) -> Tensor:
    """Return −Σ log p(token) over every completion token of `rows`, end tokens included; a sum, in nats.

    The last prompt token predicts the first token of the answer, so prefixes end before it and answers
    start with it. A prompt's keys and values are shared by its answers, and so is their gradient.
    """
    prefixes = _prefixes(model, list(dict.fromkeys(row.prompt_ids for row in rows)), pad)
    ordered = sorted(rows, key=lambda row: len(row.completion_ids))
    size = -(-len(ordered) // CHUNKS)
    parts = [_chunk(model, prefixes, ordered[at : at + size], pad) for at in range(0, len(ordered), size)]
    return torch.stack(parts).sum()


def _prefixes(model: PreTrainedModel, prompts: Sequence[tuple[int, ...]], pad: int) -> Prefixes:
    ids_UP, lengths_U = _padded([prompt[:-1] for prompt in prompts], pad)
    cache = model.model(input_ids=ids_UP, use_cache=True).cache
    return Prefixes(
        layers=[(layer.keys, layer.values) for layer in cache.layers],
        lengths_U=lengths_U,
        index={prompt: place for place, prompt in enumerate(prompts)},
    )


def _chunk(model: PreTrainedModel, prefixes: Prefixes, rows: Sequence[Row], pad: int) -> Tensor:
    which_B = torch.tensor([prefixes.index[row.prompt_ids] for row in rows])
    inputs = [(row.prompt_ids[-1], *row.completion_ids[:-1]) for row in rows]
    input_BT, lengths_B = _padded(inputs, pad)
    target_BT, _ = _padded([row.completion_ids for row in rows], pad)
    steps_T = torch.arange(input_BT.shape[1])
    prefix_B = prefixes.lengths_U[which_B]
    hidden_BTD = model.model(
        input_ids=input_BT,
        cache=DynamicCache([_select(layer, which_B) for layer in prefixes.layers]),
        attention_mask=_readable(prefixes, prefix_B, input_BT),
        position_ids=prefix_B[:, None] + steps_T,
    ).last_hidden_state
    counted_BT = steps_T < lengths_B[:, None]  # from lengths, never from ids: padding may equal a token
    return functional.cross_entropy(model.lm_head(hidden_BTD[counted_BT]), target_BT[counted_BT], reduction="sum")


def _select(layer: tuple[Tensor, Tensor], which_B: Tensor) -> tuple[Tensor, Tensor]:
    if layer[0].shape[0] == 1:
        return layer[0].expand(len(which_B), -1, -1, -1), layer[1].expand(len(which_B), -1, -1, -1)
    return layer[0][which_B], layer[1][which_B]


def _readable(prefixes: Prefixes, prefix_B: Tensor, input_BT: Tensor) -> Tensor | None:
    """Hide the padding of shorter prompts; what follows an answer is hidden by causality."""
    longest = int(prefixes.lengths_U.max())
    if int(prefixes.lengths_U.min()) == longest:
        return None
    prompt_BP = torch.arange(longest) < prefix_B[:, None]
    return torch.cat([prompt_BP, torch.ones_like(input_BT, dtype=torch.bool)], dim=1)


def _padded(ids: Sequence[tuple[int, ...]], pad: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, ids))
    table = torch.tensor([[*row, *[pad] * (width - len(row))] for row in ids])
    return table, torch.tensor([len(row) for row in ids])
