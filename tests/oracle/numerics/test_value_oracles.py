"""Rewards per token, GAE, whitening, the value loss and explained variance once more, in Python numbers and loops."""

import math
import statistics

import pytest
import torch
from torch import Tensor

from steelyard.numerics.values import explained_variance, gae, token_rewards, value_loss, whitened

pytestmark = pytest.mark.oracle
SEEDS = range(8)
EPS = torch.finfo(torch.float64).eps


def batch(seed: int, how_many: int) -> tuple[list[int], list[Tensor], Tensor]:
    """Return lengths (0 among them), random tensors (5, 7) with nan at masked places, and the mask."""
    generator = torch.Generator().manual_seed(seed)
    lengths_B = torch.randint(0, 8, (5,), generator=generator)
    lengths_B[seed % 5] = 7
    mask_BT = torch.arange(7) < lengths_B[:, None]
    drawn = [torch.randn(5, 7, generator=generator, dtype=torch.float64) for _ in range(how_many)]
    return lengths_B.tolist(), [x_BT.where(mask_BT, math.nan) for x_BT in drawn], mask_BT


def close(found: Tensor, expected: list[list[float]]) -> None:
    for row, wanted in zip(found.tolist(), expected, strict=True):
        assert row[: len(wanted)] == pytest.approx(wanted, rel=1e-12, abs=1e-13)
        assert row[len(wanted) :] == [0.0] * (7 - len(wanted))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
def test_token_rewards(seed: int, kl_coef: float):
    lengths, (kl_BT, other_BT), mask_BT = batch(seed, 2)
    rewards = other_BT.nan_to_num()[:, 0].tolist()
    expected = [
        [-kl_coef * kl_BT[b, t].item() + (rewards[b] if t == lengths[b] - 1 else 0.0) for t in range(lengths[b])]
        for b in range(5)
    ]
    close(token_rewards(torch.tensor(rewards, dtype=torch.float64), kl_BT, mask_BT, kl_coef=kl_coef), expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.9, 0.7), (0.9, 0.0), (0.0, 0.5)])
def test_gae(seed: int, gamma: float, lam: float):
    lengths, (rewards_BT, values_BT), mask_BT = batch(seed, 2)
    advantages, returns = [], []
    for b, length in enumerate(lengths):
        r, v = rewards_BT[b, :length].tolist(), [*values_BT[b, :length].tolist(), 0.0]
        delta = [r[t] + gamma * v[t + 1] - v[t] for t in range(length)]
        advantages.append([sum((gamma * lam) ** (s - t) * delta[s] for s in range(t, length)) for t in range(length)])
        returns.append([advantage + v[t] for t, advantage in enumerate(advantages[b])])
    found = gae(rewards_BT, values_BT, mask_BT, gamma=gamma, lam=lam)
    close(found.advantages_BT, advantages)
    close(found.returns_BT, returns)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("deviation", [statistics.pstdev, statistics.stdev])
def test_whitened(seed: int, deviation):
    lengths, (x_BT,), mask_BT = batch(seed, 1)
    rows = [x_BT[b, :length].tolist() for b, length in enumerate(lengths)]
    live = [x for row in rows for x in row]
    mean, std = statistics.fmean(live), deviation(live)
    found = whitened(x_BT, mask_BT, ddof=int(deviation is statistics.stdev), resolution=EPS)
    close(found, [[(x - mean) / (std + 1e-6) for x in row] for row in rows])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("clip", [0.2, 0.9, math.inf])
def test_value_loss_and_its_gradient(seed: int, clip: float):
    lengths, (values_BT, old_BT, returns_BT), mask_BT = batch(seed, 3)
    terms: list[list[float]] = []
    slopes: list[list[float]] = []
    for b, length in enumerate(lengths):
        terms.append([])
        slopes.append([])
        for t in range(length):
            v, old, target = (x[b, t].item() for x in (values_BT, old_BT, returns_BT))
            held = min(max(v, old - clip), old + clip)
            plain, other = 0.5 * (v - target) ** 2, 0.5 * (held - target) ** 2
            terms[b].append(max(plain, other))
            slopes[b].append(0.0 if other > plain else v - target)
    values_BT.requires_grad_()
    found = value_loss(values_BT, old_BT, returns_BT, mask_BT, clip=clip)
    close(found.term_BT.detach(), terms)
    found.term_BT.sum().backward()
    assert values_BT.grad is not None
    close(values_BT.grad, slopes)


@pytest.mark.parametrize("seed", SEEDS)
def test_explained_variance(seed: int):
    _, (values_BT, returns_BT), mask_BT = batch(seed, 2)
    values, returns = values_BT[mask_BT].tolist(), returns_BT[mask_BT].tolist()
    left = statistics.pvariance([r - v for r, v in zip(returns, values, strict=True)])
    expected = 1 - left / statistics.pvariance(returns)
    assert explained_variance(values_BT, returns_BT, mask_BT) == pytest.approx(expected, rel=1e-10)
