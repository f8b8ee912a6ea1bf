import math

import pytest
import torch
from torch import Tensor

from steelyard.numerics import variants
from steelyard.numerics.advantages import group_centred
from steelyard.numerics.reductions import (
    AGGREGATIONS,
    Denominators,
    fixed_length,
    sequence_mean,
    sequence_sum,
    token_mean,
    weighted_sum,
)
from steelyard.numerics.surrogates import clipped, importance

ALL = sorted(AGGREGATIONS)


def mask_of(lengths: list[int], *, width: int | None = None) -> Tensor:
    width = max(lengths, default=0) if width is None else width
    return torch.arange(width) < torch.tensor(lengths, dtype=torch.long)[:, None]


def counts(lengths: list[int], *, max_length: int = 128) -> Denominators:
    return Denominators(n_sequences=len(lengths), n_tokens=sum(lengths), max_length=max_length)


def test_weights_by_name():
    mask_BT, denominators = mask_of([1, 4]), counts([1, 4], max_length=10)
    first, second = torch.tensor([True, False, False, False]), torch.ones(4).bool()
    expected = {
        "sequence_mean": (1 / 2, 1 / 8),
        "token_mean": (1 / 5, 1 / 5),
        "fixed_length": (1 / 20, 1 / 20),
        "sequence_sum": (1 / 2, 1 / 2),
    }
    for name, (short, long) in expected.items():
        weights_BT = AGGREGATIONS[name](mask_BT, denominators=denominators)
        assert weights_BT.tolist() == [(short * first.double()).tolist(), (long * second.double()).tolist()], name
        assert weights_BT.dtype == torch.float64


def test_two_wrong_completions_and_the_length_bias():
    # A = −1, lengths 10 and 100, G = 4: weights × 1000.
    mask_BT = mask_of([10, 100])
    denominators = Denominators(n_sequences=4, n_tokens=220, max_length=128)
    pushed = -1000 * sequence_mean(mask_BT, denominators=denominators)
    assert [pushed[0, 0].item(), pushed[1, 0].item()] == [-25.0, -2.5]
    for even in (token_mean, fixed_length, sequence_sum):
        weights_BT = even(mask_BT, denominators=denominators)
        assert weights_BT[0, 0] == weights_BT[1, 0]


def test_c05_one_denominator_over_micro_batches():
    # Micro-batch 1: one sample, 2 tokens, loss 1 each; micro-batch 2: one sample, 8 tokens, loss 0.
    denominators = counts([2, 8])
    total = 0.0
    for length, loss in ((2, 1.0), (8, 0.0)):
        mask_BT = mask_of([length])
        term_BT = torch.full(mask_BT.shape, loss)
        total += weighted_sum(term_BT, token_mean(mask_BT, denominators=denominators), mask_BT).item()
    assert total == pytest.approx(0.2)


def test_c05_a_lone_token_on_a_rank_weighs_as_much_as_any_other():
    weights = [token_mean(mask_of([n]), denominators=counts([5, 1]))[0, 0].item() for n in (5, 1)]
    assert weights == [pytest.approx(1 / 6)] * 2


def test_c07_a_masked_completion_leaves_the_denominator_too():
    # 30 tokens, 5 of them in a truncated completion that is masked: the caller counts 25.
    mask_BT = mask_of([10, 15, 0], width=15)
    denominators = Denominators(n_sequences=2, n_tokens=int(mask_BT.sum()), max_length=15)
    ones_BT = torch.ones(mask_BT.shape)
    for mean in (token_mean, sequence_mean):
        value = weighted_sum(ones_BT, mean(mask_BT, denominators=denominators), mask_BT).item()
        assert value == pytest.approx(1.0)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(2, 3), (2, 0), (0, 3), (0, 0)])
def test_c08_nothing_alive_is_zero_with_zero_gradient(name: str, shape: tuple[int, int]):
    logp_BT = torch.full(shape, math.nan, requires_grad=True)
    mask_BT = torch.zeros(shape).bool()
    weights_BT = AGGREGATIONS[name](mask_BT, denominators=Denominators(n_sequences=0, n_tokens=0, max_length=8))
    terms = clipped(logp_BT, logp_BT.detach(), torch.ones(shape[0]), mask_BT, eps_low=0.2, eps_high=0.2)
    value = weighted_sum(terms.term_BT, weights_BT, mask_BT)
    value.backward()
    assert value.item() == 0.0
    assert logp_BT.grad is not None
    assert (logp_BT.grad == 0).all()


@pytest.mark.parametrize("name", ALL)
def test_c08_a_dead_row_beside_a_live_one(name: str):
    mask_BT = torch.tensor([[True, True], [False, False]])
    term_BT = torch.tensor([[1.0, 2.0], [math.nan, math.inf]], requires_grad=True)
    denominators = Denominators(n_sequences=1, n_tokens=2, max_length=4)
    weights_BT = AGGREGATIONS[name](mask_BT, denominators=denominators)
    value = weighted_sum(term_BT, weights_BT, mask_BT)
    value.backward()
    assert value.item() == {"sequence_mean": 1.5, "token_mean": 1.5, "fixed_length": 0.75, "sequence_sum": 3.0}[name]
    assert term_BT.grad is not None
    assert term_BT.grad[1].tolist() == [0.0, 0.0]
    assert term_BT.grad[0].tolist() == weights_BT[0].tolist()


def test_c08_select_never_multiply():
    term_BT = torch.tensor([[0.5, math.nan]], requires_grad=True)
    value = weighted_sum(term_BT, torch.ones(1, 2), torch.tensor([[True, False]]))
    value.backward()
    assert value.item() == 0.5
    assert term_BT.grad is not None
    assert term_BT.grad.tolist() == [[1.0, 0.0]]


def test_a_count_of_zero_beside_live_tokens_is_refused():
    nobody = Denominators(n_sequences=0, n_tokens=0, max_length=4)
    for name in ALL:
        with pytest.raises(ValueError, match="is 0 but 3 live tokens enter the loss"):
            AGGREGATIONS[name](mask_of([1, 2]), denominators=nobody)


@pytest.mark.parametrize("wrong", [{"n_sequences": -1}, {"n_tokens": -1}, {"max_length": 0}])
def test_denominators_are_counts(wrong: dict[str, int]):
    with pytest.raises(ValueError, match="counts cannot be negative and max_length is at least 1"):
        Denominators(**({"n_sequences": 1, "n_tokens": 1, "max_length": 1} | wrong))


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_agree_are_named():
    with pytest.raises(ValueError, match=r"\(1, 2\), \(1, 1\), \(1, 2\)"):
        weighted_sum(torch.zeros(1, 2), torch.zeros(1, 1), torch.zeros(1, 2).bool())


def test_the_weighted_sum_matches_finite_differences():
    mask_BT = mask_of([2, 3])
    weights_BT = sequence_mean(mask_BT, denominators=counts([2, 3]))
    term_BT = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: weighted_sum(t, weights_BT, mask_BT), (term_BT,))


# ------------------------------------------------------------------ zero loss is not zero gradient (objectives §7)


def on_policy(rewards: list[float], lengths: list[int], aggregation: str) -> tuple[float, Tensor]:
    """Loss and its gradient with respect to logp on a fresh batch: one group, one pass, π_old = logp.detach()."""
    mask_BT = mask_of(lengths)
    logp_BT = torch.full(mask_BT.shape, -1.0, dtype=torch.float64, requires_grad=True)
    advantages_B = group_centred(
        torch.tensor(rewards, dtype=torch.float64),
        torch.zeros(len(rewards)).long(),
        torch.ones(len(rewards)).bool(),
        resolution=2.22e-16,
    )
    weights_BT = AGGREGATIONS[aggregation](mask_BT, denominators=counts(lengths))
    loss = -weighted_sum(importance(logp_BT, logp_BT.detach(), advantages_B, mask_BT).term_BT, weights_BT, mask_BT)
    (grad_BT,) = torch.autograd.grad(loss, logp_BT)
    return loss.item(), grad_BT


def test_c01_loss_zero_with_a_gradient():
    loss, grad_BT = on_policy([1.0, 0.0, 0.0, 1.0], [3, 3, 3, 3], "sequence_mean")
    assert abs(loss) < 1e-15
    # −(1/G) A_i / T_i
    torch.testing.assert_close(grad_BT[:, 0], torch.tensor([-1, 1, 1, -1]).double() * 0.5 / 12)


def test_c01_loss_zero_under_sequence_mean_for_unequal_lengths_too():
    loss, grad_BT = on_policy([1.0, 0.0, 0.5], [2, 40, 7], "sequence_mean")
    assert abs(loss) < 1e-6
    assert grad_BT.abs().sum().item() > 0.1


def test_c01_loss_zero_without_a_gradient():
    loss, grad_BT = on_policy([0.7, 0.7, 0.7], [2, 4, 1], "token_mean")
    assert loss == 0.0
    assert (grad_BT == 0).all()


def test_c01_token_mean_over_unequal_lengths_is_not_zero():
    # A = (1, −1), T = (2, 4): −(2 − 4)/6
    loss, _ = on_policy([2.0, 0.0], [2, 4], "token_mean")
    assert loss == pytest.approx(1 / 3)


def test_the_tables_of_names_and_of_functions_agree():
    assert tuple(AGGREGATIONS) == variants.AGGREGATION_NAMES
    assert all(function.__name__ == name for name, function in AGGREGATIONS.items())
