"""The same choices in the configuration of other trainers; "no equivalent" where there is none.

TRL 1.16, verl 0.9.1 and OpenRLHF 0.11.2, read from their source.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.numerics.variants import Objective
from steelyard.run.recipe import Recipe

NONE = "no equivalent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerNames:
    """One choice in three other configurations."""

    trl: str = NONE
    """TRL GRPOConfig."""
    verl: str = NONE
    """verl; without a prefix a key of `actor_rollout_ref.actor`."""
    openrlhf: str = NONE
    """OpenRLHF's flags of train_ppo_ray."""


ADVANTAGES: Mapping[str, PeerNames] = {
    "raw": PeerNames(),
    "batch_centred": PeerNames(openrlhf="--algo.advantage.estimator flash_reinforce"),
    "group_centred": PeerNames(
        trl='scale_rewards="none"',
        verl="algorithm.adv_estimator=grpo, algorithm.norm_adv_by_std_in_grpo=False",
        openrlhf="--algo.advantage.estimator dr_grpo",
    ),
    "group_standardised": PeerNames(
        trl='scale_rewards="group", its default (always ddof 1, δ 1e-4)',
        verl="algorithm.adv_estimator=grpo (always ddof 1, δ 1e-6)",
        openrlhf="--algo.advantage.estimator group_norm (always ddof 1, δ 1e-9)",
    ),
    "leave_one_out": PeerNames(
        trl="RLOOConfig", verl="algorithm.adv_estimator=rloo", openrlhf="--algo.advantage.estimator rloo"
    ),
    "batch_standardised": PeerNames(
        trl='scale_rewards="batch" (std over raw rewards, not over centred ones)',
        verl="algorithm.adv_estimator=reinforce_plus_plus_baseline (mean and std over tokens, not completions)",
        openrlhf="--algo.advantage.estimator reinforce_baseline (mean and std over tokens, not completions)",
    ),
    "gae": PeerNames(
        trl="no equivalent (it has no value network)",
        verl="algorithm.adv_estimator=gae, its default, algorithm.gamma={gamma:g}, algorithm.lam={lam:g} (whitened, ddof 1)",
        openrlhf="--algo.advantage.estimator gae, its default, --algo.advantage.gamma {gamma:g} "
        "--algo.advantage.lambd {lam:g}",
    ),
}
_ONE_PASS = "one step per batch has the same gradient"
SURROGATES: Mapping[str, PeerNames] = {
    "policy_gradient": PeerNames(
        trl=f"no equivalent ({_ONE_PASS})",
        verl="policy_loss.loss_mode=gpg",
        openrlhf=f"no equivalent ({_ONE_PASS})",
    ),
    "importance": PeerNames(
        trl="no equivalent (a clip so wide that it never acts comes to it)",
        verl="no equivalent (a clip so wide that it never acts comes to it)",
        openrlhf="no equivalent (a clip so wide that it never acts comes to it)",
    ),
    "clipped": PeerNames(
        trl="epsilon={eps_low:g}, epsilon_high={eps_high:g}",
        verl="clip_ratio_low={eps_low:g}, clip_ratio_high={eps_high:g} (its dual clip, clip_ratio_c=3, is always on; ours "
        "is off)",
        openrlhf="--actor.eps_clip_low_high {eps_low:g} {eps_high:g}",
    ),
    "dual_clipped": PeerNames(
        trl="epsilon={eps_low:g}, epsilon_high={eps_high:g}, delta={dual_clip:g}",
        verl="clip_ratio_low={eps_low:g}, clip_ratio_high={eps_high:g}, clip_ratio_c={dual_clip:g}",
        openrlhf="--actor.eps_clip_low_high {eps_low:g} {eps_high:g} --actor.dual_clip {dual_clip:g}",
    ),
    "sequence_clipped": PeerNames(
        trl='importance_sampling_level="sequence", epsilon={eps_low:g}, epsilon_high={eps_high:g}',
        verl="policy_loss.loss_mode=gspo, clip_ratio_low={eps_low:g}, clip_ratio_high={eps_high:g}",
        openrlhf="--actor.policy_loss_type gspo --actor.eps_clip_low_high {eps_low:g} {eps_high:g}",
    ),
    "cispo": PeerNames(
        trl='loss_type="cispo", epsilon_high={eps_max:g} (there an absolute cap)',
        verl="policy_loss.loss_mode=cispo, clip_ratio_high={verl_cap:g} (there a distance from 1), clip_ratio_low=1",
    ),
}
AGGREGATIONS: Mapping[str, PeerNames] = {
    "sequence_mean": PeerNames(
        trl='loss_type="grpo"',
        verl="loss_agg_mode=seq-mean-token-mean",
        openrlhf="--actor.loss_agg_mode seq-mean-token-mean",
    ),
    "token_mean": PeerNames(
        trl='loss_type="dapo", its default',
        verl="loss_agg_mode=token-mean, its default",
        openrlhf="--actor.loss_agg_mode token-mean, its default",
    ),
    "fixed_length": PeerNames(
        trl='loss_type="dr_grpo", max_completion_length={length}',
        verl="loss_agg_mode=seq-mean-token-sum-norm, loss_scale_factor={length}",
    ),
    "sequence_sum": PeerNames(
        trl="no equivalent (RLOOConfig sums per sequence)", verl="loss_agg_mode=seq-mean-token-sum"
    ),
}
NO_KL = PeerNames(
    trl="beta=0, its default",
    verl="use_kl_loss=False, its default, algorithm.use_kl_in_reward=False, its default",
    openrlhf="--algo.kl.init_coef 0",
)
VERL_KINDS: Mapping[str, str] = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}


def peer_names(recipe: Recipe, objective: Objective) -> str:
    """Return the block of a story that names each choice in three other trainers."""
    values = {
        "eps_low": objective.eps_low or 0.0,
        "eps_high": objective.eps_high or 0.0,
        "dual_clip": objective.dual_clip or 0.0,
        "eps_max": objective.eps_max or 0.0,
        "verl_cap": (objective.eps_max or 1.0) - 1.0,
        "gamma": objective.gamma or 0.0,
        "lam": objective.lam or 0.0,
        "length": recipe.rollout.max_new_tokens,
    }
    rows = {
        "advantage": ADVANTAGES[objective.advantage],
        "surrogate": SURROGATES[objective.surrogate],
        "aggregation": _aggregation(objective),
        "KL": _kl(objective),
        "entropy": _entropy(objective),
        "mismatch": _mismatch(objective),
        "passes": _passes(recipe),
    }
    lines = ["The same choices elsewhere (TRL 1.16 GRPOConfig, then verl 0.9.1, then OpenRLHF 0.11.2):"]
    for label, names in rows.items():
        texts = [names.trl, names.verl, names.openrlhf]
        lines += [f"  {label if n == 0 else '':<12} {text.format(**values)}" for n, text in enumerate(texts)]
    return "\n".join(lines)


def _aggregation(objective: Objective) -> PeerNames:
    names = AGGREGATIONS[objective.aggregation]
    if objective.surrogate != "cispo":
        return names
    ours = "its cispo" if objective.aggregation == "token_mean" else "no equivalent (its cispo is a mean over tokens)"
    return PeerNames(trl=ours, verl=names.verl, openrlhf=names.openrlhf)


def _kl(objective: Objective) -> PeerNames:
    if not objective.kl_coef:
        return NO_KL
    beta, kind = f"{objective.kl_coef:g}", objective.kl_estimator or ""
    if objective.kl_placement == "reward":
        return PeerNames(
            trl="no equivalent in GRPOConfig"
            + (f" (RLOOConfig: beta={beta} takes the summed k1 off the reward)" if kind == "k1" else ""),
            verl=f"algorithm.use_kl_in_reward=True, algorithm.kl_penalty={VERL_KINDS[kind]}, "
            f"algorithm.kl_ctrl.kl_coef={beta}",
            openrlhf=f"--algo.kl.init_coef {beta} --algo.kl.estimator {kind}"
            + ("" if objective.needs_critic else " (there per token and after the baseline)"),
        )
    trl = f"beta={beta}, use_bias_correction_kl=False" if kind == "k3" else "no equivalent (its estimator is k3)"
    return PeerNames(
        trl=trl,
        verl=f"use_kl_loss=True, kl_loss_coef={beta}, kl_loss_type={VERL_KINDS[kind]}",
        openrlhf=f"--algo.kl.use_loss --algo.kl.init_coef {beta} --algo.kl.estimator {kind}",
    )


def _entropy(objective: Objective) -> PeerNames:
    coef = f"{objective.entropy_coef:g}"
    return PeerNames(
        trl=f"entropy_coef={coef}" + (" (a mean over tokens under every loss_type)" if objective.entropy_coef else ""),
        verl=f"entropy_coeff={coef}",
        openrlhf=f"--actor.entropy_coef {coef}" if objective.entropy_coef else "no --actor.entropy_coef",
    )


def _mismatch(objective: Objective) -> PeerNames:
    if objective.mismatch_weight == "none":
        return PeerNames(
            trl="vllm_importance_sampling_correction=False (its default with vLLM is True)",
            verl="algorithm.rollout_correction.rollout_is=null, its default",
            openrlhf="--algo.advantage.is_correction_level off, its default",
        )
    cap, truncates = f"{objective.mismatch_cap:g}", objective.mismatch_weight == "truncate"
    mode = "token_truncate" if truncates else "token_mask"
    return PeerNames(
        trl=f'vllm_importance_sampling_mode="{mode}", vllm_importance_sampling_clip_max={cap}',
        verl=f"algorithm.rollout_correction.rollout_is=token, algorithm.rollout_correction.rollout_is_threshold={cap}"
        if truncates
        else "no equivalent without a lower bound (algorithm.rollout_correction.rollout_is_threshold=LOW_"
        f"{cap} masks outside both)",
        openrlhf="--algo.advantage.is_correction_level token --algo.advantage.is_correction_mode "
        f"{'clip' if truncates else 'mask'} --algo.advantage.is_correction_threshold 0 {cap}",
    )


def _passes(recipe: Recipe) -> PeerNames:
    passes, minibatches = recipe.update.passes, recipe.update.minibatches
    answers = recipe.rollout.prompts_per_update * recipe.rollout.group_size
    share = recipe.rollout.prompts_per_update // minibatches or 1
    return PeerNames(
        trl=f"num_iterations={passes}, steps_per_generation={minibatches} × gradient_accumulation_steps",
        verl=f"ppo_epochs={passes}, ppo_mini_batch_size={share} (in prompts, of data.train_batch_size="
        f"{recipe.rollout.prompts_per_update})",
        openrlhf=f"--train.max_epochs {passes} --train.batch_size {max(1, answers // minibatches)} "
        f"--rollout.batch_size {recipe.rollout.prompts_per_update}",
    )
