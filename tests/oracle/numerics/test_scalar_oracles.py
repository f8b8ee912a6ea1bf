"""Every formula once more, in Python numbers and loops, against the tensor functions on random input."""

import itertools
import math
import statistics
import sys

import pytest
import torch
from torch import Tensor

from steelyard.numerics.advantages import ADVANTAGES, STANDARDISED, advantages
from steelyard.numerics.estimators import pass_at_k
from steelyard.numerics.kl import KL_ESTIMATORS
from steelyard.numerics.logprobs import token_entropy, token_logprobs
from steelyard.numerics.reductions import AGGREGATIONS, Denominators

pytestmark = pytest.mark.oracle
SEEDS = range(8)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------ log-probs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_log_probs_and_entropy(seed: int, temperature: float):
    logits_BTV = 4 * torch.randn(3, 5, 7, generator=rng(seed), dtype=torch.float64)
    ids_BT = torch.randint(7, (3, 5), generator=rng(seed))
    logp_BT = token_logprobs(logits_BTV, ids_BT, temperature=temperature)
    entropy_BT = token_entropy(logits_BTV, temperature=temperature)
    for b, t in itertools.product(range(3), range(5)):
        weights = [math.exp(z / temperature) for z in logits_BTV[b, t].tolist()]
        probs = [w / math.fsum(weights) for w in weights]
        assert logp_BT[b, t].item() == pytest.approx(math.log(probs[int(ids_BT[b, t])]), rel=1e-12)
        assert entropy_BT[b, t].item() == pytest.approx(-math.fsum(p * math.log(p) for p in probs), rel=1e-12)


# ------------------------------------------------------------------ advantages


def reward_batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return rewards with ties, groups of unequal size, and who was scored."""
    generator = rng(seed)
    rewards_B = torch.randint(0, 4, (17,), generator=generator).double() / 3
    return rewards_B, torch.randint(0, 5, (17,), generator=generator), torch.rand(17, generator=generator) > 0.2


def advantage_of(
    name: str, ddof: int | None, i: int, rewards: list[float], ids: list[int], scored: list[bool]
) -> float:
    if not scored[i]:
        return 0.0
    if name == "raw":
        return rewards[i]
    everyone = [j for j in range(len(rewards)) if scored[j]]
    members = everyone if name == "batch_centred" else [j for j in everyone if ids[j] == ids[i]]
    values = [rewards[j] for j in members]
    if len(values) < 2 or max(values) == min(values):
        return 0.0
    if name == "leave_one_out":
        return rewards[i] - statistics.fmean(rewards[j] for j in members if j != i)
    centred = rewards[i] - statistics.fmean(values)
    if name == "group_standardised":
        return centred / ((statistics.pstdev(values) if ddof == 0 else statistics.stdev(values)) + 1e-6)
    return centred


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "ddof"),
    [
        *((name, None) for name in ADVANTAGES if name not in STANDARDISED),
        ("group_standardised", 0),
        ("group_standardised", 1),
    ],
)
def test_advantages(name: str, ddof: int | None, seed: int):
    rewards_B, ids_B, scored_B = reward_batch(seed)
    found = advantages(name, rewards_B, ids_B, scored_B, resolution=sys.float_info.epsilon, ddof=ddof).tolist()
    lists = (rewards_B.tolist(), ids_B.tolist(), scored_B.tolist())
    assert found == [pytest.approx(advantage_of(name, ddof, i, *lists), rel=1e-12, abs=1e-15) for i in range(17)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("deviation", [statistics.pstdev, statistics.stdev])
def test_batch_standardised(seed: int, deviation):
    rewards_B, ids_B, scored_B = reward_batch(seed)
    rewards, ids, scored = rewards_B.tolist(), ids_B.tolist(), scored_B.tolist()
    centred = [advantage_of("group_centred", None, i, rewards, ids, scored) for i in range(17)]
    others = [sum(scored[j] and ids[j] == ids[i] and j != i for j in range(17)) for i in range(17)]
    std = deviation([centred[i] for i in range(17) if scored[i] and others[i] > 0])
    ddof = int(deviation is statistics.stdev)
    found = advantages(
        "batch_standardised", rewards_B, ids_B, scored_B, resolution=sys.float_info.epsilon, ddof=ddof
    ).tolist()
    assert found == [pytest.approx(centred[i] / (std + 1e-6), rel=1e-12, abs=1e-15) for i in range(17)]


# ------------------------------------------------------------------ aggregation, KL, pass@k


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(AGGREGATIONS))
def test_weights(name: str, seed: int):
    mask_BT = torch.rand(5, 6, generator=rng(seed)) > 0.4
    lengths = mask_BT.sum(1).tolist()
    n_sequences, n_tokens = 9, 60  # more than this micro-batch holds: the step's, not its own
    denominators = Denominators(n_sequences=n_sequences, n_tokens=n_tokens, max_length=11)
    found = AGGREGATIONS[name](mask_BT, denominators=denominators)
    for b, t in itertools.product(range(5), range(6)):
        expected = 0.0
        if mask_BT[b, t]:
            expected = {
                "sequence_mean": 1 / (n_sequences * lengths[b]),
                "token_mean": 1 / n_tokens,
                "fixed_length": 1 / (n_sequences * 11),
                "sequence_sum": 1 / n_sequences,
            }[name]
        assert found[b, t].item() == pytest.approx(expected, rel=1e-15)


def kl_of(name: str, d: float) -> float:
    return {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - d - 1}[name]


@pytest.mark.parametrize("name", sorted(KL_ESTIMATORS))
def test_kl_estimators(name: str):
    logp_BT, ref_BT = (
        -4 * torch.rand(2, 5, 6, generator=rng(0), dtype=torch.float64).unbind()[0],
        torch.zeros(5, 6).double(),
    )
    mask_BT = torch.rand(5, 6, generator=rng(1)) > 0.4
    found: Tensor = KL_ESTIMATORS[name](logp_BT, ref_BT, mask_BT)
    for b, t in itertools.product(range(5), range(6)):
        expected = kl_of(name, -logp_BT[b, t].item()) if mask_BT[b, t] else 0.0
        assert found[b, t].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_pass_at_k_by_listing_every_choice_of_k_answers(n: int):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        choices = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices), rel=1e-15)
