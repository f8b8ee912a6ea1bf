"""What is worth knowing about a combination: each line is printed only where it applies."""

from collections.abc import Callable, Iterator

from steelyard.numerics.variants import STANDARDISED, Objective
from steelyard.run.recipe import Recipe

SEQUENCE_EPS_LIMIT = 0.05
"""Mean log ratios of whole completions stay far below this in one update: GSPO's paper uses 3e-4 and 4e-4."""


def traps(recipe: Recipe, objective: Objective) -> str:
    """Return the lines that apply, under their heading."""
    found = [line for trap in TRAPS for line in trap(recipe, objective)]
    return "\n".join(["Worth knowing:", *(f"  {line}" for line in found)])


def _steps(recipe: Recipe) -> int:
    return recipe.update.passes * recipe.update.minibatches


def _value_of_loss(recipe: Recipe, objective: Objective) -> Iterator[str]:
    bare = objective.kl_placement != "loss" and not objective.entropy_coef and objective.mismatch_weight == "none"
    if objective.surrogate in ("policy_gradient", "cispo"):
        yield "The value of this loss means nothing (A·log π): only its gradient does. `steelyard why` shows both."
        return
    centred = objective.needs_group or objective.advantage == "batch_centred"
    by_sequence = centred and objective.aggregation == "sequence_mean"
    by_token = objective.needs_critic and objective.aggregation == "token_mean" and recipe.critic.backbone == "own"
    if bare and _steps(recipe) == 1 and recipe.update.truncated != "mask_loss_only" and (by_sequence or by_token):
        yield "The logged loss is 0 to rounding by construction; the gradient is not. `steelyard why` shows both."
    elif centred and _steps(recipe) == 1 and not by_sequence:
        yield (
            "The logged loss is not 0 although advantages sum to 0: long and short completions weigh differently. "
            "Its sign says which are longer, not whether the policy improves."
        )


def _length(_recipe: Recipe, objective: Objective) -> Iterator[str]:
    if objective.aggregation == "sequence_mean" and objective.surrogate != "sequence_clipped":
        yield "1/T_i: a long wrong answer is pushed down less per token than a short one (length bias)."
    if objective.aggregation == "token_mean":
        yield "One token, one vote: a long completion weighs more than a short one, right or wrong."
    if objective.aggregation == "sequence_sum":
        yield "Sums over tokens: the gradient grows with length, so a learning rate depends on it."


def _baseline(recipe: Recipe, objective: Objective) -> Iterator[str]:
    size = recipe.rollout.group_size
    if objective.advantage in STANDARDISED and objective.ddof == 0:
        yield "ddof 0 is the paper's arithmetic; TRL, verl and OpenRLHF use 1 (factor sqrt(G/(G−1)) in every A of a group)."
    if objective.advantage == "group_standardised":
        yield "Divided by its own std, a nearly solved or nearly hopeless group weighs more than an even one."
    if objective.advantage == "batch_standardised":
        yield "One std for the whole batch: what one group's advantages are depends on the other groups."
    if objective.advantage == "raw":
        yield "No baseline: with rewards that are never negative every sampled answer is made likelier, good ones more."
    if objective.advantage == "group_centred":
        yield f"The own reward is in the mean: the expected gradient is (G−1)/G = {(size - 1) / size:.3g} of the unbiased one."
    if objective.needs_group and not recipe.dynamic_sampling:
        yield (
            f"A group whose rewards are all equal teaches nothing (at pass rate 1/2: a share of {0.5**size * 2:.2g} of "
            f"groups of {size})."
        )
    if objective.advantage == "batch_centred":
        yield "The baseline mixes prompts: on an easy prompt a wrong answer may still have A near 0, on a hard one a right one more."


def _sampling(recipe: Recipe, objective: Objective) -> Iterator[str]:
    if recipe.dynamic_sampling:
        yield "Dropping dead groups keeps prompts of middling difficulty: held-out scores, not training rewards, tell progress."
    if recipe.overlong_buffer and objective.needs_group:
        yield "The overlong penalty tells answers apart whose primary rewards are equal; dynamic sampling looks at the primary one."
    if recipe.update.truncated == "mask":
        yield "Masked completions are in no baseline either: where every answer of a group is cut, nothing is learned from it."
    if recipe.update.truncated == "mask_loss_only":
        yield (
            "Completions cut at the limit move the baseline but not the loss, so advantages in the loss no longer sum to "
            "0. Denominators count what is in the loss (TRL's sequence mean counts the masked ones too)."
        )


def _ratio(recipe: Recipe, objective: Objective) -> Iterator[str]:
    steps = _steps(recipe)
    clips = objective.eps_high is not None or objective.surrogate == "cispo"
    if steps == 1 and clips:
        yield "One step per batch: every ratio is 1, so clip and cap never act. They do from the second step on a batch."
    if steps > 1:
        yield f"{steps} steps on one batch: from the second on ratios differ from 1, and π_old stays that of the start."
    if steps > 1 and objective.surrogate == "policy_gradient":
        yield "No ratio: later steps treat answers of the old policy as the new one's. Use importance or clipped."
    if steps > 1 and objective.surrogate == "importance" and recipe.update.max_kl is None:
        yield "Nothing holds the ratio: a few completions may come to dominate. update.max_kl or a clip does."
    if objective.eps_high is not None:
        yield "A clip removes an incentive; it is no bound on the ratio after a step, and bad answers made likelier go on."


def _surrogate(_recipe: Recipe, objective: Objective) -> Iterator[str]:
    if objective.surrogate == "dual_clipped":
        yield (
            f"Dual clip: a bad token that became more than {objective.dual_clip:g} times likelier is let go. In verl this "
            "is always on (3); in TRL it is `delta`."
        )
    if objective.surrogate == "sequence_clipped":
        yield "q_i is a mean over the completion: its ε is on another scale than a token's (the paper: 0.0003 and 0.0004)."
        eps = max(objective.eps_low or 0.0, objective.eps_high or 0.0)
        if eps >= SEQUENCE_EPS_LIMIT:
            yield f"WARNING: ε = {eps:g} is a token's ε. A mean log ratio hardly reaches it: this clip will not act."
    if objective.surrogate == "cispo":
        yield (
            f"ε_max = {objective.eps_max:g} is an absolute cap on the ratio. TRL reads its epsilon_high so too, and its "
            "default of 0.2 scales every token down to a fifth."
        )


def _kl_in_loss(recipe: Recipe, objective: Objective) -> Iterator[str]:
    if objective.kl_placement != "loss":
        return
    if objective.kl_estimator == "k1":
        yield "WARNING: k1 in the loss has expected gradient 0: it costs a reference and adds noise only. Use k2, or the reward."
    if objective.kl_estimator == "k3":
        yield "k3 has the value of KL(π_θ‖π_ref) but the gradient of KL(π_ref‖π_θ); k2 has the gradient of the first."
    yield "The KL pulls also on groups whose rewards are all equal."
    if _steps(recipe) > 1:
        yield "After the first step the KL is over answers of π_old and not corrected for it."


def _kl_in_reward(_recipe: Recipe, objective: Objective) -> Iterator[str]:
    if objective.kl_placement != "reward":
        return
    if objective.kl_estimator != "k1":
        yield f"{objective.kl_estimator} in the reward is never negative: it penalises every change, likelier or not."
    if objective.advantage in STANDARDISED:
        yield (
            f"Standardised after the penalty: β = {objective.kl_coef:g} counts against the spread of the rewards, so where "
            "all rewards are equal the KL alone is blown up to size 1."
        )
    elif objective.needs_group:
        yield "The KL differs within a group of equal rewards, so such a group pulls towards the reference."
    yield "The logged loss does not show a KL that is in the reward; the ledger holds it by itself."


def _critic(recipe: Recipe, objective: Objective) -> Iterator[str]:
    if not objective.needs_critic:
        return
    yield "The value head starts at 0: the first advantages are discounted sums of rewards."
    yield "Whitened over the batch: scaling all rewards changes nothing for the policy, but it does for the value network."
    if objective.gamma is not None and objective.gamma < 1.0:
        length = recipe.rollout.max_new_tokens
        yield (
            f"γ = {objective.gamma:g}: the first of {length} tokens sees {objective.gamma ** (length - 1):.2g} of the "
            "final reward. Long answers are discounted; γ = 1 is usual for them."
        )
    if _steps(recipe) == 1:
        yield "PPO lives on several steps per batch: see update.passes and update.minibatches."
    if recipe.critic.backbone == "shared":
        yield "A shared backbone: the value loss moves the policy too."


def _extras(recipe: Recipe, objective: Objective) -> Iterator[str]:
    if objective.mismatch_weight == "mask":
        yield "A masked token stays in the denominators: it weighs 0, the others no more."
    if objective.mismatch_weight != "none":
        yield "The weight is held per token. TRL's default is one weight per sequence, exp of the sum over its tokens."
    if objective.entropy_coef:
        yield "The entropy bonus pulls on every completion in the loss, also with A = 0."
    if recipe.update.skip_zero_advantages:
        if objective.kl_placement == "loss" or objective.entropy_coef or objective.needs_critic:
            yield "skip_zero_advantages does nothing here: KL, entropy or value loss act on such completions too."
        else:
            yield "Completions with A = 0 are left out of the computation, not of the denominators: the same step to rounding."
    if recipe.rollout.temperature != 1.0:
        yield (
            f"Temperature {recipe.rollout.temperature:g}: what is trained is the policy at that temperature; sampled at "
            "another it is a different one."
        )


def _optimizer(recipe: Recipe, _objective: Objective) -> Iterator[str]:
    if recipe.optimizer.max_grad_norm != float("inf"):
        yield (
            f"Gradients longer than {recipe.optimizer.max_grad_norm:g} are scaled to it; if that is every update, "
            "all steps have one length. The ledger holds the norm before and after."
        )
    yield "AdamW moves parameters on its first moment even where the fresh gradient is exactly 0."
    if recipe.optimizer.weight_decay:
        yield f"Weight decay {recipe.optimizer.weight_decay:g} moves them at every step, whatever the gradient."


TRAPS: tuple[Callable[[Recipe, Objective], Iterator[str]], ...] = (
    _value_of_loss,
    _length,
    _baseline,
    _sampling,
    _ratio,
    _surrogate,
    _kl_in_loss,
    _kl_in_reward,
    _critic,
    _extras,
    _optimizer,
)
