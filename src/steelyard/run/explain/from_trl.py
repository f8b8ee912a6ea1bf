"""TRL's GRPOConfig in our terms. Read from the loss that GRPOTrainer of TRL 1.16.0 computes, not from its help texts."""

from collections.abc import Mapping
from pathlib import Path

from steelyard.errors import ConfigError
from steelyard.run.explain.peer_config import Settings, check_known
from steelyard.run.explain.peer_keys import TRL_OTHERS
from steelyard.run.explain.translation import ELSEWHERE, Translation

PEER = "TRL 1.16.0"
DEFAULTS: Mapping[str, object] = {
    "loss_type": "dapo",
    "scale_rewards": "group",
    "multi_objective_aggregation": "sum_then_normalize",
    "reward_weights": None,
    "importance_sampling_level": "token",
    "epsilon": 0.2,
    "epsilon_high": None,
    "delta": None,
    "beta": 0.0,
    "use_bias_correction_kl": True,
    "sync_ref_model": False,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "mask_truncated_completions": False,
    "router_aux_loss_coef": None,
    "num_generations": 8,
    "max_completion_length": 512,
    "generation_batch_size": None,
    "steps_per_generation": None,
    "num_iterations": 1,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "use_vllm": False,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_clip_min": None,
    "vllm_importance_sampling_cap": None,
    "learning_rate": 1e-6,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "optim": "adamw_torch_fused",
    "max_grad_norm": 1.0,
    "max_steps": -1,
    "seed": 42,
    "model_name_or_path": None,
}
"""Keys that decide what is optimised, with TRL's values."""
CHANGE_THE_MODEL = {
    "use_peft": "only LoRA adapters are trained there; here every weight is",
    "neftune_noise_alpha": "noise is added to embeddings while it trains",
    "load_in_4bit": "the base weights are quantised",
    "load_in_8bit": "the base weights are quantised",
    "generation_kwargs": "these change the sampler, and the loss does not know of it",
}
LOSSES: Mapping[str, tuple[str, str]] = {
    "grpo": ("clipped", "sequence_mean"),
    "dapo": ("clipped", "token_mean"),
    "bnpo": ("clipped", "token_mean"),
    "dr_grpo": ("clipped", "fixed_length"),
    "luspo": ("clipped", "sequence_sum"),
    "cispo": ("cispo", "token_mean"),
}
"""loss_type → surrogate and aggregation."""
UNKNOWN_LOSSES: Mapping[str, str] = {
    "sapo": "a sigmoid of the ratio, 4/τ·σ(τ(ρ − 1))·A with one τ for each sign of A, in place of a clip",
    "vespo": "a Gamma-shaped weight on the ratio of the whole sequence, times A·log π",
}
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant", "constant_with_warmup": "constant"}


def from_trl(settings: Settings, path: Path) -> Translation:
    """Return a GRPOConfig in our terms.

    Raises:
        ConfigError: If a key is unknown, a value cannot be used, or the loss has no counterpart.
    """
    check_known(settings, frozenset(DEFAULTS) | TRL_OTHERS, path, PEER)
    said = Translation(peer=PEER, path=path, settings=settings, defaults=DEFAULTS)
    for part in (_rollout, _advantage, _loss, _kl, _mismatch, _steps, _entropy, _extras, _model, _optimizer):
        part(said)
    said.practice()
    said.irrelevant = sum(key in TRL_OTHERS and key not in CHANGE_THE_MODEL for key in settings)
    return said


def _rollout(said: Translation) -> None:
    size = said.whole("num_generations")
    if size < 2:
        raise said.bad("num_generations", "TRL refuses groups of fewer than two")
    said.recipe |= {"rollout.group_size": size, "rollout.max_new_tokens": said.whole("max_completion_length")}
    said.note("num_generations", f"rollout.group_size = {size}")
    said.note("max_completion_length", f"rollout.max_new_tokens = {said.whole('max_completion_length')}")
    temperature = said.number("temperature")
    said.recipe["rollout.temperature"] = temperature
    said.note("temperature", f"rollout.temperature = {temperature:g}; log-probs are taken at it there, too")
    neutral = {"top_p": 1.0, "top_k": 0.0, "min_p": None, "repetition_penalty": 1.0}
    for key, off in neutral.items():
        value = said.optional(key)
        if value != off and not (key == "min_p" and value == 0.0):
            said.differs.append(f"{key} = {said.raw(key)}: {ELSEWHERE}")
    if said.raw("model_name_or_path"):
        said.recipe["model.source"] = str(said.raw("model_name_or_path"))
    if said.switch("mask_truncated_completions"):
        said.recipe["update.truncated"] = "mask_loss_only"
        said.note("mask_truncated_completions", "update.truncated = mask_loss_only: they stay in the baseline")


def _advantage(said: Translation) -> None:
    value = said.raw("scale_rewards")
    scale = {"True": "group", "true": "group", "False": "none", "false": "none"}.get(str(value), str(value))
    ours = {
        "group": ("group_standardised", 1),
        "none": ("group_centred", None),
        "batch": ("batch_standardised", 1),
    }
    if scale not in ours:
        raise said.bad("scale_rewards", "TRL knows group, batch, none, and true or false for the first and the last")
    advantage, ddof = ours[scale]
    said.choices["advantage"] = advantage
    if ddof is not None:
        said.choices["ddof"] = ddof
    said.note("scale_rewards", f"advantage = {advantage}" + ("" if ddof is None else ", ddof = 1"))
    if scale != "none":
        said.differs.append(
            "A is divided by std + 1e-4 there, by std + 1e-6 here: at std 0.1 a factor of 0.999. Equal rewards whose "
            "std is not exactly 0 in floating point are held down by 1e-4; here max = min decides, exactly."
        )
    if scale == "batch":
        said.differs.append(
            "scale_rewards = batch divides by the std of the raw rewards of the batch; batch_standardised here takes the "
            "std of the centred ones, which is smaller where prompts differ in difficulty."
        )
    aggregation = said.name("multi_objective_aggregation", ("sum_then_normalize", "normalize_then_sum"))
    if aggregation == "normalize_then_sum":
        said.differs.append(
            "multi_objective_aggregation = normalize_then_sum standardises each reward function within its group, adds "
            "them up with reward_weights, and standardises the sum over the batch. A recipe has one reward, the plain sum."
        )
    if said.raw("reward_weights") is not None:
        said.differs.append(
            f"reward_weights = {said.raw('reward_weights')}: name the first function in reward.function, the others in [[reward.parts]]."
        )


def _loss(said: Translation) -> None:
    loss = str(said.raw("loss_type"))
    if loss in UNKNOWN_LOSSES:
        raise ConfigError(
            f"{said.path}: loss_type = {loss!r} has no counterpart here: {UNKNOWN_LOSSES[loss]}. Nothing close to it is "
            "printed in its place."
        )
    said.name("loss_type", LOSSES)
    surrogate, aggregation = LOSSES[loss]
    level = said.name("importance_sampling_level", ("token", "sequence"))
    if level == "sequence":
        if surrogate == "cispo":
            raise said.bad("importance_sampling_level", "with loss_type = cispo it has no counterpart here; use token")
        surrogate = "sequence_clipped"
    said.choices |= {"surrogate": surrogate, "aggregation": aggregation}
    said.note("loss_type", f"surrogate = {surrogate}, aggregation = {aggregation}")
    said.note("importance_sampling_level", "one ratio per " + ("token" if level == "token" else "completion"))
    _clip(said, surrogate)
    if loss == "bnpo" and said.whole("gradient_accumulation_steps") > 1:
        said.differs.append(
            "loss_type = bnpo takes the mean over the tokens of each micro-batch, then the mean of those: a token of a "
            "micro-batch with short answers weighs more. Here the tokens of the whole step are counted once."
        )
    if loss == "luspo" and level == "token":
        said.traps.append(
            "loss_type = luspo is meant with importance_sampling_level = sequence; here the ratio is per token."
        )
    if loss == "dapo":
        said.traps.append(
            "loss_type = dapo is TRL's default and names the token mean alone: no dynamic sampling, no overlong penalty."
        )


def _clip(said: Translation, surrogate: str) -> None:
    low = said.number("epsilon")
    high = said.optional("epsilon_high")
    high = low if high is None else high
    delta = said.optional("delta")
    if surrogate == "cispo":
        if high < 1.0:
            raise ConfigError(
                f"{said.path}: loss_type = cispo reads epsilon_high as the cap itself, here {high:g}"
                f"{'' if said.given('epsilon_high') else ' (from epsilon)'}: every ratio above it is held there, so at the first "
                f"step the gradient is that of A·log π times {high:g} and nothing else. Write epsilon_high = 5, say."
            )
        said.choices["eps_max"] = high
        said.note("epsilon_high", f"eps_max = {high:g}, an absolute cap on the ratio")
        return
    said.choices |= {"eps_low": low, "eps_high": high}
    said.note("epsilon", f"eps_low = {low:g}" + ("" if said.given("epsilon_high") else f", eps_high = {high:g}"))
    if said.given("epsilon_high"):
        said.note("epsilon_high", f"eps_high = {high:g}")
    if surrogate == "sequence_clipped" and high > 0.05:
        said.traps.append(
            f"epsilon_high = {high:g} with one ratio per completion: means of log ratios stay far inside it, so the clip "
            "never acts (GSPO's paper has 3e-4 and 4e-4)."
        )
    if delta is None:
        return
    if surrogate == "sequence_clipped":
        said.differs.append(
            f"delta = {delta:g} holds the completion's ratio from above for A < 0; sequence_clipped has no such bound."
        )
        return
    said.choices |= {"surrogate": "dual_clipped", "dual_clip": delta}
    said.note("delta", f"surrogate = dual_clipped, dual_clip = {delta:g}")


def _kl(said: Translation) -> None:
    beta = said.number("beta")
    said.choices["kl_coef"] = beta
    if beta == 0.0:
        said.note("beta", "kl.coef = 0: no reference model")
        return
    said.choices |= {"kl_estimator": "k3", "kl_placement": "loss"}
    said.note("beta", f"kl.coef = {beta:g}, kl.estimator = k3, kl.placement = loss")
    if said.switch("use_bias_correction_kl"):
        said.differs.append(
            "use_bias_correction_kl = True (TRL's default) multiplies k3 by the ratio, and the gradient flows through it: even at "
            "the first step it adds k3·∇log π, which makes it the gradient of KL(π‖π_ref). k3 here has no such factor."
        )
    if said.switch("sync_ref_model"):
        said.differs.append(
            "sync_ref_model = True moves the reference towards the policy while it trains; here it stays the start."
        )


def _mismatch(said: Translation) -> None:
    said.choices["mismatch_weight"] = "none"
    if not said.switch("use_vllm"):
        said.note("use_vllm", "mismatch.weight = none: the sampler is the trainer's own model")
        return
    if not said.switch("vllm_importance_sampling_correction"):
        said.note("vllm_importance_sampling_correction", "mismatch.weight = none")
        return
    modes = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
    mode = said.name("vllm_importance_sampling_mode", modes)
    older = said.optional("vllm_importance_sampling_cap")
    cap = said.optional("vllm_importance_sampling_clip_max") if older is None else older
    floor = said.optional("vllm_importance_sampling_clip_min")
    if mode.startswith("token") and cap is not None:
        weight = "truncate" if mode == "token_truncate" else "mask"
        said.choices |= {"mismatch_weight": weight, "mismatch_cap": cap}
        said.note("vllm_importance_sampling_mode", f"mismatch.weight = {weight}, mismatch.cap = {cap:g}")
        if floor is not None:
            said.differs.append(
                f"vllm_importance_sampling_clip_min = {floor:g} bounds the weight from below; mismatch has no lower bound."
            )
        return
    shown = "∞" if cap is None else f"{cap:g}"
    acts = "held at" if mode.endswith("truncate") else "set to 0 beyond"
    said.differs.append(
        f"vllm_importance_sampling_mode = {mode}{'' if said.given('vllm_importance_sampling_mode') else ' (the default with vLLM)'}: "
        + (
            f"each completion's term is weighted by exp of the sum of log π_old − log μ over its tokens, {acts} {shown}. "
            if mode.startswith("sequence")
            else "without an upper bound. "
        )
        + "The recipe has no weight."
    )


def _steps(said: Translation) -> None:
    each, accumulation = said.whole("per_device_train_batch_size"), said.whole("gradient_accumulation_steps")
    size = said.whole("num_generations")
    batch, micro = said.optional("generation_batch_size"), said.optional("steps_per_generation")
    if batch is not None and micro is not None:
        raise said.bad("generation_batch_size", "TRL takes it or steps_per_generation, not both")
    if batch is not None and batch % each:
        raise said.bad("generation_batch_size", f"TRL wants a multiple of per_device_train_batch_size = {each}")
    micro = int(batch // each if batch is not None else micro if micro is not None else accumulation)
    answers, passes = each * micro, said.whole("num_iterations")
    if answers % size:
        raise ConfigError(
            f"{said.path}: {answers} answers per generation (per_device_train_batch_size × steps_per_generation, on one device) "
            f"are no whole number of groups of {size}; TRL refuses them. With D devices it is D times as many."
        )
    minibatches, prompts = max(1, micro // accumulation), answers // size
    if micro % accumulation and accumulation % micro:
        raise said.bad(
            "gradient_accumulation_steps",
            f"optimizer steps would straddle generations of {micro} micro-batches; use a divisor",
        )
    if accumulation > micro:
        prompts *= accumulation // micro
        said.traps.append(
            f"One optimizer step spans {accumulation // micro} generations (gradient_accumulation_steps > steps_per_generation)."
        )
    said.recipe |= {
        "rollout.prompts_per_update": prompts,
        "update.passes": passes,
        "update.minibatches": minibatches,
    }
    said.note("per_device_train_batch_size", f"{answers} answers per generation on one device")
    said.note(
        "gradient_accumulation_steps", f"update.minibatches = {minibatches}, rollout.prompts_per_update = {prompts}"
    )
    said.note("num_iterations", f"update.passes = {passes}")
    said.traps.append("Batches are counted on one device; with D devices prompts_per_update is D times as large.")
    if minibatches > 1 and said.choices["aggregation"] == "token_mean":
        said.differs.append(
            "Each optimizer step is divided by the mean number of tokens of the steps on this generation; here by its own "
            "number of tokens."
        )


def _entropy(said: Translation) -> None:
    coef = said.number("entropy_coef")
    said.choices["entropy_coef"] = coef
    if coef:
        said.note("entropy_coef", f"entropy_coef = {coef:g}")
        if said.choices["aggregation"] != "token_mean":
            said.differs.append(
                "entropy_coef weighs the mean over the tokens of a micro-batch whatever loss_type says; here the loss's own weights."
            )
    if said.switch("use_adaptive_entropy"):
        said.differs.append(
            "use_adaptive_entropy = True moves the coefficient towards entropy_target; here it is constant."
        )


def _extras(said: Translation) -> None:
    quantile = said.number("top_entropy_quantile")
    if quantile < 1.0:
        said.differs.append(
            f"top_entropy_quantile = {quantile:g}: only the tokens with the highest entropy carry the surrogate; the others stay in "
            "the denominator. Here every token does."
        )
    if (threshold := said.optional("off_policy_mask_threshold")) is not None:
        said.differs.append(
            f"off_policy_mask_threshold = {threshold:g} drops completions with A < 0 whose mean log π_old − log π exceeds it; "
            "here none is dropped."
        )
    if (aux := said.optional("router_aux_loss_coef")) is not None and aux > 0:
        said.differs.append(f"router_aux_loss_coef = {aux:g} adds a load-balancing loss of a mixture of experts.")


def _model(said: Translation) -> None:
    for key, what in CHANGE_THE_MODEL.items():
        if said.settings.get(key) not in (None, False, "false", "False", {}):
            said.differs.append(f"{key} = {said.settings[key]}: {what}.")


def _optimizer(said: Translation) -> None:
    rate = said.number("learning_rate")
    schedule = str(said.raw("lr_scheduler_type"))
    if schedule in SCHEDULES:
        said.recipe["optimizer.schedule"] = SCHEDULES[schedule]
    else:
        said.differs.append(
            f"lr_scheduler_type = {schedule} has no counterpart (constant, linear, cosine); the recipe is constant."
        )
    said.recipe |= {
        "optimizer.lr": rate,
        "optimizer.betas": [said.number("adam_beta1"), said.number("adam_beta2")],
        "optimizer.eps": said.number("adam_epsilon"),
        "optimizer.weight_decay": said.number("weight_decay"),
        "optimizer.max_grad_norm": said.number("max_grad_norm") or float("inf"),
        "run.seed": said.whole("seed"),
    }
    said.note("learning_rate", f"optimizer.lr = {rate:g}")
    said.note("lr_scheduler_type", f"optimizer.schedule = {SCHEDULES.get(schedule, 'constant')}")
    said.note("max_grad_norm", f"optimizer.max_grad_norm = {said.number('max_grad_norm') or float('inf'):g}")
    warmup = said.number("warmup_steps")
    if warmup >= 1 or warmup == 0:
        said.recipe["optimizer.warmup"] = int(warmup)
    else:
        said.differs.append(f"warmup_steps = {warmup:g} is a share of all steps; write optimizer.warmup in steps.")
    if not str(said.raw("optim")).startswith("adamw"):
        said.differs.append(f"optim = {said.raw('optim')}; the optimizer here is AdamW.")
    steps = said.whole("max_steps")
    if steps > 0:
        per_batch = int(said.recipe["update.passes"]) * int(said.recipe["update.minibatches"])  # pyright: ignore[reportArgumentType]
        said.recipe["run.updates"] = max(1, steps // per_batch)
        said.note("max_steps", f"run.updates = {said.recipe['run.updates']} ({per_batch} optimizer steps each)")
