import copy
import hashlib
import math
import struct

import pytest
import torch

from steelyard.numerics.variants import VARIANTS, Objective
from steelyard.update.batching import TrainRow, cut
from steelyard.update.config import OptimizerSection, UpdateSection
from steelyard.update.hashing import parameter_hash
from steelyard.update.learner import Learner
from steelyard.update.models import frozen_copy, load_policy
from steelyard.update.optimizer import schedule_factor

GRPO = VARIANTS["grpo"].overridden(kl_coef=0.0)


def rows(advantages=(1.5, -0.5, -0.5, -0.5, 0.0), lengths=(3, 7, 2, 10, 1), prompts=(4, 4, 4, 2, 2)):
    generator = torch.Generator().manual_seed(1)

    def ids(n):
        return tuple(torch.randint(2, 258, (n,), generator=generator).tolist())

    return [
        TrainRow(prompt_ids=ids(p), token_ids=ids(t), logprobs=(-5.0,) * t, advantage=a)
        for a, t, p in zip(advantages, lengths, prompts, strict=True)
    ]


def learner(model, objective: Objective = GRPO, *, reference=None, budget=4096, passes=1, **optimizer) -> Learner:
    return Learner(
        model,
        objective=objective,
        optimizer=OptimizerSection(**{"lr": 1e-3, **optimizer}),
        update=UpdateSection(passes=passes, token_budget=budget),
        total_updates=10,
        temperature=1.0,
        max_length=12,
        reference=reference,
    )


def gradient(model, objective=GRPO, *, budget=4096, batch=None, reference=None) -> torch.Tensor:
    job = learner(model, objective, budget=budget, reference=reference)
    batch = job._scored(rows() if batch is None else batch, old=False, reference=objective.kl_coef > 0)
    job.gradient(batch)
    return torch.cat([p.grad.double().flatten() for p in model.parameters()])


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - {"ppo"}))
def test_c05_the_gradient_does_not_depend_on_where_the_batch_is_cut(model64, variant):
    objective = VARIANTS[variant]
    reference = copy.deepcopy(model64) if objective.kl_coef else None
    if reference is not None:
        with torch.no_grad():
            next(reference.parameters()).mul_(1.1)
    whole = gradient(model64, objective, reference=reference)
    for budget in (1, 15, 30):
        cut_up = gradient(model64, objective, budget=budget, reference=reference)
        assert (cut_up - whole).norm() <= 1e-12 * whole.norm()


def test_micro_batches_agree_in_float32_to_1e6_relative(model):
    whole = gradient(model)
    for budget in (1, 15, 30):
        assert (gradient(model, budget=budget) - whole).norm() <= 1e-6 * whole.norm()


def test_a_rows_logprobs_do_not_depend_on_its_company(model):
    """To the bit: padded to the width of the longest row of its micro-batch, a row changes in its last digits."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 70, (12,), generator=generator).tolist()
    batch = rows(advantages=(1.0,) * 12, lengths=lengths, prompts=(20,) * 12)
    job = learner(model)
    seen = []
    for budget in (10_000, 300, 1):
        logprobs = {}
        for micro in cut(batch, token_budget=budget, pad_id=0):
            values_BT = job.logprobs(micro)
            logprobs |= {index: values_BT[line][micro.mask_BT[line]].tolist() for line, index in enumerate(micro.rows)}
        seen.append(logprobs)
    assert seen[0] == seen[1] == seen[2]


def test_the_gradient_is_that_of_the_objective_written_out(model64):
    """Oracle: loss = -(1/N) Σ_i (1/T_i) Σ_t A_i log π(o_it), row by row, unpadded."""
    batch = rows()
    ours = gradient(model64, batch=batch)
    model64.zero_grad()
    for row in batch:
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        logp = torch.log_softmax(model64(input_ids=ids).logits[0, :-1], dim=-1)
        start = len(row.prompt_ids) - 1
        chosen = logp[start:].gather(1, torch.tensor(row.token_ids)[:, None])
        (-(row.advantage * chosen.mean()) / len(batch)).backward()
    expected = torch.cat([p.grad.flatten() for p in model64.parameters()])
    assert (ours - expected).norm() <= 1e-12 * expected.norm()


@pytest.mark.parametrize("budget", [4096, 1])
def test_c01_token_mean_over_unequal_lengths_has_a_loss_of_one_third(model, budget):
    """A = (1, -1), T = (2, 4): -(2 - 4)/6, with one denominator however the batch is cut."""
    batch = rows(advantages=(1.0, -1.0), lengths=(2, 4), prompts=(4, 3))
    stats = learner(model, VARIANTS["dapo"], budget=budget).update(batch).steps[0]
    assert stats.loss == pytest.approx(1 / 3, abs=1e-6)


def test_the_penalty_enters_the_gradient_with_its_coefficient(model64):
    reference = copy.deepcopy(model64)
    with torch.no_grad():
        next(reference.parameters()).mul_(1.3)

    def with_coef(coef: float) -> torch.Tensor:
        return gradient(model64, GRPO.overridden(kl_coef=coef, kl_estimator="k3"), reference=reference)

    alone = gradient(model64)
    one, three = with_coef(0.1) - alone, with_coef(0.3) - alone
    assert one.norm() > 0
    assert (three - 3 * one).norm() <= 1e-5 * three.norm()  # transformers computes its norms in float32


def test_c01_loss_zero_and_gradient_alive(model):
    batch = rows(advantages=(1.0, -1.0, -1.0, 1.0, 0.0))
    stats = learner(model).update(batch).steps[0]
    assert abs(stats.loss) < 1e-6
    assert stats.grad_norm > 1e-2


def test_c01_all_advantages_zero_give_exactly_zero_gradient_and_unmoved_parameters(model):
    before = parameter_hash(model).digest
    stats = learner(model).update(rows(advantages=(0.0,) * 5))
    assert stats.steps[0].grad_norm == 0.0
    assert stats.param_change_norm == 0.0
    assert parameter_hash(model).digest == before


def test_momentum_still_moves_parameters_after_the_gradient_died(model):
    job = learner(model)
    job.update(rows())
    before = parameter_hash(model).digest
    stats = job.update(rows(advantages=(0.0,) * 5))
    assert stats.steps[0].grad_norm == 0.0
    assert stats.param_change_norm > 0.0
    assert parameter_hash(model).digest != before


def test_fresh_batch_has_ratio_one_and_kl_zero_to_its_own_start(model):
    """C16: scoring twice gives the same number, since dropout is off for good."""
    job = learner(model, VARIANTS["grpo"], reference=copy.deepcopy(model))
    stats = job.update(rows()).steps[0]
    assert (stats.ratio_min, stats.ratio_max, stats.kl) == (1.0, 1.0, 0.0)
    assert (stats.clip_share_low, stats.clip_share_high) == (0.0, 0.0)


def test_several_passes_keep_pi_old_fixed(model):
    stats = learner(model, passes=3, lr=3e-2, max_grad_norm=math.inf).update(rows())
    assert len(stats.steps) == 3
    assert stats.steps[0].ratio_min == pytest.approx(1.0, abs=1e-5)
    assert stats.steps[2].ratio_max > 1.2
    assert stats.steps[2].clip_share_high > 0


def test_a_penalty_without_a_reference_is_refused(model):
    with pytest.raises(ValueError, match="needs a reference"):
        learner(model, VARIANTS["grpo"])


def test_an_empty_batch_takes_no_step_and_says_why(model):
    before = parameter_hash(model).digest
    stats = learner(model).update([])
    assert stats.steps[0].skipped == "no completion entered the loss"
    assert stats.steps[0].grad_norm is None
    assert parameter_hash(model).digest == before


def test_a_gradient_that_is_not_finite_takes_no_step(model):
    before = parameter_hash(model).digest
    stats = learner(model).update(rows(advantages=(math.inf, 0.0, 0.0, 0.0, 0.0)))
    assert "gradient norm is" in stats.steps[0].skipped
    assert stats.param_change_norm == 0.0
    assert parameter_hash(model).digest == before


def test_gradient_clipping_scales_to_the_limit(model):
    stats = learner(model, max_grad_norm=0.01).update(rows()).steps[0]
    assert stats.grad_norm > 0.01
    assert stats.grad_norm_clipped == 0.01


def test_learning_rate_zero_moves_nothing(model):
    before = parameter_hash(model).digest
    stats = learner(model, lr=0.0).update(rows())
    assert stats.steps[0].grad_norm > 0
    assert parameter_hash(model).digest == before


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [0.5, 1.0, 1.0, 1.0]), ("linear", [0.5, 1.0, 1.0, 0.5]), ("cosine", [0.5, 1.0, 1.0, 0.5])],
)
def test_schedules(schedule, expected):
    settings = OptimizerSection(schedule=schedule, warmup=2)
    factors = [schedule_factor(settings, step=step, total_steps=4) for step in range(4)]
    assert factors == pytest.approx(expected)


def test_hash_sees_every_parameter_and_lists_tied_names(model):
    first = parameter_hash(model)
    assert first.aliases == (("model.embed_tokens.weight", "lm_head.weight"),)
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.view(-1)[-1] += 1e-3
        assert parameter_hash(model).digest != first.digest
        first = parameter_hash(model)


def test_the_hash_is_sha256_of_name_dtype_shape_and_bytes_with_tied_storages_once():
    module = torch.nn.Module()
    module.b = torch.nn.Parameter(torch.tensor([[1.0, 2.0]]))
    module.a = module.b
    expected = hashlib.sha256(b"a|torch.float32|(1, 2)|" + struct.pack("<2f", 1.0, 2.0)).hexdigest()
    assert parameter_hash(module).digest == expected
    assert parameter_hash(module).aliases == (("b", "a"),)


def test_c68_saved_and_reloaded_tied_model_has_the_same_hash(model, model_directory, tmp_path):
    policy = load_policy(str(model_directory))
    policy.model.save_pretrained(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path)
    again = load_policy(str(tmp_path))
    assert parameter_hash(again.model) == parameter_hash(policy.model)
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(again.model(input_ids=ids).logits, policy.model(input_ids=ids).logits)


def test_the_reference_is_frozen_and_stays_behind(model_directory):
    policy = load_policy(str(model_directory))
    reference = frozen_copy(policy)
    start = parameter_hash(reference).digest
    learner(policy.model, VARIANTS["grpo"], reference=reference).update(rows())
    assert parameter_hash(reference).digest == start
    assert parameter_hash(policy.model).digest != start
    assert not any(parameter.requires_grad for parameter in reference.parameters())
