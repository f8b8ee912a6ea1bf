"""Each choice of an objective as a line of mathematics, with the recipe's numbers in it."""

from collections.abc import Mapping

from steelyard.numerics.variants import Objective
from steelyard.run.recipe import Recipe

ADVANTAGES: Mapping[str, str] = {
    "raw": "A_i = r_i",
    "batch_centred": "A_i = r_i − mean(all scored r of the batch)",
    "group_centred": "A_i = r_i − mean(scored r of its group)",
    "group_standardised": "A_i = (r_i − mean) / (std + 1e-6), mean and std over the scored r of its group, ddof {ddof}",
    "leave_one_out": "A_i = r_i − mean(the other scored r of its group)",
    "batch_standardised": "A_i = (r_i − mean(scored r of its group)) / (std + 1e-6), std over the batch's A, ddof {ddof}",
    "gae": "A_it = whitened Σ_l (γλ)^l δ_i,t+l,   δ_it = r_it + γ·V_i,t+1 − V_it,   γ = {gamma:g}, λ = {lam:g}",
}
SURROGATES: Mapping[str, str] = {
    "policy_gradient": "s_it = {A} · log π_θ(o_it)",
    "importance": "s_it = ρ_it · {A}",
    "clipped": "s_it = min( ρ_it·{A} , clip(ρ_it, 1 − {eps_low:g}, 1 + {eps_high:g})·{A} )",
    "dual_clipped": "s_it = min( ρ_it·{A} , clip(ρ_it, 1 − {eps_low:g}, 1 + {eps_high:g})·{A} ), where {A} < 0 never below "
    "{dual_clip:g}·{A}",
    "sequence_clipped": "s_it = min( q_i·{A} , clip(q_i, 1 − {eps_low:g}, 1 + {eps_high:g})·{A} ), the same for every t",
    "cispo": "s_it = sg( min( ρ_it , {eps_max:g} ) ) · {A} · log π_θ(o_it)        sg: no gradient through it",
}
RATIO = "ρ_it = π_θ(o_it) / π_old(o_it)"
RATIOS: Mapping[str, str | None] = {
    "policy_gradient": None,
    "importance": RATIO,
    "clipped": RATIO,
    "dual_clipped": RATIO,
    "sequence_clipped": "q_i = exp( (1/T_i) Σ_t log ρ_it ),   " + RATIO,
    "cispo": RATIO,
}
AGGREGATIONS: Mapping[str, str] = {
    "sequence_mean": "(1/N_seq) Σ_i (1/T_i) Σ_t",
    "token_mean": "(1/N_tok) Σ_i Σ_t",
    "fixed_length": "(1/(N_seq · L_max)) Σ_i Σ_t",
    "sequence_sum": "(1/N_seq) Σ_i Σ_t",
}
MISMATCHES: Mapping[str, str] = {
    "truncate": "w_it = min( {mismatch_cap:g} , π_old(o_it) / μ(o_it) )",
    "mask": "w_it = π_old(o_it) / μ(o_it), and 0 where that is above {mismatch_cap:g}",
}
KL_IN_LOSS: Mapping[str, str] = {
    "k1": "k_it = −d_it (its expected gradient as a loss is 0)",
    "k2": "k_it = d_it²/2 (its expected gradient is that of KL(π_θ‖π_ref))",
    "k3": "k_it = exp(d_it) − d_it − 1 (≥ 0; its expected gradient is that of KL(π_ref‖π_θ))",
}
KL_IN_REWARD: Mapping[str, str] = {
    "k1": "k_it = −d_it",
    "k2": "k_it = d_it²/2",
    "k3": "k_it = exp(d_it) − d_it − 1",
}


def formula(recipe: Recipe, objective: Objective) -> str:
    """Return what is maximised, every part of it and every number in it."""
    total = AGGREGATIONS[objective.aggregation]
    numbers = _numbers(objective)
    weighted = "w_it · s_it" if objective.mismatch_weight != "none" else "s_it"
    parts = [f"J = {total} {weighted}"]
    if objective.kl_placement == "loss":
        parts.append(f" − {objective.kl_coef:g} · {total} k_it")
    if objective.entropy_coef:
        parts.append(f" + {objective.entropy_coef:g} · {total} h_it")
    if objective.needs_critic and recipe.critic.backbone == "shared":
        parts.append(f" − {recipe.critic.coef:g} · {total} v_it")
    lines = ["".join(parts), SURROGATES[objective.surrogate].format(**numbers)]
    ratio = RATIOS[objective.surrogate]
    lines += [ratio] if ratio else []
    if objective.mismatch_weight != "none":
        lines.append(MISMATCHES[objective.mismatch_weight].format(**numbers) + " (a factor of s_it alone; no gradient)")
    lines.append(ADVANTAGES[objective.advantage].format(**numbers))
    lines += _critic(recipe, objective, total) + _rewards(recipe, objective)
    if objective.kl_placement == "loss":
        lines.append(f"{KL_IN_LOSS[objective.kl_estimator or '']},   d_it = log π_ref(o_it) − log π_θ(o_it)")
    if objective.entropy_coef:
        lines.append("h_it = −Σ_v π_θ(v) log π_θ(v), the exact entropy over the vocabulary at place t")
    return "Maximised (the logged loss is −J):\n" + "\n".join(f"  {line}" for line in lines)


def _numbers(objective: Objective) -> dict[str, object]:
    names = ("ddof", "gamma", "lam", "eps_low", "eps_high", "dual_clip", "eps_max", "mismatch_cap")
    numbers: dict[str, object] = {name: getattr(objective, name) for name in names}
    return numbers | {"A": "A_it" if objective.needs_critic else "A_i"}


def _critic(recipe: Recipe, objective: Objective, total: str) -> list[str]:
    if not objective.needs_critic:
        return []
    clip = recipe.critic.clip
    held = f"max( (V−R)² , (V_old + clip(V−V_old, −{clip:g}, {clip:g}) − R)² )" if clip != float("inf") else "(V−R)²"
    lines = [
        f"       whitened: (A − mean) / (std + 1e-6) over the tokens of the batch that enter the loss, ddof {objective.ddof}",
        f"v_it = ½ {held},   R_it = Σ_l (γλ)^l δ_i,t+l + V_it, before whitening",
    ]
    if recipe.critic.backbone == "own":
        lines.append(f"The value network minimises {total} v_it by itself: own backbone, own AdamW, no term of J.")
    return lines


def _rewards(recipe: Recipe, objective: Objective) -> list[str]:
    """What stands between the judge's score and the advantage."""
    lines: list[str] = []
    if recipe.reward.parts:
        terms = "".join(f" {part.weight:+g}·{part.name}_i" for part in recipe.reward.parts).replace("-", "−")
        of_part = "score_i" if objective.kl_placement == "reward" and not objective.needs_critic else "r_i"
        lines.append(
            f"{of_part} = {recipe.reward.weight:g}·primary_i{terms}; a further part that abstains adds nothing"
        )
    if objective.kl_placement == "reward":
        kind = KL_IN_REWARD[objective.kl_estimator or ""]
        beta = f"{objective.kl_coef:g}"
        lines.append(
            f"r_it = −{beta}·k_it + [t = T_i]·r_i"
            if objective.needs_critic
            else f"r_i = score_i − {beta}·Σ_t k_it, before the baseline"
        )
        lines.append(f"{kind},   d_it = log π_ref(o_it) − log π_old(o_it): a number, without gradient")
    elif objective.needs_critic:
        lines.append("r_it = [t = T_i]·r_i: the whole reward stands on the last token")
    if recipe.overlong_buffer:
        start = recipe.rollout.max_new_tokens - recipe.overlong_buffer
        lines.append(
            f"r_i holds −{recipe.reward.overlong_penalty:g}·clip( (T_i − {start}) / {recipe.overlong_buffer} , 0 , 1 ): "
            "the soft overlong penalty"
        )
    return lines


def denominators(recipe: Recipe, objective: Objective) -> str:
    """Return what each sum is divided by, and which tokens are in it."""
    rollout, update = recipe.rollout, recipe.update
    most = rollout.prompts_per_update * rollout.group_size
    dealt = f", dealt to {update.minibatches} minibatches" if update.minibatches > 1 else ""
    dead = "dead groups replaced" if recipe.dynamic_sampling else "dead groups included"
    lines = [
        "Denominators (one per optimizer step, over all of its completions; micro-batches never change them):",
        f"  N_seq  scored completions in the loss, {dead}: {rollout.prompts_per_update} prompts × G "
        f"{rollout.group_size} = {most} when all are scored{dealt}",
    ]
    if objective.aggregation == "sequence_mean" or objective.surrogate == "sequence_clipped":
        lines.append("  T_i    sampled tokens of completion i")
    if objective.aggregation == "token_mean":
        lines.append("  N_tok  sampled tokens of all N_seq completions")
    if objective.aggregation == "fixed_length":
        lines.append(f"  L_max  rollout.max_new_tokens = {rollout.max_new_tokens}, whatever the real lengths")
    lines.append("Tokens that count: sampled ones up to and including the first stop token; never prompt or padding.")
    lines.append("A completion that could not be judged is in no sum and no baseline.")
    if objective.needs_group:
        lines.append("Max = min in a group gives A = 0 exactly.")
    return "\n".join(lines)
