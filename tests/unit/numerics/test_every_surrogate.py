"""What all six surrogates share: far ratios, dtypes, dead rows, advantages per token."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from steelyard.numerics.reductions import AGGREGATIONS, Denominators, sequence_mean, weighted_sum
from steelyard.numerics.surrogates import SURROGATES, SurrogateTerms, surrogate
from steelyard.numerics.variants import READS

NUMBERS = {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": 3.0, "eps_max": 5.0}
ALL = list(SURROGATES)
RATIOS = [name for name in ALL if name != "policy_gradient"]
PER_TOKEN = [name for name in ALL if name != "sequence_clipped"]
HALVES = [torch.float16, torch.bfloat16]
DTYPES = [*HALVES, torch.float32, torch.float64]


def called(name: str, logp_BT: Tensor, old_BT: Tensor, advantages: Tensor, mask_BT: Tensor) -> SurrogateTerms:
    reads = READS["surrogate"].get(name, ())
    numbers = {key: value if key in reads else None for key, value in NUMBERS.items()}
    return surrogate(name, logp_BT, old_BT, advantages, mask_BT, **numbers)


# ------------------------------------------------------------------ far ratios, and dtypes

FLOWS = [
    ("importance", 1.0, 1),
    ("importance", -1.0, 1),
    ("clipped", 1.0, -1),
    ("clipped", -1.0, 1),
    ("dual_clipped", 1.0, -1),
    ("sequence_clipped", 1.0, -1),
    ("sequence_clipped", -1.0, 1),
    ("cispo", 1.0, -1),
    ("cispo", -1.0, -1),
    ("cispo", 1.0, 1),
    ("cispo", -1.0, 1),
]
"""Surrogate, advantage and sign of the log ratio for which the definition lets the gradient through."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "advantage", "sign"), FLOWS)
def test_c09_log_ratios_of_100_pull_with_a_finite_gradient(name: str, advantage: float, sign: int, dtype: torch.dtype):
    logp_BT = torch.tensor([[100.0 * sign, 100.0 * sign]], dtype=dtype, requires_grad=True)
    advantages_B, mask_BT = torch.tensor([advantage], dtype=dtype), torch.ones(1, 2).bool()
    out = called(name, logp_BT, torch.zeros(1, 2, dtype=dtype), advantages_B, mask_BT)
    out.term_BT.sum().backward()
    assert logp_BT.grad is not None
    assert torch.isfinite(out.term_BT).all()
    assert torch.isfinite(out.ratio_BT).all()
    assert torch.isfinite(logp_BT.grad).all()
    assert (logp_BT.grad * advantage > 0).all()
    limit = 10.0 if dtype == torch.float16 else 20.0
    weight = min(math.exp(limit * sign), 5.0 if name == "cispo" else math.inf)
    assert logp_BT.grad[0].tolist() == pytest.approx([weight * advantage] * 2, rel=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RATIOS)
@pytest.mark.parametrize("d", [0.5, -0.5, 0.0, 5.0, -5.0])
def test_c09_within_five_nats_the_bound_is_not_there(name: str, d: float, dtype: torch.dtype):
    logp_BT = torch.tensor([[d]], dtype=dtype)
    out = called(name, logp_BT, torch.zeros(1, 1, dtype=dtype), torch.ones(1, dtype=dtype), torch.ones(1, 1).bool())
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert out.ratio_BT.dtype == out.term_BT.dtype == wide
    assert out.ratio_BT.item() == torch.tensor(d, dtype=wide).exp().item()


@pytest.mark.parametrize("dtype", HALVES)
def test_ratios_of_half_precision_log_probs_are_float32(dtype: torch.dtype):
    """At −5 the step of bfloat16 is 1/32: the ratio keeps the digits that a bfloat16 exp would lose."""
    logp_BT, old_BT = torch.tensor([[-5.0]], dtype=dtype), torch.tensor([[-5.03125]], dtype=dtype)
    for name in RATIOS:
        out = called(name, logp_BT, old_BT, torch.ones(1, dtype=dtype), torch.ones(1, 1).bool())
        assert out.ratio_BT.item() == pytest.approx(math.exp(0.03125), rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL)
def test_every_finite_log_prob_has_a_finite_loss_and_gradient(name: str, dtype: torch.dtype):
    extreme = 1e300 if dtype == torch.float64 else torch.finfo(dtype).max
    steps = [-extreme, -1e4, -20.0, 0.0, extreme]
    pairs = list(itertools.product(steps, steps))
    logp_BT = torch.tensor([[a for a, _ in pairs]], dtype=dtype).expand(2, -1).clone().requires_grad_()
    old_BT = torch.tensor([[b for _, b in pairs]], dtype=dtype).expand(2, -1)
    mask_BT = torch.ones(2, len(pairs)).bool()
    out = called(name, logp_BT, old_BT, torch.tensor([1.5, -1.5], dtype=dtype), mask_BT)
    denominators = Denominators(n_sequences=2, n_tokens=2 * len(pairs), max_length=len(pairs))
    loss = -weighted_sum(out.term_BT, sequence_mean(mask_BT, denominators=denominators), mask_BT)
    loss.backward()
    assert math.isfinite(loss.item())
    assert logp_BT.grad is not None
    assert torch.isfinite(logp_BT.grad).all()


@pytest.mark.parametrize("name", ["policy_gradient", "cispo"])
def test_a_live_token_without_probability_is_not_hidden(name: str):
    logp_BT, one = torch.tensor([[-math.inf]]), torch.ones(1)
    assert called(name, logp_BT, torch.zeros(1, 1), one, torch.ones(1, 1).bool()).term_BT.item() == -math.inf


# ------------------------------------------------------------------ what all share


@pytest.mark.parametrize("shape", [(2, 3), (2, 0), (0, 3), (0, 0)])
@pytest.mark.parametrize("name", ALL)
def test_c08_rows_without_a_live_token(name: str, shape: tuple[int, int]):
    logp_BT = torch.full(shape, math.nan, requires_grad=True)
    mask_BT = torch.zeros(shape).bool()
    for advantages in [torch.full(shape[:1], math.nan)] + [torch.full(shape, math.nan)] * (name in PER_TOKEN):
        out = called(name, logp_BT, logp_BT.detach(), advantages, mask_BT)
        (grad_BT,) = torch.autograd.grad(out.term_BT.sum(), logp_BT)
        assert (out.term_BT == 0).all()
        assert (grad_BT == 0).all()
        assert (out.ratio_BT == 1).all()
        assert not (out.clipped_low_BT | out.clipped_high_BT | out.capped_BT).any()


@pytest.mark.parametrize("name", ALL)
def test_c20_a_rejected_row_leaves_its_siblings_alone(name: str):
    generator = torch.Generator().manual_seed(1)
    logp_BT, old_BT = -torch.rand(3, 4, generator=generator), -torch.rand(3, 4, generator=generator)
    advantages_B, mask_BT = torch.tensor([0.7071, -0.7071, 9.0]), torch.ones(3, 4).bool()
    mask_BT[2] = False
    with_it, alone = (
        called(name, logp_BT[:n].clone(), old_BT[:n], advantages_B[:n], mask_BT[:n]).term_BT for n in (3, 2)
    )
    assert torch.equal(with_it[:2], alone)
    assert (with_it[2] == 0).all()


@pytest.mark.parametrize("name", ALL)
def test_c18_rows_of_two_prompts_interleaved(name: str):
    generator = torch.Generator().manual_seed(2)
    logp_BT, old_BT = -torch.rand(5, 4, generator=generator), -torch.rand(5, 4, generator=generator)
    advantages_B, mask_BT = torch.randn(5, generator=generator), torch.rand(5, 4, generator=generator) > 0.3
    order_B = torch.tensor([3, 0, 4, 1, 2])
    straight = called(name, logp_BT, old_BT, advantages_B, mask_BT)
    mixed = called(name, logp_BT[order_B], old_BT[order_B], advantages_B[order_B], mask_BT[order_B])
    assert torch.equal(mixed.term_BT, straight.term_BT[order_B])
    assert torch.equal(mixed.ratio_BT, straight.ratio_BT[order_B])


@pytest.mark.parametrize("name", ALL)
def test_c13_the_true_stop_token_pulls_though_its_id_is_the_pad_id(name: str):
    """Ids (5, 7, 2, 2, 2), pad = eos = 2: the mask is made of lengths, so the first 2 is live."""
    logp_BT = torch.tensor([[-1.0, -1.0, -1.0, math.nan, math.nan]], requires_grad=True)
    mask_BT = torch.arange(5) < torch.tensor([[3]])
    called(name, logp_BT, logp_BT.detach(), torch.ones(1), mask_BT).term_BT.sum().backward()
    assert logp_BT.grad is not None
    assert logp_BT.grad[0].tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL)
def test_c16_the_same_scores_twice_are_a_ratio_of_exactly_one(name: str, dtype: torch.dtype):
    scores_BT = -7 * torch.rand(3, 5, generator=torch.Generator().manual_seed(0))
    logp_BT = scores_BT.to(dtype).requires_grad_()
    advantages_B, mask_BT = torch.tensor([1.0, -1.0, 0.5], dtype=dtype), torch.ones(3, 5).bool()
    out = called(name, logp_BT, logp_BT, advantages_B, mask_BT)
    assert (out.ratio_BT == 1).all()
    assert not (out.clipped_low_BT | out.clipped_high_BT | out.capped_BT).any()
    (grad_BT,) = torch.autograd.grad(out.term_BT.sum(), logp_BT)
    torch.testing.assert_close(grad_BT, advantages_B[:, None].expand(3, 5), rtol=1e-2, atol=0)  # at 1 all six agree


@pytest.mark.parametrize("name", PER_TOKEN)
def test_one_advantage_per_token_repeated_is_one_per_completion(name: str):
    generator = torch.Generator().manual_seed(4)
    logp_BT, old_BT = -torch.rand(3, 4, generator=generator), -torch.rand(3, 4, generator=generator)
    advantages_B, mask_BT = torch.randn(3, generator=generator), torch.rand(3, 4, generator=generator) > 0.3
    spread_BT = advantages_B[:, None].expand(3, 4).masked_fill(~mask_BT, math.nan)
    whole = called(name, logp_BT, old_BT, advantages_B, mask_BT)
    each = called(name, logp_BT, old_BT, spread_BT, mask_BT)
    assert torch.equal(whole.term_BT, each.term_BT)
    assert torch.equal(whole.clipped_low_BT, each.clipped_low_BT)


@pytest.mark.parametrize("name", PER_TOKEN)
def test_each_token_has_its_own_advantage_and_none_gets_a_gradient(name: str):
    logp_BT = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    advantages_BT = torch.tensor([[2.0, -3.0]], requires_grad=True)
    called(name, logp_BT, logp_BT.detach(), advantages_BT, torch.ones(1, 2).bool()).term_BT.sum().backward()
    assert logp_BT.grad is not None
    assert logp_BT.grad.tolist() == [[2.0, -3.0]]
    assert advantages_BT.grad is None


# ------------------------------------------------------------------ zero loss is not zero gradient (objectives §7)


def on_policy(name: str, advantages: list[float], lengths: list[int], aggregation: str) -> tuple[float, Tensor]:
    """Loss and its gradient with respect to logp on a fresh batch, one pass: π_old = logp.detach()."""
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    logp_BT = torch.full(mask_BT.shape, -1.0, dtype=torch.float64, requires_grad=True)
    denominators = Denominators(n_sequences=len(lengths), n_tokens=sum(lengths), max_length=64)
    terms = called(name, logp_BT, logp_BT.detach(), torch.tensor(advantages, dtype=torch.float64), mask_BT)
    loss = -weighted_sum(terms.term_BT, AGGREGATIONS[aggregation](mask_BT, denominators=denominators), mask_BT)
    return loss.item(), torch.autograd.grad(loss, logp_BT)[0]


@pytest.mark.parametrize("lengths", [[3, 3, 3, 3], [1, 2, 40, 7]])
@pytest.mark.parametrize("name", ALL)
def test_c01_a_fresh_batch_has_loss_zero_and_a_gradient(name: str, lengths: list[int]):
    advantages = [0.5, -0.5, -0.5, 0.5]
    loss, grad_BT = on_policy(name, advantages, lengths, "sequence_mean")
    assert abs(loss) < 1e-15
    for row, (a, n) in enumerate(zip(advantages, lengths, strict=True)):
        assert grad_BT[row, :n].tolist() == pytest.approx([-a / (4 * n)] * n)  # −(1/G) A_i / T_i
        assert not grad_BT[row, n:].any()


@pytest.mark.parametrize("name", [name for name in RATIOS if name != "cispo"])
def test_c01_token_mean_over_unequal_lengths_is_not_zero(name: str):
    assert on_policy(name, [1.0, -1.0], [2, 4], "token_mean")[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", ALL)
def test_c01_advantages_of_zero_have_neither(name: str):
    loss, grad_BT = on_policy(name, [0.0, 0.0], [2, 4], "token_mean")
    assert loss == 0.0
    assert not grad_BT.any()


@pytest.mark.parametrize("name", ALL)
def test_advantages_in_float64_leave_float32_terms(name: str):
    z, one = torch.zeros(1, 1), torch.ones(1, dtype=torch.float64)
    assert called(name, z, z, one, torch.ones(1, 1).bool()).term_BT.dtype == torch.float32
