"""verl's PPO configuration in our terms. Read from the losses that core_algos of verl 0.9.1 computes."""

from collections.abc import Mapping
from pathlib import Path

from steelyard.errors import ConfigError
from steelyard.run.explain.peer_config import Settings, check_known
from steelyard.run.explain.peer_keys import VERL_OTHERS, VERL_SECTIONS
from steelyard.run.explain.translation import ELSEWHERE, Translation

PEER = "verl 0.9.1"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CORRECTION = "algorithm.rollout_correction"
DEFAULTS: Mapping[str, object] = {
    "algorithm.adv_estimator": "gae",
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.gamma": 1.0,
    "algorithm.lam": 1.0,
    "algorithm.use_kl_in_reward": False,
    "algorithm.kl_penalty": "kl",
    "algorithm.kl_ctrl.type": "fixed",
    "algorithm.kl_ctrl.kl_coef": 0.001,
    "algorithm.filter_groups.enable": False,
    "algorithm.filter_groups.max_num_gen_batches": 0,
    "algorithm.use_pf_ppo": False,
    f"{CORRECTION}.rollout_is": None,
    f"{CORRECTION}.rollout_is_threshold": 2.0,
    f"{CORRECTION}.rollout_rs": None,
    f"{CORRECTION}.bypass_mode": False,
    f"{CORRECTION}.rollout_is_batch_normalize": False,
    f"{ACTOR}.policy_loss.loss_mode": "vanilla",
    f"{ACTOR}.clip_ratio": 0.2,
    f"{ACTOR}.clip_ratio_low": 0.2,
    f"{ACTOR}.clip_ratio_high": 0.2,
    f"{ACTOR}.clip_ratio_c": 3.0,
    f"{ACTOR}.loss_agg_mode": "token-mean",
    f"{ACTOR}.loss_scale_factor": None,
    f"{ACTOR}.entropy_coeff": 0.0,
    f"{ACTOR}.use_kl_loss": False,
    f"{ACTOR}.kl_loss_coef": 0.001,
    f"{ACTOR}.kl_loss_type": "low_var_kl",
    f"{ACTOR}.ppo_epochs": 1,
    f"{ACTOR}.ppo_mini_batch_size": 256,
    f"{ACTOR}.grad_clip": 1.0,
    f"{ACTOR}.optim.lr": 1e-6,
    f"{ACTOR}.optim.weight_decay": 0.01,
    f"{ACTOR}.optim.betas": [0.9, 0.999],
    f"{ACTOR}.optim.lr_scheduler_type": "constant",
    f"{ACTOR}.optim.lr_warmup_steps": -1,
    f"{ACTOR}.optim.lr_warmup_steps_ratio": 0.0,
    f"{ROLLOUT}.n": 1,
    f"{ROLLOUT}.temperature": 1.0,
    f"{ROLLOUT}.top_p": 1,
    f"{ROLLOUT}.top_k": -1,
    "data.train_batch_size": 1024,
    "data.max_response_length": 512,
    "critic.optim.lr": 1e-5,
    "critic.cliprange_value": 0.5,
    "actor_rollout_ref.model.path": None,
    "trainer.total_training_steps": None,
}
"""Keys that decide what is optimised, with the values of verl's ppo_trainer."""
ESTIMATORS = ("gae", "grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "reinforce_plus_plus_baseline")
UNKNOWN_ESTIMATORS: Mapping[str, str] = {
    "reinforce_plus_plus": "the discounted return of each token, whitened over all tokens of the batch, without a group",
    "remax": "the reward less that of a greedy answer to the same prompt",
    "opo": "the reward less the mean of its group weighted by length",
    "grpo_passk": "only the best answer of a group, by its distance to the second best",
    "gpg": "the centred reward, scaled by the share of groups with signal",
    "optimal_token_baseline": "a baseline for every token, weighted by the size of its gradient",
    "tir_optimal_token_baseline": "a baseline for every token, weighted by the size of its gradient, over turns",
    "gdpo": "several rewards, each standardised within its group before they are added up",
}
MODES: Mapping[str, str] = {
    "vanilla": "dual_clipped",
    "gspo": "sequence_clipped",
    "gpg": "policy_gradient",
    "cispo": "cispo",
}
"""loss_mode → surrogate."""
UNKNOWN_MODES: Mapping[str, str] = {
    "dppo_tv": "tokens are masked by the total variation between π and π_old",
    "dppo_kl": "tokens are masked by the KL between π and π_old",
    "sapo": "a sigmoid of the ratio in place of a clip",
    "clip_cov": "tokens whose log-prob and advantage covary most are left out",
    "kl_cov": "tokens whose log-prob and advantage covary most pay a KL",
    "geo_mean": "the clip is on the geometric mean of the ratios of a sequence",
    "dro": "a squared log ratio in place of a clip",
    "bypass_mode": "π_old is the sampler's own",
}
AGGREGATIONS: Mapping[str, str] = {
    "token-mean": "token_mean",
    "seq-mean-token-sum": "sequence_sum",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum-norm": "fixed_length",
}
ESTIMATORS_OF_KL = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}


def from_verl(settings: Settings, path: Path) -> Translation:
    """Return a configuration of verl's ppo_trainer in our terms.

    Raises:
        ConfigError: If a key is unknown, a value cannot be used, or the objective has no counterpart.
    """
    written = {key: value for key, value in settings.items() if not key.endswith("_target_")}
    others = [key for key in written if key not in DEFAULTS and _is_other(key)]
    known = [*DEFAULTS, *(f"{section}.{key}" for section, keys in VERL_OTHERS.items() for key in keys), *VERL_SECTIONS]
    check_known({key: value for key, value in written.items() if key not in others}, frozenset(known), path, PEER)
    said = Translation(peer=PEER, path=path, settings=written, defaults=DEFAULTS, irrelevant=len(others))
    for part in (_rollout, _advantage, _loss, _aggregation, _kl, _mismatch, _steps, _extras, _optimizer, _overlong):
        part(said)
    said.practice()
    return said


def _is_other(key: str) -> bool:
    if any(key == section or key.startswith(f"{section}.") for section in VERL_SECTIONS):
        return True
    for section, names in VERL_OTHERS.items():
        rest = key.removeprefix(f"{section}.")
        if rest != key and any(rest == name or rest.startswith(f"{name}.") for name in names):
            return True
    return False


def _rollout(said: Translation) -> None:
    size, length = said.whole(f"{ROLLOUT}.n"), said.whole("data.max_response_length")
    temperature = said.number(f"{ROLLOUT}.temperature")
    said.recipe |= {
        "rollout.group_size": size,
        "rollout.max_new_tokens": length,
        "rollout.temperature": temperature,
    }
    said.note(f"{ROLLOUT}.n", f"rollout.group_size = {size}")
    said.note("data.max_response_length", f"rollout.max_new_tokens = {length}")
    said.note(f"{ROLLOUT}.temperature", f"rollout.temperature = {temperature:g}; log-probs are taken at it there, too")
    if said.number(f"{ROLLOUT}.top_p") != 1.0 or said.whole(f"{ROLLOUT}.top_k") not in (-1, 0):
        said.differs.append(f"top_p or top_k: {ELSEWHERE}")
    if said.raw("actor_rollout_ref.model.path"):
        said.recipe["model.source"] = str(said.raw("actor_rollout_ref.model.path"))


def _advantage(said: Translation) -> None:
    key = "algorithm.adv_estimator"
    name = str(said.raw(key))
    if name in UNKNOWN_ESTIMATORS:
        raise ConfigError(
            f"{said.path}: {key} = {name} has no counterpart here: {UNKNOWN_ESTIMATORS[name]}. Nothing close to it is printed in "
            "its place."
        )
    said.name(key, ESTIMATORS)
    if name == "gae":
        _gae(said)
        return
    size = said.whole(f"{ROLLOUT}.n")
    if size == 1:
        said.choices["advantage"] = "raw"
        said.note(
            key, f"advantage = raw: with {ROLLOUT}.n = 1 a group has no baseline, and verl trains on the reward itself"
        )
        said.traps.append(
            f"{ROLLOUT}.n = 1 with adv_estimator = {name}: no baseline at all. Its default is 1; set it to 8, say."
        )
        return
    if name.startswith("rloo"):
        said.choices["advantage"] = "leave_one_out"
    elif name == "reinforce_plus_plus_baseline":
        said.choices |= {"advantage": "batch_standardised", "ddof": 1}
        said.differs.append(
            "reinforce_plus_plus_baseline centres by group and whitens over the tokens of the batch, long answers counting "
            "more, δ 1e-8 under the root; batch_standardised here takes the std over completions."
        )
    elif said.switch("algorithm.norm_adv_by_std_in_grpo"):
        said.choices |= {"advantage": "group_standardised", "ddof": 1}
        said.traps.append(
            "A group whose rewards are equal but not exactly summable in floating point escapes std == 0; δ is 1e-6 there, too."
        )
    else:
        said.choices["advantage"] = "group_centred"
    said.note(key, f"advantage = {said.choices['advantage']}" + (", ddof = 1" if said.choices.get("ddof") else ""))


def _gae(said: Translation) -> None:
    gamma, lam = said.number("algorithm.gamma"), said.number("algorithm.lam")
    said.choices |= {"advantage": "gae", "gamma": gamma, "lam": lam, "ddof": 1}
    said.note("algorithm.adv_estimator", f"advantage = gae, gamma = {gamma:g}, lam = {lam:g}, whitened with ddof = 1")
    rate, clip = said.number("critic.optim.lr"), said.number("critic.cliprange_value")
    said.recipe |= {"critic.lr": rate, "critic.clip": clip}
    said.note("critic.cliprange_value", f"critic.clip = {clip:g}")
    said.note("critic.optim.lr", f"critic.lr = {rate:g}")
    said.differs.append(
        "Whitening divides by √(var + 1e-8) there, by std + δ here; and its value head starts from random weights, ours at 0."
    )


def _clip(said: Translation) -> tuple[float, float]:
    both = said.number(f"{ACTOR}.clip_ratio")
    low, high = (said.optional(f"{ACTOR}.clip_ratio_{side}") for side in ("low", "high"))
    low, high = (both if low is None else low), (both if high is None else high)
    if said.given(f"{ACTOR}.clip_ratio") and both != low:
        said.traps.append(
            f"clip_ratio = {both:g} does nothing: clip_ratio_low and clip_ratio_high stand in verl's defaults at 0.2 and win. "
            "Write both of them."
        )
    return low, high


def _loss(said: Translation) -> None:
    key = f"{ACTOR}.policy_loss.loss_mode"
    mode = str(said.raw(key))
    if mode in UNKNOWN_MODES:
        raise ConfigError(
            f"{said.path}: {key} = {mode} has no counterpart here: {UNKNOWN_MODES[mode]}. Nothing close to it is printed in its place."
        )
    said.name(key, MODES)
    surrogate = MODES[mode]
    said.choices["surrogate"] = surrogate
    said.note(key, f"surrogate = {surrogate}")
    low, high = _clip(said)
    if surrogate == "policy_gradient":
        return
    if surrogate == "cispo":
        said.choices["eps_max"] = 1.0 + high
        said.note(f"{ACTOR}.clip_ratio_high", f"eps_max = {1.0 + high:g}: there a distance from 1, here the cap itself")
        if low < 1.0:
            said.differs.append(
                f"clip_ratio_low = {low:g}: cispo there holds ratios at {1 - low:g} from below, too; here the cap is the only bound. "
                "clip_ratio_low = 1 comes to the same."
            )
        return
    said.choices |= {"eps_low": low, "eps_high": high}
    said.note(f"{ACTOR}.clip_ratio_low", f"eps_low = {low:g}")
    said.note(f"{ACTOR}.clip_ratio_high", f"eps_high = {high:g}")
    if surrogate == "dual_clipped":
        ceiling = said.number(f"{ACTOR}.clip_ratio_c")
        said.choices["dual_clip"] = ceiling
        said.note(f"{ACTOR}.clip_ratio_c", f"dual_clip = {ceiling:g}: always on in verl")
    elif high > 0.05:
        said.traps.append(
            f"clip_ratio_high = {high:g} with one ratio per completion: the clip never acts (GSPO's paper has 3e-4 and 4e-4)."
        )


def _aggregation(said: Translation) -> None:
    key = f"{ACTOR}.loss_agg_mode"
    if said.raw(key) == "token-sum":
        raise said.bad(
            key, "a sum over all tokens of the batch has no counterpart here; its scale grows with the batch"
        )
    mode = said.name(key, AGGREGATIONS)
    said.choices["aggregation"] = AGGREGATIONS[mode]
    said.note(key, f"aggregation = {AGGREGATIONS[mode]}")
    factor, length = said.optional(f"{ACTOR}.loss_scale_factor"), said.whole("data.max_response_length")
    if mode == "seq-mean-token-sum-norm" and factor not in (None, length):
        said.differs.append(
            f"loss_scale_factor = {factor:g}: each sequence is divided by it, here by rollout.max_new_tokens = {length}; multiply the "
            f"learning rate's effect by {length / (factor or 1.0):g} in mind (AdamW undoes most of a constant factor)."
        )
    if mode == "seq-mean-token-sum-norm" and factor is None:
        said.traps.append("loss_scale_factor is not set: verl divides by the padded width of the batch at hand.")


def _kl(said: Translation) -> None:
    in_loss, in_reward = said.switch(f"{ACTOR}.use_kl_loss"), said.switch("algorithm.use_kl_in_reward")
    said.choices["kl_coef"] = 0.0
    if not in_loss and not in_reward:
        said.note(f"{ACTOR}.use_kl_loss", "kl.coef = 0: no reference model")
        return
    coef_key, kind_key, placement = (
        (f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type", "loss")
        if in_loss
        else ("algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty", "reward")
    )
    coef, kind = said.number(coef_key), str(said.raw(kind_key))
    through = kind.endswith("+") and placement == "loss"
    base = ESTIMATORS_OF_KL.get(kind.removesuffix("+"))
    if base is None:
        raise said.bad(kind_key, "it has no counterpart here; use kl, mse or low_var_kl")
    estimator = "k2" if through else base
    said.choices["kl_coef"] = coef
    if coef:
        said.choices |= {"kl_estimator": estimator, "kl_placement": placement}
    said.note(coef_key, f"kl.coef = {coef:g}, kl.placement = {placement}")
    said.note(kind_key, f"kl.estimator = {estimator}")
    if through and base != "k2":
        said.differs.append(f"{kind} has the gradient of k2, which the recipe has, and logs the value of {base}.")
    if estimator == "k3":
        said.differs.append(
            "low_var_kl is held: the log ratio at ±20 and the estimate at 10, so a token far off stops pulling. k3 here is not."
        )
    if in_loss and in_reward:
        said.differs.append(
            f"use_kl_in_reward = True takes {said.number('algorithm.kl_ctrl.kl_coef'):g} × KL off the reward as well; a recipe has one "
            "KL, and this one has that of the loss."
        )
    if in_reward and said.raw("algorithm.kl_ctrl.type") != "fixed":
        said.differs.append(
            f"kl_ctrl.type = {said.raw('algorithm.kl_ctrl.type')} moves β towards a target; here it is constant."
        )


def _mismatch(said: Translation) -> None:
    key = f"{CORRECTION}.rollout_is"
    level = said.raw(key)
    said.choices["mismatch_weight"] = "none"
    if level in (None, "null", "None"):
        said.note(key, "mismatch.weight = none")
    elif level == "token" and not isinstance(said.raw(f"{CORRECTION}.rollout_is_threshold"), str):
        cap = said.number(f"{CORRECTION}.rollout_is_threshold")
        said.choices |= {"mismatch_weight": "truncate", "mismatch_cap": cap}
        said.note(key, f"mismatch.weight = truncate, mismatch.cap = {cap:g}")
    else:
        said.differs.append(
            f"rollout_is = {level}, threshold {said.raw(f'{CORRECTION}.rollout_is_threshold')}: one weight per sequence, or a lower bound; "
            "here a weight is per token with an upper bound. The recipe has none."
        )
    if said.raw(f"{CORRECTION}.rollout_rs") not in (None, "null", "None"):
        said.differs.append(
            f"rollout_rs = {said.raw(f'{CORRECTION}.rollout_rs')} rejects tokens or sequences by their ratio to the sampler; here none is."
        )
    if said.switch(f"{CORRECTION}.bypass_mode"):
        said.differs.append("bypass_mode = True takes the sampler's log-probs for π_old; here the trainer's own are.")
    if said.switch(f"{CORRECTION}.rollout_is_batch_normalize"):
        said.differs.append("rollout_is_batch_normalize = True divides the weights by their mean over the batch.")


def _steps(said: Translation) -> None:
    prompts, mini = said.whole("data.train_batch_size"), said.whole(f"{ACTOR}.ppo_mini_batch_size")
    if mini > prompts:
        raise said.bad(f"{ACTOR}.ppo_mini_batch_size", f"verl refuses more than data.train_batch_size = {prompts}")
    minibatches, passes = -(-prompts // mini), said.whole(f"{ACTOR}.ppo_epochs")
    said.recipe |= {
        "rollout.prompts_per_update": prompts,
        "update.minibatches": minibatches,
        "update.passes": passes,
    }
    said.note("data.train_batch_size", f"rollout.prompts_per_update = {prompts}")
    said.note(f"{ACTOR}.ppo_mini_batch_size", f"update.minibatches = {minibatches} (in prompts there)")
    said.note(f"{ACTOR}.ppo_epochs", f"update.passes = {passes}")
    if said.switch("algorithm.filter_groups.enable"):
        said.recipe["rollout.dynamic_sampling"] = True
        bound = said.whole("algorithm.filter_groups.max_num_gen_batches")
        said.note("algorithm.filter_groups.enable", "rollout.dynamic_sampling = true, by the primary reward")
        said.differs.append(
            f"max_num_gen_batches = {bound} bounds generation batches ({'none' if bound <= 0 else bound}); here rollout.max_dead_groups "
            "bounds dead groups."
        )


def _extras(said: Translation) -> None:
    coef = said.number(f"{ACTOR}.entropy_coeff")
    said.choices["entropy_coef"] = coef
    if coef:
        said.note(f"{ACTOR}.entropy_coeff", f"entropy_coef = {coef:g}, under the loss's own weights")
    if said.switch("algorithm.use_pf_ppo"):
        said.differs.append(
            "use_pf_ppo = True draws the batch again, weighted by reward; here every completion counts once."
        )
    said.traps.append("Log ratios are held at ±20 in verl; here they are not, and the loss is finite all the same.")


def _optimizer(said: Translation) -> None:
    schedule = str(said.raw(f"{ACTOR}.optim.lr_scheduler_type"))
    if schedule not in ("constant", "cosine"):
        raise said.bad(f"{ACTOR}.optim.lr_scheduler_type", "use constant or cosine")
    betas = said.raw(f"{ACTOR}.optim.betas")
    if not isinstance(betas, list | tuple) or len(betas) != 2:
        raise said.bad(f"{ACTOR}.optim.betas", "write two numbers, such as [0.9,0.999]")
    rate = said.number(f"{ACTOR}.optim.lr")
    said.recipe |= {
        "optimizer.lr": rate,
        "optimizer.schedule": schedule,
        "optimizer.betas": [float(beta) for beta in betas],
        "optimizer.weight_decay": said.number(f"{ACTOR}.optim.weight_decay"),
        "optimizer.max_grad_norm": said.number(f"{ACTOR}.grad_clip"),
        "optimizer.warmup": max(0, said.whole(f"{ACTOR}.optim.lr_warmup_steps")),
    }
    said.note(f"{ACTOR}.optim.lr", f"optimizer.lr = {rate:g}, {schedule}")
    said.note(f"{ACTOR}.optim.weight_decay", f"optimizer.weight_decay = {said.recipe['optimizer.weight_decay']:g}")
    if said.whole(f"{ACTOR}.optim.lr_warmup_steps") <= 0 and said.number(f"{ACTOR}.optim.lr_warmup_steps_ratio"):
        said.differs.append("lr_warmup_steps_ratio is a share of all steps; write optimizer.warmup in steps.")
    steps = said.optional("trainer.total_training_steps")
    if steps:
        said.recipe["run.updates"] = int(steps)
        said.note("trainer.total_training_steps", f"run.updates = {int(steps)}")


def _overlong(said: Translation) -> None:
    found = {key.rpartition(".")[2]: value for key, value in said.settings.items() if ".overlong_buffer" in key}
    if str(found.get("enable")).lower() != "true":
        return
    length, factor = found.get("len"), found.get("penalty_factor", 1.0)
    if not isinstance(length, int) or not isinstance(factor, int | float):
        raise ConfigError(
            f"{said.path}: overlong_buffer: len = {length!r}, penalty_factor = {factor!r}; write two numbers."
        )
    said.recipe |= {"reward.overlong_buffer": length, "reward.overlong_penalty": float(factor)}
    said.irrelevant -= len(found)
