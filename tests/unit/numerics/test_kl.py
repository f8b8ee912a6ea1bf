import itertools
import math

import pytest
import torch
from torch import Tensor

from steelyard.numerics import variants
from steelyard.numerics.kl import KL_ESTIMATORS, k1, k2, k3

ONE = torch.ones(1, 1).bool()


def at(estimator: str, d: float, dtype: torch.dtype = torch.float32) -> tuple[float, float]:
    """Value and gradient with respect to logp at d = logp_ref − logp."""
    logp_BT = torch.zeros(1, 1, dtype=dtype, requires_grad=True)
    value_BT = KL_ESTIMATORS[estimator](logp_BT, torch.full((1, 1), d, dtype=dtype), ONE)
    (grad_BT,) = torch.autograd.grad(value_BT.sum(), logp_BT)
    return value_BT.item(), grad_BT.item()


@pytest.mark.parametrize(
    ("estimator", "d", "value", "gradient"),
    [
        ("k1", 0.5, -0.5, 1.0),
        ("k1", -0.5, 0.5, 1.0),
        ("k2", 0.5, 0.125, -0.5),
        ("k2", -0.5, 0.125, 0.5),
        ("k3", 0.5, 0.148721, -0.648721),
        ("k3", -0.5, 0.106531, 0.393469),
        ("k3", 0.0, 0.0, 0.0),
        ("k2", 0.0, 0.0, 0.0),
    ],
)
def test_c09_reference_values(estimator: str, d: float, value: float, gradient: float):
    assert at(estimator, d) == (pytest.approx(value, abs=1e-6), pytest.approx(gradient, abs=1e-6))


@pytest.mark.parametrize("estimator", sorted(KL_ESTIMATORS))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("d", [20.0, -20.0, 100.0, -100.0, 1e4, -1e4])
def test_c09_value_and_gradient_stay_finite_and_keep_pulling(estimator: str, d: float, dtype: torch.dtype):
    value, gradient = at(estimator, d, dtype)
    assert math.isfinite(value)
    assert math.isfinite(gradient)
    # Down where the reference is likelier (d > 0), up where it is not; k1 does not look.
    assert gradient == 1.0 if estimator == "k1" else gradient * d < 0


def test_c09_k3_is_exact_up_to_its_bound_and_below():
    assert at("k3", 20.0)[0] == pytest.approx(4.85e8, rel=1e-3)
    assert at("k3", 100.0) == (at("k3", 20.0)[0], at("k3", 20.0)[1])
    assert at("k3", -100.0) == (pytest.approx(99.0), 1.0)


@pytest.mark.parametrize("d", [-5.0, -1e-4, 1e-4, 2.0, 5.0])
def test_c09_unchanged_within_five_nats(d: float):
    value, gradient = at("k3", d, torch.float64)
    assert value == math.expm1(d) - d
    assert gradient == pytest.approx(-math.expm1(d), rel=1e-13)


def expected_gradient(estimator: str, logits_V: Tensor, ref_V: Tensor) -> Tensor:
    """E over tokens drawn from π_θ of the gradient that a training step takes, by summing over the vocabulary."""
    total_V = torch.zeros_like(logits_V)
    for token in range(len(logits_V)):
        leaf_V = logits_V.clone().requires_grad_()
        logp_BT = leaf_V.log_softmax(0)[token].reshape(1, 1)
        value = KL_ESTIMATORS[estimator](logp_BT, ref_V[token].log().reshape(1, 1), ONE).sum()
        total_V += logits_V.softmax(0)[token] * torch.autograd.grad(value, leaf_V)[0]
    return total_V


@pytest.mark.parametrize(("estimator", "first_logit"), [("k1", 0.0), ("k2", -0.549306), ("k3", -0.4)])
def test_c10_each_estimator_as_a_loss_has_its_own_gradient(estimator: str, first_logit: float):
    logits_V, ref_V = torch.zeros(2, dtype=torch.float64), torch.tensor([0.9, 0.1], dtype=torch.float64)
    assert expected_gradient(estimator, logits_V, ref_V)[0].item() == pytest.approx(first_logit, abs=1e-6)


def test_c10_k2_follows_the_forward_direction_and_k3_the_other():
    generator = torch.Generator().manual_seed(2)
    logits_V = torch.randn(5, generator=generator, dtype=torch.float64)
    ref_V = torch.randn(5, generator=generator, dtype=torch.float64).softmax(0)

    def kl(p_V: Tensor, q_V: Tensor) -> Tensor:
        return (p_V * (p_V / q_V).log()).sum()

    leaf_V = logits_V.clone().requires_grad_()
    (to_ref_V,) = torch.autograd.grad(kl(leaf_V.softmax(0), ref_V), leaf_V)
    (from_ref_V,) = torch.autograd.grad(kl(ref_V, leaf_V.softmax(0)), leaf_V)
    torch.testing.assert_close(expected_gradient("k1", logits_V, ref_V), torch.zeros(5).double(), atol=1e-15, rtol=0)
    torch.testing.assert_close(expected_gradient("k2", logits_V, ref_V), to_ref_V)
    torch.testing.assert_close(expected_gradient("k3", logits_V, ref_V), from_ref_V)


def test_c10_the_selector_selects():
    values = {name: at(name, 0.5)[0] for name in variants.KL_ESTIMATOR_NAMES}
    assert len(set(values.values())) == 3
    assert tuple(KL_ESTIMATORS) == variants.KL_ESTIMATOR_NAMES
    assert [KL_ESTIMATORS[name] for name in ("k1", "k2", "k3")] == [k1, k2, k3]


def test_k1_and_k3_are_unbiased_estimates_and_k2_is_not():
    policy_V = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    ref_V = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    true = (policy_V * (policy_V / ref_V).log()).sum().item()
    args = (policy_V.log()[None], ref_V.log()[None], torch.ones(1, 3).bool())
    means = {name: (policy_V * estimator(*args)[0]).sum().item() for name, estimator in KL_ESTIMATORS.items()}
    assert means["k1"] == pytest.approx(true, abs=1e-15)
    assert means["k3"] == pytest.approx(true, abs=1e-15)
    assert abs(means["k2"] - true) > 1e-3


@pytest.mark.parametrize("estimator", sorted(KL_ESTIMATORS))
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf])
def test_c08_masked_places_are_exactly_zero_in_value_and_gradient(estimator: str, rubbish: float):
    logp_BT = torch.tensor([[-1.0, rubbish]], requires_grad=True)
    ref_BT = torch.tensor([[-2.0, rubbish]], requires_grad=True)
    value_BT = KL_ESTIMATORS[estimator](logp_BT, ref_BT, torch.tensor([[True, False]]))
    value_BT.sum().backward()
    assert logp_BT.grad is not None
    assert (value_BT[0, 1].item(), logp_BT.grad[0, 1].item()) == (0.0, 0.0)
    assert logp_BT.grad[0, 0].item() != 0.0
    assert ref_BT.grad is None  # the reference is an anchor: it gets none


@pytest.mark.parametrize("estimator", sorted(KL_ESTIMATORS))
def test_gradients_match_finite_differences(estimator: str):
    generator = torch.Generator().manual_seed(4)
    ref_BT, logp_BT = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64).unbind()
    mask_BT = torch.tensor([[True, True, False], [True, False, False]])
    assert torch.autograd.gradcheck(lambda x: KL_ESTIMATORS[estimator](x, ref_BT, mask_BT), (logp_BT.requires_grad_(),))


@pytest.mark.parametrize("estimator", sorted(KL_ESTIMATORS))
def test_identical_policies_have_a_kl_of_exactly_zero(estimator: str):
    logp_BT = torch.tensor([[-0.1, -3.7, -12.0]])
    assert KL_ESTIMATORS[estimator](logp_BT, logp_BT.clone(), torch.ones(1, 3).bool()).tolist() == [[0.0] * 3]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("estimator", sorted(KL_ESTIMATORS))
def test_shapes_that_do_not_agree_are_named(estimator: str):
    with pytest.raises(ValueError, match=r"\(1, 2\), \(1, 1\), \(1, 2\)"):
        KL_ESTIMATORS[estimator](torch.zeros(1, 2), torch.zeros(1, 1), torch.ones(1, 2).bool())


@pytest.mark.parametrize("name", list(KL_ESTIMATORS))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_finite_log_prob_has_a_finite_sum_and_a_pull(name: str, dtype: torch.dtype):
    extreme = torch.finfo(dtype).max
    steps = [-extreme, -1e4, -20.0, 0.0, extreme]
    pairs = list(itertools.product(steps, steps))
    logp_BT = torch.tensor([[a for a, _ in pairs]], dtype=dtype).requires_grad_()
    ref_BT = torch.tensor([[b for _, b in pairs]], dtype=dtype)
    mask_BT = torch.ones(1, len(pairs)).bool()
    total = KL_ESTIMATORS[name](logp_BT, ref_BT, mask_BT).sum()
    assert torch.isfinite(total)
    if dtype is torch.float16:
        return  # a slope past 65504 has no place in float16
    total.backward()
    assert logp_BT.grad is not None
    assert torch.isfinite(logp_BT.grad).all()
    apart = torch.tensor([a != b for a, b in pairs])
    assert (logp_BT.grad[0][apart] != 0).all()


@pytest.mark.parametrize("name", ["k1", "k2"])
def test_a_token_that_is_impossible_under_the_reference_is_not_hidden(name: str):
    found = KL_ESTIMATORS[name](torch.zeros(1, 1), torch.tensor([[-math.inf]]), torch.ones(1, 1).bool())
    assert found.item() == math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bound_of_d_is_the_root_of_the_largest_number_over_1024(dtype: torch.dtype):
    limit = math.sqrt(torch.finfo(dtype).max) / 1024
    for d in (limit, 2 * limit, 1e3 * limit):
        assert at("k1", d, dtype)[0] == -torch.tensor(limit, dtype=dtype).item()
        assert at("k1", -d, dtype)[0] == torch.tensor(limit, dtype=dtype).item()
    assert at("k1", 0.5 * limit, dtype)[0] == -torch.tensor(0.5 * limit, dtype=dtype).item()
