import pytest

from steelyard.numerics.estimators import pass_at_k


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(10, 3, 5, 0.916667), (4, 1, 2, 0.5), (5, 2, 3, 0.9), (4, 1, 4, 1.0), (5, 0, 5, 0.0), (1, 1, 1, 1.0)],
)
def test_c58_reference_values(n: int, c: int, k: int, expected: float):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("n", "c", "k"), [(2, 0, 5), (99, 0, 100), (4, 4, 5)])
def test_c58_more_than_was_sampled_is_undefined(n: int, c: int, k: int):
    with pytest.raises(ValueError, match=f"undefined for k={k} with n={n} samples"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 0), (4, 1, -1), (4, 5, 2), (4, -1, 2), (0, 0, 0)])
def test_c58_counts_out_of_range_are_refused(n: int, c: int, k: int):
    with pytest.raises(ValueError, match=r"c must be in \[0, n\]|undefined"):
        pass_at_k(n, c, k)


def test_c58_it_is_not_the_naive_estimate():
    assert pytest.approx(0.83193) == 1 - (1 - 3 / 10) ** 5
    assert pass_at_k(10, 3, 5) > 0.9


def test_c58_the_mean_is_over_tasks_not_over_pooled_counts():
    per_task = [pass_at_k(10, 10, 1), pass_at_k(100, 0, 1)]
    assert sum(per_task) / 2 == 0.5
    assert pass_at_k(110, 10, 1) == pytest.approx(0.0909, abs=5e-5)


def test_large_counts_stay_exact():
    assert pass_at_k(20_000, 1, 10_000) == 0.5
