"""What a recipe optimises, told in one page: choices, formula, denominators, policies, practice, traps.

Reads the recipe only: no model, no task and no torch is loaded.
"""

from steelyard.numerics.variants import READS, VARIANTS, Objective, practice_of
from steelyard.run.explain.formulas import denominators, formula
from steelyard.run.explain.peer_names import peer_names
from steelyard.run.explain.traps import traps
from steelyard.run.recipe import Recipe

ALWAYS = ("advantage", "surrogate", "aggregation", "kl_coef", "entropy_coef", "mismatch_weight")
"""Choices that every objective makes; numbers follow where a choice reads them."""


def explain(recipe: Recipe) -> str:
    """Return the objective of a recipe as text for a terminal."""
    objective, _ = recipe.objective.resolve()
    return "\n\n".join([_objective(recipe), peer_names(recipe, objective), traps(recipe, objective)])


def told(recipe: Recipe) -> str:
    """Return the same without the names that other trainers have for it."""
    return "\n\n".join([_objective(recipe), traps(recipe, recipe.objective.resolve()[0])])


def _objective(recipe: Recipe) -> str:
    objective, overridden = recipe.objective.resolve()
    parts = [
        _title(objective, overridden),
        formula(recipe, objective),
        denominators(recipe, objective),
        _policies(recipe, objective),
        _practice(recipe, objective),
    ]
    return "\n\n".join(parts)


def _title(objective: Objective, overridden: frozenset[str]) -> str:
    """Name, source, and each choice, with the ones that differ from the variant marked."""
    lines = [f"Objective: {objective.variant}  ({objective.source})"]
    base = VARIANTS[objective.variant]
    for name in _choices(objective):
        value = getattr(objective, name)
        mark = ""
        if name in overridden:
            mark = "  ← written in the recipe, differs from the variant"
        elif value != getattr(base, name):
            mark = "  ← comes with a choice of the recipe"
        shown = f"{value:g}" if isinstance(value, float) else value
        lines.append(f"  {name:<15} {shown}{mark}")
    return "\n".join(lines)


def _choices(objective: Objective) -> list[str]:
    names: list[str] = []
    for name in ALWAYS:
        names.append(name)
        names += READS.get(name, {}).get(str(getattr(objective, name)), ())
        if name == "kl_coef" and objective.kl_coef:
            names += ["kl_estimator", "kl_placement"]
    return names


def _policies(recipe: Recipe, objective: Objective) -> str:
    passes, minibatches = recipe.update.passes, recipe.update.minibatches
    old = (
        "π_θ itself without gradient: one step per batch, so every ratio is 1 in value but not in slope"
        if passes * minibatches == 1
        else f"the trainer's log-probs, recorded before the first of {passes * minibatches} steps on a batch"
    )
    corrected = (
        "No mismatch weight is applied"
        if objective.mismatch_weight == "none"
        else f"Where π_old differs from it, the weight w ({objective.mismatch_weight}) corrects"
    )
    reference = (
        f"the policy at the start of this run, frozen; penalty in the {objective.kl_placement}"
        if objective.kl_coef
        else "none (β = 0): no reference model is kept"
    )
    lines = [
        "Policies:",
        f"  μ      the sampler; its log-probs are stored with the tokens. {corrected}",
        f"  π_old  {old}",
        f"  π_ref  {reference}",
    ]
    if objective.needs_critic:
        own = "a copy of the policy's network with an optimizer of its own"
        shared = "a head on the policy's hidden states, trained by its optimizer"
        lines.append(f"  V      {own if recipe.critic.backbone == 'own' else shared}")
    lines.append(f"  All log-probs are taken at temperature {recipe.rollout.temperature:g}.")
    return "\n".join(lines)


def _practice(recipe: Recipe, objective: Objective) -> str:
    """Sampling, shaping and steps: what stands beside the formula and changes what is learned."""
    brought = practice_of(objective.variant)
    lines = [_steps(recipe)]
    limits = [
        f"update.{name} = {limit:g}"
        for name, limit in (("max_kl", recipe.update.max_kl), ("max_clip_share", recipe.update.max_clip_share))
        if limit is not None
    ]
    if limits:
        lines.append(f"early stop    checked before each step; above {' or '.join(limits)} the batch is left")
    if recipe.dynamic_sampling:
        whose = "" if recipe.rollout.dynamic_sampling is not None else f" (as {objective.variant} says)"
        lines.append(
            f"sampling      dead groups are dropped and replaced until {recipe.rollout.prompts_per_update} are mixed, by the "
            f"primary reward{whose}; after {recipe.rollout.max_dead_groups} dead ones the run stops and says why"
        )
    else:
        off = " (the variant has it on)" if brought.dynamic_sampling else ""
        lines.append(f"sampling      every sampled group is in the batch{off}")
    if recipe.rollout.curriculum == "edge":
        lines.append("curriculum    prompts are drawn by p(1 − p) of their estimated pass rate")
    if recipe.overlong_buffer:
        whose = "" if recipe.reward.overlong_buffer is not None else f" (as {objective.variant} says)"
        lines.append(
            f"overlong      the last {recipe.overlong_buffer} of {recipe.rollout.max_new_tokens} tokens cost up to "
            f"{recipe.reward.overlong_penalty:g}{whose}"
        )
    elif brought.overlong_share:
        lines.append("overlong      no penalty (the variant has one)")
    lines.append(f"truncated     {TRUNCATED[recipe.update.truncated]}")
    return "\n".join(["Sampling, shaping and steps:", *(f"  {line}" for line in lines)])


TRUNCATED = {
    "keep": "completions cut at the limit count like any other (keep)",
    "mask": "completions cut at the limit are in no loss and no baseline (mask)",
    "mask_loss_only": "completions cut at the limit are in the baseline, not in the loss (mask_loss_only)",
}


def _steps(recipe: Recipe) -> str:
    passes, minibatches = recipe.update.passes, recipe.update.minibatches
    if passes * minibatches == 1:
        return "steps         one optimizer step per batch"
    return (
        f"steps         {passes} passes × {minibatches} minibatches = {passes * minibatches} optimizer steps per batch"
    )
