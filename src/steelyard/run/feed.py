"""Which prompts an update draws: once per epoch in an order keyed by seed and epoch, or at the edge of ability."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from steelyard.rollout.draws import DrawKey, generator
from steelyard.rollout.engine import GroupRequest
from steelyard.run.history import History
from steelyard.types import Prompt

RenderedPrompt = tuple[Prompt, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Turns an update number and the history into groups to sample; it keeps no state, so nothing needs restoring."""

    prompts: Sequence[RenderedPrompt]
    """Training prompts with their rendered ids."""
    prompts_per_update: int
    """P."""
    group_size: int
    """G."""
    seed: int
    """Training seed."""
    at_edge: bool = False
    """Draw prompts by p(1−p) of their estimated pass rate instead of once per epoch."""

    def groups(self, update: int, history: History) -> list[tuple[Prompt, GroupRequest]]:
        """Return the first P groups of update N (counted from 1)."""
        return list(islice(self.stream(update, history), self.prompts_per_update))

    def stream(self, update: int, history: History) -> Iterator[tuple[Prompt, GroupRequest]]:
        """Yield the groups of update N without end.

        A prompt that comes up twice in one update forms two groups, whose sample indices, and so whose draws,
        do not overlap.
        """
        times_seen: dict[str, int] = {}
        first = history.groups_drawn
        for number in count():
            if self.at_edge:
                prompt, prompt_ids = self._at_the_edge(update, number, history, times_seen)
            else:
                prompt, prompt_ids = self._in_turn(first + number)
            start = times_seen.get(prompt.id, 0) * self.group_size
            times_seen[prompt.id] = times_seen.get(prompt.id, 0) + 1
            request = GroupRequest(
                group_id=f"{update}/{number}:{prompt.id}",
                prompt_ids=prompt_ids,
                samples=range(start, start + self.group_size),
                draws=DrawKey(seed=self.seed, purpose="train", update=update, prompt_id=prompt.id),
                policy_version=update - 1,
            )
            yield prompt, request

    def _in_turn(self, position: int) -> RenderedPrompt:
        epoch, index = divmod(position, len(self.prompts))
        key = DrawKey(seed=self.seed, purpose="order", update=epoch, prompt_id="")
        return self.prompts[int(generator(key, sample=0).permutation(len(self.prompts))[index])]

    def _at_the_edge(self, update: int, number: int, history: History, times_seen: dict[str, int]) -> RenderedPrompt:
        """Draw by p(1−p) among the prompts that this update has drawn least often."""
        least = min(times_seen.get(prompt.id, 0) for prompt, _ in self.prompts)
        fresh = [rendered for rendered in self.prompts if times_seen.get(rendered[0].id, 0) == least]
        rates = np.array([history.pass_rate(prompt.id) for prompt, _ in fresh])
        cumulative = np.cumsum(rates * (1.0 - rates))
        key = DrawKey(seed=self.seed, purpose="curriculum", update=update, prompt_id="")
        draw = generator(key, sample=number).random() * cumulative[-1]
        return fresh[int(np.searchsorted(cumulative, draw, side="right"))]
