"""The table law × advantage of docs/numerics.md, one test per column."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steelyard.numerics.advantages import ADVANTAGES, GROUP_RELATIVE, STANDARDISED, advantages, group_signal

EPS = sys.float_info.epsilon
CENTRED = sorted(GROUP_RELATIVE | {"batch_centred"})
SCALES = sorted(set(ADVANTAGES) - STANDARDISED)
SEES_ONE_GROUP = sorted(GROUP_RELATIVE - {"batch_standardised"})

Batch = tuple[Tensor, Tensor, Tensor]


@st.composite
def batches(draw: st.DrawFn, *, all_scored: bool = False) -> Batch:
    """Ragged, interleaved groups; rewards on a grid of 1/64, so that differences are either 0 or far from rounding."""
    size = draw(st.integers(1, 12))
    rewards = draw(st.lists(st.integers(-128, 128), min_size=size, max_size=size))
    ids = draw(st.lists(st.sampled_from([-7, 0, 3, 10**12]), min_size=size, max_size=size))
    scored = [True] * size if all_scored else draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return torch.tensor(rewards, dtype=torch.float64) / 64, torch.tensor(ids), torch.tensor(scored)


def compute(name: str, batch: Batch) -> Tensor:
    return advantages(name, *batch, resolution=EPS, ddof=0 if name in STANDARDISED else None)


@pytest.mark.parametrize("name", CENTRED)
@given(batch=batches(), shift=st.integers(-(10**6), 10**6))
def test_shift_of_all_rewards_changes_nothing(name: str, batch: Batch, shift: int):
    rewards_B, ids_B, scored_B = batch
    moved = compute(name, (rewards_B + shift, ids_B, scored_B))
    torch.testing.assert_close(moved, compute(name, batch), atol=1e-7, rtol=1e-7)


@given(batch=batches(all_scored=True))
def test_raw_is_not_invariant_to_a_shift(batch: Batch):
    rewards_B, ids_B, scored_B = batch
    assert (compute("raw", (rewards_B + 1, ids_B, scored_B)) != compute("raw", batch)).all()


@pytest.mark.parametrize("name", SCALES)
@given(batch=batches(), scale=st.floats(1e-6, 1e6))
def test_scale_of_all_rewards_scales_the_advantages(name: str, batch: Batch, scale: float):
    rewards_B, ids_B, scored_B = batch
    scaled = compute(name, (rewards_B * scale, ids_B, scored_B))
    torch.testing.assert_close(scaled, scale * compute(name, batch), atol=1e-12 * scale, rtol=1e-9)


@pytest.mark.parametrize("name", sorted(STANDARDISED))
@pytest.mark.parametrize("ddof", [0, 1])
@given(batch=batches(), scale=st.floats(1.0, 1e6))
def test_scale_of_all_rewards_leaves_standardised_advantages(name: str, ddof: int, batch: Batch, scale: float):
    rewards_B, ids_B, scored_B = batch
    one, other = (
        advantages(name, r_B, ids_B, scored_B, resolution=EPS, ddof=ddof) for r_B in (rewards_B, rewards_B * scale)
    )
    # δ = 1e-6 beside a deviation of at least 1/64 · √(1/12): exact only for δ = 0.
    torch.testing.assert_close(one, other, atol=0, rtol=1e-3)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@given(batch=batches(), data=st.data())
def test_permuting_completions_permutes_their_advantages(name: str, batch: Batch, data: st.DataObject):
    order_B = torch.tensor(data.draw(st.permutations(range(len(batch[0])))))
    rewards_B, ids_B, scored_B = batch
    permuted = compute(name, (rewards_B[order_B], ids_B[order_B], scored_B[order_B]))
    torch.testing.assert_close(permuted, compute(name, batch)[order_B], atol=1e-14, rtol=1e-13)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@given(batch=batches())
def test_names_of_groups_do_not_matter(name: str, batch: Batch):
    rewards_B, ids_B, scored_B = batch
    assert torch.equal(compute(name, (rewards_B, -3 * ids_B + 1, scored_B)), compute(name, batch))


@pytest.mark.parametrize("name", sorted(GROUP_RELATIVE))
@given(batch=batches())
def test_group_relative_advantages_sum_to_zero_in_each_group(name: str, batch: Batch):
    ids_B = batch[1]
    found = compute(name, batch)
    for group in ids_B.unique():
        assert found[ids_B == group].sum().abs().item() <= 1e-12 * max(1.0, found.abs().max().item())


@given(batch=batches())
def test_batch_centred_advantages_sum_to_zero_over_the_batch(batch: Batch):
    assert compute("batch_centred", batch).sum().abs().item() <= 1e-12


@pytest.mark.parametrize("name", sorted(GROUP_RELATIVE))
@given(
    value=st.floats(-1e9, 1e9, allow_subnormal=False),
    steps=st.lists(st.integers(-2, 2), min_size=2, max_size=9),
)
def test_a_constant_group_is_exactly_zero_whatever_the_constant(name: str, value: float, steps: list[int]):
    rewards_B = torch.tensor([value * (1 + step * EPS) for step in steps], dtype=torch.float64)
    batch = (rewards_B, torch.zeros(len(steps)).long(), torch.ones(len(steps)).bool())
    assert compute(name, batch).tolist() == [0.0] * len(steps)
    assert group_signal(*batch, resolution=EPS).n_constant == 1


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@given(batch=batches())
def test_unscored_members_are_as_if_they_were_not_there(name: str, batch: Batch):
    rewards_B, ids_B, scored_B = batch
    found = compute(name, (rewards_B.masked_fill(~scored_B, float("nan")), ids_B, scored_B))
    kept = compute(name, (rewards_B[scored_B], ids_B[scored_B], scored_B[scored_B]))
    assert found[~scored_B].tolist() == [0.0] * int((~scored_B).sum())
    torch.testing.assert_close(found[scored_B], kept, atol=1e-14, rtol=1e-13)


@pytest.mark.parametrize("name", SEES_ONE_GROUP)
@given(batch=batches())
def test_a_group_does_not_see_the_others(name: str, batch: Batch):
    rewards_B, ids_B, scored_B = batch
    found = compute(name, batch)
    for group in ids_B.unique():
        in_B = ids_B == group
        alone = compute(name, (rewards_B[in_B], ids_B[in_B], scored_B[in_B]))
        torch.testing.assert_close(found[in_B], alone, atol=1e-14, rtol=1e-13)


@pytest.mark.parametrize("ddof", [0, 1])
@given(batch=batches())
def test_batch_standardised_advantages_have_deviation_one_over_those_with_a_baseline(ddof: int, batch: Batch):
    _, ids_B, scored_B = batch
    found = advantages("batch_standardised", *batch, resolution=EPS, ddof=ddof)
    size_B = torch.tensor([int((scored_B & (ids_B == group)).sum()) for group in ids_B])
    with_baseline = found[scored_B & (size_B > 1)]
    if found.any():
        assert with_baseline.std(correction=ddof).item() == pytest.approx(
            1.0, rel=1e-3
        )  # δ beside at least 1/64 · 1/√12


@given(batch=batches())
def test_batch_standardised_keeps_the_weights_of_groups_against_each_other(batch: Batch):
    centred, found = compute("group_centred", batch), compute("batch_standardised", batch)
    scale = found.abs().sum() / centred.abs().sum().clamp(min=1e-300)
    torch.testing.assert_close(found, scale * centred, atol=1e-12, rtol=1e-9)


@given(batch=batches())
def test_every_group_is_informative_constant_or_short(batch: Batch):
    signal = group_signal(*batch, resolution=EPS)
    assert signal.n_groups == len(batch[1].unique())
    assert signal.n_groups == signal.n_informative + signal.n_constant + signal.n_short
    moved = compute("group_centred", batch).nonzero().flatten()
    assert signal.n_informative == len(batch[1][moved].unique())
