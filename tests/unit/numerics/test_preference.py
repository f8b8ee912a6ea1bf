"""Preference losses: written out by hand, their laws, where gradients go, extremes, refusals."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steelyard.numerics.preference import bradley_terry, dpo, ensemble_minimum, ensemble_reward

LOG_2 = math.log(2.0)


def t(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


# ------------------------------------------------------------------ by hand


def pair_loss(margin: float) -> float:
    """−log σ(margin), stable on both sides."""
    return math.log1p(math.exp(-margin)) if margin > 0 else -margin + math.log1p(math.exp(margin))


def spread(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


number = st.floats(-50.0, 50.0)
beta = st.floats(0.01, 5.0)
four = st.tuples(number, number, number, number)


@pytest.mark.oracle
@given(st.lists(four, min_size=1, max_size=6), beta)
def test_dpo_is_the_formula_written_out(rows, b):
    columns = [t(*column) for column in zip(*rows, strict=True)]
    out = dpo(*columns, beta=b)
    for place, (w, x, ref_w, ref_x) in enumerate(rows):
        chosen, rejected = b * (w - ref_w), b * (x - ref_x)
        assert out.chosen_reward_B[place].item() == pytest.approx(chosen, rel=1e-12, abs=1e-12)
        assert out.rejected_reward_B[place].item() == pytest.approx(rejected, rel=1e-12, abs=1e-12)
        assert out.margin_B[place].item() == pytest.approx(chosen - rejected, rel=1e-12, abs=1e-11)
        assert out.term_B[place].item() == pytest.approx(pair_loss(chosen - rejected), rel=1e-10, abs=1e-300)


@pytest.mark.oracle
@given(st.lists(st.tuples(number, number), min_size=1, max_size=6))
def test_bradley_terry_is_the_formula_written_out(rows):
    columns = [t(*column) for column in zip(*rows, strict=True)]
    for found, (w, x) in zip(bradley_terry(*columns).tolist(), rows, strict=True):
        assert found == pytest.approx(pair_loss(w - x), rel=1e-10, abs=1e-300)


@pytest.mark.oracle
@given(st.integers(1, 4), st.integers(1, 4), st.data(), st.floats(0.0, 3.0))
def test_ensembles_are_the_formula_written_out(members, answers, data, penalty):
    table = [[data.draw(number) for _ in range(answers)] for _ in range(members)]
    rewards_KB = torch.tensor(table, dtype=torch.float64)
    mean, lowest = ensemble_reward(rewards_KB, penalty=penalty), ensemble_minimum(rewards_KB)
    for place in range(answers):
        column = [row[place] for row in table]
        deviation = spread(column)
        assert mean.disagreement_B[place].item() == pytest.approx(deviation, rel=1e-9, abs=1e-9)
        wanted = math.fsum(column) / members - penalty * deviation
        assert mean.reward_B[place].item() == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        assert lowest.reward_B[place].item() == min(column)
        assert lowest.disagreement_B[place].item() == pytest.approx(deviation, rel=1e-9, abs=1e-9)


def test_dpo_reference_values():
    """β 0.5, rewards 1 and −0.5: margin 1.5, loss −log σ(1.5) = 0.2014132779827524."""
    out = dpo(t(-10.0), t(-11.0), t(-12.0), t(-10.0), beta=0.5)
    assert (out.chosen_reward_B.item(), out.rejected_reward_B.item(), out.margin_B.item()) == (1.0, -0.5, 1.5)
    assert out.term_B.item() == pytest.approx(0.2014132779827524, rel=1e-15)


def test_where_policy_is_reference_the_loss_is_log_2_and_the_pull_half_beta():
    chosen, rejected = t(-7.0).requires_grad_(), t(-30.0).requires_grad_()
    out = dpo(chosen, rejected, chosen.detach(), rejected.detach(), beta=0.3)
    assert out.term_B.item() == LOG_2
    assert out.margin_B.item() == 0.0
    out.term_B.sum().backward()
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert (chosen.grad.item(), rejected.grad.item()) == (-0.15, 0.15)


# ------------------------------------------------------------------ laws


@given(four, beta, number)
def test_a_shift_of_both_sides_changes_nothing(row, b, shift):
    w, x, ref_w, ref_x = row
    plain = dpo(t(w), t(x), t(ref_w), t(ref_x), beta=b).margin_B.item()
    policy = dpo(t(w + shift), t(x + shift), t(ref_w), t(ref_x), beta=b).margin_B.item()
    answer = dpo(t(w + shift), t(x), t(ref_w + shift), t(ref_x), beta=b).margin_B.item()
    assert policy == pytest.approx(plain, abs=1e-9 * b)
    assert answer == pytest.approx(plain, abs=1e-9 * b)
    assert bradley_terry(t(w + shift), t(x + shift)).item() == pytest.approx(bradley_terry(t(w), t(x)).item(), abs=1e-9)


@given(four, beta)
def test_swapping_the_answers_negates_the_margin_and_the_two_losses_differ_by_it(row, b):
    w, x, ref_w, ref_x = row
    one, other = dpo(t(w), t(x), t(ref_w), t(ref_x), beta=b), dpo(t(x), t(w), t(ref_x), t(ref_w), beta=b)
    assert one.margin_B.item() == -other.margin_B.item()
    assert (other.term_B - one.term_B).item() == pytest.approx(one.margin_B.item(), abs=1e-9)
    assert bradley_terry(t(w), t(x)).item() >= 0.0


@given(four, beta, st.floats(0.1, 10.0))
def test_beta_scales_rewards_and_margin(row, b, factor):
    columns = [t(value) for value in row]
    one, more = dpo(*columns, beta=b), dpo(*columns, beta=b * factor)
    assert more.margin_B.item() == pytest.approx(factor * one.margin_B.item(), rel=1e-9, abs=1e-9)
    assert more.chosen_reward_B.item() == pytest.approx(factor * one.chosen_reward_B.item(), rel=1e-9, abs=1e-9)


@given(st.lists(four, min_size=2, max_size=5), beta)
def test_pairs_do_not_see_each_other(rows, b):
    columns = [t(*column) for column in zip(*rows, strict=True)]
    together = dpo(*columns, beta=b).term_B.tolist()
    alone = [dpo(*(t(value) for value in row), beta=b).term_B.item() for row in rows]
    assert together == alone


@given(st.lists(st.lists(number, min_size=3, max_size=3), min_size=1, max_size=4), st.randoms())
def test_the_order_of_members_changes_nothing_and_no_penalty_is_the_mean(table, rng):
    shuffled = rng.sample(table, len(table))
    one = ensemble_reward(torch.tensor(table).double(), penalty=0.7)
    other = ensemble_reward(torch.tensor(shuffled).double(), penalty=0.7)
    torch.testing.assert_close(one.reward_B, other.reward_B)
    torch.testing.assert_close(one.disagreement_B, other.disagreement_B)
    plain = ensemble_reward(torch.tensor(table).double(), penalty=0.0)
    assert torch.equal(plain.reward_B, torch.tensor(table).double().mean(dim=0))


@given(st.lists(number, min_size=1, max_size=5), st.floats(0.0, 9.0))
def test_a_single_member_never_disagrees(rewards, penalty):
    out = ensemble_reward(torch.tensor([rewards]).double(), penalty=penalty)
    assert out.disagreement_B.tolist() == [0.0] * len(rewards)
    assert out.reward_B.tolist() == torch.tensor(rewards).double().tolist()
    assert ensemble_minimum(torch.tensor([rewards]).double()).reward_B.tolist() == out.reward_B.tolist()


def test_no_completion_is_no_reward():
    out = ensemble_reward(torch.zeros(3, 0), penalty=1.0)
    assert (out.reward_B.shape, out.disagreement_B.shape) == ((0,), (0,))
    assert dpo(t(), t(), t(), t(), beta=1.0).term_B.shape == (0,)


# ------------------------------------------------------------------ gradients


def test_gradcheck():
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2)]
    fixed = [torch.randn(4, dtype=torch.float64, generator=generator) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda w, x: dpo(w, x, *fixed, beta=0.7).term_B, values)
    assert torch.autograd.gradcheck(bradley_terry, values)


def test_the_gradient_goes_to_the_policy_only_and_reports_carry_none():
    inputs = [t(0.5, -1.0).requires_grad_() for _ in range(4)]
    out = dpo(*inputs, beta=0.5)
    out.term_B.sum().backward()
    assert [x.grad is not None for x in inputs] == [True, True, False, False]
    assert not any(x.requires_grad for x in (out.chosen_reward_B, out.rejected_reward_B, out.margin_B))
    rewards_KB = torch.ones(2, 3).requires_grad_()
    for ensemble in (ensemble_reward(rewards_KB, penalty=1.0), ensemble_minimum(rewards_KB)):
        assert not ensemble.reward_B.requires_grad
        assert not ensemble.disagreement_B.requires_grad


@given(number, number)
def test_the_pull_is_the_chance_that_the_order_is_wrong(w, x):
    chosen, rejected = t(w).requires_grad_(), t(x).requires_grad_()
    bradley_terry(chosen, rejected).sum().backward()
    assert chosen.grad is not None
    assert rejected.grad is not None
    wrong = math.exp(-pair_loss(x - w))
    assert chosen.grad.item() == pytest.approx(-wrong, rel=1e-9, abs=1e-300)
    assert rejected.grad.item() == -chosen.grad.item()


# ------------------------------------------------------------------ dtypes and extremes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_its_gradient_comes_back_in_half(dtype):
    chosen = t(-3.0, dtype=dtype).requires_grad_()
    out = dpo(chosen, t(-4.0, dtype=dtype), t(-3.5, dtype=dtype), t(-3.5, dtype=dtype), beta=1.0)
    assert out.term_B.dtype == torch.float32
    assert out.term_B.item() == pytest.approx(pair_loss(1.0), rel=1e-6)
    out.term_B.sum().backward()
    assert chosen.grad is not None
    assert chosen.grad.dtype == dtype
    assert bradley_terry(t(1.0, dtype=dtype), t(0.0, dtype=dtype)).dtype == torch.float32
    assert ensemble_reward(torch.ones(2, 1, dtype=dtype), penalty=0.0).reward_B.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e15])
def test_at_any_margin_loss_and_gradient_are_finite_and_a_wrong_pair_pulls_with_beta(dtype, size):
    chosen = t(-size, size, dtype=dtype).requires_grad_()
    zero = t(0.0, 0.0, dtype=dtype)
    out = dpo(chosen, zero, zero, zero, beta=2.0)
    assert out.term_B[0].item() == pytest.approx(2 * size, rel=1e-6)
    assert out.term_B[1].item() == pytest.approx(0.0, abs=1e-40)
    out.term_B.sum().backward()
    assert chosen.grad is not None
    assert chosen.grad[0].item() == -2.0
    assert chosen.grad[1].item() == pytest.approx(0.0, abs=1e-40)


def test_float64_keeps_its_digits_past_20():
    assert bradley_terry(t(25.0), t(0.0)).item() == pytest.approx(math.log1p(math.exp(-25.0)), rel=1e-12)


# ------------------------------------------------------------------ refusals

ONE = t(0.0)
CALLS: dict[str, Callable[[Tensor], object]] = {
    "chosen log-prob": lambda x: dpo(x, ONE, ONE, ONE, beta=1.0),
    "rejected log-prob": lambda x: dpo(ONE, x, ONE, ONE, beta=1.0),
    "chosen reference log-prob": lambda x: dpo(ONE, ONE, x, ONE, beta=1.0),
    "rejected reference log-prob": lambda x: dpo(ONE, ONE, ONE, x, beta=1.0),
    "chosen reward": lambda x: bradley_terry(x, ONE),
    "rejected reward": lambda x: bradley_terry(ONE, x),
    "reward of member 1": lambda x: ensemble_reward(torch.stack([ONE, x]), penalty=0.0),
}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e101])
@pytest.mark.parametrize("name", list(CALLS))
def test_what_is_no_number_is_refused_with_name_value_and_place(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be finite .* got .* 0; leave out") as error:
        CALLS[name](t(value).requires_grad_())
    assert str(value) in str(error.value)


def test_the_limit_itself_is_let_through():
    limit = math.sqrt(torch.finfo(torch.float32).max) / 16
    just = torch.tensor([limit * (1 - 1e-6)])
    assert torch.isfinite(bradley_terry(just, -just)).all()
    assert torch.isfinite(ensemble_reward(torch.stack([just, -just]), penalty=1.0).reward_B).all()
    with pytest.raises(ValueError, match="must be finite"):
        bradley_terry(torch.tensor([limit * (1 + 1e-6)]), just)
    assert bradley_terry(t(1e100), t(1e100)).item() == LOG_2  # at the limit of float64


def test_the_first_place_that_cannot_be_used_is_named():
    with pytest.raises(ValueError, match="got nan at pair 1;"):
        bradley_terry(t(0.0, math.nan, math.inf), t(0.0, 0.0, 0.0))


@pytest.mark.parametrize("value", [0.0, -0.1, math.nan, math.inf, 2e6])
def test_a_beta_without_meaning_is_refused(value):
    with pytest.raises(ValueError, match="beta"):
        dpo(ONE, ONE, ONE, ONE, beta=value)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_a_penalty_without_meaning_is_refused(value):
    with pytest.raises(ValueError, match="penalty"):
        ensemble_reward(torch.zeros(2, 1), penalty=value)


@pytest.mark.usefixtures("unchecked")
def test_shapes_and_kinds_that_do_not_agree_are_refused():
    two, whole, square = t(0.0, 1.0), torch.tensor([0]), torch.zeros(1, 1)
    for odd in (two, whole, square):
        with pytest.raises(ValueError, match="of one shape"):
            dpo(ONE, ONE, odd, ONE, beta=1.0)
        with pytest.raises(ValueError, match="of one shape"):
            bradley_terry(odd, ONE)
    for table in (torch.zeros(0, 3), torch.zeros(3), torch.zeros(2, 3).long()):
        with pytest.raises(ValueError, match="K ≥ 1"):
            ensemble_reward(table, penalty=0.0)
        with pytest.raises(ValueError, match="K ≥ 1"):
            ensemble_minimum(table)
