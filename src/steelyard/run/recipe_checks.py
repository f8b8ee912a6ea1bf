"""Combinations of recipe keys that have no meaning, refused before anything is loaded, each with the way out."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from steelyard.config import chosen_keys
from steelyard.numerics.variants import Objective

if TYPE_CHECKING:
    from steelyard.run.recipe import Recipe

REASONING = "reasoning-gym:"
"""What task.data begins with where the rows come from that package."""


def check_recipe(recipe: "Recipe") -> None:
    """Raise ValueError for a recipe that trains nothing, or with a key that would never be read."""
    objective, _ = recipe.objective.resolve()
    _check_source_of_reward(recipe)
    _check_baseline(recipe, objective)
    _check_sampling(recipe)
    _check_steps(recipe, objective)
    _check_critic(recipe, objective)


def _check_source_of_reward(recipe: "Recipe") -> None:
    task, reward = recipe.task, recipe.reward
    named = [key for key in ("function", "verifier", "model") if getattr(reward, key) is not None]
    if len(named) > 1:
        raise ValueError(
            f"give {' or '.join(f'reward.{key}' for key in named)}, not both: one primary reward scores an answer; "
            "a further one is a [[reward.parts]]"
        )
    if task.name is not None and task.suite is not None and named and named != ["model"]:
        raise ValueError(f"give task.suite or reward.{named[0]}, not both: one primary reward scores an answer")
    if "task.recheck" in chosen_keys(recipe) and named and named != ["model"]:
        _never_read("task.recheck", f"reward.{named[0]} runs no programs", "score by task.suite")
    _check_keys_of_the_reward(recipe, named)
    if reward.disagreement_penalty and reward.model is None:
        _never_read("reward.disagreement_penalty", "there is no reward.model", "name one")


def _check_keys_of_the_reward(recipe: "Recipe", named: Sequence[str]) -> None:
    """Refuse keys that nothing would read."""
    reward, written = recipe.reward, chosen_keys(recipe)
    verifiers = {reward.verifier, *(part.verifier for part in reward.parts)} - {None}
    if "reward.answer_column" in written and not verifiers & {"maths", "number", "closeness"}:
        _never_read("reward.answer_column", "there is no verifier", "set reward.verifier")
    if "reward.width" in written and "closeness" not in verifiers:
        _never_read("reward.width", "nothing is paid by closeness", "use reward.verifier = 'closeness'")
    if "reward.seconds" in written and "function" not in named and all(part.function is None for part in reward.parts):
        _never_read("reward.seconds", "there is no reward function", "set reward.function")
    if "reward.weight" in written and not reward.parts:
        _never_read("reward.weight", "there are no reward.parts", "add one; a single reward keeps its scale")


def _check_baseline(recipe: "Recipe", objective: Objective) -> None:
    size, prompts = recipe.rollout.group_size, recipe.rollout.prompts_per_update
    if size < 2 and objective.needs_group:
        raise ValueError(
            f"rollout.group_size = {size} with objective.advantage = {objective.advantage}: a group of one has no "
            "baseline, its advantage is 0 and nothing is trained. Use group_size >= 2, or advantage = 'raw'."
        )
    if size * prompts * recipe.rollout.max_new_tokens < 2 and objective.needs_critic:
        raise ValueError(
            "one token per update with objective.advantage = gae: whitening leaves its advantage at 0 and the policy is "
            "not trained. Raise rollout.prompts_per_update, rollout.group_size or rollout.max_new_tokens."
        )
    if size * prompts < 2 and objective.advantage == "batch_centred":
        raise ValueError(
            "one completion per update with objective.advantage = batch_centred: its reward is the mean of the batch, "
            "its advantage is 0 and nothing is trained. Raise rollout.prompts_per_update or rollout.group_size, or use "
            "advantage = 'raw'."
        )


def _check_sampling(recipe: "Recipe") -> None:
    written = chosen_keys(recipe)
    if not math.isfinite(recipe.rollout.temperature):
        raise ValueError(
            f"rollout.temperature = {recipe.rollout.temperature}: every token would be equally likely, whatever the policy "
            "says. Use a finite number, such as 1."
        )
    if recipe.dynamic_sampling and recipe.rollout.group_size < 2:
        raise ValueError(
            f"rollout.group_size = {recipe.rollout.group_size} with dynamic sampling: the outcome of one completion is "
            "never mixed, so no batch would ever be full. Use group_size >= 2, or rollout.dynamic_sampling = false."
        )
    if not recipe.dynamic_sampling and "rollout.max_dead_groups" in written:
        _never_read("rollout.max_dead_groups", "rollout.dynamic_sampling is off", "switch it on")
    if not recipe.overlong_buffer and "reward.overlong_penalty" in written:
        _never_read("reward.overlong_penalty", "reward.overlong_buffer is 0", "set reward.overlong_buffer")
    if recipe.overlong_buffer > recipe.rollout.max_new_tokens:
        raise ValueError(
            f"reward.overlong_buffer = {recipe.overlong_buffer} is longer than rollout.max_new_tokens = "
            f"{recipe.rollout.max_new_tokens}: every completion would be penalised. Make it a part of the limit."
        )


def _check_steps(recipe: "Recipe", objective: Objective) -> None:
    update = recipe.update
    completions = recipe.rollout.prompts_per_update * recipe.rollout.group_size
    if update.minibatches > completions:
        raise ValueError(
            f"update.minibatches = {update.minibatches} is more than the {completions} completions of an update "
            f"(rollout.prompts_per_update x rollout.group_size). Use at most {completions}."
        )
    limits = {"update.max_kl": update.max_kl, "update.max_clip_share": update.max_clip_share}
    if update.passes * update.minibatches == 1 and any(limit is not None for limit in limits.values()):
        names = " and ".join(name for name, limit in limits.items() if limit is not None)
        _never_read(names, "an update takes one step, at which every ratio is 1", "set update.passes above 1")
    if update.max_clip_share is not None and objective.eps_high is None:
        _never_read("update.max_clip_share", f"surrogate = {objective.surrogate!r} has no clip", "use update.max_kl")


def _check_critic(recipe: "Recipe", objective: Objective) -> None:
    written = sorted(key for key in chosen_keys(recipe) if key.startswith("critic."))
    if not objective.needs_critic:
        if written:
            _never_read(
                ", ".join(written), f"advantage = {objective.advantage!r} has no value network", "use advantage = 'gae'"
            )
        return
    if recipe.critic.backbone == "shared" and "critic.lr" in written:
        _never_read("critic.lr", "a shared backbone is trained by [optimizer]", "use critic.backbone = 'own'")
    if recipe.critic.backbone == "own" and "critic.coef" in written:
        _never_read("critic.coef", "an own backbone has a loss of its own", "use critic.backbone = 'shared'")


def _never_read(name: str, because: str, instead: str) -> None:
    raise ValueError(f"{name} would never be read: {because}. Remove it, or {instead}.")
