import math

import pytest

from steelyard.errors import RewardError
from steelyard.verify.composition import combine


@pytest.mark.parametrize(
    ("values", "total"),
    [((1.0, None), 1.0), ((0.0, 1.0), 2.0), ((None, None), None), ((None, 1.0), None), ((1.0, 1.0), 3.0)],
)
def test_c24_a_part_that_abstains_adds_nothing_and_without_the_primary_there_is_no_score(values, total):
    assert combine(values, [1, 2]) == total


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_c24_a_part_that_is_not_finite_is_refused_by_name(bad):
    with pytest.raises(RewardError, match=r"part length is .*; it must be finite"):
        combine((1.0, bad), [1, 2], names=("score", "length"))
    with pytest.raises(RewardError, match="number 0"):
        combine((bad, None), [1, 2])


def test_a_sum_that_overflows_and_counts_that_differ_are_refused():
    with pytest.raises(RewardError, match="add up to inf"):
        combine((1e308, 1e308), [1, 1e2])
    with pytest.raises(ValueError, match="2 values for 1 weights"):
        combine((1.0, 1.0), [1])
