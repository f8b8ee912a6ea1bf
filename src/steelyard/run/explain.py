"""What a recipe optimises, in a formula with its denominators, and in the words of other trainers.

Reads the recipe only: no model, no task and no torch is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.numerics.variants import Objective
from steelyard.run.recipe import Recipe

ADVANTAGE_FORMULAS: Mapping[str, str] = {
    "raw": "A_i = r_i",
    "batch_centred": "A_i = r_i − mean(all scored r of the batch)",
    "group_centred": "A_i = r_i − mean(scored r of its group)",
    "group_standardised": "A_i = (r_i − mean) / (std + 1e-6), mean and std over the scored r of its group, ddof {ddof}",
    "leave_one_out": "A_i = r_i − mean(the other scored r of its group)",
}
SURROGATE_FORMULAS: Mapping[str, str] = {
    "policy_gradient": "s_it = A_i · log π_θ(o_it)",
    "importance": "s_it = ρ_it · A_i,   ρ_it = π_θ(o_it) / π_old(o_it)",
    "clipped": "s_it = min( ρ_it·A_i , clip(ρ_it, {low:g}, {high:g})·A_i ),   ρ_it = π_θ(o_it) / π_old(o_it)",
}
AGGREGATION_FORMULAS: Mapping[str, str] = {
    "sequence_mean": "(1/N_seq) Σ_i (1/T_i) Σ_t",
    "token_mean": "(1/N_tok) Σ_i Σ_t",
    "fixed_length": "(1/(N_seq · L_max)) Σ_i Σ_t",
    "sequence_sum": "(1/N_seq) Σ_i Σ_t",
}
KL_FORMULAS: Mapping[str, str] = {
    "k1": "k_it = −d_it (its expected gradient as a loss is 0)",
    "k2": "k_it = d_it²/2 (its expected gradient is that of KL(π_θ‖π_ref))",
    "k3": "k_it = exp(d_it) − d_it − 1 (≥ 0; its expected gradient is that of KL(π_ref‖π_θ))",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerNames:
    """The same choice in the configuration of other trainers; "no equivalent" where there is none."""

    trl: str
    """TRL 1.16 GRPOConfig."""
    verl: str
    """verl 0.9."""


ADVANTAGE_NAMES: Mapping[str, PeerNames] = {
    "raw": PeerNames(trl="no equivalent", verl="no equivalent"),
    "batch_centred": PeerNames(trl="no equivalent", verl="no equivalent"),
    "group_centred": PeerNames(trl='scale_rewards="none"', verl="norm_adv_by_std_in_grpo=False"),
    "group_standardised": PeerNames(
        trl='scale_rewards="group" (always ddof 1, δ 1e-4)', verl="adv_estimator=grpo (always ddof 1, δ 1e-6)"
    ),
    "leave_one_out": PeerNames(trl="RLOOTrainer", verl="adv_estimator=rloo"),
}
SURROGATE_NAMES: Mapping[str, PeerNames] = {
    "policy_gradient": PeerNames(
        trl="num_iterations=1 (one pass: equal gradient)", verl="ppo_epochs=1 (one pass: equal gradient)"
    ),
    "importance": PeerNames(trl="epsilon=inf", verl="clip_ratio=inf"),
    "clipped": PeerNames(
        trl="epsilon={eps_low:g}, epsilon_high={eps_high:g}",
        verl="clip_ratio_low={eps_low:g}, clip_ratio_high={eps_high:g} (its dual clip clip_ratio_c=3 is on by default; ours is off)",
    ),
}
AGGREGATION_NAMES: Mapping[str, PeerNames] = {
    "sequence_mean": PeerNames(trl='loss_type="grpo"', verl="loss_agg_mode=seq-mean-token-mean"),
    "token_mean": PeerNames(trl='loss_type="dapo" (its default)', verl="loss_agg_mode=token-mean (its default)"),
    "fixed_length": PeerNames(trl='loss_type="dr_grpo"', verl="loss_agg_mode=seq-mean-token-sum-norm"),
    "sequence_sum": PeerNames(trl="no equivalent", verl="loss_agg_mode=seq-mean-token-sum"),
}


def explain(recipe: Recipe) -> str:
    """Return the objective of a recipe as text for a terminal."""
    objective, overridden = recipe.objective.resolve()
    parts = [
        _title(objective, overridden),
        _formula(objective),
        _denominators(recipe, objective),
        _policies(recipe, objective),
        _names(recipe, objective),
        _traps(recipe, objective),
    ]
    return "\n\n".join(parts)


def _title(objective: Objective, overridden: frozenset[str]) -> str:
    """Name, source, and each choice, with the ones that differ from the variant marked."""
    names = ["advantage", "ddof", "surrogate", "eps_low", "eps_high", "aggregation"]
    names += (
        ["kl_coef", "kl_estimator", "kl_placement"] if objective.kl_coef or "kl_coef" in overridden else ["kl_coef"]
    )
    lines = [f"Objective: {objective.variant}  ({objective.source})"]
    for name in names:
        value = getattr(objective, name)
        if value is None:
            continue
        mark = "  ← written in the recipe, differs from the variant" if name in overridden else ""
        lines.append(f"  {name:<13} {value}{mark}")
    return "\n".join(lines)


def _formula(objective: Objective) -> str:
    penalty = (
        f" − {objective.kl_coef:g} · {AGGREGATION_FORMULAS[objective.aggregation]} k_it" if objective.kl_coef else ""
    )
    low, high = 1.0 - (objective.eps_low or 0.0), 1.0 + (objective.eps_high or 0.0)
    lines = [
        "Maximised (the logged loss is −J):",
        f"  J = {AGGREGATION_FORMULAS[objective.aggregation]} s_it{penalty}",
        f"  {SURROGATE_FORMULAS[objective.surrogate].format(low=low, high=high)}",
        f"  {ADVANTAGE_FORMULAS[objective.advantage].format(ddof=objective.ddof)}",
    ]
    if objective.kl_estimator is not None:
        lines.append(f"  {KL_FORMULAS[objective.kl_estimator]},   d_it = log π_ref(o_it) − log π_θ(o_it)")
    return "\n".join(lines)


def _denominators(recipe: Recipe, objective: Objective) -> str:
    rollout = recipe.rollout
    most = rollout.prompts_per_update * rollout.group_size
    lines = [
        "Denominators (one per optimizer step, over the whole batch; micro-batches never change them):",
        f"  N_seq  scored completions in the loss, dead groups included: {rollout.prompts_per_update} prompts × G "
        f"{rollout.group_size} = {most} when all are scored",
    ]
    if objective.aggregation == "sequence_mean":
        lines.append("  T_i    sampled tokens of completion i")
    if objective.aggregation == "token_mean":
        lines.append("  N_tok  sampled tokens of all N_seq completions")
    if objective.aggregation == "fixed_length":
        lines.append(f"  L_max  rollout.max_new_tokens = {rollout.max_new_tokens}, whatever the real lengths")
    lines += [
        "Tokens that count: sampled ones up to and including the first stop token; never prompt or padding.",
        "A completion that could not be judged is in no sum and no baseline. Max = min in a group gives A = 0 exactly.",
    ]
    return "\n".join(lines)


def _policies(recipe: Recipe, objective: Objective) -> str:
    passes = recipe.update.passes
    old = (
        "π_θ itself without gradient: one pass per batch, so every ratio is 1 in value but not in slope"
        if passes == 1
        else f"the trainer's log-probs before the first of {passes} passes over a batch"
    )
    reference = (
        f"the policy at the start of this run, frozen; penalty in the {objective.kl_placement}"
        if objective.kl_coef
        else "none (β = 0): no reference model is kept"
    )
    return (
        "Policies:\n"
        "  μ      the sampler; its log-probs are stored with the tokens. No mismatch weight is applied\n"
        f"  π_old  {old}\n"
        f"  π_ref  {reference}\n"
        f"  All log-probs are taken at temperature {recipe.rollout.temperature:g}."
    )


def _names(recipe: Recipe, objective: Objective) -> str:
    peers = [ADVANTAGE_NAMES[objective.advantage], SURROGATE_NAMES[objective.surrogate]]
    peers.append(AGGREGATION_NAMES[objective.aggregation])
    values = {"eps_low": objective.eps_low or 0.0, "eps_high": objective.eps_high or 0.0}
    trl = [peer.trl.format(**values) for peer in peers]
    verl = [peer.verl.format(**values) for peer in peers]
    kl = objective.kl_coef
    trl.append(f"beta={kl:g}" + (" (k3 only; use_bias_correction_kl=False)" if kl else ""))
    kind = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}.get(objective.kl_estimator or "", "")
    verl.append(f"use_kl_loss=True, kl_loss_coef={kl:g}, kl_loss_type={kind}" if kl else "use_kl_loss=False")
    trl.append(f"num_iterations={recipe.update.passes}")
    verl.append(f"ppo_epochs={recipe.update.passes}")
    labels = ["advantage", "surrogate", "aggregation", "KL", "passes"]
    rows = [f"  {label:<12} {a}\n  {'':<12} {b}" for label, a, b in zip(labels, trl, verl, strict=True)]
    return "The same choices elsewhere (first TRL GRPOConfig, then verl):\n" + "\n".join(rows)


def _traps(recipe: Recipe, objective: Objective) -> str:
    lines = ["Worth knowing:"]
    centred = objective.advantage not in ("raw", "batch_centred")
    if centred and recipe.update.passes == 1 and objective.aggregation in ("sequence_mean",) and not objective.kl_coef:
        lines.append(
            "  The logged loss is 0 to rounding by construction; the gradient is not. `steelyard why` shows both."
        )
    if objective.aggregation == "sequence_mean":
        lines.append("  1/T_i: a long wrong answer is pushed down less per token than a short one (length bias).")
    if objective.advantage == "group_standardised" and objective.ddof == 0:
        lines.append(
            "  ddof 0 is the paper's arithmetic; TRL, verl and OpenRLHF use 1 (factor sqrt(G/(G−1)) in every A)."
        )
    if centred:
        p = 0.5**recipe.rollout.group_size * 2
        lines.append(
            f"  A group whose rewards are all equal teaches nothing (at pass rate 1/2: a share of {p:.2g} of groups of {recipe.rollout.group_size})."
        )
    if objective.kl_coef:
        lines.append("  The KL pulls also on groups whose rewards are all equal.")
    if recipe.optimizer.max_grad_norm != float("inf"):
        lines.append(
            f"  Gradients longer than {recipe.optimizer.max_grad_norm:g} are scaled to it; if that is every update, "
            "all steps have one length. The ledger holds the norm before and after."
        )
    lines.append("  AdamW moves parameters on its first moment even where the fresh gradient is exactly 0.")
    return "\n".join(lines)
