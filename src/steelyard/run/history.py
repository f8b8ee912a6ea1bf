"""What the run has drawn and seen so far: the state behind the order of prompts and the curriculum."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from steelyard.evals.judges import Judgement
from steelyard.types import Status

FORGETTING = 0.5
"""Weight of what was known of a prompt when it comes again: the policy has moved since."""


@dataclass(slots=True)
class History:
    """Derived from the training completions in the ledger, in order; nothing else enters."""

    groups_drawn: int = 0
    """Groups sampled for training so far, dead ones included."""
    outcomes: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """By prompt id: passed and scored completions, older ones discounted."""

    def add(self, prompt_id: str, judgements: Sequence[Judgement]) -> None:
        """Count one group."""
        self.groups_drawn += 1
        scored = [judgement.verdict for judgement in judgements if judgement.verdict.scored]
        passed, seen = self.outcomes.get(prompt_id, (0.0, 0.0))
        passed = FORGETTING * passed + sum(verdict.status is Status.PASSED for verdict in scored)
        self.outcomes[prompt_id] = (passed, FORGETTING * seen + len(scored))

    def pass_rate(self, prompt_id: str) -> float:
        """Return the estimated pass rate, (passed + 1)/(scored + 2): 1/2 for a prompt that was never drawn."""
        passed, seen = self.outcomes.get(prompt_id, (0.0, 0.0))
        return (passed + 1.0) / (seen + 2.0)
