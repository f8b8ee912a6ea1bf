"""What TRL 1.16.0, verl 0.9.1 and OpenRLHF 0.11.2 compute, written again from their formulas, one scalar at a time.

Nothing of them is imported or copied, and nothing of Steelyard is used: tokens are walked in loops, and gradients with
respect to the log-probs of the trained policy are torch's, through these loops. `python generate.py` writes literals.json.

Each function names the function of the peer whose numbers it gives.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

LITERALS = Path(__file__).with_name("literals.json")
LENGTHS = (5, 3, 4, 1, 5, 2)
GROUPS = (0, 0, 0, 1, 1, 1)
REWARDS = (1.0, 0.25, 0.5, 0.0, 1.0, 0.0)
LIMIT = 6
"""Token limit; one more than the longest answer."""
EPS_LOW, EPS_HIGH, DUAL, CAP, BETA, TIS = 0.2, 0.28, 1.6, 1.3, 0.05, 1.2
GAMMA, LAM, VALUE_CLIP = 0.98, 0.9, 0.2
Rows = list[list[Tensor]]
Loss = Callable[[Rows], Tensor]


def inputs() -> dict[str, Any]:
    """Keyed random log-probs and values, ragged."""
    rng = np.random.Generator(np.random.PCG64(20261206))

    def rows(low: float, high: float) -> list[list[float]]:
        return [[float(rng.uniform(low, high)) for _ in range(n)] for n in LENGTHS]

    new = rows(-2.0, -0.1)
    return {
        "logp": new,
        "logp_old": [[x + float(rng.normal(0.0, 0.4)) for x in row] for row in new],
        "logp_ref": [[x + float(rng.normal(0.0, 0.5)) for x in row] for row in new],
        "logp_sampler": [[x + float(rng.normal(0.0, 0.3)) for x in row] for row in new],
        "values": rows(0.0, 1.0),
        "values_old": rows(0.0, 1.0),
        "returns": rows(0.0, 1.0),
        "advantages": [float(rng.normal()) for _ in LENGTHS],
        "chosen": [float(rng.uniform(-20, -5)) for _ in range(4)],
        "rejected": [float(rng.uniform(-20, -5)) for _ in range(4)],
        "chosen_ref": [float(rng.uniform(-20, -5)) for _ in range(4)],
        "rejected_ref": [float(rng.uniform(-20, -5)) for _ in range(4)],
    }


GIVEN = inputs()
OLD, REF, SAMPLER = GIVEN["logp_old"], GIVEN["logp_ref"], GIVEN["logp_sampler"]
ADVANTAGES = GIVEN["advantages"]


# ------------------------------------------------------------------ advantages: one number per completion


def members(i: int) -> list[float]:
    return [r for r, g in zip(REWARDS, GROUPS, strict=True) if g == GROUPS[i]]


def mean(xs: Sequence[float]) -> float:
    return math.fsum(xs) / len(xs)


def std(xs: Sequence[float], ddof: int) -> float:
    return math.sqrt(math.fsum((x - mean(xs)) ** 2 for x in xs) / (len(xs) - ddof))


def trl_group() -> list[float]:
    """GRPOTrainer, scale_rewards = group: δ 1e-4, ddof 1."""
    return [(r - mean(members(i))) / (std(members(i), 1) + 1e-4) for i, r in enumerate(REWARDS)]


def trl_none() -> list[float]:
    """GRPOTrainer, scale_rewards = none."""
    return [r - mean(members(i)) for i, r in enumerate(REWARDS)]


def trl_batch() -> list[float]:
    """GRPOTrainer, scale_rewards = batch: the std of the raw rewards of the batch."""
    return [(r - mean(members(i))) / (std(REWARDS, 1) + 1e-4) for i, r in enumerate(REWARDS)]


def verl_grpo() -> list[float]:
    """compute_grpo_outcome_advantage: δ 1e-6, ddof 1."""
    return [(r - mean(members(i))) / (std(members(i), 1) + 1e-6) for i, r in enumerate(REWARDS)]


def verl_rloo() -> list[float]:
    """compute_rloo_outcome_advantage: n/(n−1) (r − mean)."""
    return [(r - mean(members(i))) * len(members(i)) / (len(members(i)) - 1) for i, r in enumerate(REWARDS)]


def verl_reinforce_pp_baseline() -> list[float]:
    """compute_reinforce_plus_plus_baseline_outcome_advantage: centred by group, whitened over tokens."""
    return whitened_over_tokens(trl_none(), ddof=1, root=lambda variance: math.sqrt(variance + 1e-8))


def openrlhf_group_norm() -> list[float]:
    """experience_maker, estimator group_norm: δ 1e-9, ddof 1."""
    return [(r - mean(members(i))) / (std(members(i), 1) + 1e-9) for i, r in enumerate(REWARDS)]


def openrlhf_rloo() -> list[float]:
    """experience_maker, estimator rloo: less the mean of the others."""
    return [r - (math.fsum(members(i)) - r) / (len(members(i)) - 1) for i, r in enumerate(REWARDS)]


def openrlhf_reinforce_baseline() -> list[float]:
    """experience_maker, estimator reinforce_baseline: centred by group, whitened over tokens, ddof 0."""
    return whitened_over_tokens(trl_none(), ddof=0, root=lambda variance: math.sqrt(max(variance, 1e-8)))


def openrlhf_flash_reinforce() -> list[float]:
    """experience_maker, estimator flash_reinforce: less the mean of the batch."""
    return [r - mean(REWARDS) for r in REWARDS]


def whitened_over_tokens(xs: Sequence[float], *, ddof: int, root: Callable[[float], float]) -> list[float]:
    tokens = [x for x, n in zip(xs, LENGTHS, strict=True) for _ in range(n)]
    middle = mean(tokens)
    return [(x - middle) / root(std(tokens, ddof) ** 2) for x in xs]


def overlong() -> list[float]:
    """verl's DAPORewardManager and OpenRLHF's apply_overlong_penalty: buffer 3 of LIMIT tokens, factor 0.5."""
    return [min(0.0, -(n - (LIMIT - 3)) / 3 * 0.5) for n in LENGTHS]


def gae() -> list[list[float]]:
    """compute_gae_advantage_return and get_advantages_and_returns before whitening: reward on the last token."""
    table: list[list[float]] = []
    for reward, values in zip(REWARDS, GIVEN["values"], strict=True):
        carried, later, out = 0.0, 0.0, []
        for t in reversed(range(len(values))):
            delta = (reward if t == len(values) - 1 else 0.0) + GAMMA * later - values[t]
            carried = delta + GAMMA * LAM * carried
            later = values[t]
            out.append(carried)
        table.append(out[::-1])
    return table


def whitened_gae(*, ddof: int, root: Callable[[float], float]) -> list[list[float]]:
    table = gae()
    tokens = [x for row in table for x in row]
    middle, scale = mean(tokens), root(std(tokens, ddof) ** 2)
    return [[(x - middle) / scale for x in row] for row in table]


# ------------------------------------------------------------------ losses: a number and its gradient


def token_ratios(logp: Rows) -> Rows:
    return [[torch.exp(x - o) for x, o in zip(row, old, strict=True)] for row, old in zip(logp, OLD, strict=True)]


def sequence_ratios(logp: Rows) -> Rows:
    """exp of the mean log ratio, one for every token of a completion."""
    out: Rows = []
    for row, old in zip(logp, OLD, strict=True):
        s = torch.exp(sum(x - o for x, o in zip(row, old, strict=True)) / len(row))
        out.append([s for _ in row])
    return out


def gspo_token_ratios(logp: Rows) -> Rows:
    """verl's form: the value of the sequence ratio, each token's gradient through its own log-prob."""
    values = sequence_ratios(logp)
    return [
        [s.detach() * torch.exp(x - x.detach()) for x, s in zip(*rows, strict=True)]
        for rows in zip(logp, values, strict=True)
    ]


def scalar(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def clip(x: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(torch.maximum(x, scalar(low)), scalar(high))


def ppo(ratios: Rows, *, dual: float | None = None, from_above: float | None = None) -> Rows:
    """−min(ρA, clip(ρ)A); dual: never below cA for A < 0 (verl, OpenRLHF); from_above: TRL's delta on ρ itself."""
    out: Rows = []
    for row, a in zip(ratios, ADVANTAGES, strict=True):
        terms: list[Tensor] = []
        for rho in row:
            free = rho if from_above is None else torch.minimum(rho, scalar(from_above))
            term = torch.minimum(free * a, clip(rho, 1 - EPS_LOW, 1 + EPS_HIGH) * a)
            if dual is not None and a < 0:
                term = torch.maximum(term, scalar(dual * a))
            terms.append(-term)
        out.append(terms)
    return out


def held(logp: Rows) -> Rows:
    """CISPO: −sg(min(ρ, cap)) A log π."""
    ratios = token_ratios(logp)
    return [
        [-torch.minimum(r, scalar(CAP)).detach() * a * x for x, r in zip(row, rs, strict=True)]
        for row, rs, a in zip(logp, ratios, ADVANTAGES, strict=True)
    ]


def score_function(logp: Rows) -> Rows:
    return [[-x * a for x in row] for row, a in zip(logp, ADVANTAGES, strict=True)]


def k1(x: Tensor, ref: float) -> Tensor:
    return x - ref


def k2(x: Tensor, ref: float) -> Tensor:
    return (x - ref) ** 2 / 2


def k3(x: Tensor, ref: float) -> Tensor:
    return torch.exp(ref - x) - (ref - x) - 1


def k3_with_the_gradient_of_k2(x: Tensor, ref: float) -> Tensor:
    """verl's kl_loss_type = k3+ and OpenRLHF's unbiased gradient on a fresh batch."""
    return k2(x, ref) - k2(x, ref).detach() + k3(x, ref).detach()


def kl(logp: Rows, estimator: Callable[[Tensor, float], Tensor]) -> Rows:
    return [
        [BETA * estimator(x, ref) for x, ref in zip(row, refs, strict=True)]
        for row, refs in zip(logp, REF, strict=True)
    ]


def k3_times_ratio(logp: Rows) -> Rows:
    """TRL's use_bias_correction_kl."""
    return [[k * r for k, r in zip(*rows, strict=True)] for rows in zip(kl(logp, k3), token_ratios(logp), strict=True)]


def added(first: Rows, second: Rows) -> Rows:
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(first, second, strict=True)]


def weighted(table: Rows, weight: Callable[[float], float]) -> Rows:
    """Each term times a weight of π_old/μ."""
    return [
        [term * weight(math.exp(o - s)) for term, o, s in zip(*rows, strict=True)]
        for rows in zip(table, OLD, SAMPLER, strict=True)
    ]


def token_mean(table: Rows) -> Any:
    return sum((x for row in table for x in row), torch.zeros(()).double()) / sum(LENGTHS)


def sequence_mean(table: Rows) -> Any:
    return sum((sum(row) / len(row) for row in table), torch.zeros(()).double()) / len(LENGTHS)


def sequence_sum(table: Rows) -> Any:
    return sum((sum(row) for row in table), torch.zeros(()).double()) / len(LENGTHS)


def fixed_length(table: Rows) -> Tensor:
    return sequence_sum(table) / LIMIT


LOSSES: dict[str, Loss] = {
    # GRPOTrainer._compute_loss
    "trl/grpo": lambda logp: sequence_mean(ppo(token_ratios(logp))),
    "trl/dapo": lambda logp: token_mean(ppo(token_ratios(logp))),
    "trl/bnpo": lambda logp: token_mean(ppo(token_ratios(logp))),
    "trl/dr_grpo": lambda logp: fixed_length(ppo(token_ratios(logp))),
    "trl/gspo": lambda logp: sequence_mean(ppo(sequence_ratios(logp))),
    "trl/luspo": lambda logp: sequence_sum(ppo(sequence_ratios(logp))),
    "trl/cispo": lambda logp: token_mean(held(logp)),
    "trl/delta": lambda logp: token_mean(ppo(token_ratios(logp), from_above=DUAL)),
    "trl/kl": lambda logp: token_mean(added(ppo(token_ratios(logp)), kl(logp, k3))),
    "trl/kl_bias_corrected": lambda logp: token_mean(added(ppo(token_ratios(logp)), k3_times_ratio(logp))),
    "trl/token_truncate": lambda logp: token_mean(weighted(ppo(token_ratios(logp)), lambda w: min(w, TIS))),
    "trl/token_mask": lambda logp: token_mean(weighted(ppo(token_ratios(logp)), lambda w: w if w <= TIS else 0.0)),
    # compute_policy_loss_*, agg_loss, kl_penalty
    "verl/token-mean": lambda logp: token_mean(ppo(token_ratios(logp), dual=DUAL)),
    "verl/seq-mean-token-mean": lambda logp: sequence_mean(ppo(token_ratios(logp), dual=DUAL)),
    "verl/seq-mean-token-sum": lambda logp: sequence_sum(ppo(token_ratios(logp), dual=DUAL)),
    "verl/seq-mean-token-sum-norm": lambda logp: fixed_length(ppo(token_ratios(logp), dual=DUAL)),
    "verl/gspo": lambda logp: sequence_mean(ppo(gspo_token_ratios(logp))),
    "verl/cispo": lambda logp: token_mean(held(logp)),
    "verl/gpg": lambda logp: token_mean(score_function(logp)),
    "verl/kl": lambda logp: token_mean(kl(logp, k1)),
    "verl/mse": lambda logp: token_mean(kl(logp, k2)),
    "verl/low_var_kl": lambda logp: token_mean(kl(logp, k3)),
    "verl/k3+": lambda logp: token_mean(kl(logp, k3_with_the_gradient_of_k2)),
    "verl/rollout_is": lambda logp: token_mean(weighted(ppo(token_ratios(logp), dual=DUAL), lambda w: min(w, TIS))),
    # PolicyLoss, aggregate_loss, compute_approx_kl
    "openrlhf/token": lambda logp: token_mean(ppo(token_ratios(logp))),
    "openrlhf/sample": lambda logp: sequence_mean(ppo(token_ratios(logp))),
    "openrlhf/dual_clip": lambda logp: token_mean(ppo(token_ratios(logp), dual=DUAL)),
    "openrlhf/gspo": lambda logp: sequence_mean(ppo(sequence_ratios(logp))),
    "openrlhf/k1": lambda logp: token_mean(kl(logp, k1)),
    "openrlhf/k2": lambda logp: token_mean(kl(logp, k2)),
    "openrlhf/k3": lambda logp: token_mean(kl(logp, k3)),
    "openrlhf/is_clip": lambda logp: token_mean(weighted(ppo(token_ratios(logp)), lambda w: min(w, TIS))),
    "openrlhf/is_mask": lambda logp: token_mean(weighted(ppo(token_ratios(logp)), lambda w: w if w <= TIS else 0.0)),
}
ADVANTAGE_CASES: dict[str, Callable[[], object]] = {
    "trl/scale_group": trl_group,
    "trl/scale_none": trl_none,
    "trl/scale_batch": trl_batch,
    "verl/adv_grpo": verl_grpo,
    "verl/adv_grpo_no_std": trl_none,
    "verl/adv_rloo": verl_rloo,
    "verl/adv_reinforce_pp_baseline": verl_reinforce_pp_baseline,
    "verl/adv_gae": lambda: whitened_gae(ddof=1, root=lambda variance: math.sqrt(variance + 1e-8)),
    "verl/overlong": overlong,
    "openrlhf/adv_group_norm": openrlhf_group_norm,
    "openrlhf/adv_dr_grpo": trl_none,
    "openrlhf/adv_rloo": openrlhf_rloo,
    "openrlhf/adv_reinforce_baseline": openrlhf_reinforce_baseline,
    "openrlhf/adv_flash_reinforce": openrlhf_flash_reinforce,
    "openrlhf/adv_gae": lambda: whitened_gae(ddof=0, root=lambda variance: math.sqrt(max(variance, 1e-8))),
    "openrlhf/overlong": overlong,
}


def value_loss(values: Rows) -> Tensor:
    """compute_value_loss (verl) and ValueLoss (OpenRLHF): half the larger squared error, mean over tokens."""
    out: Rows = []
    for row, old, returns in zip(values, GIVEN["values_old"], GIVEN["returns"], strict=True):
        terms = []
        for v, o, r in zip(row, old, returns, strict=True):
            near = o + clip(v - o, -VALUE_CLIP, VALUE_CLIP)
            terms.append(torch.maximum((v - r) ** 2, (near - r) ** 2) / 2)
        out.append(terms)
    return token_mean(out)


def dpo_loss(pairs: Rows) -> Tensor:
    """DPOTrainer's sigmoid loss (TRL) and DPOLoss (OpenRLHF)."""
    total = torch.zeros(()).double()
    for w, x, ref_w, ref_x in zip(*pairs, GIVEN["chosen_ref"], GIVEN["rejected_ref"], strict=True):
        total = total + torch.log1p(torch.exp(-BETA * ((w - ref_w) - (x - ref_x))))
    return total / len(pairs[0])


def pairwise_loss(pairs: Rows) -> Any:
    """RewardTrainer (TRL) and PairWiseLoss (OpenRLHF)."""
    return sum((torch.log1p(torch.exp(x - w)) for w, x in zip(*pairs, strict=True)), torch.zeros(()).double()) / len(
        pairs[0]
    )


OTHER_LOSSES: dict[str, tuple[tuple[str, ...], Loss]] = {
    "verl/value_loss": (("values",), value_loss),
    "openrlhf/value_loss": (("values",), value_loss),
    "trl/dpo": (("chosen", "rejected"), dpo_loss),
    "openrlhf/dpo": (("chosen", "rejected"), dpo_loss),
    "trl/reward_model": (("chosen", "rejected"), pairwise_loss),
    "openrlhf/reward_model": (("chosen", "rejected"), pairwise_loss),
}


# ------------------------------------------------------------------ the file


def with_gradient(loss: Loss, table: list[list[float]]) -> dict[str, object]:
    rows = [[torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in row] for row in table]
    value = loss(rows)
    value.backward()
    gradient = [[0.0 if x.grad is None else x.grad.item() for x in row] for row in rows]
    return {"value": value.item(), "gradient": gradient}


def literals() -> dict[str, object]:
    """Return everything that literals.json holds."""
    cases: dict[str, object] = {name: {"value": make()} for name, make in ADVANTAGE_CASES.items()}
    cases |= {name: with_gradient(loss, GIVEN["logp"]) for name, loss in LOSSES.items()}
    for name, (keys, loss) in OTHER_LOSSES.items():
        table = GIVEN[keys[0]] if len(keys) == 1 else [GIVEN[key] for key in keys]
        cases[name] = with_gradient(loss, table)
    return {"inputs": GIVEN, "cases": cases}


if __name__ == "__main__":
    LITERALS.write_text(json.dumps(literals(), indent=1) + "\n", encoding="utf-8")
