"""Surrogates, mismatch weights and optimizer parts once more, in Python numbers and loops."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from steelyard.numerics.mismatch import MISMATCH, mismatch_weight
from steelyard.numerics.optim_parts import adamw_parts
from steelyard.numerics.surrogates import SURROGATES, SurrogateTerms, surrogate

pytestmark = pytest.mark.oracle
SEEDS = range(6)
LOW, HIGH, C, CAP = 0.2, 0.28, 1.7, 1.4
NUMBERS: dict[str, dict[str, float]] = {
    "clipped": {"eps_low": LOW, "eps_high": HIGH},
    "dual_clipped": {"eps_low": LOW, "eps_high": HIGH, "dual_clip": C},
    "sequence_clipped": {"eps_low": LOW, "eps_high": HIGH},
    "cispo": {"eps_max": CAP},
}


def called(name: str, logp_BT: Tensor, old_BT: Tensor, advantages: Tensor, mask_BT: Tensor) -> SurrogateTerms:
    numbers = {"eps_low": None, "eps_high": None} | NUMBERS.get(name, {})
    return surrogate(name, logp_BT, old_BT, advantages, mask_BT, **numbers)


def clip_of(ratio: float, advantage: float) -> tuple[float, float, str]:
    """The clipped term, its derivative with respect to log ρ, and which flat branch holds it."""
    if advantage > 0 and ratio > 1 + HIGH:
        return (1 + HIGH) * advantage, 0.0, "high"
    if advantage < 0 and ratio < 1 - LOW:
        return (1 - LOW) * advantage, 0.0, "low"
    return ratio * advantage, ratio * advantage, ""


def term_of(name: str, logp: float, old: float, advantage: float) -> tuple[float, float, str]:
    """The term of one token, its derivative with respect to logp, and what holds the ratio."""
    ratio = math.exp(logp - old)
    if name == "policy_gradient":
        return advantage * logp, advantage, ""
    if name == "importance":
        return ratio * advantage, ratio * advantage, ""
    if name == "cispo":
        weight = min(ratio, CAP)
        return weight * advantage * logp, weight * advantage, "cap" if ratio > CAP else ""
    value, slope, flat = clip_of(ratio, advantage)
    if name == "dual_clipped" and advantage < 0 and value < C * advantage:
        return C * advantage, 0.0, "cap"
    return value, slope, flat


def batch(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    old_BT = -3 * torch.rand(5, 6, generator=generator, dtype=torch.float64)
    logp_BT = (old_BT + 0.5 * torch.randn(5, 6, generator=generator, dtype=torch.float64)).requires_grad_()
    mask_BT = torch.rand(5, 6, generator=generator) > 0.3
    mask_BT[4] = False
    return logp_BT, old_BT, torch.randn(5, 6, generator=generator, dtype=torch.float64), mask_BT


def assert_token(out: SurrogateTerms, place: tuple[int, int], expected: tuple[float, float, str, float]) -> None:
    value, _, held, ratio = expected
    assert out.term_BT[place].item() == pytest.approx(value, rel=1e-12, abs=1e-15)
    assert out.ratio_BT[place].item() == pytest.approx(ratio, rel=1e-12)
    flags = {"low": out.clipped_low_BT, "high": out.clipped_high_BT, "cap": out.capped_BT}
    assert {key: flag[place].item() for key, flag in flags.items()} == {key: key == held for key in flags}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("name", sorted(set(SURROGATES) - {"sequence_clipped"}))
def test_terms_of_tokens(name: str, per_token: bool, seed: int):
    logp_BT, old_BT, advantages_BT, mask_BT = batch(seed)
    out = called(name, logp_BT, old_BT, advantages_BT if per_token else advantages_BT[:, 0], mask_BT)
    (grad_BT,) = torch.autograd.grad(out.term_BT.sum(), logp_BT)
    for b, t in itertools.product(range(5), range(6)):
        value, slope, held, ratio = 0.0, 0.0, "", 1.0
        if mask_BT[b, t]:
            logp, old = logp_BT[b, t].item(), old_BT[b, t].item()
            value, slope, held = term_of(name, logp, old, advantages_BT[b, t if per_token else 0].item())
            ratio = math.exp(logp - old)
        assert_token(out, (b, t), (value, slope, held, ratio))
        assert grad_BT[b, t].item() == pytest.approx(slope, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("seed", SEEDS)
def test_terms_of_sequences(seed: int):
    logp_BT, old_BT, advantages_BT, mask_BT = batch(seed)
    weights_BT = torch.rand(5, 6, generator=torch.Generator().manual_seed(seed)).double()
    out = called("sequence_clipped", logp_BT, old_BT, advantages_BT[:, 0], mask_BT)
    (grad_BT,) = torch.autograd.grad((weights_BT * out.term_BT).sum(), logp_BT)
    for b in range(5):
        live = [t for t in range(6) if mask_BT[b, t]]
        logs = [logp_BT[b, t].item() - old_BT[b, t].item() for t in live]
        ratio = math.exp(math.fsum(logs) / len(live)) if live else 1.0
        value, slope, held = clip_of(ratio, advantages_BT[b, 0].item())
        # Every place of the row holds the term, so the slope of each token sums over the places.
        total = math.fsum(weights_BT[b, t].item() for t in live)
        for t in range(6):
            assert_token(out, (b, t), (value, slope, held, ratio) if t in live else (0.0, 0.0, "", 1.0))
            expected = total * slope / len(live) if t in live else 0.0
            assert grad_BT[b, t].item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(MISMATCH))
def test_mismatch_weights(name: str, seed: int):
    old_BT, behaviour_BT, _, mask_BT = batch(seed)
    out = mismatch_weight(name, old_BT, behaviour_BT, mask_BT, cap=CAP)
    for b, t in itertools.product(range(5), range(6)):
        weight, acted = 1.0, False
        if mask_BT[b, t]:
            ratio = math.exp(old_BT[b, t].item() - behaviour_BT[b, t].item())
            acted = ratio > CAP
            weight = ratio if not acted else {"truncate": CAP, "mask": 0.0}[name]
        assert out.weights_BT[b, t].item() == pytest.approx(weight, rel=1e-12)
        assert out.acted_BT[b, t].item() == acted


@pytest.mark.parametrize("step", [1, 2, 50])
def test_parts_of_an_adamw_step(step: int):
    generator = torch.Generator().manual_seed(step)
    theta, g, m, v = (torch.randn(7, generator=generator, dtype=torch.float64) for _ in range(4))
    v = v.square()
    lr, beta1, beta2, eps, decay = 0.01, 0.8, 0.97, 1e-3, 0.1
    parts = adamw_parts(theta, g, m, v, step=step, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    for i in range(7):
        v_hat = (beta2 * v[i].item() + (1 - beta2) * g[i].item() ** 2) / (1 - beta2**step)
        under = (1 - beta1**step) * (math.sqrt(v_hat) + eps)
        assert parts.carried[i].item() == pytest.approx(-lr * beta1 * m[i].item() / under, rel=1e-12)
        assert parts.fresh[i].item() == pytest.approx(-lr * (1 - beta1) * g[i].item() / under, rel=1e-12)
        assert parts.decay[i].item() == pytest.approx(-lr * decay * theta[i].item(), rel=1e-12)
