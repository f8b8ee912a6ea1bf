import math
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from steelyard.numerics.advantages import STD_DELTA
from steelyard.numerics.kl import k1
from steelyard.numerics.reductions import Denominators, token_mean, weighted_sum
from steelyard.numerics.values import explained_variance, gae, token_rewards, value_loss, whitened

EPS64 = sys.float_info.epsilon
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def f64(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def prefix(*lengths: int, width: int) -> Tensor:
    return torch.arange(width) < torch.tensor(lengths).unsqueeze(1)


# ------------------------------------------------------------------ rewards per token


def test_the_reward_stands_on_the_last_live_token_and_the_penalty_on_each():
    kl_BT, mask_BT = f64([[0.5, -0.25, math.nan], [1.0, 2.0, 3.0]]), prefix(2, 3, width=3)
    found = token_rewards(torch.tensor([1.0, -1.0]).double(), kl_BT, mask_BT, kl_coef=0.5)
    assert found.tolist() == [[-0.25, 1.125, 0.0], [-0.5, -1.0, -2.5]]


def test_gaps_have_neither_penalty_nor_reward():
    mask_BT = torch.tensor([[False, True, False, True, False]])
    found = token_rewards(torch.tensor([2.0]), torch.ones(1, 5), mask_BT, kl_coef=1.0)
    assert found.tolist() == [[0.0, -1.0, 0.0, 1.0, 0.0]]


def test_the_sum_is_the_penalised_reward_of_the_completion():
    logp_BT, ref_BT = f64([[-1.0, -2.0, -0.5]]), f64([[-1.5, -1.0, -0.5]])
    mask_BT = prefix(3, width=3)
    found = token_rewards(torch.tensor([1.0]).double(), k1(logp_BT, ref_BT, mask_BT), mask_BT, kl_coef=0.1)
    assert found.sum().item() == pytest.approx(1.0 - 0.1 * (0.5 - 1.0 + 0.0))


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e300])
def test_c08_a_row_without_a_live_token_is_all_zero_whatever_its_reward(reward: float):
    rewards_B, kl_BT = torch.tensor([reward, 1.0]).double(), torch.full((2, 2), math.nan).double()
    kl_BT[1, 0] = 0.0
    assert token_rewards(rewards_B, kl_BT, prefix(0, 1, width=2), kl_coef=0.1).tolist() == [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_c24_a_live_reward_or_penalty_must_be_finite(bad: float):
    mask_BT = prefix(2, 2, width=3)
    with pytest.raises(ValueError, match=rf"rewards must be finite .* got {bad} in row 1, token 1"):
        token_rewards(torch.tensor([0.0, bad]), torch.zeros(2, 3), mask_BT, kl_coef=0.0)
    kl_BT = torch.zeros(2, 3)
    kl_BT[0, 1] = bad
    with pytest.raises(ValueError, match=rf"KL must be finite .* got {bad} in row 0, token 1"):
        token_rewards(torch.zeros(2), kl_BT, mask_BT, kl_coef=0.0)


@pytest.mark.parametrize("kl_coef", [-0.1, math.nan, math.inf])
def test_the_coefficient_of_the_penalty_is_checked(kl_coef: float):
    with pytest.raises(ValueError, match="kl_coef must be"):
        token_rewards(torch.zeros(1), torch.zeros(1, 1), prefix(1, width=1), kl_coef=kl_coef)


# ------------------------------------------------------------------ GAE


def test_gae_reference_values():
    rewards_BT, values_BT = f64([[0.0, 0.0, 1.0]]), f64([[0.5, 0.25, 0.75]])
    # δ = (0 + .9·.25 − .5, 0 + .9·.75 − .25, 1 − .75) = (−.275, .425, .25), γλ = .72
    out = gae(rewards_BT, values_BT, prefix(3, width=3), gamma=0.9, lam=0.8)
    a_2, a_1 = 0.25, 0.425 + 0.72 * 0.25
    torch.testing.assert_close(out.advantages_BT, f64([[-0.275 + 0.72 * a_1, a_1, a_2]]))
    torch.testing.assert_close(out.returns_BT, out.advantages_BT + values_BT)


def test_a_completion_that_was_cut_off_counts_as_ended():
    # Value and reward behind the last live token are not read, whatever they are.
    rewards_BT, values_BT = f64([[0.0, 0.0, math.nan]]), f64([[1.0, 4.0, math.inf]])
    out = gae(rewards_BT, values_BT, prefix(2, width=3), gamma=1.0, lam=0.5)
    assert out.advantages_BT.tolist() == [[1.0, -4.0, 0.0]]
    assert out.returns_BT.tolist() == [[2.0, 0.0, 0.0]]


def test_returns_are_made_of_advantages_that_are_not_whitened():
    mask_BT = prefix(2, width=2)
    out = gae(f64([[0.0, 7.0]]), f64([[1.0, 2.0]]), mask_BT, gamma=1.0, lam=1.0)
    assert out.returns_BT.tolist() == [[7.0, 7.0]]


@pytest.mark.parametrize(
    ("mask", "row"), [([[True, True], [False, True]], 1), ([[True, False, True], [True, True, True]], 0)]
)
def test_live_tokens_that_are_no_prefix_are_refused(mask: list[list[bool]], row: int):
    mask_BT = torch.tensor(mask)
    zeros_BT = torch.zeros(mask_BT.shape)
    with pytest.raises(ValueError, match=f"live tokens of row {row} are not a prefix"):
        gae(zeros_BT, zeros_BT, mask_BT, gamma=1.0, lam=0.95)


@pytest.mark.parametrize("name", ["gamma", "lam"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_discounts_lie_between_zero_and_one(name: str, value: float):
    numbers = {"gamma": 1.0, "lam": 0.95, name: value}
    with pytest.raises(ValueError, match=rf"{name} must be a number in \[0, 1\]"):
        gae(torch.zeros(1, 1), torch.zeros(1, 1), prefix(1, width=1), **numbers)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2e18])
def test_a_value_network_that_diverged_is_named(bad: float):
    values_BT = torch.zeros(2, 2)
    values_BT[1, 0] = bad
    with pytest.raises(ValueError, match=r"values must be finite .* in row 1, token 0; .* diverged"):
        gae(torch.zeros(2, 2), values_BT, prefix(2, 2, width=2), gamma=1.0, lam=0.95)


def test_huge_values_stay_finite():
    values_BT = torch.tensor([[1.1e18, -1.1e18] * 50])
    mask_BT = prefix(100, width=100)
    out = gae(-values_BT, values_BT, mask_BT, gamma=1.0, lam=1.0)
    assert out.advantages_BT.isfinite().all()
    loss = value_loss(values_BT, -values_BT, -values_BT, mask_BT, clip=math.inf)
    assert loss.term_BT.isfinite().all()


# ------------------------------------------------------------------ whitening


@pytest.mark.parametrize(("ddof", "std"), [(0, math.sqrt(2 / 3)), (1, 1.0)])
def test_c02_whitening_names_its_deviation(ddof: int, std: float):
    x_BT, mask_BT = f64([[1.0, 2.0], [3.0, math.nan]]), prefix(2, 1, width=2)
    found = whitened(x_BT, mask_BT, ddof=ddof, resolution=EPS64)
    size = 1 / (std + STD_DELTA)
    assert found.tolist() == [[pytest.approx(-size, rel=1e-14), 0.0], [pytest.approx(size, rel=1e-14), 0.0]]


def test_whitening_a_micro_batch_by_itself_is_another_thing():
    x_BT, mask_BT = f64([[1.0, 2.0], [10.0, 20.0]]), prefix(2, 2, width=2)
    whole = whitened(x_BT, mask_BT, ddof=0, resolution=EPS64)
    piece = whitened(x_BT[:1], mask_BT[:1], ddof=0, resolution=EPS64)
    assert whole[0, 1].item() < 0 < piece[0, 1].item()


@pytest.mark.parametrize(
    "numbers", [[0.1 + 0.2, 0.3], [0.7] * 16, [1 / 3] * 8, [-8.0] * 4, [0.0] * 3, [1e50, 1e50 * (1 + EPS64)]]
)
@pytest.mark.parametrize("ddof", [0, 1])
def test_c04_a_constant_batch_is_exactly_zero(numbers: list[float], ddof: int):
    mask_BT = prefix(len(numbers), width=len(numbers))
    assert whitened(f64([numbers]), mask_BT, ddof=ddof, resolution=EPS64).tolist() == [[0.0] * len(numbers)]


def test_c04_whitening_judges_by_the_dtype_that_was_computed_in():
    x_BT, mask_BT = f64([[0.8, 0.8 + 2e-8]]), prefix(2, width=2)
    assert whitened(x_BT, mask_BT, ddof=0, resolution=torch.finfo(torch.float32).eps).tolist() == [[0.0, 0.0]]
    assert whitened(x_BT, mask_BT, ddof=0, resolution=EPS64)[0, 1].item() > 0
    with pytest.raises(ValueError, match="resolution must be the rounding unit"):
        whitened(x_BT, mask_BT, ddof=0, resolution=0.0)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("lengths", [(0, 0), (1, 0)])
def test_c08_whitening_fewer_than_two_tokens_gives_zero(lengths: tuple[int, int], ddof: int):
    x_BT = torch.full((2, 2), math.nan).double()
    x_BT[0, 0] = 5.0
    found = whitened(x_BT, prefix(*lengths, width=2), ddof=ddof, resolution=EPS64)
    assert found.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_whitening_of_huge_numbers_does_not_overflow():
    found = whitened(f64([[1e100, -1e100]]), prefix(2, width=2), ddof=0, resolution=EPS64)
    torch.testing.assert_close(found, f64([[1.0, -1.0]]))
    with pytest.raises(ValueError, match="ddof must be 0"):
        whitened(f64([[1.0, 2.0]]), prefix(2, width=2), ddof=2, resolution=EPS64)


# ------------------------------------------------------------------ value loss


def one_value_loss(value: float, old: float, target: float, clip: float) -> tuple[float, bool, float]:
    """Term, whether clipped, and the derivative with respect to the value."""
    value_BT = f64([[value]]).requires_grad_()
    out = value_loss(value_BT, f64([[old]]), f64([[target]]), prefix(1, width=1), clip=clip)
    (slope_BT,) = torch.autograd.grad(out.term_BT.sum(), value_BT, allow_unused=False)
    return out.term_BT.item(), bool(out.clipped_BT.item()), slope_BT.item()


@pytest.mark.parametrize(
    ("value", "old", "target", "term", "clipped", "slope"),
    [
        (0.5, 0.0, 1.0, 0.5 * 0.8**2, True, 0.0),  # moved towards the return and past the clip: it stops
        (0.1, 0.0, 1.0, 0.5 * 0.9**2, False, -0.9),  # still inside
        (-0.5, 0.0, 1.0, 0.5 * 1.5**2, False, -1.5),  # moved away: pulled back in full
        (-0.5, 0.0, -1.0, 0.5 * 0.8**2, True, 0.0),
        (3.0, 0.0, 1.0, 0.5 * 2.0**2, False, 2.0),  # overshot by more than the clip is short
        (1.5, 0.0, 1.0, 0.5 * 0.8**2, True, 0.0),
    ],
)
def test_value_loss_reference_values(value: float, old: float, target: float, term: float, clipped: bool, slope: float):
    found = one_value_loss(value, old, target, 0.2)
    assert found == (pytest.approx(term), clipped, pytest.approx(slope))


@pytest.mark.parametrize("old", [0.0, 0.9, 1.0, 1.1, -0.3, 100.1])
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_edge_the_gradient_flows(old: float, side: int, dtype: torch.dtype):
    old_BT = torch.tensor([[old]], dtype=dtype)
    value_BT = (old_BT + side * 0.2).requires_grad_()
    out = value_loss(value_BT, old_BT, old_BT + side, prefix(1, width=1), clip=0.2)
    (slope_BT,) = torch.autograd.grad(out.term_BT.sum(), value_BT)
    assert not out.clipped_BT.any()
    assert slope_BT.item() == pytest.approx(-0.8 * side, rel=1e-4)


@pytest.mark.parametrize("target", [0.7, 0.3, 1e6])
def test_where_the_two_errors_are_equal_the_gradient_flows(target: float):
    # V_clip = target − e and V = target + e, as far as rounding allows.
    term, clipped, slope = one_value_loss(target + 0.3, target - 0.5, target, 0.2)
    assert not clipped
    assert (term, slope) == (pytest.approx(0.045, rel=1e-6), pytest.approx(0.3, rel=1e-6))


def test_without_a_clip_it_is_the_squared_error():
    assert one_value_loss(5.0, 0.0, 7.0, math.inf) == (2.0, False, -2.0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("clip", [0.0, -0.2, math.nan, None, True, "0.2"])
def test_a_clip_that_is_none_is_refused(clip: float):
    zeros_BT = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=r"clip must be above 0, .* math\.inf for none; got"):
        value_loss(zeros_BT, zeros_BT, zeros_BT, prefix(1, width=1), clip=clip)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_live_entry_of_the_value_loss_must_be_finite(which: int, bad: float):
    tensors = [torch.zeros(1, 2) for _ in range(3)]
    tensors[which][0, 1] = bad
    name = ("values", "old values", "returns")[which]
    with pytest.raises(ValueError, match=rf"^{name} must be finite .* got {bad} in row 0, token 1"):
        value_loss(tensors[0], tensors[1], tensors[2], prefix(2, width=2), clip=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_c08_masked_entries_reach_neither_value_nor_gradient(dtype: torch.dtype):
    values_BT = torch.tensor([[0.5, math.nan], [math.inf, -math.inf]], dtype=dtype, requires_grad=True)
    rubbish_BT = torch.tensor([[0.0, math.nan], [math.nan, math.inf]], dtype=dtype)
    mask_BT = prefix(1, 0, width=2)
    out = value_loss(values_BT, rubbish_BT, rubbish_BT, mask_BT, clip=0.2)
    weights_BT = token_mean(mask_BT, denominators=Denominators(n_sequences=1, n_tokens=1, max_length=2))
    weighted_sum(out.term_BT, weights_BT, mask_BT).backward()
    assert out.term_BT.tolist() == [[0.125, 0.0], [0.0, 0.0]]
    assert values_BT.grad.tolist() == [[0.5, 0.0], [0.0, 0.0]]


def test_the_gradient_of_the_value_loss_is_right():
    generator = torch.Generator().manual_seed(0)
    values_BT, old_BT, returns_BT = torch.randn(3, 6, 8, generator=generator, dtype=torch.float64).unbind()
    mask_BT = torch.rand(6, 8, generator=generator) > 0.3
    values_BT.requires_grad_()

    def terms(values_BT: Tensor) -> Tensor:
        return value_loss(values_BT, old_BT, returns_BT, mask_BT, clip=0.3).term_BT

    clipped_BT = value_loss(values_BT, old_BT, returns_BT, mask_BT, clip=0.3).clipped_BT
    assert 0 < clipped_BT.sum() < mask_BT.sum()
    assert torch.autograd.gradcheck(terms, (values_BT,))


# ------------------------------------------------------------------ explained variance


def test_explained_variance_reference_values():
    returns_BT, mask_BT = f64([[0.0, 1.0, 2.0, math.nan]]), prefix(3, width=4)
    assert explained_variance(returns_BT, returns_BT, mask_BT) == 1.0
    assert explained_variance(returns_BT + 9, returns_BT, mask_BT) == 1.0  # up to a constant
    assert explained_variance(f64([[5.0, 5.0, 5.0, math.nan]]), returns_BT, mask_BT) == 0.0
    assert explained_variance(-returns_BT, returns_BT, mask_BT) == -3.0


@pytest.mark.parametrize(
    ("returns", "length"),
    [([1.0, 2.0, 3.0], 0), ([1.0, 2.0, 3.0], 1), ([0.1 + 0.2, 0.3, 0.3], 3), ([7.0] * 3, 3), ([0.0, 1e-200, 0.0], 3)],
)
def test_c08_explained_variance_is_undefined_without_a_spread(returns: list[float], length: int):
    assert explained_variance(f64([[1.0, 5.0, 2.0]]), f64([returns]), prefix(length, width=3)) is None


# ------------------------------------------------------------------ what holds for all of them

FUNCTIONS: dict[str, tuple[int, Callable[..., Tensor]]] = {
    "token_rewards": (1, lambda kl, mask: token_rewards(kl.new_ones(kl.shape[:1]), kl, mask, kl_coef=0.1)),
    "gae, advantages": (2, lambda r, v, mask: gae(r, v, mask, gamma=0.9, lam=0.8).advantages_BT),
    "gae, returns": (2, lambda r, v, mask: gae(r, v, mask, gamma=0.9, lam=0.8).returns_BT),
    "whitened": (1, lambda x, mask: whitened(x, mask, ddof=0, resolution=1.2e-7)),
    "value_loss": (3, lambda v, old, r, mask: value_loss(v, old, r, mask, clip=0.2).term_BT),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_half_precision_is_worked_in_float32(name: str, dtype: torch.dtype):
    count, function = FUNCTIONS[name]
    tensors = torch.randn(count, 2, 4, generator=torch.Generator().manual_seed(1)).to(dtype).unbind()
    found = function(*tensors, prefix(4, 2, width=4))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert found.dtype == wide
    assert torch.equal(found, function(*(x.to(wide) for x in tensors), prefix(4, 2, width=4)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_float64_argument_is_enough_to_work_in_float64(name: str):
    count, function = FUNCTIONS[name]
    tensors = list(torch.rand(count, 1, 3, generator=torch.Generator().manual_seed(2)).unbind())
    tensors[-1] = tensors[-1].double()
    assert function(*tensors, prefix(3, width=3)).dtype == torch.float64


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_goes_into_the_values_of_the_loss_and_nowhere_else(name: str):
    count, function = FUNCTIONS[name]
    tensors = torch.randn(count, 2, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    leaves = [x.clone().requires_grad_() for x in tensors.unbind()]
    found = function(*leaves, prefix(3, 2, width=3))
    if name != "value_loss":
        assert not found.requires_grad
        return
    found.sum().backward()
    assert [leaf.grad is not None for leaf in leaves] == [True, False, False]


def test_rewards_get_no_gradient_and_explained_variance_gives_none():
    rewards_B = torch.ones(1, requires_grad=True)
    assert not token_rewards(rewards_B, torch.zeros(1, 2), prefix(2, width=2), kl_coef=0.1).requires_grad
    leaf_BT = torch.tensor([[1.0, 2.0]], requires_grad=True)
    assert isinstance(explained_variance(leaf_BT, leaf_BT, prefix(2, width=2)), float)
    assert not value_loss(leaf_BT, leaf_BT, leaf_BT, prefix(2, width=2), clip=0.2).clipped_BT.requires_grad


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0), (2, 3)])
def test_c08_a_batch_without_a_live_token_is_all_zero(name: str, shape: tuple[int, int]):
    count, function = FUNCTIONS[name]
    found = function(*torch.full((count, *shape), math.nan).unbind(), torch.zeros(shape).bool())
    assert torch.equal(found, torch.zeros(shape))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_and_dtypes_that_do_not_agree_are_named(name: str):
    count, function = FUNCTIONS[name]
    zeros = torch.zeros(count, 2, 3).unbind()
    with pytest.raises(
        ValueError, match=r"one shape \(B, T\), got .* \(2, 3\) torch.float32, mask \(2, 4\) torch.bool"
    ):
        function(*zeros, torch.ones(2, 4).bool())
    with pytest.raises(ValueError, match=r"mask \(2, 3\) torch.int64"):
        function(*zeros, torch.ones(2, 3).long())
    with pytest.raises(ValueError, match=r"\(2, 3\) torch.int64, mask"):
        function(*(x.long() for x in zeros), torch.ones(2, 3).bool())
    with pytest.raises(ValueError, match=r"mask \(3,\)"):
        function(*torch.zeros(count, 3).unbind(), torch.ones(3).bool())


@pytest.mark.usefixtures("unchecked")
def test_there_is_one_reward_per_row():
    kl_BT, mask_BT = torch.zeros(2, 3), prefix(3, 3, width=3)
    with pytest.raises(ValueError, match=r"one per row, got torch.float32 of shape \(3,\) for 2 rows"):
        token_rewards(torch.zeros(3), kl_BT, mask_BT, kl_coef=0.0)
    with pytest.raises(ValueError, match=r"floating point, one per row, got torch.int64"):
        token_rewards(torch.zeros(2).long(), kl_BT, mask_BT, kl_coef=0.0)
