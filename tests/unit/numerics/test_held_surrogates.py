"""dual_clipped, sequence_clipped and cispo: reference values, edges, ranges."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from steelyard.numerics.reductions import Denominators, sequence_mean, weighted_sum
from steelyard.numerics.surrogates import (
    SURROGATES,
    SurrogateTerms,
    cispo,
    clipped,
    dual_clipped,
    sequence_clipped,
    surrogate,
)
from steelyard.numerics.variants import READS

NUMBERS = {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": 3.0, "eps_max": 5.0}
ALL = list(SURROGATES)


def called(name: str, logp_BT: Tensor, old_BT: Tensor, advantages: Tensor, mask_BT: Tensor) -> SurrogateTerms:
    reads = READS["surrogate"].get(name, ())
    numbers = {key: value if key in reads else None for key, value in NUMBERS.items()}
    return surrogate(name, logp_BT, old_BT, advantages, mask_BT, **numbers)


def one_token(
    name: str, ratio: float, advantage: float, *, base: float = -1.0, dtype: torch.dtype = torch.float64
) -> tuple[float, float, SurrogateTerms]:
    """Value and gradient of the term of one token, and the terms."""
    logp_BT = torch.tensor([[base + math.log(ratio)]], dtype=dtype, requires_grad=True)
    advantages_B, mask_BT = torch.tensor([advantage], dtype=dtype), torch.ones(1, 1).bool()
    out = called(name, logp_BT, torch.tensor([[base]], dtype=dtype), advantages_B, mask_BT)
    (grad_BT,) = torch.autograd.grad(out.term_BT.sum(), logp_BT)
    return out.term_BT.item(), grad_BT.item(), out


def held(out: SurrogateTerms) -> str:
    """What holds the ratio of the first token."""
    flags = {"low": out.clipped_low_BT, "high": out.clipped_high_BT, "cap": out.capped_BT}
    return " ".join(name for name, flag in flags.items() if flag[0, 0])


# ------------------------------------------------------------------ reference values


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "flows", "holds"),
    [
        (10.0, -1.0, -3.0, False, "cap"),
        (0.1, 1.0, 0.1, True, ""),  # the floor belongs to bad completions only
        (10.0, 1.0, 1.2, False, "high"),
        (0.5, -1.0, -0.8, False, "low"),
        (1.5, -1.0, -1.5, True, ""),
        (2.99, -2.0, -5.98, True, ""),
        (3.01, -2.0, -6.0, False, "cap"),
        (3.0, -1.0, -3.0, True, ""),
        (10.0, 0.0, 0.0, False, ""),
        (0.1, 0.0, 0.0, False, ""),
    ],
)
def test_c11_dual_clip_reference_values(ratio: float, advantage: float, value: float, flows: bool, holds: str):
    term, gradient, out = one_token("dual_clipped", ratio, advantage)
    assert term == pytest.approx(value, abs=1e-12)
    assert gradient == pytest.approx(ratio * advantage if flows else 0.0, abs=1e-12)
    assert held(out) == holds


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "holds"),
    [
        (10.0, 1.0, 5.0, "cap"),
        (10.0, -1.0, 5.0, "cap"),
        (0.01, 1.0, 0.01, ""),
        (0.5, -2.0, 0.5, ""),
        (5.0, 1.0, 5.0, ""),
    ],
)
def test_cispo_reference_values(ratio: float, advantage: float, weight: float, holds: str):
    term, gradient, out = one_token("cispo", ratio, advantage)
    assert gradient == pytest.approx(weight * advantage, rel=1e-12)  # always, and not the slope of the ratio
    assert term == pytest.approx(weight * advantage * (-1.0 + math.log(ratio)), rel=1e-12)
    assert held(out) == holds
    assert out.ratio_BT.item() == pytest.approx(ratio)  # the metric is the ratio itself


@pytest.mark.parametrize(
    ("ratios", "advantage", "value", "flows", "holds"),
    [
        ([4.0, 0.25], 1.0, 1.0, True, ""),  # a geometric mean: tokens far apart, the completion at 1
        ([4.0, 1.0], 1.0, 1.2, False, "high"),
        ([4.0, 1.0], -1.0, -2.0, True, ""),
        ([0.25, 1.0], -1.0, -0.8, False, "low"),
        ([0.25, 1.0], 1.0, 0.5, True, ""),
        ([1.44, 1.0], 1.0, 1.2, True, ""),  # exactly at the edge
        ([1.0, 0.64], -1.0, -0.8, True, ""),
        ([1.5], 1.0, 1.2, False, "high"),
        ([8.0, 1.0, 1.0], 0.0, 0.0, False, ""),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sequence_clip_reference_values(
    ratios: list[float], advantage: float, value: float, flows: bool, holds: str, dtype: torch.dtype
):
    n = len(ratios)
    logp_BT = torch.tensor([[*map(math.log, ratios), math.nan]], dtype=dtype, requires_grad=True)
    mask_BT = torch.tensor([[True] * n + [False]])
    advantages_B = torch.tensor([advantage], dtype=dtype)
    out = called("sequence_clipped", logp_BT, torch.zeros(1, n + 1, dtype=dtype), advantages_B, mask_BT)
    weights_BT = sequence_mean(mask_BT, denominators=Denominators(n_sequences=1, n_tokens=n, max_length=n))
    total = weighted_sum(out.term_BT, weights_BT, mask_BT)
    (grad_BT,) = torch.autograd.grad(total, logp_BT)
    assert out.term_BT[0].tolist() == pytest.approx([value] * n + [0.0], rel=1e-6)
    assert total.item() == pytest.approx(value, rel=1e-6)
    assert grad_BT[0].tolist() == pytest.approx([value / n if flows else 0.0] * n + [0.0], rel=1e-6)
    assert held(out) == holds
    s = math.prod(ratios) ** (1 / n)
    assert out.ratio_BT[0].tolist() == pytest.approx([s] * n + [1.0], rel=1e-6)
    for flag_BT in (out.clipped_low_BT, out.clipped_high_BT):
        assert len(set(flag_BT[0, :n].tolist())) == 1
        assert not flag_BT[0, n]


def test_c73_a_ratio_per_token_is_a_mean_in_gspo_and_no_product():
    old_BT = torch.full((1, 100), math.log(0.625), dtype=torch.float64)
    logp_BT = torch.full((1, 100), math.log(0.5), dtype=torch.float64)
    out = called("sequence_clipped", logp_BT, old_BT, torch.ones(1).double(), torch.ones(1, 100).bool())
    assert out.ratio_BT[0, 0].item() == pytest.approx(0.8)
    assert out.ratio_BT.prod().item() == pytest.approx(0.8**100)  # 2.0e-10, what the whole completion would weigh


# ------------------------------------------------------------------ edges


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", [0.0, -1.3, -9.7])
@pytest.mark.parametrize(
    ("name", "ratio", "advantage"),
    [
        ("dual_clipped", 3.0, -1.0),
        ("dual_clipped", 1.2, 1.0),
        ("dual_clipped", 0.8, -1.0),
        ("sequence_clipped", 1.2, 1.0),
        ("sequence_clipped", 0.8, -1.0),
        ("cispo", 5.0, 1.0),
    ],
)
def test_the_edge_counts_as_unclipped_and_the_gradient_flows(
    name: str, ratio: float, advantage: float, base: float, dtype: torch.dtype
):
    _, gradient, out = one_token(name, ratio, advantage, base=base, dtype=dtype)
    assert held(out) == ""
    assert gradient == pytest.approx(ratio * advantage, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "ratio", "advantage", "holds"),
    [
        ("dual_clipped", 3.0003, -1.0, "cap"),
        ("sequence_clipped", 1.2001, 1.0, "high"),
        ("sequence_clipped", 0.7999, -1.0, "low"),
        ("cispo", 5.0005, 1.0, "cap"),
    ],
)
def test_just_past_the_edge_is_held(name: str, ratio: float, advantage: float, holds: str):
    _, gradient, out = one_token(name, ratio, advantage, dtype=torch.float32)
    assert held(out) == holds
    assert gradient == (5.0 if name == "cispo" else 0.0)


def test_gspo_s_own_interval_is_wider_than_rounding():
    # 3e-4 and 4e-4 against 8 float32 rounding units, 1e-6: the edges stay apart from 1, and from each other.
    for log_ratio, advantage, holds in (
        (3.9e-4, 1.0, ""),
        (4.1e-4, 1.0, "high"),
        (-2.9e-4, -1.0, ""),
        (-3.1e-4, -1.0, "low"),
    ):
        logp_BT, one = torch.full((1, 50), log_ratio), torch.ones(1, 50).bool()
        args = (logp_BT, torch.zeros(1, 50), torch.tensor([advantage]), one)
        assert held(sequence_clipped(*args, eps_low=3e-4, eps_high=4e-4)) == holds


def test_the_sequence_ratio_is_bounded_in_its_mean_not_token_by_token():
    for first, expected in ((100.0, 10.0), (300.0, 20.0), (-100.0, -10.0), (-300.0, -20.0)):
        logp_BT = torch.zeros(1, 10, dtype=torch.float64)
        logp_BT[0, 0] = first
        logp_BT.requires_grad_()
        advantage = -1.0 if first > 0 else 1.0
        args = (torch.zeros(1, 10).double(), torch.tensor([advantage]).double(), torch.ones(1, 10).bool())
        out = called("sequence_clipped", logp_BT, *args)
        out.term_BT[0, 0].backward()
        assert out.ratio_BT[0, 0].item() == pytest.approx(math.exp(expected), rel=1e-12)
        assert logp_BT.grad is not None
        share = advantage * math.exp(expected) / 10
        assert logp_BT.grad[0].tolist() == pytest.approx([share] * 10, rel=1e-12)


@pytest.mark.usefixtures("unchecked")
def test_sequence_clipped_has_no_clip_between_one_ratio_and_many_advantages():
    z, one = torch.zeros(2, 3), torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"one advantage per completion, \(B,\), got \(2, 3\).* Use clipped"):
        called("sequence_clipped", z, z, one, one.bool())


def test_the_gradient_of_cispo_matches_finite_differences_with_its_weight_held():
    generator = torch.Generator().manual_seed(3)
    logp_BT = (-2 * torch.rand(3, 4, generator=generator, dtype=torch.float64)).requires_grad_()
    gap_BT = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    advantages_B, mask_BT = torch.tensor([1.0, -1.0, 0.3]).double(), torch.rand(3, 4, generator=generator) > 0.3

    def term(moved_BT: Tensor) -> Tensor:  # π_old moves along, so that ρ stays where it is
        return cispo(moved_BT, moved_BT.detach() - gap_BT, advantages_B, mask_BT, eps_max=1.5).term_BT

    assert torch.autograd.gradcheck(term, (logp_BT,))


@pytest.mark.parametrize("name", ["clipped", "dual_clipped", "sequence_clipped"])
def test_the_ratio_leaves_the_interval_after_a_step_although_clipped(name: str):
    """Two tokens share a logit. The one past 1 + ε has no gradient; the other drags it further out."""
    shift = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([shift], lr=1.0)
    old_BT = torch.full((2, 1), -2.0, dtype=torch.float64)
    start_BT = old_BT + torch.tensor([[math.log(1.19)], [math.log(0.5)]]).double()
    seen: list[float] = []
    flat_BT = torch.zeros(2, 1).bool()
    for _ in range(3):
        out = called(name, start_BT + shift, old_BT, torch.ones(2).double(), torch.ones(2, 1).bool())
        seen.append(out.ratio_BT[0, 0].item())
        flat_BT = out.clipped_high_BT
        optimizer.zero_grad()
        (-out.term_BT.mean()).backward()
        optimizer.step()
    assert seen[0] < 1.2 < seen[1] < seen[2]
    assert flat_BT[0, 0]


@pytest.mark.parametrize(
    ("number", "values", "reason"),
    [
        ("dual_clip", [1.0, 0.0, -3.0, math.inf, math.nan], "dual_clip must be a number above 1"),
        ("eps_max", [0.2, 0.0, -5.0, math.inf, math.nan], "eps_max must be a number of at least 1.*absolute cap"),
        ("eps_low", [0.0, 1.0, math.nan], r"eps_low must be a number in \(0, 1\)"),
        ("eps_high", [0.0, math.inf, math.nan], "eps_high must be a number above 0"),
    ],
)
def test_numbers_out_of_range_are_named(number: str, values: list[float], reason: str):
    args = (torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1).bool())
    names = [name for name in ALL if number in READS["surrogate"].get(name, ())]
    for name, value in itertools.product(names, values):
        numbers = {key: x for key, x in NUMBERS.items() if key in READS["surrogate"][name]} | {number: value}
        with pytest.raises(ValueError, match=reason):
            SURROGATES[name](*args, **numbers)


def test_a_cap_of_one_is_the_smallest_and_holds_every_ratio_above_it():
    logp_BT, args = (
        torch.log(torch.tensor([[1.5, 1.0, 0.5]])),
        (torch.zeros(1, 3), torch.ones(1), torch.ones(1, 3).bool()),
    )
    assert cispo(logp_BT, *args, eps_max=1.0).capped_BT.tolist() == [[True, False, False]]


def test_without_its_cap_a_dual_clip_is_the_clip():
    logp_BT = torch.linspace(-3, 3, 40).reshape(2, 20)
    args = (logp_BT, torch.zeros(2, 20), torch.tensor([1.0, -1.0]), torch.ones(2, 20).bool())
    plain = clipped(*args, eps_low=0.2, eps_high=0.28)
    dual = dual_clipped(*args, eps_low=0.2, eps_high=0.28, dual_clip=1e9)
    assert torch.equal(plain.term_BT, dual.term_BT)
    assert not plain.capped_BT.any()
