import pytest

from steelyard.errors import VerificationError
from steelyard.evals.judges import Judgement
from steelyard.run.unscored import UnscoredTally, statuses
from steelyard.types import Status, Verdict


def batch(unscored: int, scored: int) -> list[Judgement]:
    lost = Verdict(status=Status.CHECKER_FAILED, reward=None, detail="the wheel came off")
    return [Judgement(verdict=lost)] * unscored + [
        Judgement(verdict=Verdict(status=Status.PASSED, reward=1.0))
    ] * scored


def test_a_few_in_tiny_batches_stop_nothing_until_they_are_eight():
    tally = UnscoredTally(limit=0.1)
    tally.add(1, batch(4, 0))
    tally.add(2, batch(3, 1))
    with pytest.raises(
        VerificationError, match=r"updates 1 to 3: 8 of 12 .* \(67%\).*0.1 allows.*: the wheel came off"
    ):
        tally.add(3, batch(1, 3))


def test_one_bad_update_stops_a_run_that_was_good_before():
    tally = UnscoredTally(limit=0.1)
    for update in range(1, 100):
        tally.add(update, batch(0, 64))
    with pytest.raises(VerificationError, match="update 100: 8 of 64 answers"):
        tally.add(100, batch(8, 56))


def test_a_share_at_the_limit_and_a_limit_of_1_stop_nothing():
    UnscoredTally(limit=0.125).add(1, batch(8, 56))
    UnscoredTally(limit=1.0).add(1, batch(64, 0))
    with pytest.raises(VerificationError):
        UnscoredTally(limit=0.0).add(1, batch(8, 1000))


def test_statuses_are_counted_best_first():
    assert list(statuses(batch(2, 3)).items()) == [("passed", 3), ("checker_failed", 2)]
