"""The soft overlong penalty: by hand, its laws, its refusals."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steelyard.numerics.shaping import soft_overlong

limits = st.integers(1, 60).flatmap(lambda limit: st.tuples(st.just(limit), st.integers(1, limit)))


def lost(length: int, *, limit: int, buffer: int, penalty: float) -> float:
    """In words: nothing up to the buffer, the whole at the limit, a straight line between."""
    start = limit - buffer
    return 0.0 if length <= start else -penalty * (length - start) / buffer


@pytest.mark.oracle
@given(limits, st.floats(0.01, 50.0))
def test_it_is_the_formula_written_out(bounds, penalty):
    limit, buffer = bounds
    found = soft_overlong(torch.arange(limit + 1), max_length=limit, buffer=buffer, penalty=penalty)
    wanted = [lost(length, limit=limit, buffer=buffer, penalty=penalty) for length in range(limit + 1)]
    assert found.tolist() == pytest.approx(wanted, rel=1e-12)
    assert found.dtype == torch.float64
    assert not found.requires_grad


@given(limits, st.floats(0.01, 50.0), st.floats(0.1, 9.0))
def test_longer_never_costs_less_and_the_penalty_scales_it(bounds, penalty, factor):
    limit, buffer = bounds
    lengths_B = torch.arange(limit + 1)
    found = soft_overlong(lengths_B, max_length=limit, buffer=buffer, penalty=penalty)
    assert (found[1:] <= found[:-1]).all()
    assert found[0] == (-penalty if buffer == 0 else 0.0)
    assert found[-1] == -penalty
    more = soft_overlong(lengths_B, max_length=limit, buffer=buffer, penalty=penalty * factor)
    torch.testing.assert_close(more, factor * found)


def test_reference_values():
    """Eq. 13 of arXiv:2503.14476 with the limit as its longest length."""
    found = soft_overlong(
        torch.tensor([0, 16383, 16384, 16385, 18432, 20480]), max_length=20480, buffer=4096, penalty=1.0
    )
    assert found.tolist() == [0.0, 0.0, 0.0, -1 / 4096, -0.5, -1.0]


def test_a_buffer_as_long_as_the_limit_and_a_buffer_of_one():
    lengths_B = torch.tensor([0, 1, 2, 3, 4])
    assert soft_overlong(lengths_B, max_length=4, buffer=4, penalty=2.0).tolist() == [0.0, -0.5, -1.0, -1.5, -2.0]
    assert soft_overlong(lengths_B, max_length=4, buffer=1, penalty=2.0).tolist() == [0.0, 0.0, 0.0, 0.0, -2.0]


@pytest.mark.parametrize(("buffer", "limit"), [(0, 4), (5, 4), (-1, 4), (1, 0)])
def test_a_buffer_outside_the_limit_is_refused(buffer, limit):
    with pytest.raises(ValueError, match="buffer must lie in"):
        soft_overlong(torch.tensor([0]), max_length=limit, buffer=buffer, penalty=1.0)


@pytest.mark.parametrize("penalty", [0.0, -1.0, math.inf, math.nan])
def test_a_penalty_without_meaning_is_refused(penalty):
    with pytest.raises(ValueError, match="penalty must be finite and above 0"):
        soft_overlong(torch.tensor([0]), max_length=4, buffer=1, penalty=penalty)


@pytest.mark.parametrize("length", [-1, 5])
def test_a_length_outside_the_limit_is_refused_with_all_lengths(length):
    with pytest.raises(ValueError, match=rf"\[0, max_length = 4\], got \[3, {length}\]"):
        soft_overlong(torch.tensor([3, length]), max_length=4, buffer=1, penalty=1.0)
