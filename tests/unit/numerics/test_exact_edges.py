"""Numbers that stand in the code, to the last step: limits, slacks, first places named, what a variant does not bring."""

import math
import sys

import pytest
import torch

from steelyard.numerics import bandit
from steelyard.numerics._checks import check_number
from steelyard.numerics._groups import check_rewards, constant
from steelyard.numerics._surrogate_terms import above, below
from steelyard.numerics.mismatch import mismatch_weight
from steelyard.numerics.optim_parts import adamw_parts
from steelyard.numerics.values import explained_variance, gae, value_loss
from steelyard.numerics.variants import PRACTICES, VARIANTS, practice_of

EPS = sys.float_info.epsilon


def row(*values: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor([values], dtype=dtype)


@pytest.mark.parametrize("name", ["beta", "penalty"])
def test_a_million_is_the_largest_weight(name):
    check_number(name, 1e6)
    with pytest.raises(ValueError, match=name):
        check_number(name, 1e6 + 0.5)


def test_eight_rounding_units_are_one_number_and_more_are_two():
    one = torch.tensor(1.0).double()
    for units, equal in ((7.5, True), (8.5, False)):
        assert bool(constant(one - units * 1e-3, one, resolution=1e-3)) is equal


def test_at_most_eight_places_are_named():
    rewards_B = torch.full((10,), math.nan)
    with pytest.raises(ValueError, match=r"at places \[0, 1, 2, 3, 4, 5, 6, 7\];"):
        check_rewards(rewards_B, torch.zeros(10).long(), torch.ones(10).bool(), EPS)


def test_the_edge_of_a_clip_is_eight_rounding_units_wide_and_belongs_to_the_inside():
    ratios = torch.tensor([1 + 8 * EPS, 1 + 9 * EPS], dtype=torch.float64)
    assert above(ratios, 1.0).tolist() == [False, True]
    ratios = torch.tensor([1 - 8 * EPS, 1 - 9 * EPS], dtype=torch.float64)
    assert below(ratios, 1.0).tolist() == [False, True]


def test_a_mismatch_weight_past_the_dtype_is_half_its_largest_number():
    out = mismatch_weight(
        "truncate", row(0.0, dtype=torch.float32), row(-1e4, dtype=torch.float32), row(1.0).bool(), cap=1e308
    )
    assert out.weights_BT.item() == torch.finfo(torch.float32).max / 2


def test_the_first_broken_log_prob_is_named():
    old_BT = torch.tensor([[0.0, 0.0], [0.0, math.nan], [math.inf, 0.0]])
    with pytest.raises(ValueError, match=r"π_old is nan at row 1, token 1 \(2 live"):
        mismatch_weight("mask", old_BT, torch.zeros(3, 2), torch.ones(3, 2).bool(), cap=2.0)


def test_an_infinite_eps_is_no_eps():
    one = torch.ones(1)
    with pytest.raises(ValueError, match="eps must be finite"):
        adamw_parts(one, one, one, one, step=1, lr=0.1, betas=(0.9, 0.99), eps=math.inf, weight_decay=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_limit_of_values_is_exact(dtype):
    limit = min(1e100, math.sqrt(torch.finfo(dtype).max) / 16)
    mask_BT = row(1.0).bool()
    gae(row(limit * (1 - 1e-6), dtype=dtype), row(0.0, dtype=dtype), mask_BT, gamma=1.0, lam=1.0)
    with pytest.raises(ValueError, match="must be finite"):
        gae(row(limit * (1 + 1e-6), dtype=dtype), row(0.0, dtype=dtype), mask_BT, gamma=1.0, lam=1.0)


def test_the_first_value_and_the_first_row_that_cannot_be_used_are_named():
    bad_BT = torch.tensor([[0.0, 0.0], [0.0, math.nan], [math.inf, 0.0]])
    with pytest.raises(ValueError, match="got nan in row 1, token 1"):
        explained_variance(bad_BT, torch.zeros(3, 2), torch.ones(3, 2).bool())
    gaps_BT = torch.tensor([[True, True], [False, True], [False, True]])
    with pytest.raises(ValueError, match="live tokens of row 1 are"):
        gae(torch.zeros(3, 2), torch.zeros(3, 2), gaps_BT, gamma=1.0, lam=1.0)


def test_a_value_that_moved_past_the_clip_by_rounding_is_not_held():
    """Slack: 8 rounding units of the largest number at hand, here 4."""
    out = value_loss(row(1 + 16 * EPS), row(0.0), row(4.0), row(1.0).bool(), clip=1.0)
    assert not out.clipped_BT.item()


def test_a_clipped_error_that_is_larger_by_the_slack_alone_is_not_held():
    out = value_loss(row(4.0), row(1 - 32 * EPS), row(3.0), row(1.0).bool(), clip=1.0)
    assert not out.clipped_BT.item()
    held = value_loss(row(4.0), row(1 - 64 * EPS), row(3.0), row(1.0).bool(), clip=1.0)
    assert held.clipped_BT.item()


def test_a_variant_without_an_entry_brings_nothing_along():
    for name in VARIANTS:
        if name not in PRACTICES:
            assert practice_of(name).dynamic_sampling is False
            assert practice_of(name).overlong_share == 0.0
    assert "dapo" in PRACTICES


def test_the_lessons_answers():
    """17 × 24: the right one first, the worst last; these are what the lesson shows."""
    assert bandit.LESSON_ANSWERS == (408, 407, 410, 404, 400, 380)
    assert bandit.LESSON_ANSWERS[0] == 17 * 24
