import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.evals.intervals import by_prompt, proportion


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [
        (0, 25, 0, 0.1332),
        (8, 10, 0.4902, 0.9433),
        (50, 164, 0.2396, 0.3791),
        (0, 5000, 0, 0.00077),
        (25, 25, 0.8668, 1),
    ],
)
def test_c61_wilson(passed, n, low, high):
    interval = proportion(passed, n)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


def test_c62_draws_of_a_prompt_are_not_independent_questions():
    """Two questions, 100 draws each, one always right and one never: the interval must not be that of 200 draws."""
    interval = by_prompt([[1.0] * 100, [0.0] * 100])
    assert interval.value == 0.5
    assert interval.high - interval.low > 1.0
    assert "t over 2 prompt means" in interval.method


def test_one_prompt_of_zeros_and_ones_gets_wilson():
    assert by_prompt([[0.0, 1.0, 1.0, 0.0]]) == proportion(2, 4)


def test_from_twenty_prompts_on_it_is_a_bootstrap_and_always_the_same():
    values = [[float(n % 3)] for n in range(20)]
    first, again = by_prompt(values), by_prompt(values)
    assert first == again
    assert "bootstrap by prompt, 20 prompts" in first.method
    assert first.low < first.value < first.high


@pytest.mark.parametrize("values", [[[0.25, 0.25, 0.25]], [[0.5], [0.5]], [[0.3]], [[0.4]] * 30])
def test_c61_no_interval_of_zero_width(values):
    interval = by_prompt(values)
    assert (interval.low, interval.high) == (None, None)


@pytest.mark.parametrize("values", [[], [[1.0], []]])
def test_prompts_without_values_are_refused(values):
    with pytest.raises(ValueError, match="leave the others out"):
        by_prompt(values)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=8))
def test_the_interval_holds_the_mean_and_never_has_zero_width(values):
    interval = by_prompt(values)
    if interval.low is not None:
        assert interval.low <= interval.value <= interval.high
        assert interval.low < interval.high
