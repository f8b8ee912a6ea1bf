"""Our numerics against what TRL 1.16.0, verl 0.9.1 and OpenRLHF 0.11.2 compute for the same choice, value and gradient.

The expected numbers stand in literals.json. `SAME` agrees to rounding. `OTHERWISE` are choices in which a peer differs by
design: each has a conversion under which the numbers agree, and a check that they do not without it.
"""

import importlib.util
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from steelyard.numerics.advantages import advantages
from steelyard.numerics.kl import KL_ESTIMATORS
from steelyard.numerics.mismatch import mismatch_weight
from steelyard.numerics.preference import bradley_terry, dpo
from steelyard.numerics.reductions import AGGREGATIONS, Denominators, weighted_sum
from steelyard.numerics.shaping import soft_overlong
from steelyard.numerics.surrogates import surrogate
from steelyard.numerics.values import gae, token_rewards, value_loss, whitened

HERE = Path(__file__).parent
spec = importlib.util.spec_from_file_location("peers_generate", HERE / "generate.py")
assert spec is not None
assert spec.loader is not None
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)

LITERALS: dict[str, Any] = json.loads((HERE / "literals.json").read_text(encoding="utf-8"))
INPUTS, CASES = LITERALS["inputs"], LITERALS["cases"]
LENGTHS_B = torch.tensor(peers.LENGTHS)
MASK_BT = torch.arange(5) < LENGTHS_B[:, None]
GROUPS_B = torch.tensor(peers.GROUPS)
SCORED_B = torch.ones(6).bool()
REWARDS_B = torch.tensor(peers.REWARDS, dtype=torch.float64)
DENOMINATORS = Denominators(n_sequences=6, n_tokens=sum(peers.LENGTHS), max_length=peers.LIMIT)
pytestmark = pytest.mark.oracle


def padded(table: list[list[float]]) -> Tensor:
    """Rows of tokens as (B, T), rubbish in the padding."""
    out_BT = torch.full((len(table), 5), math.nan, dtype=torch.float64)
    for line, row in enumerate(table):
        out_BT[line, : len(row)] = torch.tensor(row, dtype=torch.float64)
    return out_BT


def ragged(table_BT: Tensor) -> list[list[float]]:
    return [row[:n].tolist() for row, n in zip(table_BT, peers.LENGTHS, strict=True)]


# ------------------------------------------------------------------ ours


def ours(name: str, *, ddof: int | None = None) -> Tensor:
    return advantages(name, REWARDS_B, GROUPS_B, SCORED_B, resolution=sys.float_info.epsilon, ddof=ddof)


def loss_of(
    name: str | None, aggregation: str, *, kl: str | None = None, weight: str | None = None, **numbers: Any
) -> Callable[[Tensor], Tensor]:
    """The loss of a surrogate, a KL, or both, as a function of the log-probs."""

    def loss(logp_BT: Tensor) -> Tensor:
        old_BT, mask_BT = padded(INPUTS["logp_old"]), MASK_BT
        weights_BT = AGGREGATIONS[aggregation](mask_BT, denominators=DENOMINATORS)
        total = torch.zeros((), dtype=torch.float64)
        if name is not None:
            advantages_B = torch.tensor(INPUTS["advantages"], dtype=torch.float64)
            held = {"eps_low": None, "eps_high": None} | numbers
            term_BT = surrogate(name, logp_BT, old_BT, advantages_B, mask_BT, **held).term_BT
            if weight is not None:
                sampler_BT = padded(INPUTS["logp_sampler"])
                term_BT = term_BT * mismatch_weight(weight, old_BT, sampler_BT, mask_BT, cap=peers.TIS).weights_BT
            total = total - weighted_sum(term_BT, weights_BT, mask_BT)
        if kl is not None:
            kl_BT = KL_ESTIMATORS[kl](logp_BT, padded(INPUTS["logp_ref"]), mask_BT)
            total = total + peers.BETA * weighted_sum(kl_BT, weights_BT, mask_BT)
        return total

    return loss


def value_and_gradient(loss: Callable[[Tensor], Tensor], start: Tensor) -> tuple[float, Tensor]:
    x = start.clone().requires_grad_()
    value = loss(x)
    (gradient,) = torch.autograd.grad(value, x)
    return value.item(), gradient


def our_gae(ddof: int) -> Tensor:
    rewards_BT = token_rewards(REWARDS_B, torch.zeros(6, 5).double(), MASK_BT, kl_coef=0.0)
    found_BT = gae(rewards_BT, padded(INPUTS["values"]), MASK_BT, gamma=peers.GAMMA, lam=peers.LAM).advantages_BT
    return whitened(found_BT, MASK_BT, ddof=ddof, resolution=sys.float_info.epsilon)


CLIP = {"eps_low": peers.EPS_LOW, "eps_high": peers.EPS_HIGH}
DUAL = {**CLIP, "dual_clip": peers.DUAL}
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "trl/grpo": loss_of("clipped", "sequence_mean", **CLIP),
    "trl/dapo": loss_of("clipped", "token_mean", **CLIP),
    "trl/bnpo": loss_of("clipped", "token_mean", **CLIP),
    "trl/dr_grpo": loss_of("clipped", "fixed_length", **CLIP),
    "trl/gspo": loss_of("sequence_clipped", "sequence_mean", **CLIP),
    "trl/luspo": loss_of("sequence_clipped", "sequence_sum", **CLIP),
    "trl/cispo": loss_of("cispo", "token_mean", eps_max=peers.CAP),
    "trl/delta": loss_of("dual_clipped", "token_mean", **DUAL),
    "trl/kl": loss_of("clipped", "token_mean", kl="k3", **CLIP),
    "trl/token_truncate": loss_of("clipped", "token_mean", weight="truncate", **CLIP),
    "trl/token_mask": loss_of("clipped", "token_mean", weight="mask", **CLIP),
    "verl/token-mean": loss_of("dual_clipped", "token_mean", **DUAL),
    "verl/seq-mean-token-mean": loss_of("dual_clipped", "sequence_mean", **DUAL),
    "verl/seq-mean-token-sum": loss_of("dual_clipped", "sequence_sum", **DUAL),
    "verl/seq-mean-token-sum-norm": loss_of("dual_clipped", "fixed_length", **DUAL),
    "verl/gspo": loss_of("sequence_clipped", "sequence_mean", **CLIP),
    "verl/cispo": loss_of("cispo", "token_mean", eps_max=peers.CAP),
    "verl/gpg": loss_of("policy_gradient", "token_mean"),
    "verl/kl": loss_of(None, "token_mean", kl="k1"),
    "verl/mse": loss_of(None, "token_mean", kl="k2"),
    "verl/low_var_kl": loss_of(None, "token_mean", kl="k3"),
    "verl/rollout_is": loss_of("dual_clipped", "token_mean", weight="truncate", **DUAL),
    "openrlhf/token": loss_of("clipped", "token_mean", **CLIP),
    "openrlhf/sample": loss_of("clipped", "sequence_mean", **CLIP),
    "openrlhf/dual_clip": loss_of("dual_clipped", "token_mean", **DUAL),
    "openrlhf/gspo": loss_of("sequence_clipped", "sequence_mean", **CLIP),
    "openrlhf/k1": loss_of(None, "token_mean", kl="k1"),
    "openrlhf/k2": loss_of(None, "token_mean", kl="k2"),
    "openrlhf/k3": loss_of(None, "token_mean", kl="k3"),
    "openrlhf/is_clip": loss_of("clipped", "token_mean", weight="truncate", **CLIP),
    "openrlhf/is_mask": loss_of("clipped", "token_mean", weight="mask", **CLIP),
}
NUMBERS: dict[str, Callable[[], Tensor]] = {
    "trl/scale_none": lambda: ours("group_centred"),
    "verl/adv_grpo": lambda: ours("group_standardised", ddof=1),
    "verl/adv_grpo_no_std": lambda: ours("group_centred"),
    "verl/adv_rloo": lambda: ours("leave_one_out"),
    "openrlhf/adv_dr_grpo": lambda: ours("group_centred"),
    "openrlhf/adv_rloo": lambda: ours("leave_one_out"),
    "openrlhf/adv_flash_reinforce": lambda: ours("batch_centred"),
    "verl/overlong": lambda: soft_overlong(LENGTHS_B, max_length=peers.LIMIT, buffer=3, penalty=0.5),
    "openrlhf/overlong": lambda: soft_overlong(LENGTHS_B, max_length=peers.LIMIT, buffer=3, penalty=0.5),
}


def our_value_loss(values_BT: Tensor) -> Tensor:
    old_BT, returns_BT = padded(INPUTS["values_old"]), padded(INPUTS["returns"])
    term_BT = value_loss(values_BT, old_BT, returns_BT, MASK_BT, clip=peers.VALUE_CLIP).term_BT
    return weighted_sum(term_BT, AGGREGATIONS["token_mean"](MASK_BT, denominators=DENOMINATORS), MASK_BT)


def our_dpo(pairs_2N: Tensor) -> Tensor:
    fixed = [torch.tensor(INPUTS[key], dtype=torch.float64) for key in ("chosen_ref", "rejected_ref")]
    return dpo(pairs_2N[0], pairs_2N[1], *fixed, beta=peers.BETA).term_B.mean()


def our_pairwise(pairs_2N: Tensor) -> Tensor:
    return bradley_terry(pairs_2N[0], pairs_2N[1]).mean()


OTHER: dict[str, Callable[[Tensor], Tensor]] = {
    "verl/value_loss": our_value_loss,
    "openrlhf/value_loss": our_value_loss,
    "trl/dpo": our_dpo,
    "openrlhf/dpo": our_dpo,
    "trl/reward_model": our_pairwise,
    "openrlhf/reward_model": our_pairwise,
}


# ------------------------------------------------------------------ the same


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_loss_has_the_peers_value_and_gradient(name):
    value, gradient_BT = value_and_gradient(LOSSES[name], padded(INPUTS["logp"]))
    assert value == pytest.approx(CASES[name]["value"], rel=1e-10)
    torch.testing.assert_close(gradient_BT[MASK_BT], padded(CASES[name]["gradient"])[MASK_BT], rtol=1e-10, atol=1e-14)
    assert (gradient_BT[~MASK_BT] == 0).all()


@pytest.mark.parametrize("name", list(NUMBERS))
def test_advantages_and_penalties_are_the_peers(name):
    assert NUMBERS[name]().tolist() == pytest.approx(CASES[name]["value"], rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("name", list(OTHER))
def test_the_other_losses_have_the_peers_value_and_gradient(name):
    on_tokens = name.endswith("value_loss")
    start = (
        padded(INPUTS["values"])
        if on_tokens
        else torch.tensor([INPUTS["chosen"], INPUTS["rejected"]], dtype=torch.float64)
    )
    value, gradient = value_and_gradient(OTHER[name], start)
    wanted = CASES[name]["gradient"]
    assert value == pytest.approx(CASES[name]["value"], rel=1e-10)
    if on_tokens:
        torch.testing.assert_close(gradient[MASK_BT], padded(wanted)[MASK_BT], rtol=1e-10, atol=1e-14)
    else:
        torch.testing.assert_close(gradient, torch.tensor(wanted, dtype=torch.float64), rtol=1e-10, atol=1e-14)


# ------------------------------------------------------------------ otherwise by design


def group_std(ddof: int) -> Tensor:
    stds = [REWARDS_B[g == GROUPS_B].std(correction=ddof) for g in peers.GROUPS]
    return torch.stack(stds)


def over_tokens(values_B: Tensor) -> Tensor:
    return values_B.repeat_interleave(LENGTHS_B)


def another_delta(delta: float) -> Callable[[], Tensor]:
    return lambda: ours("group_standardised", ddof=1) * (group_std(1) + 1e-6) / (group_std(1) + delta)


def whitened_by_tokens(ddof: int, delta: float) -> Tensor:
    centred_B = ours("group_centred")
    tokens_N = over_tokens(centred_B)
    return (centred_B - tokens_N.mean()) / (tokens_N.var(correction=ddof) + delta).sqrt()


def another_root(ddof: int, delta: float) -> Tensor:
    """Our whitening, with δ under the root instead of beside it."""
    rewards_BT = token_rewards(REWARDS_B, torch.zeros(6, 5).double(), MASK_BT, kl_coef=0.0)
    found_BT = gae(rewards_BT, padded(INPUTS["values"]), MASK_BT, gamma=peers.GAMMA, lam=peers.LAM).advantages_BT
    std = found_BT[MASK_BT].std(correction=ddof)
    return our_gae(ddof) * (std + 1e-6) / (std**2 + delta).sqrt()


OTHERWISE: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
    "trl/scale_group": (lambda: ours("group_standardised", ddof=1), another_delta(1e-4)),
    "openrlhf/adv_group_norm": (lambda: ours("group_standardised", ddof=1), another_delta(1e-9)),
    "trl/scale_batch": (
        lambda: ours("batch_standardised", ddof=1),
        lambda: ours("group_centred") / (REWARDS_B.std(correction=1) + 1e-4),
    ),
    "verl/adv_reinforce_pp_baseline": (
        lambda: ours("batch_standardised", ddof=1),
        lambda: whitened_by_tokens(1, 1e-8),
    ),
    "openrlhf/adv_reinforce_baseline": (
        lambda: ours("batch_standardised", ddof=0),
        lambda: whitened_by_tokens(0, 0.0),
    ),
    "verl/adv_gae": (lambda: our_gae(1), lambda: another_root(1, 1e-8)),
    "openrlhf/adv_gae": (lambda: our_gae(0), lambda: another_root(0, 0.0)),
}
"""Name → ours as it is, and ours converted."""


@pytest.mark.parametrize("name", list(OTHERWISE))
def test_where_a_peer_differs_the_conversion_is_exact_and_needed(name):
    plain, converted = (make() for make in OTHERWISE[name])
    found = CASES[name]["value"]
    if isinstance(found[0], list):
        wanted, plain, converted = padded(found)[MASK_BT], plain[MASK_BT], converted[MASK_BT]
    else:
        wanted = torch.tensor(found, dtype=torch.float64)
    torch.testing.assert_close(converted, wanted, rtol=1e-10, atol=1e-13)
    assert not torch.allclose(plain, wanted, rtol=1e-9, atol=1e-12)


def test_verls_k3_plus_has_the_value_of_k3_and_the_gradient_of_k2():
    start, case = padded(INPUTS["logp"]), CASES["verl/k3+"]
    assert value_and_gradient(LOSSES["verl/low_var_kl"], start)[0] == pytest.approx(case["value"], rel=1e-10)
    gradient_BT = value_and_gradient(LOSSES["verl/mse"], start)[1]
    torch.testing.assert_close(gradient_BT[MASK_BT], padded(case["gradient"])[MASK_BT], rtol=1e-10, atol=1e-14)
    other_BT = value_and_gradient(LOSSES["verl/low_var_kl"], start)[1]
    assert not torch.allclose(other_BT[MASK_BT], padded(case["gradient"])[MASK_BT], rtol=1e-3)


def test_trls_bias_corrected_kl_is_k3_times_the_ratio_gradient_included():
    case = CASES["trl/kl_bias_corrected"]

    def corrected(logp_BT: Tensor) -> Tensor:
        weights_BT = AGGREGATIONS["token_mean"](MASK_BT, denominators=DENOMINATORS)
        ratio_BT = (logp_BT - padded(INPUTS["logp_old"])).where(MASK_BT, 0.0).exp()
        kl_BT = KL_ESTIMATORS["k3"](logp_BT, padded(INPUTS["logp_ref"]), MASK_BT) * ratio_BT
        return LOSSES["trl/dapo"](logp_BT) + peers.BETA * weighted_sum(kl_BT, weights_BT, MASK_BT)

    value, gradient_BT = value_and_gradient(corrected, padded(INPUTS["logp"]))
    assert value == pytest.approx(case["value"], rel=1e-10)
    torch.testing.assert_close(gradient_BT[MASK_BT], padded(case["gradient"])[MASK_BT], rtol=1e-10, atol=1e-14)
    assert value_and_gradient(LOSSES["trl/kl"], padded(INPUTS["logp"]))[0] != pytest.approx(case["value"], rel=1e-3)


def test_a_lone_answer_trains_on_its_raw_reward_in_verl_and_on_nothing_here():
    """verl takes mean 0 and std 1 for a group of one."""
    lone = advantages(
        "group_standardised",
        torch.tensor([0.7], dtype=torch.float64),
        torch.tensor([0]),
        torch.tensor([True]),
        resolution=sys.float_info.epsilon,
        ddof=1,
    )
    assert lone.tolist() == [0.0]


# ------------------------------------------------------------------ the file


def test_the_literals_are_what_the_re_implementations_make():
    made = json.loads(json.dumps(peers.literals()))
    assert made.keys() == LITERALS.keys()
    assert made["inputs"] == INPUTS
    assert made["cases"].keys() == CASES.keys()
    for name, case in made["cases"].items():
        for part, numbers in case.items():
            found, kept = (
                torch.tensor(_flat(numbers), dtype=torch.float64),
                torch.tensor(_flat(CASES[name][part]), dtype=torch.float64),
            )
            torch.testing.assert_close(found, kept, rtol=1e-12, atol=1e-15)


def _flat(numbers: Any) -> list[float]:
    return [x for part in numbers for x in _flat(part)] if isinstance(numbers, list) else [numbers]


def test_every_case_has_its_test():
    own = {"verl/k3+", "trl/kl_bias_corrected"}
    assert set(CASES) == set(LOSSES) | set(NUMBERS) | set(OTHER) | set(OTHERWISE) | own


def test_the_inputs_reach_every_branch():
    """Otherwise agreement would say little: ratios beyond each clip for both signs, weights beyond the cap."""
    ratio_BT = (padded(INPUTS["logp"]) - padded(INPUTS["logp_old"])).exp()
    sign_B = torch.tensor(INPUTS["advantages"]).sign()
    for sign in (-1, 1):
        live_N = ratio_BT[sign_B == sign][MASK_BT[sign_B == sign]]
        assert (live_N < 1 - peers.EPS_LOW).any()
        assert (live_N > 1 + peers.EPS_HIGH).any()
    assert (ratio_BT[sign_B < 0][MASK_BT[sign_B < 0]] > peers.DUAL).any()
    weight_BT = (padded(INPUTS["logp_old"]) - padded(INPUTS["logp_sampler"])).exp()
    assert (weight_BT[MASK_BT] > peers.TIS).any()
    move_BT = (padded(INPUTS["values"]) - padded(INPUTS["values_old"])).abs()
    assert (move_BT[MASK_BT] > peers.VALUE_CLIP).any()
