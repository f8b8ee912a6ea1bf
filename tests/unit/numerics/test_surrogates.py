import math

import pytest
import torch
from torch import Tensor

from steelyard.numerics import variants
from steelyard.numerics.surrogates import (
    SURROGATES,
    SurrogateTerms,
    clipped,
    importance,
    policy_gradient,
    surrogate,
)


def by_name(name: str, logp_BT: Tensor, old_BT: Tensor, advantages_B: Tensor, mask_BT: Tensor) -> SurrogateTerms:
    reads = variants.READS["surrogate"].get(name, ())
    eps = 0.2 if "eps_low" in reads else None
    return surrogate(
        name,
        logp_BT,
        old_BT,
        advantages_B,
        mask_BT,
        eps_low=eps,
        eps_high=eps,
        dual_clip=3.0 if "dual_clip" in reads else None,
        eps_max=5.0 if "eps_max" in reads else None,
    )


def at_ratio(
    ratio: float,
    advantage: float,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    base: float = 0.0,
    dtype: torch.dtype = torch.float64,
) -> tuple[float, float, SurrogateTerms]:
    """Value and gradient with respect to logp of the clipped term of one token, and the terms."""
    logp_BT = torch.tensor([[base + math.log(ratio)]], dtype=dtype, requires_grad=True)
    old_BT, mask_BT = torch.tensor([[base]], dtype=dtype), torch.ones(1, 1).bool()
    out = clipped(logp_BT, old_BT, torch.tensor([advantage], dtype=dtype), mask_BT, eps_low=eps_low, eps_high=eps_high)
    (grad_BT,) = torch.autograd.grad(out.term_BT.sum(), logp_BT)
    return out.term_BT.item(), grad_BT.item(), out


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "flows"),
    [
        (1.4, 1.0, 1.2, False),
        (0.6, -1.0, -0.8, False),
        (1.3, 1.0, 1.2, False),
        (1.5, -1.0, -1.5, True),
        (0.5, 1.0, 0.5, True),
        (1.0, 1.0, 1.0, True),
        (1.0, -1.0, -1.0, True),
        (1.5, 1.0, 1.2, False),
        (0.5, -1.0, -0.8, False),
        (10.0, -1.0, -10.0, True),
        (0.1, 1.0, 0.1, True),
        (3.0, 0.0, 0.0, False),
    ],
)
def test_c11_clipped_reference_values(ratio: float, advantage: float, value: float, flows: bool):
    term, gradient, out = at_ratio(ratio, advantage)
    assert term == pytest.approx(value, abs=1e-12)
    assert gradient == pytest.approx(ratio * advantage if flows else 0.0, abs=1e-12)
    assert out.clipped_high_BT.item() == (advantage > 0 and ratio > 1.2)
    assert out.clipped_low_BT.item() == (advantage < 0 and ratio < 0.8)


def test_c11_the_clip_count_holds_binding_tokens_only():
    cases = [(1.5, -1.0), (0.5, -1.0), (1.5, 1.0), (0.5, 1.0)]
    found = [at_ratio(*case)[2] for case in cases]
    assert [out.clipped_low_BT.item() for out in found] == [False, True, False, False]
    assert [out.clipped_high_BT.item() for out in found] == [False, False, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", [0.0, -1.3, -9.7])
@pytest.mark.parametrize(("ratio", "advantage"), [(1.2, 1.0), (1.28, 1.0), (0.8, -1.0), (0.7, -1.0)])
def test_the_edge_counts_as_unclipped_and_the_gradient_flows(
    ratio: float, advantage: float, base: float, dtype: torch.dtype
):
    eps = abs(ratio - 1.0)
    term, gradient, out = at_ratio(ratio, advantage, eps_low=eps, eps_high=eps, base=base, dtype=dtype)
    assert not out.clipped_low_BT.item()
    assert not out.clipped_high_BT.item()
    assert gradient == pytest.approx(term)  # ρA, the slope of ρA with respect to logp
    assert term == pytest.approx(ratio * advantage, rel=1e-5)


@pytest.mark.parametrize(("ratio", "advantage"), [(1.2001, 1.0), (0.7999, -1.0)])
def test_just_past_the_edge_is_flat(ratio: float, advantage: float):
    assert at_ratio(ratio, advantage, dtype=torch.float32)[1] == 0.0


def test_unequal_bounds_act_on_their_own_side():
    assert at_ratio(1.25, 1.0, eps_low=0.2, eps_high=0.28)[1] == pytest.approx(1.25)
    assert at_ratio(1.3, 1.0, eps_low=0.2, eps_high=0.28)[0] == pytest.approx(1.28)
    assert at_ratio(0.75, -1.0, eps_low=0.2, eps_high=0.28)[0] == pytest.approx(-0.8)
    assert at_ratio(0.75, -1.0, eps_low=0.28, eps_high=0.2)[1] == pytest.approx(-0.75)


def test_policy_gradient_and_importance_agree_in_gradient_on_policy_but_not_in_value():
    logp_BT = torch.tensor([[-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    args = (logp_BT.detach(), torch.tensor([0.5], dtype=torch.float64), torch.ones(1, 2).bool())
    plain, ratio = policy_gradient(logp_BT, *args), importance(logp_BT, *args)
    assert plain.term_BT.tolist() == [[-0.5, -1.0]]
    assert ratio.term_BT.tolist() == [[0.5, 0.5]]
    for out in (plain, ratio):
        assert torch.autograd.grad(out.term_BT.sum(), logp_BT)[0].tolist() == [[0.5, 0.5]]


def test_ratio_of_one_is_a_function_not_the_constant_one():
    x = torch.tensor(2.0, requires_grad=True)
    assert torch.autograd.grad(x / x.detach(), x)[0].item() == 0.5
    logp_BT = torch.tensor([[-0.7]], requires_grad=True)
    out = importance(logp_BT, logp_BT, torch.tensor([1.0]), torch.ones(1, 1).bool())  # not detached by the caller
    assert out.term_BT.item() == 1.0
    assert torch.autograd.grad(out.term_BT.sum(), logp_BT)[0].item() == 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("difference", [100.0, -100.0, 1e4, -1e4])
@pytest.mark.parametrize("name", ["importance", "clipped"])
def test_far_ratios_stay_finite_and_keep_pulling(name: str, difference: float, dtype: torch.dtype):
    # The unclipped side: a bad completion that became likelier, a good one that became rarer.
    advantages_B = torch.tensor([-1.0 if difference > 0 else 1.0], dtype=dtype)
    logp_BT = torch.tensor([[difference]], dtype=dtype, requires_grad=True)
    out = by_name(name, logp_BT, torch.zeros(1, 1, dtype=dtype), advantages_B, torch.ones(1, 1).bool())
    out.term_BT.sum().backward()
    assert logp_BT.grad is not None
    assert torch.isfinite(out.term_BT).all()
    assert torch.isfinite(logp_BT.grad).all()
    assert logp_BT.grad.item() * advantages_B.item() > 0
    limit = 10.0 if dtype == torch.float16 else 20.0
    expected = advantages_B.item() * math.exp(math.copysign(limit, difference))
    assert out.term_BT.item() == pytest.approx(expected, rel=1e-5)
    assert logp_BT.grad.item() == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("name", sorted(SURROGATES))
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf])
def test_c08_masked_places_are_exactly_zero_in_value_and_gradient(name: str, rubbish: float):
    bad = torch.tensor([[-1.0, rubbish], [rubbish, rubbish]], requires_grad=True)
    old_BT = torch.tensor([[-1.1, rubbish], [rubbish, rubbish]])
    mask_BT = torch.tensor([[True, False], [False, False]])
    out = by_name(name, bad, old_BT, torch.tensor([1.0, rubbish]), mask_BT)
    out.term_BT.sum().backward()
    assert bad.grad is not None
    assert out.term_BT[~mask_BT].tolist() == [0.0] * 3
    assert bad.grad[~mask_BT].tolist() == [0.0] * 3
    assert bad.grad[0, 0].item() > 0
    assert torch.isfinite(out.ratio_BT).all()
    assert not (out.clipped_low_BT | out.clipped_high_BT)[~mask_BT].any()


@pytest.mark.parametrize("name", sorted(SURROGATES))
def test_the_gradient_goes_to_the_trained_policy_only(name: str):
    logp_BT, old_BT = torch.zeros(1, 2, requires_grad=True), torch.full((1, 2), -0.05, requires_grad=True)
    advantages_B = torch.ones(1, requires_grad=True)
    out = by_name(name, logp_BT, old_BT, advantages_B, torch.ones(1, 2).bool())
    out.term_BT.sum().backward()
    assert logp_BT.grad is not None
    assert (logp_BT.grad != 0).all()
    assert old_BT.grad is None
    assert advantages_B.grad is None
    assert not out.ratio_BT.requires_grad


@pytest.mark.parametrize("name", sorted(set(SURROGATES) - {"cispo"}))  # whose weight is no function of logp
def test_gradients_match_finite_differences(name: str):
    generator = torch.Generator().manual_seed(3)
    old_BT = torch.randn(3, 4, generator=generator, dtype=torch.float64) - 2
    logp_BT = (old_BT + 0.5 * torch.randn(3, 4, generator=generator, dtype=torch.float64)).requires_grad_()
    advantages_B = torch.tensor([1.0, -1.0, 0.3], dtype=torch.float64)
    mask_BT = torch.rand(3, 4, generator=generator) > 0.3
    assert torch.autograd.gradcheck(lambda logp: by_name(name, logp, old_BT, advantages_B, mask_BT).term_BT, (logp_BT,))


def test_clipping_is_no_bound_on_the_ratio_after_a_step():
    # The clip removes the incentive past 1 + ε; a step taken before it may land far outside.
    logits_BTV = torch.zeros(1, 1, 2, dtype=torch.float64, requires_grad=True)
    old = math.log(0.5)
    logp_BT = logits_BTV.log_softmax(-1)[..., 0]
    out = clipped(
        logp_BT,
        torch.full((1, 1), old).double(),
        torch.ones(1).double(),
        torch.ones(1, 1).bool(),
        eps_low=0.2,
        eps_high=0.2,
    )
    out.term_BT.sum().backward()
    assert logits_BTV.grad is not None
    after = (logits_BTV + 4.0 * logits_BTV.grad).detach().log_softmax(-1)[0, 0, 0].item()
    assert math.exp(after - old) > 1.7


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 0.2), (1.0, 0.2), (-0.1, 0.2), (0.2, 0.0), (0.2, math.inf), (math.nan, 0.2), (0.2, math.nan)],
)
def test_bounds_out_of_range_are_named(low: float, high: float):
    with pytest.raises(ValueError, match=f"eps_low={low}, eps_high={high}"):
        at_ratio(1.0, 1.0, eps_low=low, eps_high=high)


def test_every_choice_is_read_or_refused():
    args = (torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1).bool())
    with pytest.raises(ValueError, match="unknown surrogate 'ppo'; choose one of policy_gradient"):
        surrogate("ppo", *args, eps_low=None, eps_high=None)
    numbers = {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": 3.0, "eps_max": 5.0}
    for name in SURROGATES:
        reads = variants.READS["surrogate"].get(name, ())
        right = {key: value if key in reads else None for key, value in numbers.items()}
        surrogate(name, *args, **right)
        for key, value in numbers.items():
            if key in reads:
                with pytest.raises(ValueError, match=f"{name}' needs .*{key} is None"):
                    surrogate(name, *args, **(right | {key: None}))
            else:
                with pytest.raises(ValueError, match=f"{key} = {value} would never be read: surrogate '{name}'"):
                    surrogate(name, *args, **(right | {key: value}))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", sorted(SURROGATES))
def test_shapes_that_do_not_agree_are_named(name: str):
    z, one = torch.zeros(2, 3), torch.ones(2)
    with pytest.raises(ValueError, match=r"\(2, 3\), \(2, 2\), \(2, 3\) and \(2,\)"):
        by_name(name, z, z[:, :2], one, z.bool())
    with pytest.raises(ValueError, match=r"and \(2, 1\)"):
        by_name(name, z, z, one[:, None], z.bool())
    with pytest.raises(ValueError, match=r"and \(1,\)"):
        by_name(name, z, z, one[:1], z.bool())


def test_the_tables_of_names_and_of_functions_agree():
    assert tuple(SURROGATES) == variants.SURROGATE_NAMES
    assert all(function.__name__ == name for name, function in SURROGATES.items())
