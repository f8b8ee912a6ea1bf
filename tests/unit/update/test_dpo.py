"""Pairs in micro-batches, their log-probs, and the step of direct preference optimisation."""

import copy
import math

import pytest
import torch

from steelyard.errors import UpdateError
from steelyard.update.config import OptimizerSection
from steelyard.update.dpo import DpoLearner, PairLogprobs
from steelyard.update.hashing import parameter_hash
from steelyard.update.pairs import PreferencePair, cut_pairs

LOG_2 = math.log(2.0)


def ids(n: int, generator: torch.Generator) -> tuple[int, ...]:
    return tuple(torch.randint(0, 258, (n,), generator=generator).tolist())


def pairs(*shapes: tuple[int, int, int]) -> list[PreferencePair]:
    """Pairs of given (prompt, chosen, rejected) lengths."""
    generator = torch.Generator().manual_seed(3)
    return [
        PreferencePair(prompt_ids=ids(p, generator), chosen_ids=ids(w, generator), rejected_ids=ids(x, generator))
        for p, w, x in shapes
    ]


RAGGED = pairs((4, 3, 7), (4, 40, 2), (4, 5, 33), (2, 1, 1), (4, 2, 9), (3, 34, 50))


def learner(model, *, budget: int = 4096, beta: float = 0.5, steps: int = 10, **optimizer) -> DpoLearner:
    settings = OptimizerSection(**{"lr": 1e-2, **optimizer})
    return DpoLearner(model, beta=beta, optimizer=settings, total_steps=steps, token_budget=budget)


def by_hand(model, prompt: tuple[int, ...], answer: tuple[int, ...]) -> torch.Tensor:
    """Σ log π of an answer, the row alone and unpadded."""
    logits_SV = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0]
    logp_SV = logits_SV.log_softmax(dim=-1)
    terms = [logp_SV[len(prompt) - 1 + place, token] for place, token in enumerate(answer)]
    return torch.stack(terms).sum()


@pytest.mark.parametrize("budget", [1, 60, 143, 144, 4096])
def test_every_pair_is_cut_into_one_micro_batch_within_the_budget(budget):
    batches = cut_pairs(RAGGED, token_budget=budget, pad_id=0)
    assert sorted(index for batch in batches for index in batch.members) == list(range(len(RAGGED)))
    for batch in batches:
        tokens = batch.chosen.input_BS.numel() + batch.rejected.input_BS.numel()
        assert tokens <= budget or len(batch.members) == 1
        for line, index in enumerate(batch.members):
            for side, wanted in (
                (batch.chosen, RAGGED[index].chosen_ids),
                (batch.rejected, RAGGED[index].rejected_ids),
            ):
                assert tuple(side.token_BT[line][side.mask_BT[line]].tolist()) == wanted


def test_log_probs_are_sums_over_the_answer_alone(model64):
    scores = learner(model64).logprobs(RAGGED)
    for place, pair in enumerate(RAGGED):
        wanted = (
            by_hand(model64, pair.prompt_ids, pair.chosen_ids),
            by_hand(model64, pair.prompt_ids, pair.rejected_ids),
        )
        assert scores.chosen_N[place].item() == pytest.approx(wanted[0].item(), rel=1e-12)
        assert scores.rejected_N[place].item() == pytest.approx(wanted[1].item(), rel=1e-12)


def test_before_the_first_step_every_margin_is_0_and_the_loss_log_2(model):
    job = learner(model)
    reference = job.logprobs(RAGGED)
    stats = job.step(RAGGED, reference)
    assert stats.margin == 0.0
    assert stats.loss == LOG_2
    assert stats.ranked_rightly == 0.0
    assert stats.grad_norm > 0.0


def test_scores_do_not_depend_on_the_cut(model):
    whole, alone = learner(model).logprobs(RAGGED), learner(model, budget=1).logprobs(RAGGED)
    torch.testing.assert_close(whole.chosen_N, alone.chosen_N, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(whole.rejected_N, alone.rejected_N, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("budget", [1, 60, 200])
def test_c05_the_step_does_not_depend_on_where_the_pairs_are_cut(model64, budget):
    moved = []
    for each in (4096, budget):
        job = learner(copy.deepcopy(model64), budget=each, max_grad_norm=math.inf)
        reference = PairLogprobs(chosen_N=torch.full((6,), -9.0).double(), rejected_N=torch.full((6,), -11.0).double())
        stats = job.step(RAGGED, reference)
        moved.append((stats.loss, stats.grad_norm, stats.margin))
    assert moved[0] == pytest.approx(moved[1], rel=1e-12)


def test_the_gradient_is_that_of_the_formula_written_out(model64):
    beta, reference = 0.5, (-30.0, -28.0)
    loss = torch.zeros((), dtype=torch.float64)
    for pair in RAGGED:
        chosen = beta * (by_hand(model64, pair.prompt_ids, pair.chosen_ids) - reference[0])
        rejected = beta * (by_hand(model64, pair.prompt_ids, pair.rejected_ids) - reference[1])
        loss = loss + torch.log1p(torch.exp(-(chosen - rejected))) / len(RAGGED)
    wanted = torch.autograd.grad(loss, list(model64.parameters()))
    norm = math.sqrt(sum(gradient.square().sum().item() for gradient in wanted))
    job = learner(model64, beta=beta, lr=0.0)
    fixed = PairLogprobs(
        chosen_N=torch.full((6,), reference[0]).double(), rejected_N=torch.full((6,), reference[1]).double()
    )
    stats = job.step(RAGGED, fixed)
    assert stats.loss == pytest.approx(loss.item(), rel=1e-12)
    assert stats.grad_norm == pytest.approx(norm, rel=1e-10)


def test_steps_raise_margins_and_equal_steps_give_equal_weights(model):
    digests = []
    for _ in range(2):
        trained = copy.deepcopy(model)
        job = learner(trained)
        reference = job.logprobs(RAGGED)
        first, *_, last = [job.step(RAGGED, reference) for _ in range(8)]
        assert last.loss < first.loss
        assert last.ranked_rightly > 0.8
        digests.append(parameter_hash(trained).digest)
    assert digests[0] == digests[1]


def test_a_learning_rate_of_0_moves_nothing(model):
    before = parameter_hash(model).digest
    job = learner(model, lr=0.0)
    job.step(RAGGED, job.logprobs(RAGGED))
    assert parameter_hash(model).digest == before


def test_a_policy_that_diverged_is_said_and_takes_no_step(model):
    job = learner(model)
    reference = job.logprobs(RAGGED)
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    before = parameter_hash(model).digest
    with pytest.raises(UpdateError, match="diverged"):
        job.step(RAGGED, reference)
    assert parameter_hash(model).digest == before
