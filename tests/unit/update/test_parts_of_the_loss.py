"""Entropy bonus, mismatch weight, and the completions that may be left out of the update."""

import copy
from dataclasses import replace

import pytest
import torch

from steelyard.numerics.variants import VARIANTS, Objective
from steelyard.update.batching import TrainRow
from steelyard.update.config import OptimizerSection, UpdateSection
from steelyard.update.hashing import parameter_hash
from steelyard.update.learner import Learner, UpdateStats

GRPO = VARIANTS["grpo"].overridden(kl_coef=0.0)
LENGTHS, PROMPTS = (3, 7, 2, 10, 1), (4, 4, 4, 2, 2)


def learner(model, objective: Objective, *, reference=None, budget=4096, lr=1e-3, **update) -> Learner:
    return Learner(
        model,
        objective=objective,
        optimizer=OptimizerSection(lr=lr, max_grad_norm=1e9),
        update=UpdateSection(token_budget=budget, **update),
        total_updates=10,
        temperature=0.7,
        max_length=12,
        reference=reference,
    )


def rows(advantages=(1.5, -0.5, -0.5, -0.5, 0.25)) -> list[TrainRow]:
    generator = torch.Generator().manual_seed(1)

    def ids(n):
        return tuple(torch.randint(2, 258, (n,), generator=generator).tolist())

    return [
        TrainRow(prompt_ids=ids(p), token_ids=ids(t), logprobs=(-5.0,) * t, advantage=a)
        for a, t, p in zip(advantages, LENGTHS, PROMPTS, strict=True)
    ]


def gradient(model, objective=GRPO, *, batch=None, **choices) -> torch.Tensor:
    job = learner(model, objective, **choices)
    batch = job._scored(rows() if batch is None else batch, old=False, reference=objective.kl_coef > 0)
    job.gradient(batch)
    return torch.cat([p.grad.double().flatten() for p in model.parameters()])


def own(model, batch):
    """The trainer's own log-probs, row by row, as a sampler without any mismatch would have recorded them."""
    scored = learner(model, GRPO)._scored(batch, old=True, reference=False)
    return [replace(row, logprobs=tuple(was.old.tolist())) for row, was in zip(batch, scored, strict=True)]


EVERYTHING = GRPO.overridden(
    entropy_coef=0.05, mismatch_weight="truncate", mismatch_cap=1.5, kl_coef=0.1, kl_estimator="k3"
)


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "fixed_length", "sequence_sum"])
def test_c05_all_parts_together_do_not_depend_on_where_the_batch_is_cut(model64, aggregation):
    objective = EVERYTHING.overridden(aggregation=aggregation)
    reference = copy.deepcopy(model64)
    with torch.no_grad():
        next(reference.parameters()).mul_(1.1)
    whole = gradient(model64, objective, reference=reference)
    for budget in (1, 15, 30):
        cut_up = gradient(model64, objective, reference=reference, budget=budget)
        assert (cut_up - whole).norm() <= 1e-12 * whole.norm()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_whole_objective_written_out(model64, estimator):
    """Oracle, row by row and unpadded: the mean over each row of w·min(ρA, clip(ρ)A) - β·KL + c·H, then over rows."""
    objective = EVERYTHING.overridden(kl_estimator=estimator)
    reference = copy.deepcopy(model64)
    with torch.no_grad():
        next(reference.parameters()).mul_(1.3)
    batch = [
        replace(row, old=was.old - 0.3 * (-1) ** index)
        for index, (row, was) in enumerate(
            zip(rows(), learner(model64, GRPO)._scored(rows(), old=True, reference=False), strict=True)
        )
    ]
    ours = gradient(model64, objective, batch=batch, reference=reference)
    model64.zero_grad()
    for row in batch:
        logp, entropy = written_out(model64, row)
        ref = written_out(reference, row)[0].detach()
        ratio = (logp - row.old).exp()
        clipped = ratio.clamp(1 - objective.eps_low, 1 + objective.eps_high)
        surrogate = torch.minimum(ratio * row.advantage, clipped * row.advantage)
        weight = (row.old - torch.tensor(row.logprobs)).exp().clamp(max=objective.mismatch_cap)
        apart = logp - ref
        kl = {"k1": apart, "k2": apart**2 / 2, "k3": (-apart).exp() - 1 + apart}[estimator]
        value = weight * surrogate - objective.kl_coef * kl + objective.entropy_coef * entropy
        (-value.mean() / len(batch)).backward()
    expected = torch.cat([p.grad.flatten() for p in model64.parameters()])
    assert (ours - expected).norm() <= 1e-12 * expected.norm()


def written_out(model, row):
    """Log-probs and entropies of one row's completion at temperature 0.7."""
    logits = model(input_ids=torch.tensor([[*row.prompt_ids, *row.token_ids]])).logits[0, :-1] / 0.7
    logp = torch.log_softmax(logits[len(row.prompt_ids) - 1 :], dim=-1)
    return logp.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0], -(logp.exp() * logp).sum(dim=-1)


def test_the_loss_is_the_sum_of_its_parts(model):
    reference = copy.deepcopy(model)
    with torch.no_grad():
        next(reference.parameters()).mul_(1.3)
    stats = learner(model, EVERYTHING, reference=reference).update(rows()).steps[0]
    assert stats.loss == pytest.approx(-stats.surrogate + stats.loss_kl + stats.loss_entropy)
    assert stats.loss_kl == pytest.approx(0.1 * stats.kl)
    assert stats.loss_kl > 0 > stats.loss_entropy
    assert (stats.loss_value, stats.value_loss, stats.critic_grad_norm) == (None, None, None)


def test_advantages_keep_their_digits_in_float64(model64):
    """A third is no float32 number; at ratio 1 the surrogate is the mean of the advantages."""
    stats = learner(model64, GRPO).update(rows((1 / 3,) * 5)).steps[0]
    assert stats.surrogate == pytest.approx(1 / 3, rel=1e-14)


# ------------------------------------------------------------------ entropy bonus


def test_the_entropy_bonus_written_out(model64):
    """c · (1/N) Σ_i (1/T_i) Σ_t H(π(·|q, o_<t)) at the sampling temperature, row by row, unpadded."""
    with_bonus = gradient(model64, GRPO.overridden(entropy_coef=0.05))
    without = gradient(model64)
    model64.zero_grad()
    for row in rows():
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        logits = model64(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1] / 0.7
        logp = torch.log_softmax(logits, dim=-1)
        entropy = -(logp.exp() * logp).sum(dim=-1)
        (-0.05 * entropy.mean() / len(LENGTHS)).backward()
    expected = torch.cat([p.grad.flatten() for p in model64.parameters()])
    assert expected.norm() > 1e-4
    assert (
        with_bonus - without - expected
    ).norm() <= 1e-5 * expected.norm()  # transformers computes its norms in float32


def test_the_bonus_alone_raises_the_entropy(model):
    job = learner(model, GRPO.overridden(entropy_coef=1.0), passes=5)
    entropies = [step.entropy for step in job.update(rows((0.0,) * 5)).steps]
    assert entropies == sorted(entropies)
    assert entropies[-1] > entropies[0]


# ------------------------------------------------------------------ mismatch between sampler and trainer


def test_a_sampler_that_agrees_has_weights_of_one(model):
    batch = own(model, rows())
    for weight in ("truncate", "mask"):
        stats = learner(model, GRPO.overridden(mismatch_weight=weight), lr=0.0).update(batch).steps[0]
        assert stats.mismatch_mean == pytest.approx(1.0, abs=1e-6)
        assert stats.mismatch_share == 0.0
    assert learner(model, GRPO, lr=0.0).update(batch).steps[0].mismatch_mean is None


def test_truncate_and_mask_written_out(model64):
    """π_old/μ of 1.25 on one row and of 4, past the cap of 2, on the last; 1 elsewhere."""
    batch = own(model64, rows())
    log = torch.log(torch.tensor([1.25, 4.0], dtype=torch.float64)).tolist()
    shifted = list(batch)
    for index, shift in ((0, log[0]), (4, log[1])):
        shifted[index] = replace(batch[index], logprobs=tuple(p - shift for p in batch[index].logprobs))
    for weight, last in (("truncate", 2.0), ("mask", 0.0)):
        weighed = gradient(model64, GRPO.overridden(mismatch_weight=weight), batch=shifted)
        scaled = [replace(row, advantage=row.advantage * (1.25, 1, 1, 1, last)[i]) for i, row in enumerate(batch)]
        expected = gradient(model64, batch=scaled)
        assert (weighed - expected).norm() <= 1e-5 * expected.norm()  # transformers computes its norms in float32
        stats = learner(model64, GRPO.overridden(mismatch_weight=weight), lr=0.0).update(shifted).steps[0]
        assert stats.mismatch_share == pytest.approx(LENGTHS[4] / sum(LENGTHS))


# ------------------------------------------------------------------ completions that teach nothing


WITH_ZEROS = (1.5, 0.0, -1.5, 0.0, 0.0)


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "fixed_length", "sequence_sum"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("model64", 1e-12), ("model", 1e-6)])
def test_leaving_out_zero_advantages_changes_nothing(request, aggregation, dtype, tolerance):
    model = request.getfixturevalue(dtype)
    found = []
    for skip in (False, True):
        twin = copy.deepcopy(model)
        job = learner(twin, GRPO.overridden(aggregation=aggregation), skip_zero_advantages=skip)
        counted = rows(WITH_ZEROS)
        job.gradient(counted, [row for row in counted if not (skip and row.is_silent)])
        found.append(torch.cat([p.grad.double().flatten() for p in twin.parameters()]))
    assert found[0].norm() > 0
    assert (found[1] - found[0]).norm() <= tolerance * found[0].norm()


def test_what_is_left_out_is_not_computed_and_is_counted(model):
    passes: list[int] = []
    model.register_forward_hook(lambda *args: passes.append(args[1][0].shape[0] if args[1] else 1))
    calls: dict[bool, tuple[int, UpdateStats]] = {}
    for skip in (False, True):
        passes.clear()
        stats = learner(model, GRPO, skip_zero_advantages=skip, budget=1, lr=0.0).update(rows(WITH_ZEROS))
        calls[skip] = (len(passes), stats)
    assert (calls[False][0], calls[True][0]) == (5, 2)
    assert (calls[False][1].left_out, calls[True][1].left_out) == (0, 3)
    assert (calls[False][1].steps[0].tokens, calls[True][1].steps[0].tokens) == (23, 5)
    assert calls[True][1].steps[0].loss == pytest.approx(calls[False][1].steps[0].loss, abs=1e-7)


def test_a_batch_left_out_whole_has_a_gradient_of_exactly_zero(model):
    job = learner(model, GRPO)
    job.update(rows())
    before = parameter_hash(model).digest
    stats = job.update(rows((0.0,) * 5))
    step = stats.steps[0]
    assert (stats.left_out, step.tokens, step.grad_norm, step.loss) == (5, 0, 0.0, 0.0)
    assert (step.entropy, step.ratio_mean, step.sampler_gap) == (None, None, None)
    assert parameter_hash(model).digest != before, "AdamW's first moment lives"


@pytest.mark.parametrize(
    "choices", [{"entropy_coef": 0.01}, {"kl_coef": 0.1, "kl_estimator": "k3"}], ids=["entropy", "kl"]
)
def test_nothing_is_left_out_where_a_term_pulls_whatever_the_advantage(model, choices):
    objective = GRPO.overridden(**choices)
    reference = copy.deepcopy(model) if "kl_coef" in choices else None
    if reference is not None:
        with torch.no_grad():
            next(reference.parameters()).mul_(1.3)
    stats = learner(model, objective, reference=reference).update(rows((0.0,) * 5))
    assert stats.left_out == 0
    assert stats.steps[0].grad_norm > 0


def test_a_kl_in_the_reward_is_in_the_advantages_already(model):
    objective = GRPO.overridden(kl_coef=0.1, kl_estimator="k1", kl_placement="reward")
    job = learner(model, objective, reference=copy.deepcopy(model))
    assert job.update(job.look(rows(WITH_ZEROS))).left_out == 3
