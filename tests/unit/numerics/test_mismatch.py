import math

import pytest
import torch
from torch import Tensor

from steelyard.numerics import variants
from steelyard.numerics.logprobs import token_logprobs
from steelyard.numerics.mismatch import MISMATCH, MismatchWeights, mismatch_weight
from steelyard.numerics.surrogates import clipped

NAMES = list(MISMATCH)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def at(name: str, ratios: list[float], *, cap: float = 2.0, dtype: torch.dtype = torch.float64) -> MismatchWeights:
    old_BT = torch.tensor([[math.log(r) - 1.0 for r in ratios]], dtype=dtype)
    return mismatch_weight(name, old_BT, torch.full_like(old_BT, -1.0), torch.ones(1, len(ratios)).bool(), cap=cap)


@pytest.mark.parametrize(("name", "beyond"), [("truncate", 2.0), ("mask", 0.0)])
def test_reference_values(name: str, beyond: float):
    out = at(name, [0.5, 1.0, 1.9, 2.0, 2.1, 1e6])
    assert out.weights_BT[0].tolist() == pytest.approx([0.5, 1.0, 1.9, 2.0, beyond, beyond], rel=1e-12)
    assert out.acted_BT[0].tolist() == [False, False, False, False, True, True]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cap", [0.5, 1.0])
def test_a_cap_may_lie_below_one(name: str, cap: float):
    out = at(name, [0.4, 1.1], cap=cap)
    assert out.weights_BT[0].tolist() == pytest.approx([0.4, cap if name == "truncate" else 0.0])
    assert out.acted_BT[0].tolist() == [False, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", [0.0, -1.3, -9.7])
def test_exactly_at_the_cap_nothing_acts(base: float, dtype: torch.dtype):
    old_BT = torch.tensor([[base + math.log(2.0), base + math.log(2.0) + 1e-4]], dtype=dtype)
    for name, beyond in (("truncate", 2.0), ("mask", 0.0)):
        behaviour_BT = torch.full((1, 2), base, dtype=dtype)
        out = mismatch_weight(name, old_BT, behaviour_BT, torch.ones(1, 2).bool(), cap=2.0)
        assert out.acted_BT.tolist() == [[False, True]]
        assert out.weights_BT[0].tolist() == pytest.approx([2.0, beyond], rel=1e-5)


def test_c72_an_engine_that_sampled_at_another_temperature_is_seen_as_mismatch():
    """Sampled at T = 0.5, scored at 1: π_old/μ = 0.8969 before any update, and ρ = π_θ/π_old is 1."""
    logits_BTV, ids_BT, mask_BT = (
        torch.tensor([[[2.0, 0.0]]]).double(),
        torch.zeros(1, 1).long(),
        torch.ones(1, 1).bool(),
    )
    behaviour_BT, old_BT = (token_logprobs(logits_BTV, ids_BT, temperature=t) for t in (0.5, 1.0))
    assert behaviour_BT.item() == pytest.approx(-0.01815, abs=5e-6)
    for name in NAMES:
        weights_BT = mismatch_weight(name, old_BT, behaviour_BT, mask_BT, cap=2.0).weights_BT
        assert weights_BT.item() == pytest.approx(0.8969, abs=5e-5)
    out = clipped(old_BT, old_BT, torch.ones(1).double(), mask_BT, eps_low=0.2, eps_high=0.2)
    assert out.ratio_BT.item() == 1.0
    mixed = clipped(old_BT, behaviour_BT, torch.ones(1).double(), mask_BT, eps_low=0.2, eps_high=0.2)
    assert mixed.ratio_BT.item() == pytest.approx(0.8969, abs=5e-5)  # one variable for both: a ratio before any update


def test_c73_truncated_sampling_against_a_full_score_is_0_8_per_token():
    """Probabilities (.5, .3, .15, .05), top-p .8 keeps two, and token 0 was drawn with .5/.8 = .625."""
    logits_V = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]).double())
    kept_V = logits_V.masked_fill(torch.tensor([False, False, True, True]), -math.inf)
    ids_BT, mask_BT = torch.zeros(1, 100).long(), torch.ones(1, 100).bool()
    old_BT, behaviour_BT = (token_logprobs(x.expand(1, 100, 4), ids_BT, temperature=1.0) for x in (logits_V, kept_V))
    assert behaviour_BT[0, 0].item() == pytest.approx(math.log(0.625))
    weights_BT = mismatch_weight("truncate", old_BT, behaviour_BT, mask_BT, cap=2.0).weights_BT
    assert weights_BT[0].tolist() == pytest.approx([0.8] * 100)
    assert weights_BT.log()[0, 0].item() == pytest.approx(-0.2231, abs=5e-5)
    assert weights_BT.prod().item() == pytest.approx(2.0e-10, rel=0.02)
    # Scored with the same truncation there is no mismatch at all.
    same = mismatch_weight("truncate", behaviour_BT, behaviour_BT, mask_BT, cap=2.0)
    assert (same.weights_BT == 1).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
def test_c75_a_gap_among_the_sampler_s_log_probs_is_named(name: str, bad: float):
    good_BT = torch.full((3, 4), -1.0)
    gap_BT, mask_BT = good_BT.clone(), torch.ones(3, 4).bool()
    gap_BT[1, 2] = gap_BT[2, 0] = bad
    mask_BT[2, 0] = False
    with pytest.raises(ValueError, match=f"of μ is {bad} at row 1, token 2 .1 live tokens.* store the sampler's"):
        mismatch_weight(name, good_BT, gap_BT, mask_BT, cap=2.0)
    with pytest.raises(ValueError, match=f"of π_old is {bad} at row 1, token 2 .*forward pass failed"):
        mismatch_weight(name, gap_BT, good_BT, mask_BT, cap=2.0)


def test_c75_a_gap_filled_with_0_reads_as_probability_one():
    """It cannot be told from a certain token: the weight is π_old itself. Engines must give log-probs of their ids."""
    out = mismatch_weight("truncate", torch.tensor([[-2.0]]), torch.zeros(1, 1), torch.ones(1, 1).bool(), cap=2.0)
    assert out.weights_BT.item() == pytest.approx(math.exp(-2.0))
    assert not out.acted_BT.item()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf])
def test_c08_masked_places_weigh_one_whatever_stands_there(name: str, rubbish: float):
    old_BT = torch.tensor([[-1.0, rubbish], [rubbish, rubbish]])
    mask_BT = torch.tensor([[True, False], [False, False]])
    out = mismatch_weight(name, old_BT, torch.tensor([[-1.5, -9.0], [rubbish, -9.0]]), mask_BT, cap=1.1)
    assert out.weights_BT[~mask_BT].tolist() == [1.0] * 3
    assert out.acted_BT.tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0)])
def test_c08_nothing_there(name: str, shape: tuple[int, int]):
    out = mismatch_weight(name, torch.zeros(shape), torch.zeros(shape), torch.zeros(shape).bool(), cap=2.0)
    assert out.weights_BT.shape == out.acted_BT.shape == shape


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_c09_far_apart_is_finite_and_half_precision_is_widened(name: str, dtype: torch.dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    extreme = torch.finfo(dtype).max / 4
    old_BT = torch.tensor([[100.0, -100.0, extreme, -extreme, -5.0]], dtype=dtype)
    behaviour_BT = torch.tensor([[0.0, 0.0, -extreme, extreme, -5.03125]], dtype=dtype)
    out = mismatch_weight(name, old_BT, behaviour_BT, torch.ones(1, 5).bool(), cap=2.0)
    beyond = 2.0 if name == "truncate" else 0.0
    assert out.weights_BT.dtype == wide
    assert out.weights_BT[0].tolist() == pytest.approx(
        [beyond, 0.0, beyond, 0.0, math.exp(0.03125)], rel=1e-6, abs=1e-30
    )
    assert out.acted_BT[0].tolist() == [True, False, True, False, False]


@pytest.mark.parametrize("name", NAMES)
def test_a_cap_past_float32_still_gives_finite_weights(name: str):
    old_BT, mask_BT = torch.tensor([[500.0, 1.0]]), torch.ones(1, 2).bool()
    out = mismatch_weight(name, old_BT, torch.zeros(1, 2), mask_BT, cap=1e300)
    assert torch.isfinite(out.weights_BT).all()
    assert out.acted_BT.tolist() == [[True, False]]


def test_a_sampler_in_half_precision_beside_a_float32_trainer():
    """μ as the engine stored it: its rounding is part of the mismatch, and is not added to."""
    old_BT = torch.tensor([[-1.234567]])
    behaviour_BT = old_BT.half()
    out = mismatch_weight("truncate", old_BT, behaviour_BT, torch.ones(1, 1).bool(), cap=2.0)
    assert out.weights_BT.item() == pytest.approx(math.exp(old_BT.item() - behaviour_BT.item()), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_no_gradient_goes_anywhere(name: str):
    leaves = [torch.full((1, 2), x, requires_grad=True) for x in (-1.0, -1.5)]
    out = mismatch_weight(name, leaves[0], leaves[1], torch.ones(1, 2).bool(), cap=1.1)
    assert not out.weights_BT.requires_grad


def test_the_weight_is_a_factor_beside_the_clip():
    """ρ is clipped against π_old; a mismatch of 1.5 neither triggers the clip nor is cut by it."""
    logp_BT = torch.full((1, 1), -1.0, dtype=torch.float64, requires_grad=True)
    behaviour_BT, mask_BT = logp_BT.detach() - math.log(1.5), torch.ones(1, 1).bool()
    out = clipped(logp_BT, logp_BT.detach(), torch.ones(1).double(), mask_BT, eps_low=0.2, eps_high=0.2)
    weights_BT = mismatch_weight("truncate", logp_BT, behaviour_BT, mask_BT, cap=2.0).weights_BT
    (grad_BT,) = torch.autograd.grad((out.term_BT * weights_BT).sum(), logp_BT)
    assert grad_BT.item() == pytest.approx(1.5)
    assert not out.clipped_high_BT.item()


def test_without_a_cap_the_weighted_mean_is_exact():
    """Σ_v μ(v) (π_old/μ)(v) f(v) = Σ_v π_old(v) f(v): what the weight is for, and what a cap gives up."""
    generator = torch.Generator().manual_seed(0)
    old_V, mu_V = (torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(-1) for _ in range(2))
    f_V, mask_BT = torch.randn(6, generator=generator, dtype=torch.float64), torch.ones(1, 6).bool()

    def expected(cap: float) -> Tensor:
        return (
            mu_V.exp() * mismatch_weight("truncate", old_V[None], mu_V[None], mask_BT, cap=cap).weights_BT * f_V
        ).sum()

    exact = (old_V.exp() * f_V).sum()
    assert expected(1e6).item() == pytest.approx(exact.item(), rel=1e-12)
    assert abs(expected(1.0).item() - exact.item()) > 0.01


def test_names_are_read_or_refused():
    one = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=r"'none' has no weights to compute: .* do not call mismatch_weight"):
        mismatch_weight("none", one, one, one.bool(), cap=None)
    with pytest.raises(ValueError, match="unknown mismatch weight 'tis'; choose one of truncate, mask"):
        mismatch_weight("tis", one, one, one.bool(), cap=2.0)
    assert ("none", *MISMATCH) == variants.MISMATCH_NAMES
    assert all(function.__name__ == name for name, function in MISMATCH.items())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cap", [0.0, -1.0, math.inf, math.nan])
def test_a_cap_out_of_range_is_named(name: str, cap: float):
    with pytest.raises(ValueError, match=f"mismatch_cap must be a number above 0, such as 2; got {cap}"):
        at(name, [1.0], cap=cap)


def test_a_missing_cap_is_named():
    one = torch.zeros(1, 1)
    with pytest.raises(
        ValueError, match="mismatch weight 'truncate' needs its cap, a number above 0, such as 2; got None"
    ):
        mismatch_weight("truncate", one, one, one.bool(), cap=None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", NAMES)
def test_shapes_that_do_not_agree_are_named(name: str):
    z = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"\(2, 3\), \(2, 2\), \(2, 3\)"):
        mismatch_weight(name, z, z[:, :2], z.bool(), cap=2.0)
    with pytest.raises(ValueError, match=r"\(2, 3\), \(2, 3\), \(1, 3\)"):
        mismatch_weight(name, z, z, z[:1].bool(), cap=2.0)
    with pytest.raises(ValueError, match=r"one shape \(B, T\), got \(3,\)"):
        mismatch_weight(name, z[0], z[0], z[0].bool(), cap=2.0)
