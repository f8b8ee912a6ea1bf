"""Preference pairs in tokens, and how they are cut into micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.update.batching import MicroBatch, TrainRow, pad


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencePair:
    """Two answers to one prompt, one of them preferred."""

    prompt_ids: tuple[int, ...]
    """Rendered prompt, up to the first token of an answer."""
    chosen_ids: tuple[int, ...]
    """The preferred answer, end token included; sampled answers keep their sampled ids."""
    rejected_ids: tuple[int, ...]
    """The other answer."""

    @property
    def length(self) -> int:
        """Tokens of the longer sequence."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBatch:
    """Pairs whose chosen answers have one width, and whose rejected answers have one."""

    members: tuple[int, ...]
    """Positions of the pairs among all pairs; both sides are in this order."""
    chosen: MicroBatch
    """The preferred answers."""
    rejected: MicroBatch
    """The others."""


def cut_pairs(pairs: Sequence[PreferencePair], *, token_budget: int, pad_id: int) -> list[PairBatch]:
    """Cut pairs into micro-batches of at most `token_budget` padded tokens, both sides counted.

    A pair over the budget stands alone. Widths follow the rule of `batching`: an answer's numbers do not depend on
    what it is computed with, its partner included.
    """
    chosen = [_row(pair.prompt_ids, pair.chosen_ids) for pair in pairs]
    rejected = [_row(pair.prompt_ids, pair.rejected_ids) for pair in pairs]
    alike: dict[tuple[int, int, int], list[int]] = {}
    for index, pair in enumerate(pairs):
        key = (len(pair.prompt_ids), chosen[index].width, rejected[index].width)
        alike.setdefault(key, []).append(index)
    batches: list[PairBatch] = []
    for (prompt, width_w, width_l), members in sorted(alike.items()):
        count = max(1, token_budget // (2 * prompt + width_w + width_l))
        for first in range(0, len(members), count):
            part = members[first : first + count]
            batches.append(
                PairBatch(
                    members=tuple(part),
                    chosen=pad(chosen, part, pad_id=pad_id),
                    rejected=pad(rejected, part, pad_id=pad_id),
                )
            )
    return batches


def _row(prompt_ids: tuple[int, ...], token_ids: tuple[int, ...]) -> TrainRow:
    return TrainRow(prompt_ids=prompt_ids, token_ids=token_ids, logprobs=())
