"""Laws of rewards per token, GAE, whitening, the value loss and explained variance."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steelyard.numerics.values import explained_variance, gae, token_rewards, value_loss, whitened

SEEDS = st.integers(0, 2**31)
LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=5)
UNIT = st.floats(0.0, 1.0)
EPS = torch.finfo(torch.float64).eps


def rows(lengths: list[int], seed: int, how_many: int) -> tuple[Tensor, ...]:
    """Return the mask, then random tensors, float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(max(lengths), 1))
    mask_BT = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
    return mask_BT, *(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(how_many))


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@given(lengths=LENGTHS, seed=SEEDS, kl_coef=st.floats(0.0, 3.0))
def test_token_rewards_add_up_to_the_penalised_reward(lengths: list[int], seed: int, kl_coef: float):
    mask_BT, kl_BT, other_BT = rows(lengths, seed, 2)
    rewards_B = other_BT[:, 0]
    total_B = token_rewards(rewards_B, kl_BT, mask_BT, kl_coef=kl_coef).sum(dim=1)
    same(total_B, (rewards_B - kl_coef * kl_BT.where(mask_BT, 0.0).sum(dim=1)).where(mask_BT.any(dim=1), 0.0))


@given(lengths=LENGTHS, seed=SEEDS, gamma=UNIT)
def test_gae_with_lambda_1_is_the_rewards_to_go_whatever_the_values(lengths: list[int], seed: int, gamma: float):
    mask_BT, rewards_BT, values_BT, other_BT = rows(lengths, seed, 3)
    found = gae(rewards_BT, values_BT, mask_BT, gamma=gamma, lam=1.0)
    same(found.returns_BT, gae(rewards_BT, other_BT, mask_BT, gamma=gamma, lam=1.0).returns_BT)
    to_go_BT = gae(rewards_BT, torch.zeros_like(values_BT), mask_BT, gamma=gamma, lam=1.0).advantages_BT
    same(found.advantages_BT, (to_go_BT - values_BT).where(mask_BT, 0.0))


@given(lengths=LENGTHS, seed=SEEDS, gamma=UNIT, lam=UNIT)
def test_gae_is_nothing_where_the_values_are_right(lengths: list[int], seed: int, gamma: float, lam: float):
    mask_BT, rewards_BT = rows(lengths, seed, 1)
    right_BT = gae(rewards_BT, torch.zeros_like(rewards_BT), mask_BT, gamma=gamma, lam=1.0).returns_BT
    found = gae(rewards_BT, right_BT, mask_BT, gamma=gamma, lam=lam)
    same(found.advantages_BT, torch.zeros_like(rewards_BT))
    same(found.returns_BT, right_BT)


@given(lengths=LENGTHS, seed=SEEDS, gamma=UNIT, lam=UNIT, scale=st.floats(-9.0, 9.0))
def test_gae_is_linear_and_rows_do_not_see_each_other(
    lengths: list[int], seed: int, gamma: float, lam: float, scale: float
):
    mask_BT, rewards_BT, values_BT, more_BT, other_BT = rows(lengths, seed, 4)
    whole = gae(rewards_BT + scale * more_BT, values_BT + scale * other_BT, mask_BT, gamma=gamma, lam=lam)
    for b in range(len(lengths)):
        one = slice(b, b + 1)
        first = gae(rewards_BT[one], values_BT[one], mask_BT[one], gamma=gamma, lam=lam)
        second = gae(more_BT[one], other_BT[one], mask_BT[one], gamma=gamma, lam=lam)
        same(whole.advantages_BT[one], first.advantages_BT + scale * second.advantages_BT)


@given(lengths=LENGTHS, seed=SEEDS, shift=st.integers(-50, 50), scale=st.floats(0.5, 100.0))
def test_whitening_has_mean_0_and_deviation_1_whatever_the_shift_and_scale(
    lengths: list[int], seed: int, shift: int, scale: float
):
    mask_BT, x_BT = rows(lengths, seed, 1)
    found_BT = whitened(scale * x_BT + shift, mask_BT, ddof=0, resolution=EPS)
    live_N = found_BT[mask_BT]
    assert bool((found_BT[~mask_BT] == 0).all())
    if len(live_N) < 2:
        assert bool((live_N == 0).all())
        return
    std = x_BT[mask_BT].std(correction=0).item() * scale
    assert live_N.mean().item() == pytest.approx(0.0, abs=1e-7)
    assert live_N.std(correction=0).item() == pytest.approx(std / (std + 1e-6), rel=1e-7)


@given(lengths=LENGTHS, seed=SEEDS, clip=st.floats(0.01, 3.0))
def test_the_clipped_value_loss_is_never_below_the_plain_one(lengths: list[int], seed: int, clip: float):
    mask_BT, values_BT, old_BT, returns_BT = rows(lengths, seed, 3)
    found = value_loss(values_BT, old_BT, returns_BT, mask_BT, clip=clip)
    plain = value_loss(values_BT, old_BT, returns_BT, mask_BT, clip=math.inf)
    assert bool((found.term_BT >= plain.term_BT).all())
    assert bool((found.term_BT[~found.clipped_BT] == plain.term_BT[~found.clipped_BT]).all())
    assert not bool((found.clipped_BT & ~mask_BT).any()) and not bool(plain.clipped_BT.any())


@given(lengths=LENGTHS, seed=SEEDS, clip=st.floats(0.01, 3.0), shift=st.integers(-9, 9))
def test_the_value_loss_sees_differences_only(lengths: list[int], seed: int, clip: float, shift: int):
    """A shift of values, old values and returns together, or a change of sign of all three, changes nothing."""
    mask_BT, values_BT, old_BT, returns_BT = rows(lengths, seed, 3)
    found = value_loss(values_BT, old_BT, returns_BT, mask_BT, clip=clip).term_BT
    same(value_loss(values_BT + shift, old_BT + shift, returns_BT + shift, mask_BT, clip=clip).term_BT, found)
    same(value_loss(-values_BT, -old_BT, -returns_BT, mask_BT, clip=clip).term_BT, found)


@given(lengths=LENGTHS, seed=SEEDS, shift=st.integers(-9, 9), scale=st.floats(0.5, 9.0))
def test_explained_variance_is_at_most_1_and_sees_neither_shift_nor_common_scale(
    lengths: list[int], seed: int, shift: int, scale: float
):
    mask_BT, values_BT, returns_BT = rows(lengths, seed, 2)
    found = explained_variance(values_BT, returns_BT, mask_BT)
    if sum(lengths) < 2:
        assert found is None
        return
    assert found is not None and found <= 1.0
    moved = explained_variance(scale * values_BT + shift, scale * returns_BT, mask_BT)
    assert moved == pytest.approx(found, rel=1e-7, abs=1e-7)
    assert explained_variance(returns_BT + shift, returns_BT, mask_BT) == pytest.approx(1.0)
