"""Facts about the softmax bandit (objectives §1), by exact enumeration over every possible draw."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from steelyard.numerics import bandit
from steelyard.numerics.advantages import ADVANTAGES, advantages

LOGITS_K = torch.tensor([0.4, -0.3, 1.1], dtype=torch.float64)
REWARDS_K = torch.tensor([1.0, 0.2, 0.5], dtype=torch.float64)


def expectation_over_groups(name: str, group_size: int) -> Tensor:
    """E[g] of the REINFORCE estimate with a named advantage, over all K^G groups of answers."""
    probs_K = bandit.policy(LOGITS_K)
    total_K = torch.zeros_like(LOGITS_K)
    ids_B, scored_B = torch.zeros(group_size).long(), torch.ones(group_size).bool()
    for draw in itertools.product(range(3), repeat=group_size):
        answers_B = torch.tensor(draw)
        ddof = 0 if name == "group_standardised" else None
        a_B = advantages(name, REWARDS_K[answers_B], ids_B, scored_B, resolution=2.22e-16, ddof=ddof)
        total_K += probs_K[answers_B].prod() * bandit.reinforce_gradient(LOGITS_K, answers_B, a_B)
    return total_K


def test_the_lessons_case():
    rewards_K = torch.tensor(bandit.LESSON_REWARDS)
    assert bandit.LESSON_ANSWERS[0] == 17 * 24 == 408
    assert bandit.LESSON_ANSWERS[-1] == 380
    assert len(set(bandit.LESSON_ANSWERS)) == len(bandit.LESSON_REWARDS) == 6
    assert max(bandit.LESSON_REWARDS) == bandit.LESSON_REWARDS[0]
    assert bandit.expected_reward(torch.zeros(6), rewards_K).item() == pytest.approx(0.7333, abs=5e-5)


def test_exact_gradient_is_the_derivative_of_the_expected_reward():
    leaf_K = LOGITS_K.clone().requires_grad_()
    (grad_K,) = torch.autograd.grad(bandit.expected_reward(leaf_K, REWARDS_K), leaf_K)
    torch.testing.assert_close(bandit.exact_gradient(LOGITS_K, REWARDS_K), grad_K)
    assert torch.autograd.gradcheck(lambda z: bandit.expected_reward(z, REWARDS_K), (leaf_K,))


@pytest.mark.parametrize("baseline", [0.0, 0.55, -3.0, 100.0])
def test_any_constant_baseline_keeps_the_mean_of_the_gradient(baseline: float):
    probs_K, total_K = bandit.policy(LOGITS_K), torch.zeros_like(LOGITS_K)
    for answer in range(3):
        total_K += probs_K[answer] * bandit.reinforce_gradient(
            LOGITS_K, torch.tensor([answer]), REWARDS_K[answer : answer + 1] - baseline
        )
    torch.testing.assert_close(total_K, bandit.exact_gradient(LOGITS_K, REWARDS_K))


@pytest.mark.parametrize("group_size", [2, 3, 4])
@pytest.mark.parametrize("name", ["raw", "leave_one_out", "group_centred", "batch_centred"])
def test_expected_gradient_of_each_advantage(name: str, group_size: int):
    # The mean of a group contains the answer itself: (G − 1)/G of the gradient, in the right direction.
    factor = (group_size - 1) / group_size if name.endswith("centred") else 1.0
    exact_K = bandit.exact_gradient(LOGITS_K, REWARDS_K)
    torch.testing.assert_close(expectation_over_groups(name, group_size), factor * exact_K)


def test_standardising_changes_more_than_the_scale():
    found_K, exact_K = expectation_over_groups("group_standardised", 3), bandit.exact_gradient(LOGITS_K, REWARDS_K)
    cosine = torch.nn.functional.cosine_similarity(found_K, exact_K, dim=0).item()
    assert 0.9 < cosine < 0.9999
    assert set(ADVANTAGES) >= {"group_standardised"}


def variance_by_enumeration(baseline: float) -> float:
    probs_K = bandit.policy(LOGITS_K)
    draws = [bandit.reinforce_gradient(LOGITS_K, torch.tensor([y]), REWARDS_K[y : y + 1] - baseline) for y in range(3)]
    mean_K = sum((p * g for p, g in zip(probs_K, draws, strict=True)), torch.zeros_like(LOGITS_K))
    return sum((p * (g - mean_K).square().sum()).item() for p, g in zip(probs_K, draws, strict=True))


@pytest.mark.parametrize("baseline", [0.0, 0.55, -1.0])
def test_gradient_variance_is_the_trace_of_the_covariance(baseline: float):
    found = bandit.gradient_variance(LOGITS_K, REWARDS_K, baseline=baseline).item()
    assert found == pytest.approx(variance_by_enumeration(baseline), rel=1e-12)


def test_the_best_baseline_minimises_the_variance_and_is_near_the_expected_reward():
    best = bandit.best_baseline(LOGITS_K, REWARDS_K).item()
    at_best = bandit.gradient_variance(LOGITS_K, REWARDS_K, baseline=best).item()
    for step in (-0.1, -1e-3, 1e-3, 0.1):
        assert bandit.gradient_variance(LOGITS_K, REWARDS_K, baseline=best + step).item() > at_best
    assert best == pytest.approx(bandit.expected_reward(LOGITS_K, REWARDS_K).item(), abs=0.1)
    uniform_K = torch.zeros(3, dtype=torch.float64)
    assert bandit.best_baseline(uniform_K, REWARDS_K).item() == pytest.approx(REWARDS_K.mean().item())


def test_a_step_moves_along_the_estimate_and_leaves_the_old_logits():
    before_K = LOGITS_K.clone()
    answers_B, a_B = torch.tensor([0, 2, 0]), torch.tensor([0.5, -0.25, 1.0], dtype=torch.float64)
    after_K = bandit.reinforce_step(LOGITS_K, answers_B, a_B, learning_rate=0.1)
    one_hot_BK = torch.nn.functional.one_hot(answers_B, 3).double()
    gradient_K = (a_B[:, None] * (one_hot_BK - LOGITS_K.softmax(0))).mean(0)
    torch.testing.assert_close(after_K, before_K + 0.1 * gradient_K)
    assert torch.equal(LOGITS_K, before_K)


def test_samples_come_from_the_policy_and_from_the_generator_alone():
    draws = [
        bandit.sample(LOGITS_K, n_samples=20_000, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    shares_K = torch.bincount(draws[0], minlength=3) / 20_000
    torch.testing.assert_close(shares_K.double(), bandit.policy(LOGITS_K), atol=4 * math.sqrt(0.25 / 20_000), rtol=0)


def share_that_ends_on_408(baseline: str, *, runs: int, rewards: tuple[float, ...] = bandit.LESSON_REWARDS) -> float:
    rewards_K, reached = torch.tensor(rewards, dtype=torch.float64), 0
    for seed in range(runs):
        generator, logits_K = torch.Generator().manual_seed(seed), torch.zeros(6, dtype=torch.float64)
        for _ in range(150):
            answers_B = bandit.sample(logits_K, n_samples=4, generator=generator)
            rewards_B = rewards_K[answers_B]
            b = {"none": 0.0, "exact": bandit.expected_reward(logits_K, rewards_K), "mean": rewards_B.mean()}[baseline]
            logits_K = bandit.reinforce_step(logits_K, answers_B, rewards_B - b, learning_rate=1.0)
        reached += bandit.policy(logits_K)[0].item() > 0.9
    return reached / runs


def test_the_lessons_baselines(unchecked: None):
    # About two thirds without a baseline (97 of 150 seeds), nearly all with one (150 of 150).
    assert 0.45 < share_that_ends_on_408("none", runs=40) < 0.85
    assert share_that_ends_on_408("exact", runs=20) >= 0.95
    assert share_that_ends_on_408("mean", runs=20) >= 0.95


def test_with_other_rewards_the_batch_mean_loses(unchecked: None):
    close = (1.0, 0.95, 0.9, 0.8, 0.6, 0.4)
    assert share_that_ends_on_408("mean", runs=30, rewards=close) < share_that_ends_on_408(
        "none", runs=30, rewards=close
    )
