"""Laws of the six surrogates, of the mismatch weights and of the parts of an AdamW step."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from steelyard.numerics.mismatch import MISMATCH, mismatch_weight
from steelyard.numerics.optim_parts import adamw_parts
from steelyard.numerics.reductions import AGGREGATIONS, Denominators, weighted_sum
from steelyard.numerics.surrogates import (
    SURROGATES,
    SurrogateTerms,
    cispo,
    clipped,
    dual_clipped,
    importance,
    sequence_clipped,
    surrogate,
)
from steelyard.numerics.variants import READS

SEEDS = st.integers(0, 2**31)
LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=5)
ALL = sorted(SURROGATES)
PER_TOKEN = sorted(set(SURROGATES) - {"sequence_clipped"})
RATIO_ONLY = sorted(set(SURROGATES) - {"policy_gradient", "cispo"})
EPS = {"eps_low": 0.2, "eps_high": 0.28}
NUMBERS = EPS | {"dual_clip": 1.5, "eps_max": 1.3}


def called(name: str, logp_BT: Tensor, old_BT: Tensor, advantages: Tensor, mask_BT: Tensor) -> SurrogateTerms:
    reads = READS["surrogate"].get(name, ())
    numbers = {key: value if key in reads else None for key, value in NUMBERS.items()}
    return surrogate(name, logp_BT, old_BT, advantages, mask_BT, **numbers)


def rows(lengths: list[int], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(max(lengths), 1))
    old_BT = -3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    logp_BT = old_BT + 0.4 * torch.randn(shape, generator=generator, dtype=torch.float64)
    advantages_B = torch.randn(len(lengths), generator=generator, dtype=torch.float64)
    mask_BT = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
    return logp_BT, old_BT, advantages_B, mask_BT


def same_flags(a: SurrogateTerms, b: SurrogateTerms) -> bool:
    return all(
        torch.equal(getattr(a, flag), getattr(b, flag)) for flag in ("clipped_low_BT", "clipped_high_BT", "capped_BT")
    )


# ------------------------------------------------------------------ aggregation


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
@pytest.mark.parametrize("name", ALL)
@settings(max_examples=10)
@given(lengths=LENGTHS, seed=SEEDS, per_token=st.booleans(), weighted=st.booleans(), data=st.data())
def test_c05_any_cut_into_micro_batches_adds_up(
    name: str, aggregation: str, lengths: list[int], seed: int, per_token: bool, weighted: bool, data: st.DataObject
):
    """Value and gradient for every way of cutting the rows, in any order, each cut padded to its own width."""
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    behaviour_BT = old_BT + 0.3 * torch.randn(old_BT.shape, generator=torch.Generator().manual_seed(seed)).double()
    token_BT = advantages_B[:, None] * torch.linspace(0.5, 1.5, logp_BT.shape[1], dtype=torch.float64)
    alive = [n for n in lengths if n]
    denominators = Denominators(n_sequences=len(alive), n_tokens=sum(alive), max_length=16)

    def step(cut: list[list[int]]) -> tuple[float, Tensor]:
        leaf_BT, value = logp_BT.clone().requires_grad_(), 0.0
        for members in cut:
            width = max(max(lengths[row] for row in members), 1)
            mine = (members, slice(width))
            mask = mask_BT[mine]
            advantages = token_BT[mine] if per_token and name in PER_TOKEN else advantages_B[members]
            term_BT = called(name, leaf_BT[mine], old_BT[mine], advantages, mask).term_BT
            if weighted:
                term_BT = (
                    term_BT * mismatch_weight("truncate", old_BT[mine], behaviour_BT[mine], mask, cap=1.1).weights_BT
                )
            loss = -weighted_sum(term_BT, AGGREGATIONS[aggregation](mask, denominators=denominators), mask)
            loss.backward()
            value += loss.item()
        assert leaf_BT.grad is not None
        return value, leaf_BT.grad

    order = data.draw(st.permutations(range(len(lengths))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(lengths)), max_size=4)) | {len(lengths)})
    ragged = [order[start:stop] for start, stop in zip([0, *cuts[:-1]], cuts, strict=True)]
    whole_value, whole_grad = step([list(range(len(lengths)))])
    for cut in (ragged, [[row] for row in order]):
        value, grad = step(cut)
        assert value == pytest.approx(whole_value, rel=1e-12, abs=1e-14)
        torch.testing.assert_close(grad, whole_grad, rtol=1e-13, atol=1e-16)


@given(lengths=LENGTHS, seed=SEEDS)
def test_sequence_mean_of_gspo_is_the_mean_over_completions_of_one_term(lengths: list[int], seed: int):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    out = sequence_clipped(logp_BT, old_BT, advantages_B, mask_BT, **EPS)
    alive = [row for row, n in enumerate(lengths) if n]
    denominators = Denominators(n_sequences=len(alive), n_tokens=sum(lengths), max_length=16)
    value = weighted_sum(out.term_BT, AGGREGATIONS["sequence_mean"](mask_BT, denominators=denominators), mask_BT)
    expected = sum(out.term_BT[row, 0].item() for row in alive) / max(len(alive), 1)
    assert value.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


# ------------------------------------------------------------------ all surrogates


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=25)
@given(lengths=LENGTHS, seed=SEEDS)
def test_what_stands_at_masked_places_changes_nothing(name: str, lengths: list[int], seed: int):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    clean = called(name, logp_BT, old_BT, advantages_B, mask_BT)
    noise = [x.masked_fill(~mask_BT, bad) for x, bad in ((logp_BT, math.nan), (old_BT, -math.inf))]
    dirty = called(name, *noise, advantages_B, mask_BT)
    assert torch.equal(clean.term_BT, dirty.term_BT)
    assert torch.equal(clean.ratio_BT, dirty.ratio_BT)
    assert same_flags(clean, dirty)
    assert (dirty.term_BT[~mask_BT] == 0).all()


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=25)
@given(lengths=LENGTHS, seed=SEEDS, power=st.integers(-8, 8))
def test_advantages_times_c_give_terms_times_c(name: str, lengths: list[int], seed: int, power: int):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    out = called(name, logp_BT, old_BT, advantages_B, mask_BT)
    scaled = called(name, logp_BT, old_BT, 2.0**power * advantages_B, mask_BT)
    assert torch.equal(scaled.term_BT, 2.0**power * out.term_BT)
    assert same_flags(scaled, out)


@pytest.mark.parametrize("name", RATIO_ONLY)
@settings(max_examples=25)
@given(lengths=LENGTHS, seed=SEEDS, shift=st.floats(-10, 10))
def test_only_the_log_ratio_matters(name: str, lengths: list[int], seed: int, shift: float):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    out = called(name, logp_BT, old_BT, advantages_B, mask_BT)
    moved = called(name, logp_BT + shift, old_BT + shift, advantages_B, mask_BT)
    torch.testing.assert_close(moved.term_BT, out.term_BT, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=25)
@given(lengths=LENGTHS, seed=SEEDS)
def test_the_gradient_never_points_against_the_advantage(name: str, lengths: list[int], seed: int):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    logp_BT.requires_grad_()
    out = called(name, logp_BT, old_BT, advantages_B, mask_BT)
    (grad_BT,) = torch.autograd.grad(out.term_BT.sum(), logp_BT)
    assert (grad_BT * advantages_B[:, None] >= 0).all()
    flat_BT = out.clipped_low_BT | out.clipped_high_BT | (out.capped_BT & (name == "dual_clipped"))
    assert torch.equal(grad_BT == 0, flat_BT | ~mask_BT)  # exactly the flat branches are flat


# ------------------------------------------------------------------ each of the held ones


@given(lengths=LENGTHS, seed=SEEDS, c=st.floats(1.01, 3.0))
def test_the_dual_clip_only_raises_the_term_and_counts_where_it_did(lengths: list[int], seed: int, c: float):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    plain = clipped(logp_BT, old_BT, advantages_B, mask_BT, **EPS)
    dual = dual_clipped(logp_BT, old_BT, advantages_B, mask_BT, **EPS, dual_clip=c)
    assert torch.equal(dual.term_BT > plain.term_BT, dual.capped_BT)
    assert torch.equal(dual.clipped_low_BT, plain.clipped_low_BT)
    assert torch.equal(dual.clipped_high_BT, plain.clipped_high_BT)
    assert not (dual.capped_BT & (dual.clipped_low_BT | dual.clipped_high_BT)).any()
    # The definition, as it stands in the paper.
    a_BT = advantages_B[:, None]
    paper_BT = torch.where(a_BT < 0, torch.maximum(plain.term_BT, c * a_BT), plain.term_BT)
    torch.testing.assert_close(dual.term_BT[mask_BT], paper_BT[mask_BT], rtol=1e-13, atol=1e-15)


@given(seed=SEEDS, n=st.integers(1, 6))
def test_completions_of_one_token_make_gspo_the_clip_per_token(seed: int, n: int):
    args = rows([1] * n, seed)
    whole, each = sequence_clipped(*args, **EPS), clipped(*args, **EPS)
    assert torch.equal(whole.term_BT, each.term_BT)
    assert torch.equal(whole.ratio_BT, each.ratio_BT)
    assert same_flags(whole, each)


@given(lengths=LENGTHS, seed=SEEDS, data=st.data())
def test_gspo_sees_the_sum_of_the_log_ratios_and_not_their_places(lengths: list[int], seed: int, data: st.DataObject):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    out = sequence_clipped(logp_BT, old_BT, advantages_B, mask_BT, **EPS)
    order_T = data.draw(st.permutations(range(mask_BT.shape[1])))
    mixed = sequence_clipped(logp_BT[:, order_T], old_BT[:, order_T], advantages_B, mask_BT[:, order_T], **EPS)
    torch.testing.assert_close(mixed.term_BT, out.term_BT[:, order_T], rtol=1e-12, atol=1e-15)
    # Spread evenly over the row, the sum gives the same ratio.
    mean_B1 = ((logp_BT - old_BT) * mask_BT).sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp(min=1)
    even = sequence_clipped(old_BT + mean_B1, old_BT, advantages_B, mask_BT, **EPS)
    torch.testing.assert_close(even.ratio_BT, out.ratio_BT, rtol=1e-12, atol=0)


@given(lengths=LENGTHS, seed=SEEDS, eps_max=st.floats(1.0, 3.0))
def test_cispo_pulls_as_importance_does_up_to_its_cap(lengths: list[int], seed: int, eps_max: float):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    logp_BT.requires_grad_()
    free = importance(logp_BT, old_BT, advantages_B, mask_BT)
    held = cispo(logp_BT, old_BT, advantages_B, mask_BT, eps_max=eps_max)
    free_BT, held_BT = (torch.autograd.grad(out.term_BT.sum(), logp_BT)[0] for out in (free, held))
    bound_BT = eps_max * advantages_B.abs()[:, None] * mask_BT
    torch.testing.assert_close(held_BT.abs(), torch.minimum(free_BT.abs(), bound_BT), rtol=1e-13, atol=1e-15)
    assert torch.equal(held.capped_BT, (held.ratio_BT > eps_max * (1 + 1e-14)) & mask_BT)


# ------------------------------------------------------------------ mismatch weights


@given(lengths=LENGTHS, seed=SEEDS, cap=st.floats(0.1, 3.0))
def test_weights_lie_between_0_and_the_cap(lengths: list[int], seed: int, cap: float):
    old_BT, behaviour_BT, _, mask_BT = rows(lengths, seed)
    held, left_out = (mismatch_weight(name, old_BT, behaviour_BT, mask_BT, cap=cap) for name in ("truncate", "mask"))
    ratio_BT = torch.exp(old_BT - behaviour_BT)
    assert torch.equal(held.acted_BT, left_out.acted_BT)
    assert torch.equal(held.acted_BT, (ratio_BT > cap) & mask_BT)
    idle_BT = mask_BT & ~held.acted_BT
    for out, beyond in ((held, cap), (left_out, 0.0)):
        assert (out.weights_BT[~mask_BT] == 1).all()
        assert (out.weights_BT[out.acted_BT] == beyond).all()
        torch.testing.assert_close(out.weights_BT[idle_BT], ratio_BT[idle_BT], rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", sorted(MISMATCH))
@given(lengths=LENGTHS, seed=SEEDS)
def test_a_sampler_equal_to_the_trainer_weighs_exactly_one(name: str, lengths: list[int], seed: int):
    old_BT, _, _, mask_BT = rows(lengths, seed)
    out = mismatch_weight(name, old_BT, old_BT, mask_BT, cap=1.0)
    assert (out.weights_BT == 1).all()
    assert not out.acted_BT.any()


# ------------------------------------------------------------------ parts of an AdamW step


@given(seed=SEEDS, step=st.integers(1, 500), power=st.integers(-4, 4), beta1=st.floats(0.0, 0.99))
def test_gradients_times_c_move_the_same_and_lr_scales_all(seed: int, step: int, power: int, beta1: float):
    generator = torch.Generator().manual_seed(seed)
    theta, g, m, v = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(4))
    c, numbers = 2.0**power, {"step": step, "betas": (beta1, 0.99), "weight_decay": 0.1}
    parts = adamw_parts(theta, g, m, v.square(), lr=0.01, eps=1e-8, **numbers)
    scaled = adamw_parts(theta, c * g, c * m, (c * v).square(), lr=0.01, eps=c * 1e-8, **numbers)
    torch.testing.assert_close(scaled.carried, parts.carried, rtol=1e-12, atol=1e-300)
    torch.testing.assert_close(scaled.fresh, parts.fresh, rtol=1e-12, atol=0)
    assert torch.equal(scaled.decay, parts.decay)
    doubled = adamw_parts(theta, g, m, v.square(), lr=0.02, eps=1e-8, **numbers)
    torch.testing.assert_close(doubled.total, 2 * parts.total, rtol=1e-12, atol=0)


@given(seed=SEEDS, step=st.integers(1, 500))
def test_carried_follows_the_moment_and_fresh_the_gradient(seed: int, step: int):
    """Each part points against its own cause, entry by entry, whatever the other does."""
    generator = torch.Generator().manual_seed(seed)
    theta, g, m, v = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(4))
    parts = adamw_parts(theta, g, m, v.square(), step=step, lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    assert torch.equal(parts.carried.sign(), -m.sign())
    assert torch.equal(parts.fresh.sign(), -g.sign())
    assert torch.equal(parts.decay.sign(), -theta.sign())
    without = adamw_parts(theta, g, 0 * m, v.square(), step=step, lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    assert torch.equal(without.fresh, parts.fresh)
    assert torch.equal(without.total, parts.fresh)
