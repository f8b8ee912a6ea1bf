"""Laws of surrogates, aggregation, KL, log-probs and pass@k."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steelyard.numerics.estimators import pass_at_k
from steelyard.numerics.kl import k1, k2, k3
from steelyard.numerics.logprobs import token_entropy, token_logprobs
from steelyard.numerics.reductions import AGGREGATIONS, Denominators, weighted_sum
from steelyard.numerics.surrogates import clipped, importance

SEEDS = st.integers(0, 2**31)
LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=5)


def rows(lengths: list[int], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(max(lengths), 1))
    old_BT = -3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    logp_BT = old_BT + 0.4 * torch.randn(shape, generator=generator, dtype=torch.float64)
    advantages_B = torch.randn(len(lengths), generator=generator, dtype=torch.float64)
    mask_BT = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
    return logp_BT, old_BT, advantages_B, mask_BT


@pytest.mark.parametrize("name", sorted(AGGREGATIONS))
@given(lengths=LENGTHS, seed=SEEDS, data=st.data())
def test_c05_micro_batches_add_up_to_the_batch(name: str, lengths: list[int], seed: int, data: st.DataObject):
    """Value and gradient are the same for every way of cutting the rows, in any order, padded to any width."""
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    alive = [n for n in lengths if n]
    denominators = Denominators(n_sequences=len(alive), n_tokens=sum(alive), max_length=16)

    def step(cut: list[list[int]], *, trim: bool) -> tuple[float, Tensor]:
        leaf_BT, value = logp_BT.clone().requires_grad_(), 0.0
        for members in cut:
            width = max(max(lengths[row] for row in members), 1) if trim else logp_BT.shape[1]
            mine = (members, slice(width))
            mask = mask_BT[mine]
            terms = clipped(leaf_BT[mine], old_BT[mine], advantages_B[members], mask, eps_low=0.2, eps_high=0.28)
            kl = k3(leaf_BT[mine], old_BT[mine], mask)
            loss = weighted_sum(0.1 * kl - terms.term_BT, AGGREGATIONS[name](mask, denominators=denominators), mask)
            loss.backward()
            value += loss.item()
        assert leaf_BT.grad is not None
        return value, leaf_BT.grad

    order = data.draw(st.permutations(range(len(lengths))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(lengths)), max_size=4)) | {len(lengths)})
    ragged = [order[start:stop] for start, stop in zip([0, *cuts[:-1]], cuts, strict=True)]
    whole_value, whole_grad = step([list(range(len(lengths)))], trim=False)
    for cut in (ragged, [[row] for row in order]):
        value, grad = step(cut, trim=True)
        assert value == pytest.approx(whole_value, rel=1e-12, abs=1e-14)
        assert torch.equal(grad, whole_grad)  # each token's gradient is its own weight times its own slope


@given(lengths=LENGTHS, seed=SEEDS)
def test_weights_sum_to_what_their_name_says(lengths: list[int], seed: int):
    mask_BT = rows(lengths, seed)[3]
    alive = [n for n in lengths if n]
    if not alive:
        return
    denominators = Denominators(n_sequences=len(alive), n_tokens=sum(alive), max_length=16)
    sums = {name: f(mask_BT, denominators=denominators).sum().item() for name, f in AGGREGATIONS.items()}
    mean_length = sum(alive) / len(alive)
    expected = {"sequence_mean": 1.0, "token_mean": 1.0, "fixed_length": mean_length / 16, "sequence_sum": mean_length}
    assert sums == {name: pytest.approx(value, rel=1e-12) for name, value in expected.items()}


@given(lengths=LENGTHS, seed=SEEDS)
def test_clipping_only_ever_lowers_the_term_and_counts_where_it_did(lengths: list[int], seed: int):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    free = importance(logp_BT, old_BT, advantages_B, mask_BT)
    held = clipped(logp_BT, old_BT, advantages_B, mask_BT, eps_low=0.2, eps_high=0.28)
    counted_BT = held.clipped_low_BT | held.clipped_high_BT
    assert (held.term_BT <= free.term_BT).all()
    assert torch.equal(held.term_BT < free.term_BT, counted_BT)
    assert not (held.clipped_low_BT & held.clipped_high_BT).any()
    # The definition, as it stands in the paper.
    a_BT = advantages_B[:, None]
    paper_BT = torch.minimum(free.ratio_BT * a_BT, free.ratio_BT.clamp(1 - 0.2, 1 + 0.28) * a_BT)
    torch.testing.assert_close(held.term_BT[mask_BT], paper_BT[mask_BT], rtol=1e-13, atol=1e-15)


@given(lengths=LENGTHS, seed=SEEDS)
def test_what_stands_at_masked_places_changes_nothing(lengths: list[int], seed: int):
    logp_BT, old_BT, advantages_B, mask_BT = rows(lengths, seed)
    clean = clipped(logp_BT, old_BT, advantages_B, mask_BT, eps_low=0.2, eps_high=0.2)
    noise = [x.masked_fill(~mask_BT, bad) for x, bad in ((logp_BT, math.nan), (old_BT, -math.inf))]
    dirty = clipped(*noise, advantages_B, mask_BT, eps_low=0.2, eps_high=0.2)
    assert torch.equal(clean.term_BT, dirty.term_BT)
    assert torch.equal(clean.ratio_BT, dirty.ratio_BT)


@given(d=st.floats(-5, 5))
def test_c09_k3_within_five_nats_is_the_formula(d: float):
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1).bool()
    assert k3(zero, zero + d, one).item() == pytest.approx(math.exp(d) - d - 1, rel=1e-9, abs=1e-15)


@given(d=st.floats(-1e4, 1e4))
def test_k2_and_k3_are_never_negative_and_k1_is_odd(d: float):
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1).bool()
    assert k2(zero, zero + d, one).item() >= 0
    assert k3(zero, zero + d, one).item() >= 0
    assert k1(zero, zero + d, one).item() == -k1(zero + d, zero, one).item()


@given(seed=SEEDS, shift=st.floats(-1e3, 1e3), temperature=st.floats(0.05, 20.0))
def test_log_probs_and_entropy_ignore_a_shift_of_the_logits(seed: int, shift: float, temperature: float):
    generator = torch.Generator().manual_seed(seed)
    logits_BTV = 3 * torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    ids_BT = torch.randint(5, (2, 3), generator=generator)
    logp_BT = token_logprobs(logits_BTV, ids_BT, temperature=temperature)
    entropy_BT = token_entropy(logits_BTV, temperature=temperature)
    torch.testing.assert_close(
        token_logprobs(logits_BTV + shift, ids_BT, temperature=temperature), logp_BT, rtol=0, atol=1e-11
    )
    torch.testing.assert_close(
        token_entropy(logits_BTV + shift, temperature=temperature), entropy_BT, rtol=0, atol=1e-11
    )
    assert (logp_BT <= 0).all()
    assert ((entropy_BT >= 0) & (entropy_BT <= math.log(5) + 1e-12)).all()


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_a_probability_that_grows_with_k_and_c(nck: tuple[int, int, int]):
    n, c, k = nck
    value = pass_at_k(n, c, k)
    assert 0.0 <= value <= 1.0
    assert pass_at_k(n, c, 1) == c / n
    assert k == n or pass_at_k(n, c, k + 1) >= value
    assert c == n or pass_at_k(n, c + 1, k) >= value
