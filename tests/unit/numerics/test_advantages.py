import math
import sys

import pytest
import torch
from torch import Tensor

from steelyard.numerics import variants
from steelyard.numerics.advantages import (
    ADVANTAGES,
    GROUP_RELATIVE,
    STANDARDISED,
    STD_DELTA,
    GroupSignal,
    advantages,
    batch_centred,
    batch_standardised,
    group_centred,
    group_signal,
    group_standardised,
    leave_one_out,
    raw,
)

EPS64 = sys.float_info.epsilon
EPS32 = torch.finfo(torch.float32).eps


def f64(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def batch(groups: list[list[float]]) -> tuple[Tensor, Tensor, Tensor]:
    """Groups laid out one after the other, all scored."""
    rewards = [r for group in groups for r in group]
    ids = [number for number, group in enumerate(groups) for _ in group]
    return f64(rewards), torch.tensor(ids), torch.ones(len(ids), dtype=torch.bool)


def by_name(name: str, rewards_B: Tensor, ids_B: Tensor, scored_B: Tensor, *, resolution: float = EPS64) -> Tensor:
    ddof = 0 if name in STANDARDISED else None
    return advantages(name, rewards_B, ids_B, scored_B, resolution=resolution, ddof=ddof)


def test_standardised_reference_values_for_both_conventions():
    args = batch([[0.0, 0.5, 0.5, 1.0]])
    population = group_standardised(*args, resolution=EPS64, ddof=0)
    sample = group_standardised(*args, resolution=EPS64, ddof=1)
    torch.testing.assert_close(population, f64([-1.41421, 0, 0, 1.41421]), atol=1e-5, rtol=0)
    torch.testing.assert_close(sample, f64([-1.22474, 0, 0, 1.22474]), atol=1e-5, rtol=0)


def test_a_pair_is_a_comparison():
    torch.testing.assert_close(
        group_standardised(*batch([[1.0, 0.0]]), resolution=EPS64, ddof=0), f64([1.0, -1.0]), atol=1e-5, rtol=0
    )


def test_c02_sample_or_population_deviation_is_named():
    args = batch([[1.0, 0.0, 0.0, 0.0]])
    sample = group_standardised(*args, resolution=EPS64, ddof=1)
    population = group_standardised(*args, resolution=EPS64, ddof=0)
    torch.testing.assert_close(sample, f64([1.5, -0.5, -0.5, -0.5]), atol=5e-5, rtol=0)
    torch.testing.assert_close(population, f64([1.7321, -0.5774, -0.5774, -0.5774]), atol=1e-4, rtol=0)
    assert group_centred(*args, resolution=EPS64).tolist() == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize(("ddof", "size"), [(0, 1.22474), (1, 1.11803)])
def test_c02_batch_standardised_names_its_deviation_too(ddof: int, size: float):
    # c = (.5, −.5, −.5, 0, 0, .5): Σ c² = 1 over N = 6, so std = √(1/6) or √(1/5).
    args = batch([[1.0, 0.0], [0.0, 0.5, 0.5, 1.0]])
    found = batch_standardised(*args, resolution=EPS64, ddof=ddof)
    torch.testing.assert_close(found, f64([size, -size, -size, 0, 0, size]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("ddof", [0, 1])
def test_one_group_is_the_batch(ddof: int):
    args = batch([[1.0, 0.0, 0.0, 0.0]])
    one = batch_standardised(*args, resolution=EPS64, ddof=ddof)
    torch.testing.assert_close(one, group_standardised(*args, resolution=EPS64, ddof=ddof), rtol=1e-15, atol=0)


@pytest.mark.parametrize("ddof", [0, 1])
def test_batch_standardised_counts_those_with_a_baseline(ddof: int):
    # A constant pair counts with 0, so std² = 2/(4 − ddof); a lone member and unscored ones do not count.
    rewards_B, ids_B = f64([3.0, 1.0, 0.7, 0.7, 9.0, math.nan, 4.0]), torch.tensor([0, 0, 1, 1, 2, 0, 3])
    scored_B = torch.tensor([True, True, True, True, True, False, False])
    size = 1 / (math.sqrt(2 / (4 - ddof)) + STD_DELTA)
    found = batch_standardised(rewards_B, ids_B, scored_B, resolution=EPS64, ddof=ddof)
    assert found.tolist() == [pytest.approx(size), pytest.approx(-size), 0, 0, 0, 0, 0]


def test_leave_one_out_reference():
    args = batch([[1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(leave_one_out(*args, resolution=EPS64), f64([1.0, -1 / 3, -1 / 3, -1 / 3]))


def test_batch_centred_ignores_groups_and_raw_ignores_everything():
    args = batch([[1.0, 1.0], [0.0, 0.0]])
    assert batch_centred(*args, resolution=EPS64).tolist() == [0.5, 0.5, -0.5, -0.5]
    assert raw(*args, resolution=EPS64).tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("name", sorted(GROUP_RELATIVE))
@pytest.mark.parametrize(
    "group",
    [[0.1 + 0.2, 0.3], [0.7] * 16, [1 / 3] * 8, [-8.0] * 4, [0.0] * 4, [1e-300] * 3, [1e50, 1e50 * (1 + EPS64)]],
    ids=["0.1+0.2", "0.7", "1/3", "-8", "0", "tiny", "huge"],
)
def test_c04_rewards_that_differ_in_the_last_bit_are_equal(name: str, group: list[float]):
    args = batch([group])
    assert by_name(name, *args).tolist() == [0.0] * len(group)
    assert group_signal(*args, resolution=EPS64) == GroupSignal(n_groups=1, n_informative=0, n_constant=1, n_short=0)


@pytest.mark.parametrize("resolution", [EPS64, EPS32])
def test_c04_a_small_true_difference_stays_informative(resolution: float):
    args = batch([[1.0, 1.00001]])
    out_B = group_standardised(*args, resolution=resolution, ddof=1)
    torch.testing.assert_close(out_B, f64([-0.6195, 0.6195]), atol=5e-5, rtol=0)  # δ outside the root
    assert group_signal(*args, resolution=resolution).n_informative == 1


def test_c04_the_test_uses_the_dtype_that_rewards_were_computed_in():
    # 0.1 + 0.2 summed in float32, then carried as float64: 1e-8 apart, which float64 rounding cannot explain.
    carried_B = (torch.tensor([0.1, 0.7]) + torch.tensor([0.7, 0.1])).double() + f64([0.0, 2e-8])
    ids_B, scored_B = torch.zeros(2).long(), torch.ones(2).bool()
    assert group_centred(carried_B, ids_B, scored_B, resolution=EPS32).tolist() == [0.0, 0.0]
    assert group_centred(carried_B, ids_B, scored_B, resolution=EPS64)[0].item() < 0


def test_c01_a_large_deviation_over_the_batch_is_no_signal_within_its_groups():
    args = batch([[-8.0] * 4, [2.0] * 4])
    assert args[0].std().item() == pytest.approx(5.345, abs=5e-4)
    assert group_signal(*args, resolution=EPS64) == GroupSignal(n_groups=2, n_informative=0, n_constant=2, n_short=0)
    for name in GROUP_RELATIVE:
        assert by_name(name, *args).tolist() == [0.0] * 8


def test_c18_ragged_groups_are_centred_by_id():
    assert group_centred(*batch([[1.0, 3.0], [5.0]]), resolution=EPS64).tolist() == [-1.0, 1.0, 0.0]
    assert group_centred(*batch([[1.0], [0.0, 1.0], [1.0, 1.0]]), resolution=EPS64).tolist() == [0, -0.5, 0.5, 0, 0]


def test_c18_interleaved_groups_are_centred_by_id():
    rewards_B, ids_B = f64([1.0, 10.0, 3.0, 20.0]), torch.tensor([7, -2, 7, -2])
    assert group_centred(rewards_B, ids_B, torch.ones(4).bool(), resolution=EPS64).tolist() == [-1.0, -5.0, 1.0, 5.0]


def test_c18_ids_in_a_strided_view_of_any_integer_type():
    ids_B = torch.tensor([[0, 9], [1, 9], [0, 9]], dtype=torch.int32)[:, 0]
    out_B = group_centred(f64([1.0, 5.0, 3.0]), ids_B, torch.ones(3).bool(), resolution=EPS64)
    assert out_B.tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_c18_where_a_completion_stands_does_not_matter(name: str):
    args = batch([[1.0, 3.0], [5.0], [0.0, 0.25, 0.5]])
    order_B = torch.tensor([3, 0, 2, 4, 1, 5])
    found = by_name(name, *(x[order_B] for x in args))
    torch.testing.assert_close(found, by_name(name, *args)[order_B], rtol=1e-15, atol=1e-16)


@pytest.mark.parametrize("name", sorted(GROUP_RELATIVE))
@pytest.mark.parametrize("ddof", [0, 1])
def test_c18_groups_of_one_are_all_zero(name: str, ddof: int):
    args = batch([[1.0], [3.0], [5.0]])
    found = advantages(name, *args, resolution=EPS64, ddof=ddof if name in STANDARDISED else None)
    assert found.tolist() == [0.0, 0.0, 0.0]
    assert group_signal(*args, resolution=EPS64).n_short == 3


@pytest.mark.parametrize("name", sorted(GROUP_RELATIVE))
def test_a_lone_member_has_no_baseline(name: str):
    args = batch([[5.0], [1.0, 3.0]])
    assert by_name(name, *args)[0].item() == 0.0
    assert group_signal(*args, resolution=EPS64) == GroupSignal(n_groups=2, n_informative=1, n_constant=0, n_short=1)


def test_c20_a_rejected_row_leaves_the_baseline_too():
    scored_B = torch.tensor([True, True, False])
    out_B = group_standardised(f64([1.0, 0.0, 10.0]), torch.zeros(3).long(), scored_B, resolution=EPS64, ddof=1)
    torch.testing.assert_close(out_B, f64([0.7071, -0.7071, 0.0]), atol=5e-5, rtol=0)


@pytest.mark.parametrize("name", sorted(GROUP_RELATIVE | {"batch_centred"}))
@pytest.mark.parametrize("ids", [[0, 0, 0, 1, 1], [4, 4, 4, -1, -1]])
def test_c20_a_rejected_row_leaves_every_baseline(name: str, ids: list[int]):
    rewards_B, ids_B = f64([1.0, 0.0, 10.0, 0.0, 0.5]), torch.tensor(ids)
    scored_B = torch.tensor([True, True, False, True, True])
    found = by_name(name, rewards_B, ids_B, scored_B)
    without = by_name(name, rewards_B[scored_B], ids_B[scored_B], scored_B[scored_B])
    assert found[scored_B].tolist() == without.tolist()
    assert found[2].item() == 0.0


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_c08_a_batch_without_a_scored_completion_is_zero(name: str):
    args = (f64([math.nan, 1.0, math.inf, -1e300]), torch.tensor([0, 0, 1, 1]), torch.zeros(4).bool())
    assert by_name(name, *args).tolist() == [0.0] * 4
    assert group_signal(*args, resolution=EPS64).n_short == 2


@pytest.mark.parametrize("name", sorted(GROUP_RELATIVE))
def test_c24_a_reward_of_none_is_unscored_not_zero(name: str):
    rewards = [1.0, None, 0.5, None]
    rewards_B = f64([math.nan if r is None else r for r in rewards])
    scored_B = torch.tensor([r is not None for r in rewards])
    found = by_name(name, rewards_B, torch.zeros(4).long(), scored_B)
    assert found[0].item() == -found[2].item() > 0
    assert found[[1, 3]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf, 1e300, 0.6])
def test_c24_an_unscored_reward_enters_nothing(name: str, rubbish: float):
    scored_B = torch.tensor([True, False, True])
    with_gap = by_name(name, f64([0.5, rubbish, 0.7]), torch.zeros(3).long(), scored_B)
    without = by_name(name, f64([0.5, 0.7]), torch.zeros(2).long(), torch.ones(2).bool())
    assert with_gap.tolist() == [without[0].item(), 0.0, without[1].item()]


@pytest.mark.parametrize("name", sorted(GROUP_RELATIVE))
def test_c24_an_unscored_reward_does_not_make_a_constant_group_informative(name: str):
    args = (f64([0.1 + 0.2, 0.3, math.nan]), torch.zeros(3).long(), torch.tensor([True, True, False]))
    assert by_name(name, *args).tolist() == [0.0, 0.0, 0.0]
    assert group_signal(*args, resolution=EPS64).n_constant == 1


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_c24_a_scored_reward_must_be_finite(name: str, value: float, dtype: torch.dtype):
    rewards_B = torch.tensor([1.0, value], dtype=dtype)
    with pytest.raises(ValueError, match=rf"must be finite.*got \[{value}\] at places \[1\]"):
        by_name(name, rewards_B, torch.zeros(2).long(), torch.ones(2).bool())


def test_a_group_left_with_fewer_than_two_scored_members_is_short():
    scored_B = torch.tensor([True, False, False, False, True, True])
    rewards_B, ids_B = f64([1.0, math.nan, 3.0, 4.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1, 2, 2])
    signal = group_signal(rewards_B, ids_B, scored_B, resolution=EPS64)
    assert signal == GroupSignal(n_groups=3, n_informative=1, n_constant=0, n_short=2)
    assert leave_one_out(rewards_B, ids_B, scored_B, resolution=EPS64).tolist() == [0, 0, 0, 0, -1.0, 1.0]


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_an_empty_batch_is_empty(name: str):
    args = (torch.zeros(0, dtype=torch.float64), torch.zeros(0).long(), torch.zeros(0).bool())
    assert by_name(name, *args).shape == (0,)
    assert group_signal(*args, resolution=EPS64) == GroupSignal(n_groups=0, n_informative=0, n_constant=0, n_short=0)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_of_the_rewards_is_kept(name: str, dtype: torch.dtype):
    rewards_B, ids_B, scored_B = batch([[1.0, 0.0]])
    found = by_name(name, rewards_B.to(dtype), ids_B, scored_B)
    assert found.dtype == dtype
    assert found.tolist() == by_name(name, rewards_B, ids_B, scored_B).to(dtype).tolist()


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_largest_reward_has_a_finite_advantage_and_the_next_is_refused(name: str, dtype: torch.dtype):
    limit = min(1e100, torch.finfo(dtype).max / 2)
    pair_B, ids_B, scored_B = torch.tensor([limit, -limit], dtype=dtype), torch.zeros(2).long(), torch.ones(2).bool()
    assert by_name(name, pair_B, ids_B, scored_B, resolution=1e-3).isfinite().all()
    above = limit * (1 + 2 * torch.finfo(dtype).eps)
    with pytest.raises(ValueError, match=rf"must be finite \(\|r\| ≤ .* in {dtype}\)"):
        by_name(name, torch.tensor([above, 0.0], dtype=dtype), ids_B, scored_B)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_a_dtype_that_would_cut_advantages_off_is_refused(name: str):
    rewards_B, ids_B, scored_B = batch([[1.0, 0.0]])
    for wrong in ((rewards_B.long(), ids_B, scored_B), (rewards_B, ids_B.double(), scored_B)):
        with pytest.raises(ValueError, match="rewards must be floating point"):
            by_name(name, *wrong)
    with pytest.raises(ValueError, match=r"scored bool, got torch\.float64, torch\.int64 and torch\.int64"):
        by_name(name, rewards_B, ids_B, scored_B.long())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_lengths_that_do_not_agree_are_named(name: str):
    with pytest.raises(ValueError, match=r"got shapes \(3,\), \(2,\), \(3,\)"):
        by_name(name, torch.zeros(3), torch.zeros(2).long(), torch.ones(3).bool())
    with pytest.raises(ValueError, match=r"got shapes \(2, 1\)"):
        by_name(name, torch.zeros(2, 1), torch.zeros(2, 1).long(), torch.ones(2, 1).bool())


@pytest.mark.parametrize("resolution", [0.0, -1e-16, 0.125, 1.0, math.nan])
def test_resolution_is_a_rounding_unit(resolution: float):
    with pytest.raises(ValueError, match="resolution must be the rounding unit"):
        group_centred(*batch([[1.0, 0.0]]), resolution=resolution)


def test_every_choice_is_read_or_refused():
    args = batch([[1.0, 0.0]])
    with pytest.raises(ValueError, match="unknown advantage 'grpo'; choose one of raw"):
        advantages("grpo", *args, resolution=EPS64, ddof=None)
    with pytest.raises(ValueError, match="ddof=1 would never be read"):
        advantages("group_centred", *args, resolution=EPS64, ddof=1)
    with pytest.raises(
        ValueError, match=r"'gae' needs a value and a reward per token: call steelyard\.numerics\.values"
    ):
        advantages("gae", *args, resolution=EPS64, ddof=0)
    for name in STANDARDISED:
        with pytest.raises(ValueError, match=f"'{name}' needs ddof"):
            advantages(name, *args, resolution=EPS64, ddof=None)
        with pytest.raises(ValueError, match="ddof must be 0"):
            advantages(name, *args, resolution=EPS64, ddof=2)


def test_the_tables_of_names_and_of_functions_agree():
    assert (*ADVANTAGES, "gae") == variants.ADVANTAGE_NAMES  # gae takes values: steelyard.numerics.values
    assert set(ADVANTAGES) > GROUP_RELATIVE
    assert all(function.__name__ == name for name, function in ADVANTAGES.items())
