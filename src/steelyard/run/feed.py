"""Which prompts an update draws: every prompt once per epoch, in an order keyed by seed and epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.rollout.draws import DrawKey, generator
from steelyard.rollout.engine import GroupRequest
from steelyard.types import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Turns an update number into the groups to sample; it keeps no state, so nothing needs restoring."""

    prompts: Sequence[tuple[Prompt, tuple[int, ...]]]
    """Training prompts with their rendered ids."""
    prompts_per_update: int
    """P."""
    group_size: int
    """G."""
    seed: int
    """Training seed."""

    def groups(self, update: int) -> list[tuple[Prompt, GroupRequest]]:
        """Return the groups of update N (counted from 1).

        A prompt that comes up twice in one update forms two groups, whose sample indices, and so whose draws,
        do not overlap.
        """
        first = (update - 1) * self.prompts_per_update
        times_seen: dict[str, int] = {}
        groups: list[tuple[Prompt, GroupRequest]] = []
        for position in range(first, first + self.prompts_per_update):
            prompt, prompt_ids = self._at(position)
            start = times_seen.get(prompt.id, 0) * self.group_size
            times_seen[prompt.id] = times_seen.get(prompt.id, 0) + 1
            request = GroupRequest(
                group_id=f"{update}/{position - first}:{prompt.id}",
                prompt_ids=prompt_ids,
                samples=range(start, start + self.group_size),
                draws=DrawKey(seed=self.seed, purpose="train", update=update, prompt_id=prompt.id),
                policy_version=update - 1,
            )
            groups.append((prompt, request))
        return groups

    def _at(self, position: int) -> tuple[Prompt, tuple[int, ...]]:
        epoch, index = divmod(position, len(self.prompts))
        key = DrawKey(seed=self.seed, purpose="order", update=epoch, prompt_id="")
        return self.prompts[int(generator(key, sample=0).permutation(len(self.prompts))[index])]
