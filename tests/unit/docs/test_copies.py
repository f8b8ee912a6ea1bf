"""docs/variants/common.md, memory: the copies of the weights that stand during a step, counted on a small model."""

import copy
from dataclasses import replace

import pytest
import torch

from steelyard.numerics.variants import VARIANTS
from steelyard.update.batching import TrainRow
from steelyard.update.config import CriticSection, OptimizerSection, UpdateSection
from steelyard.update.critic import Critic
from steelyard.update.learner import Learner
from steelyard.update.optimizer import AdamW


def learner(model, name: str, backbone: str) -> Learner:
    objective, optimizer = VARIANTS[name], OptimizerSection(lr=1e-3)
    settings = CriticSection(backbone=backbone)
    return Learner(
        model,
        objective=objective,
        optimizer=optimizer,
        update=UpdateSection(),
        total_updates=2,
        temperature=1.0,
        max_length=8,
        reference=copy.deepcopy(model) if objective.kl_coef else None,
        critic=Critic(model, settings, optimizer, total_steps=2) if objective.needs_critic else None,
    )


def numbers_of(optimizer: AdamW) -> int:
    """Numbers in weights, gradients and moments."""
    states = [x for state in optimizer.inner.state.values() for x in state.values() if x.dim()]
    gradients = [parameter.grad for parameter in optimizer.parameters if parameter.grad is not None]
    return sum(x.numel() for x in [*optimizer.parameters, *gradients, *states])


def peak(job: Learner, monkeypatch: pytest.MonkeyPatch) -> int:
    """Numbers that stand at the policy's second step, the copy that measures the change included."""
    seen: list[int] = []
    take = job.optimizer.step

    def step() -> None:
        take()
        own = None if job.critic is None else job.critic.optimizer
        kept = 0 if job.reference is None else sum(p.numel() for p in job.reference.parameters())
        before = sum(p.numel() for p in job.optimizer.parameters)
        seen.append(numbers_of(job.optimizer) + before + kept + (0 if own is None else numbers_of(own)))

    monkeypatch.setattr(job.optimizer, "step", step)
    for _ in range(2):
        row = TrainRow(prompt_ids=(5,), token_ids=(7, 8), logprobs=(-1.0, -1.0), advantage=1.0)
        (row,) = job.look([row])
        if job.critic is not None:
            row = replace(row, token_advantages=torch.ones(2), returns=torch.ones(2))
        job.update([row])
    return seen[-1]


@pytest.mark.parametrize(
    ("name", "backbone", "copies"),
    [("dr_grpo", "own", 5), ("grpo", "own", 6), ("ppo", "own", 10), ("ppo", "shared", 6)],
)
def test_copies_of_the_weights(model, monkeypatch, name, backbone, copies):
    one = sum(parameter.numel() for parameter in model.parameters())
    assert peak(learner(model, name, backbone), monkeypatch) / one == pytest.approx(copies, abs=0.1)
