"""`explain --from`: configurations of TRL and verl, each with the objective that it really optimises."""

import itertools
import tomllib
from pathlib import Path

import pytest

from steelyard.config import build
from steelyard.errors import ConfigError
from steelyard.numerics.variants import CHOICES, Objective
from steelyard.run.explain import explain_peer
from steelyard.run.explain.from_trl import DEFAULTS as TRL
from steelyard.run.explain.from_trl import LOSSES, from_trl
from steelyard.run.explain.from_verl import AGGREGATIONS, MODES, from_verl
from steelyard.run.explain.peer_config import read_settings
from steelyard.run.explain.translation import as_toml
from steelyard.run.recipe import Recipe

READERS = {"trl": from_trl, "verl": from_verl}


def translated(peer: str, settings: dict[str, object]):
    return READERS[peer](settings, Path("file.yaml"))


def objective(peer: str, **settings: object) -> Objective:
    recipe = translated(peer, {key.replace("__", "."): value for key, value in settings.items()}).as_recipe()
    return recipe.objective.resolve()[0]


def chosen(found: Objective) -> dict[str, object]:
    return {name: getattr(found, name) for name in CHOICES if getattr(found, name) not in (None, 0.0, "none")}


CLIP = {"surrogate": "clipped", "eps_low": 0.2, "eps_high": 0.2}
GROUP = {"advantage": "group_standardised", "ddof": 1}
DUAL = {"surrogate": "dual_clipped", "eps_low": 0.2, "eps_high": 0.2, "dual_clip": 3.0}
N = {"actor_rollout_ref.rollout.n": 8}
A = "actor_rollout_ref.actor"

TRL_CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "nothing but a learning rate": ({"learning_rate": 1e-6}, {**GROUP, **CLIP, "aggregation": "token_mean"}),
    "the paper's grpo": (
        {"loss_type": "grpo", "beta": 0.04},
        {**GROUP, **CLIP, "aggregation": "sequence_mean"}
        | {"kl_coef": 0.04, "kl_estimator": "k3", "kl_placement": "loss"},
    ),
    "dr_grpo": (
        {"loss_type": "dr_grpo", "scale_rewards": False},
        {"advantage": "group_centred", **CLIP, "aggregation": "fixed_length"},
    ),
    "bnpo with clip-higher": (
        {"loss_type": "bnpo", "epsilon_high": 0.28},
        {**GROUP, **CLIP, "eps_high": 0.28, "aggregation": "token_mean"},
    ),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        {**GROUP, "surrogate": "sequence_clipped", "eps_low": 3e-4, "eps_high": 4e-4, "aggregation": "sequence_mean"},
    ),
    "luspo": (
        {"loss_type": "luspo", "importance_sampling_level": "sequence"},
        {**GROUP, **CLIP, "surrogate": "sequence_clipped", "aggregation": "sequence_sum"},
    ),
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 5.0},
        {**GROUP, "surrogate": "cispo", "eps_max": 5.0, "aggregation": "token_mean"},
    ),
    "two-sided clip": ({"delta": 4.0}, {**GROUP, **DUAL, "dual_clip": 4.0, "aggregation": "token_mean"}),
    "vllm with a token weight": (
        {"use_vllm": True, "vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 2.0},
        {**GROUP, **CLIP, "aggregation": "token_mean", "mismatch_weight": "truncate", "mismatch_cap": 2.0},
    ),
    "vllm with a token mask and the old name of the cap": (
        {"use_vllm": "true", "vllm_importance_sampling_mode": "token_mask", "vllm_importance_sampling_cap": 2.5},
        {**GROUP, **CLIP, "aggregation": "token_mean", "mismatch_weight": "mask", "mismatch_cap": 2.5},
    ),
    "entropy bonus": ({"entropy_coef": "1e-3"}, {**GROUP, **CLIP, "aggregation": "token_mean", "entropy_coef": 0.001}),
}
VERL_CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "nothing but a batch size": (
        {"data.train_batch_size": 256},
        {"advantage": "gae", "ddof": 1, "gamma": 1.0, "lam": 1.0, **DUAL, "aggregation": "token_mean"},
    ),
    "grpo": ({"algorithm.adv_estimator": "grpo", **N}, {**GROUP, **DUAL, "aggregation": "token_mean"}),
    "grpo with one answer": (
        {"algorithm.adv_estimator": "grpo"},
        {"advantage": "raw", **DUAL, "aggregation": "token_mean"},
    ),
    "grpo with KL in the loss": (
        {"algorithm.adv_estimator": "grpo", **N, f"{A}.use_kl_loss": True, f"{A}.loss_agg_mode": "seq-mean-token-mean"},
        {**GROUP, **DUAL, "aggregation": "sequence_mean"}
        | {"kl_coef": 0.001, "kl_estimator": "k3", "kl_placement": "loss"},
    ),
    "dr_grpo": (
        {
            "algorithm.adv_estimator": "grpo",
            **N,
            "algorithm.norm_adv_by_std_in_grpo": False,
            f"{A}.loss_agg_mode": "seq-mean-token-sum-norm",
        },
        {"advantage": "group_centred", **DUAL, "aggregation": "fixed_length"},
    ),
    "rloo": (
        {
            "algorithm.adv_estimator": "rloo",
            **N,
            f"{A}.policy_loss.loss_mode": "gpg",
            f"{A}.loss_agg_mode": "seq-mean-token-sum",
        },
        {"advantage": "leave_one_out", "surrogate": "policy_gradient", "aggregation": "sequence_sum"},
    ),
    "ppo with KL in the reward": (
        {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": 0.02, "algorithm.lam": 0.95},
        {"advantage": "gae", "ddof": 1, "gamma": 1.0, "lam": 0.95, **DUAL, "aggregation": "token_mean"}
        | {"kl_coef": 0.02, "kl_estimator": "k1", "kl_placement": "reward"},
    ),
    "gspo": (
        {
            "algorithm.adv_estimator": "grpo",
            **N,
            f"{A}.policy_loss.loss_mode": "gspo",
            f"{A}.clip_ratio_low": 3e-4,
            f"{A}.clip_ratio_high": 4e-4,
        },
        {**GROUP, "surrogate": "sequence_clipped", "eps_low": 3e-4, "eps_high": 4e-4, "aggregation": "token_mean"},
    ),
    "cispo": (
        {"algorithm.adv_estimator": "grpo", **N, f"{A}.policy_loss.loss_mode": "cispo", f"{A}.clip_ratio_high": 4.0},
        {**GROUP, "surrogate": "cispo", "eps_max": 5.0, "aggregation": "token_mean"},
    ),
    "straight-through KL": (
        {"algorithm.adv_estimator": "grpo", **N, f"{A}.use_kl_loss": True, f"{A}.kl_loss_type": "k3+"},
        {**GROUP, **DUAL, "aggregation": "token_mean", "kl_coef": 0.001, "kl_estimator": "k2", "kl_placement": "loss"},
    ),
    "weights for the sampler": (
        {"algorithm.adv_estimator": "grpo", **N, "algorithm.rollout_correction.rollout_is": "token"},
        {**GROUP, **DUAL, "aggregation": "token_mean", "mismatch_weight": "truncate", "mismatch_cap": 2.0},
    ),
}
CASES = [("trl", name) for name in TRL_CASES] + [("verl", name) for name in VERL_CASES]


@pytest.mark.parametrize(("peer", "name"), CASES)
def test_a_configuration_optimises_this(peer, name):
    settings, wanted = (TRL_CASES if peer == "trl" else VERL_CASES)[name]
    translation = translated(peer, settings)
    recipe = translation.as_recipe()
    assert chosen(recipe.objective.resolve()[0]) == wanted
    text = as_toml(recipe, translation)
    again = build(tomllib.loads(text), Recipe, where="test")
    assert again == recipe
    assert chosen(again.objective.resolve()[0]) == wanted
    assert not again.dynamic_sampling
    assert again.overlong_buffer == 0


@pytest.mark.parametrize(
    ("loss", "scale", "level"),
    list(itertools.product(LOSSES, ["group", "batch", "none", True, False, "true", "false"], ["token", "sequence"])),
)
def test_every_loss_of_trl_with_every_scaling_and_level(loss, scale, level):
    settings: dict[str, object] = {
        "loss_type": loss,
        "scale_rewards": scale,
        "importance_sampling_level": level,
        "epsilon_high": 5.0 if loss == "cispo" else 0.28,
    }
    if (loss, level) == ("cispo", "sequence"):
        with pytest.raises(ConfigError, match="no counterpart"):
            objective("trl", **settings)
        return
    found = objective("trl", **settings)
    assert found.aggregation == LOSSES[loss][1]
    assert found.surrogate == ("sequence_clipped" if level == "sequence" else LOSSES[loss][0])
    named = {"true": "group", "false": "none"}.get(str(scale).lower(), scale)
    assert (
        found.advantage
        == {"group": "group_standardised", "batch": "batch_standardised", "none": "group_centred"}[named]
    )


@pytest.mark.parametrize(("mode", "aggregation"), list(itertools.product(MODES, AGGREGATIONS)))
def test_every_loss_of_verl_with_every_aggregation(mode, aggregation):
    settings = {
        "algorithm.adv_estimator": "grpo",
        **N,
        f"{A}.policy_loss.loss_mode": mode,
        f"{A}.loss_agg_mode": aggregation,
    }
    found = objective("verl", **settings)
    assert (found.surrogate, found.aggregation) == (MODES[mode], AGGREGATIONS[aggregation])


# ------------------------------------------------------------------ steps


@pytest.mark.parametrize(
    ("settings", "prompts", "minibatches", "passes"),
    [
        ({}, 1, 1, 1),
        ({"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}, 8, 1, 1),
        ({"steps_per_generation": 8, "gradient_accumulation_steps": 2, "num_iterations": 2}, 8, 4, 2),
        ({"generation_batch_size": 64}, 8, 8, 1),
        ({"steps_per_generation": 1, "gradient_accumulation_steps": 4}, 4, 1, 1),
    ],
)
def test_optimizer_steps_of_trl(settings, prompts, minibatches, passes):
    recipe = translated("trl", {"loss_type": "grpo", **settings}).as_recipe()
    assert recipe.rollout.prompts_per_update == prompts
    assert (recipe.update.minibatches, recipe.update.passes) == (minibatches, passes)


def test_optimizer_steps_of_verl():
    settings = {"data.train_batch_size": 512, f"{A}.ppo_mini_batch_size": 32, f"{A}.ppo_epochs": 2}
    recipe = translated("verl", settings).as_recipe()
    assert (recipe.rollout.prompts_per_update, recipe.update.minibatches, recipe.update.passes) == (512, 16, 2)


def test_everything_else_of_the_recipe_follows():
    trl = translated(
        "trl",
        {"mask_truncated_completions": True, "max_steps": 100, "steps_per_generation": 2, "lr_scheduler_type": "cosine"}
        | {"temperature": 0.7, "max_grad_norm": 0.2, "warmup_steps": 10, "model_name_or_path": "a/b", "seed": 3},
    ).as_recipe()
    assert (trl.update.truncated, trl.run.updates, trl.optimizer.schedule) == ("mask_loss_only", 50, "cosine")
    assert (trl.rollout.temperature, trl.optimizer.max_grad_norm, trl.optimizer.warmup) == (0.7, 0.2, 10)
    assert (trl.model.source, trl.run.seed) == ("a/b", 3)
    verl = translated(
        "verl",
        {
            "algorithm.filter_groups.enable": True,
            "algorithm.adv_estimator": "grpo",
            **N,
            "trainer.total_training_steps": 7,
        }
        | {"reward.reward_kwargs.overlong_buffer_cfg.enable": True, "reward.reward_kwargs.overlong_buffer_cfg.len": 64},
    ).as_recipe()
    assert (verl.dynamic_sampling, verl.run.updates, verl.overlong_buffer) == (True, 7, 64)
    critic = translated("verl", {"critic.optim.lr": 3e-5, "critic.cliprange_value": 0.3}).as_recipe().critic
    assert (critic.lr, critic.clip) == (3e-5, 0.3)


# ------------------------------------------------------------------ what no recipe can say, and traps


@pytest.mark.parametrize(
    ("peer", "settings", "said"),
    [
        ("trl", {"beta": 0.1}, "use_bias_correction_kl"),
        ("trl", {"use_vllm": True}, "sequence_mask (the default with vLLM)"),
        ("trl", {"top_entropy_quantile": 0.2}, "highest entropy"),
        ("trl", {"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold"),
        ("trl", {"multi_objective_aggregation": "normalize_then_sum"}, "one reward"),
        ("trl", {"reward_weights": [1.0, 0.5]}, "reward_weights"),
        ("trl", {"scale_rewards": "batch"}, "raw rewards"),
        ("trl", {"loss_type": "bnpo", "gradient_accumulation_steps": 2}, "each micro-batch"),
        ("trl", {"top_p": 0.9}, "another distribution"),
        ("trl", {"min_p": 0.1}, "another distribution"),
        ("trl", {"use_peft": True}, "LoRA"),
        ("trl", {"sync_ref_model": True, "beta": 0.1}, "moves the reference"),
        ("trl", {"use_adaptive_entropy": True}, "entropy_target"),
        ("trl", {"steps_per_generation": 4}, "mean number of tokens"),
        ("trl", {"delta": 3.0, "importance_sampling_level": "sequence"}, "no such bound"),
        ("trl", {"lr_scheduler_type": "polynomial"}, "polynomial"),
        ("verl", {f"{A}.use_kl_loss": True, "algorithm.use_kl_in_reward": True}, "off the reward as well"),
        ("verl", {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.type": "adaptive"}, "towards a target"),
        ("verl", {"algorithm.rollout_correction.rollout_is": "sequence"}, "one weight per sequence"),
        ("verl", {"algorithm.rollout_correction.rollout_rs": "token_k1"}, "rejects"),
        ("verl", {"algorithm.rollout_correction.bypass_mode": True}, "π_old"),
        ("verl", {"algorithm.adv_estimator": "reinforce_plus_plus_baseline", **N}, "over completions"),
        ("verl", {f"{A}.use_kl_loss": True}, "±20"),
        ("verl", {"algorithm.use_pf_ppo": True}, "weighted by reward"),
        ("verl", {"actor_rollout_ref.rollout.top_p": 0.9}, "another distribution"),
        ("verl", {f"{A}.loss_agg_mode": "seq-mean-token-sum-norm", f"{A}.loss_scale_factor": 100}, "divided by it"),
    ],
)
def test_what_has_no_counterpart_is_named_and_never_passed_over(peer, settings, said):
    assert any(said in line for line in translated(peer, settings).differs)


@pytest.mark.parametrize(
    ("peer", "settings", "said"),
    [
        ("trl", {}, "no dynamic sampling"),
        ("trl", {"importance_sampling_level": "sequence"}, "clip never acts"),
        ("trl", {"loss_type": "luspo"}, "per token"),
        ("verl", {f"{A}.clip_ratio": 0.3}, "does nothing"),
        ("verl", {"algorithm.adv_estimator": "grpo"}, "no baseline at all"),
        ("verl", {f"{A}.loss_agg_mode": "seq-mean-token-sum-norm"}, "padded width"),
    ],
)
def test_traps_of_the_file(peer, settings, said):
    assert any(said in line for line in translated(peer, settings).traps)


def test_the_trap_of_verls_clip_ratio_is_read_as_verl_reads_it():
    assert objective("verl", **{f"{A}.clip_ratio": 0.3}).eps_low == 0.2
    nulls = {f"{A}.clip_ratio": 0.3, f"{A}.clip_ratio_low": None, f"{A}.clip_ratio_high": None}
    assert objective("verl", **nulls).eps_high == 0.3


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("peer", "settings", "said"),
    [
        ("trl", {"los_type": "grpo"}, "did you mean loss_type"),
        ("trl", {"loss_type": "sapo"}, "sigmoid"),
        ("trl", {"loss_type": "vespo"}, "Gamma"),
        ("trl", {"loss_type": "ppo"}, "TRL 1.16.0 knows grpo"),
        ("trl", {"loss_type": "cispo"}, "the cap itself, here 0.2"),
        ("trl", {"scale_rewards": "std"}, "group, batch, none"),
        ("trl", {"epsilon": "small"}, "write a number"),
        ("trl", {"num_generations": 7}, "no whole number of groups of 7"),
        ("trl", {"num_generations": 1}, "fewer than two"),
        ("trl", {"generation_batch_size": 64, "steps_per_generation": 8}, "not both"),
        ("trl", {"generation_batch_size": 60}, "multiple"),
        ("trl", {"steps_per_generation": 4, "gradient_accumulation_steps": 3}, "straddle"),
        ("trl", {"num_generations": 2.5}, "whole number"),
        ("trl", {"use_vllm": "perhaps"}, "true or false"),
        ("trl", {"epsilon": 1.5}, "eps_low"),
        ("verl", {"algorithm.adv_estimater": "grpo"}, "did you mean algorithm.adv_estimator"),
        ("verl", {f"{A}.cliprange": 0.3}, "did you mean"),
        ("verl", {"algorithm.adv_estimator": "remax"}, "greedy"),
        ("verl", {f"{A}.policy_loss.loss_mode": "kl_cov"}, "covary"),
        ("verl", {f"{A}.loss_agg_mode": "token-sum"}, "grows with the batch"),
        ("verl", {f"{A}.use_kl_loss": True, f"{A}.kl_loss_type": "abs"}, "low_var_kl"),
        ("verl", {"data.train_batch_size": 8}, "ppo_mini_batch_size = 256 (verl 0.9.1's default)"),
        ("verl", {f"{A}.policy_loss.loss_mode": "gspo"}, "sequence_clipped"),
    ],
)
def test_what_cannot_be_read_is_refused_with_key_and_way_out(peer, settings, said):
    with pytest.raises(ConfigError) as error:
        translated(peer, settings).as_recipe()
    assert said in str(error.value)


def test_another_trainer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="choose trl or verl"):
        explain_peer("openrlhf", tmp_path / "x.yaml")


# ------------------------------------------------------------------ files


def settings_of(tmp_path: Path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    return read_settings(path)


def test_yaml_json_and_a_shell_command_say_the_same(tmp_path):
    wanted = {"loss_type": "grpo", "beta": 0.04, "use_vllm": True, "reward_weights": [1.0, 0.5]}
    yaml = "loss_type: grpo\nbeta: 0.04\nuse_vllm: true\nreward_weights: [1.0, 0.5]\n"
    shell = "# how we train\ntrl grpo --loss_type grpo \\\n  --beta=0.04 --use-vllm --reward_weights 1.0 0.5  # two\n"
    assert settings_of(tmp_path, "a.yaml", yaml) == wanted
    assert (
        settings_of(
            tmp_path, "a.json", '{"loss_type": "grpo", "beta": 0.04, "use_vllm": true, "reward_weights": [1.0, 0.5]}'
        )
        == wanted
    )
    assert settings_of(tmp_path, "a.sh", shell) == wanted
    assert settings_of(tmp_path, "command.txt", shell) == wanted


def test_hydra_overrides_nesting_quotes_and_variables_of_a_script(tmp_path):
    text = """#!/usr/bin/env bash
set -euxo pipefail
n=16
export low=0.2 high=0.28
name="run-${n}"
python3 -m verl.trainer.main_ppo --config-path=config \\
    algorithm.adv_estimator=grpo \\
    actor_rollout_ref.rollout.n=$n actor_rollout_ref.actor.clip_ratio_low=${low} \\
    +actor_rollout_ref.actor.clip_ratio_high="${high}" \\
    actor_rollout_ref.actor.optim.lr=${LR:-5e-7} \\
    'trainer.logger=["console","wandb"]' trainer.experiment_name=$name "$@"
"""
    assert settings_of(tmp_path, "run.sh", text) == {
        "config_path": "config",
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.rollout.n": 16,
        "actor_rollout_ref.actor.clip_ratio_low": 0.2,
        "actor_rollout_ref.actor.clip_ratio_high": 0.28,
        "actor_rollout_ref.actor.optim.lr": "5e-7",
        "trainer.logger": ["console", "wandb"],
        "trainer.experiment_name": "run-16",
    }
    assert translated("verl", dict(settings_of(tmp_path, "run.sh", text))).as_recipe().rollout.group_size == 16
    nested = "algorithm:\n  adv_estimator: grpo\nactor_rollout_ref:\n  rollout: {n: 4}\n"
    assert settings_of(tmp_path, "a.yaml", nested) == {
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.rollout.n": 4,
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "", "holds no settings"),
        ("a.yaml", "- 1\n- 2\n", "holds list"),
        ("a.yaml", "a: [1,\n", "not valid YAML"),
        ("a.json", "{", "not valid JSON"),
        ("a.sh", "python -m verl data.train_batch_size=$N\n", "reads the variable N"),
        ("a.sh", "python -m verl data.train_batch_size=$((2 * 4))\n", "needs a shell"),
        ("a.sh", "python -m verl 'data.x=1\n", "not readable as shell"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, name, text, said):
    with pytest.raises(ConfigError, match=said):
        settings_of(tmp_path, name, text)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(ConfigError, match="no file at"):
        read_settings(tmp_path / "none.yaml")


def test_the_page_says_how_each_key_was_read_and_what_was_the_default(tmp_path):
    path = tmp_path / "grpo.yaml"
    path.write_text("beta: 0.04\noutput_dir: out\nlogging_steps: 1\n")
    text = explain_peer("trl", path)
    assert "beta = 0.04" in text
    assert "* surrogate = clipped, aggregation = token_mean" in text
    assert "2 further keys do not touch the objective" in text
    assert "What differs, and no recipe can say:" in text
    assert '[objective]\nvariant = "grpo"' in text
    assert set(TRL) >= {"beta", "loss_type"}
