"""docs/edge-cases.md: every test that it names exists; and the tests of what no other file shows."""

import copy
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from steelyard.evals.judges import Judgement
from steelyard.numerics.surrogates import SURROGATES, surrogate
from steelyard.numerics.variants import READS, VARIANTS
from steelyard.run.batch import Batch, Shaping, credited
from steelyard.run.recipe import Recipe
from steelyard.types import Completion, Status, Verdict
from steelyard.update.batching import TrainRow
from steelyard.update.config import CriticSection, OptimizerSection, UpdateSection
from steelyard.update.critic import Critic
from steelyard.update.learner import Learner, UpdateStats

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "edge-cases.md"


def test_every_row_names_a_test_that_exists():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and "---" not in line]
    cited = [re.search(r"`([\w/]+\.py)::(test_\w+)` \|$", row) for row in rows if not row.startswith("| input ")]
    assert len(cited) > 30
    for row, match in zip([row for row in rows if not row.startswith("| input ")], cited, strict=True):
        assert match, row
        assert f"def {match[2]}(" in (TESTS / match[1]).read_text(), match[0]


# ------------------------------------------------------------------ groups


def advantages(variant: str, rewards: dict[str, list[float]]) -> list[float]:
    """Of answers of one token each, every value of a value network 0."""
    answers = [(group, reward) for group, found in rewards.items() for reward in found]
    completions = [
        Completion(
            prompt_id=group,
            group_id=group,
            sample=index,
            policy_version=0,
            prompt_ids=(1,),
            token_ids=(7,),
            logprobs=(-1.0,),
            text="",
            finish="stop",
        )
        for index, (group, _) in enumerate(answers)
    ]
    judgements = [Judgement(verdict=Verdict(status=Status.PASSED, reward=reward)) for _, reward in answers]
    batch = Batch(
        completions=completions, judgements=judgements, shaping=Shaping(max_length=4), resolution=torch.finfo().eps
    )
    objective = VARIANTS[variant].overridden(kl_coef=0.0)
    rows = [replace(row, values=torch.zeros(1)) for row in batch.rows()]
    return [row.advantage for row in credited(batch, rows, objective)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_constant_groups_are_silent_in_group_variants_only(variant: str):
    found = advantages(variant, {"solved": [1.0, 1.0], "hopeless": [0.0, 0.0]})
    assert any(found) == (not VARIANTS[variant].needs_group)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_group_of_one_is_refused_where_the_group_is_the_baseline(variant: str):
    made = {"model": {"source": "m"}, "task": {"name": "booking"}, "objective": {"variant": variant}}
    made["rollout"] = {"group_size": 1, "prompts_per_update": 2}
    if VARIANTS[variant].needs_group:
        with pytest.raises(ValidationError, match="group of one has no baseline"):
            Recipe.model_validate(made)
    else:
        Recipe.model_validate(made)


# ------------------------------------------------------------------ the trainer


def trained(model, variant: str, lengths: tuple[int, ...], *, eps: float = 1e-8) -> tuple[Learner, UpdateStats]:
    """Two passes over one answer of each length, advantages 1, −1, ..."""
    objective, optimizer = VARIANTS[variant], OptimizerSection(lr=1e-3, eps=eps)
    critic = Critic(model, CriticSection(), optimizer, total_steps=2) if objective.needs_critic else None
    job = Learner(
        model,
        objective=objective,
        optimizer=optimizer,
        update=UpdateSection(passes=2),
        total_updates=1,
        temperature=1.0,
        max_length=12,
        reference=copy.deepcopy(model) if objective.kl_coef else None,
        critic=critic,
    )
    rows = [
        TrainRow(
            prompt_ids=(3, 5), token_ids=tuple(range(9 + i, 9 + i + n)), logprobs=(-5.0,) * n, advantage=(-1.0) ** i
        )
        for i, n in enumerate(lengths)
    ]
    rows = job.look(rows)
    if critic is not None:
        signs = [row.advantage * torch.ones(len(row.token_ids)) for row in rows]
        rows = [replace(row, token_advantages=sign, returns=sign) for row, sign in zip(rows, signs, strict=True)]
    return job, job.update(rows)


def is_finite(model) -> bool:
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_on_one_token_completions(model, variant: str):
    _, stats = trained(model, variant, (1, 1))
    assert [step.skipped for step in stats.steps] == [None, None]
    assert all(math.isfinite(step.loss) and step.tokens == 2 for step in stats.steps)
    assert stats.steps[0].grad_norm > 0
    assert is_finite(model)


def test_a_row_without_tokens_is_refused_by_the_trainer(model):
    with pytest.raises(ValueError, match=r"rows \[0\] have no sampled token"):
        trained(model, "dr_grpo", (0, 4))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_a_bfloat16_policy(model, variant: str):
    model = model.to(torch.bfloat16)
    job, stats = trained(model, variant, (3, 5))
    assert [step.skipped for step in stats.steps] == [None, None]
    assert all(math.isfinite(step.loss) for step in stats.steps)
    assert stats.param_change_norm > 0
    assert is_finite(model)
    (row,) = job._scored([TrainRow(prompt_ids=(3,), token_ids=(9,), logprobs=(-5.0,))], old=True, reference=False)
    assert row.old.dtype == torch.float32


@pytest.mark.parametrize(("eps", "survives"), [(1e-8, False), (1e-4, True)])
def test_a_float16_policy_has_a_finite_loss_and_needs_a_larger_eps(model, eps: float, survives: bool):
    model = model.to(torch.float16)
    _, stats = trained(model, "dr_grpo", (3, 5), eps=eps)
    first, second = stats.steps
    assert first.skipped is None
    assert math.isfinite(first.loss)
    assert math.isfinite(first.grad_norm)
    assert is_finite(model) == survives
    assert second.skipped == (None if survives else "the gradient norm is nan")


# ------------------------------------------------------------------ far ratios

NUMBERS = {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": 3.0, "eps_max": 5.0}


@pytest.mark.parametrize("name", sorted(set(SURROGATES) & {"clipped", "dual_clipped", "sequence_clipped"}))
@pytest.mark.parametrize("far", [100.0, -100.0])
def test_the_clipped_side_is_flat_however_far(name: str, far: float):
    logp_BT = torch.full((1, 1), far, requires_grad=True)
    sign = math.copysign(1.0, far)
    numbers = {key: value if key in READS["surrogate"][name] else None for key, value in NUMBERS.items()}
    out = surrogate(name, logp_BT, torch.zeros(1, 1), torch.tensor([sign]), torch.ones(1, 1).bool(), **numbers)
    out.term_BT.sum().backward()
    assert out.term_BT.item() == pytest.approx(sign * (1.0 + 0.2 * sign))
    assert logp_BT.grad.item() == 0.0
