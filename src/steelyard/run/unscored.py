"""Answers that could not be judged: counted over each update and over the run, which stops when they are too many."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from steelyard.errors import VerificationError
from steelyard.evals.judges import Judgement
from steelyard.types import Status

FEWEST = 8
"""Unscored answers below which nothing stops, so that two of four in a small batch are no reason yet."""


@dataclass(slots=True)
class UnscoredTally:
    """Counts what could not be judged and stops a run that cannot judge."""

    limit: float
    """Largest share of answers that may be unscored; 1: never stops."""
    answers: int = 0
    """Judged or not, over the run."""
    unscored: int = 0
    """Of them, without a score."""
    details: Counter[str] = field(default_factory=Counter[str])
    """What the verdicts without a score said."""

    def add(self, update: int, judgements: Sequence[Judgement]) -> None:
        """Count the answers of an update that is recorded.

        Raises:
            VerificationError: If more than the limit were unscored, and at least 8: of this update, or of the run so far.
        """
        missing = [judgement.verdict for judgement in judgements if not judgement.verdict.scored]
        self.answers += len(judgements)
        self.unscored += len(missing)
        self.details.update(verdict.detail for verdict in missing)
        self._hold(update, len(missing), len(judgements), f"update {update}")
        self._hold(update, self.unscored, self.answers, f"updates 1 to {update}")

    def _hold(self, update: int, unscored: int, answers: int, where: str) -> None:
        if unscored < FEWEST or unscored <= self.limit * answers:
            return
        detail = self.details.most_common(1)[0][0] or "the verdicts give no reason"
        raise VerificationError(
            f"{where}: {unscored} of {answers} answers could not be judged ({unscored / answers:.0%}), more than "
            f"reward.max_unscored = {self.limit:g} allows. Most often, or first: {detail}. Every verdict is in the ledger. "
            "Mend the verifier or the rows, or raise reward.max_unscored; 1 never stops."
        )


def statuses(judgements: Sequence[Judgement]) -> dict[str, int]:
    """Count the primary verdicts by status, best first."""
    counts = Counter(judgement.verdict.status for judgement in judgements)
    return {status.value: counts[status] for status in Status if counts[status]}
