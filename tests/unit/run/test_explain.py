"""`steelyard explain`: every combination answers and names every choice and number; those without meaning are refused."""

import itertools
import sys

import pytest

from steelyard.cli import main
from steelyard.config import build, with_overrides
from steelyard.errors import ConfigError
from steelyard.numerics.variants import (
    ADVANTAGE_NAMES,
    AGGREGATION_NAMES,
    KL_ESTIMATOR_NAMES,
    KL_PLACEMENT_NAMES,
    MISMATCH_NAMES,
    READS,
    SURROGATE_NAMES,
    VARIANTS,
)
from steelyard.run.explain import explain
from steelyard.run.recipe import Recipe

BASE: dict[str, object] = {"model": {"source": "m"}, "task": {"name": "arithmetic"}}
NUMBERS = {"ddof": 1, "gamma": 0.97, "lam": 0.83, "eps_low": 0.21, "eps_high": 0.37} | {
    "dual_clip": 4.25,
    "eps_max": 6.5,
    "mismatch_cap": 2.75,
}
"""Numbers that stand nowhere else in the text, so that finding one means that it was printed on purpose."""
KEYS = {"mismatch_weight": "mismatch.weight", "mismatch_cap": "mismatch.cap"}
KLS = [None, *itertools.product(KL_ESTIMATOR_NAMES, KL_PLACEMENT_NAMES)]


def recipe(*overrides: str) -> Recipe:
    return build(with_overrides(BASE, overrides), Recipe, where="test")


def told(*overrides: str) -> str:
    return explain(recipe(*overrides))


def block(text: str, heading: str) -> str:
    return next(part for part in text.split("\n\n") if part.startswith(heading))


def worth_knowing(*overrides: str) -> str:
    return block(told(*overrides), "Worth knowing")


def choices_of(advantage, surrogate, aggregation, kl, mismatch) -> list[str]:
    chosen = {"advantage": advantage, "surrogate": surrogate, "mismatch_weight": mismatch}
    lines = [f"objective.{KEYS.get(name, name)}={value}" for name, value in chosen.items()]
    for name, value in chosen.items():
        for number in READS[name].get(value, ()):
            lines.append(f"objective.{KEYS.get(number, number)}={NUMBERS[number]}")
    lines.append(f"objective.aggregation={aggregation}")
    if kl is not None:
        lines += ["objective.kl.coef=0.0625", f"objective.kl.estimator={kl[0]}", f"objective.kl.placement={kl[1]}"]
    return lines


@pytest.mark.parametrize("advantage", ADVANTAGE_NAMES)
def test_every_combination_answers_and_names_every_choice_and_number(advantage: str):
    rest = itertools.product(SURROGATE_NAMES, AGGREGATION_NAMES, KLS, MISMATCH_NAMES)
    for n, (surrogate, aggregation, kl, mismatch) in enumerate(rest):
        if advantage == "gae" and surrogate == "sequence_clipped":
            continue
        several = ["update.passes=3", "objective.entropy_coef=0.0525"] if n % 2 else []
        lines = choices_of(advantage, surrogate, aggregation, kl, mismatch)
        text = told("objective.variant=reinforce", *lines, *several)
        title, formula = text.split("\n\n")[:2]
        for line in [*lines, *several]:
            value = line.partition("=")[2]
            assert value in title or line == "update.passes=3", (line, title)
            if value.replace(".", "").isdigit() and "passes" not in line:
                assert value in formula, (line, formula)
        assert not {"{", "}", "None"} & set(text.replace("·", " ").split()) and "{" not in text, text
        assert ("w_it" in formula) == (mismatch != "none")
        assert ("k_it" in formula) == (kl is not None)
        assert ("h_it" in formula) == bool(several)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_names_itself_its_source_and_nothing_as_changed(name: str):
    text = told(f"objective.variant={name}")
    assert text.startswith(f"Objective: {name}  ({VARIANTS[name].source})")
    assert "←" not in text


def test_what_differs_from_the_variant_is_marked_and_what_comes_along_too():
    title = told("objective.surrogate=cispo", "objective.kl.coef=0").split("\n\n")[0].splitlines()
    marks = {line.split()[0]: line.partition("←")[2].strip() for line in title[1:] if "←" in line}
    assert marks == {
        "surrogate": "written in the recipe, differs from the variant",
        "eps_max": "comes with a choice of the recipe",
        "kl_coef": "written in the recipe, differs from the variant",
    }


def test_a_kl_in_the_reward_enters_before_the_baseline_and_per_token_with_a_value_network():
    kl = ["objective.kl.coef=0.05", "objective.kl.estimator=k1", "objective.kl.placement=reward"]
    whole = block(told("objective.variant=rloo", *kl), "Maximised")
    assert "r_i = score_i − 0.05·Σ_t k_it, before the baseline" in whole
    assert "− 0.05 · (1/N_seq)" not in whole
    assert "r_it = −0.02·k_it + [t = T_i]·r_i" in block(told("objective.variant=ppo"), "Maximised")


def test_the_value_loss_stands_in_j_only_with_a_shared_backbone():
    own = block(told("objective.variant=ppo"), "Maximised")
    shared = block(told("objective.variant=ppo", "critic.backbone=shared", "critic.coef=0.35"), "Maximised")
    assert "v_it" not in own.splitlines()[1] and "by itself" in own
    assert "− 0.35 · (1/N_tok) Σ_i Σ_t v_it" in shared.splitlines()[1] and "by itself" not in shared


def test_pi_old_is_recorded_when_a_batch_takes_several_steps():
    assert "π_θ itself without gradient" in told()
    assert "recorded before the first of 6 steps" in told("update.passes=2", "update.minibatches=3")


def test_practice_that_a_variant_brings_is_printed_and_so_is_its_absence():
    practice = block(told("objective.variant=dapo", "rollout.max_new_tokens=500"), "Sampling")
    assert "dropped and replaced" in practice and "after 64 dead ones" in practice and "(as dapo says)" in practice
    assert "the last 100 of 500 tokens cost up to 1" in practice
    assert "clip( (T_i − 400) / 100 , 0 , 1 )" in told("objective.variant=dapo", "rollout.max_new_tokens=500")
    off = block(
        told("objective.variant=dapo", "rollout.dynamic_sampling=false", "reward.overlong_buffer=0"), "Sampling"
    )
    assert "(the variant has it on)" in off and "no penalty (the variant has one)" in off
    limits = block(told("update.passes=2", "update.max_kl=0.015", "update.max_clip_share=0.3"), "Sampling")
    assert "above update.max_kl = 0.015 or update.max_clip_share = 0.3" in limits


NO_KL = "objective.kl.coef=0"
ONLY_WHERE = [
    ("0 to rounding by construction", [NO_KL], ["update.passes=2"]),
    ("0 to rounding by construction", [NO_KL], ["objective.kl.coef=0.04"]),
    ("0 to rounding by construction", [NO_KL], [NO_KL, "objective.advantage=raw"]),
    ("0 to rounding by construction", [NO_KL], [NO_KL, "update.truncated=mask_loss_only"]),
    ("0 to rounding by construction", ["objective.variant=ppo"], ["objective.variant=ppo", "critic.backbone=shared"]),
    ("The logged loss is not 0", ["objective.variant=dapo"], [NO_KL]),
    ("value of this loss means nothing", ["objective.variant=cispo"], ["objective.variant=dapo"]),
    ("length bias", [], ["objective.aggregation=token_mean"]),
    ("length bias", [], ["objective.variant=gspo"]),
    ("One token, one vote", ["objective.variant=dapo"], []),
    ("gradient grows with length", ["objective.variant=rloo"], []),
    ("ddof 0 is the paper's", [], ["objective.ddof=1"]),
    ("(G−1)/G = 0.875", ["objective.variant=dr_grpo"], ["objective.variant=rloo"]),
    ("a share of 0.12 of groups of 4", ["rollout.group_size=4"], ["rollout.group_size=4", "rollout.dynamic_sampling=true"]),
    ("No baseline", ["objective.variant=reinforce"], []),
    ("gradient 0: it costs", ["objective.kl.estimator=k1"], ["objective.kl.estimator=k2"]),
    ("gradient of KL(π_ref‖π_θ); k2", [], ["objective.kl.estimator=k2"]),
    ("The KL pulls also", [], ["objective.kl.placement=reward"]),
    ("blown up to size 1", ["objective.kl.placement=reward"], []),
    ("not corrected for it", ["update.passes=2"], []),
    ("never negative: it penalises", ["objective.kl.placement=reward"], ["objective.variant=ppo"]),
    ("absolute cap on the ratio", ["objective.variant=cispo"], []),
    ("on another scale", ["objective.variant=gspo"], []),
    ("this clip will not act", ["objective.variant=gspo", "objective.eps_high=0.05"], ["objective.variant=gspo"]),
    ("this clip will not act", ["objective.variant=gspo", "objective.eps_low=0.2"], ["objective.eps_low=0.2"]),
    ("4 times likelier is let go", ["objective.surrogate=dual_clipped", "objective.dual_clip=4"], []),
    ("every ratio is 1, so clip", [], ["update.minibatches=2"]),
    ("2 steps on one batch", ["update.minibatches=2"], []),
    ("later steps treat answers", ["objective.surrogate=policy_gradient", "update.passes=2"], ["update.passes=2"]),
    ("Nothing holds the ratio", ["objective.surrogate=importance", "update.passes=2"], ["objective.surrogate=importance"]),
    ("γ = 0.99: the first of 301 tokens sees 0.049", ["objective.variant=ppo", "objective.gamma=0.99", "rollout.max_new_tokens=301"], ["objective.variant=ppo"]),
    ("scaling all rewards changes nothing", ["objective.variant=ppo"], []),
    ("moves the policy too", ["objective.variant=ppo", "critic.backbone=shared"], ["objective.variant=ppo"]),
    ("skip_zero_advantages does nothing", [], [NO_KL]),
    ("left out of the computation", [NO_KL], [NO_KL, "update.skip_zero_advantages=false"]),
    ("left out of the computation", [NO_KL], [NO_KL, "objective.entropy_coef=0.01"]),
    ("one weight per sequence", ["objective.mismatch.weight=truncate"], []),
    ("also with A = 0", ["objective.entropy_coef=0.01"], []),
    ("Temperature 0.7", ["rollout.temperature=0.7"], []),
    ("Gradients longer than 0.5", ["optimizer.max_grad_norm=0.5"], ["optimizer.max_grad_norm=inf"]),
    ("Weight decay 0.01", ["optimizer.weight_decay=0.01"], []),
    ("middling difficulty", ["objective.variant=dapo"], ["objective.variant=dapo", "rollout.dynamic_sampling=false"]),
    ("move the baseline but not the loss", ["update.truncated=mask_loss_only"], ["update.truncated=mask"]),
    ("in no baseline either", ["update.truncated=mask"], []),
]  # fmt: skip


@pytest.mark.parametrize(("trap", "applies", "does_not"), ONLY_WHERE)
def test_a_trap_is_printed_where_it_applies_and_nowhere_else(trap: str, applies: list[str], does_not: list[str]):
    assert trap in worth_knowing(*applies)
    assert trap not in worth_knowing(*does_not)


def test_the_skip_is_announced_exactly_where_the_update_applies_it():
    reward_kl = [NO_KL.replace("0", "0.1"), "objective.kl.estimator=k1", "objective.kl.placement=reward"]
    assert "left out of the computation" in worth_knowing("objective.variant=rloo", *reward_kl)


REFUSED = [
    (["objective.surrogate=sequence_clipped", "objective.variant=ppo", "objective.eps_low=0.1"], "one advantage per token"),
    (["objective.eps_max=5"], "never be read"),
    (["objective.surrogate=cispo", "objective.eps_max=0.2"], "absolute cap"),
    (["objective.dual_clip=3"], "never be read"),
    (["objective.surrogate=dual_clipped", "objective.dual_clip=1"], "greater than 1"),
    (["objective.variant=dr_grpo", "objective.ddof=1"], "no standard deviation"),
    (["objective.gamma=0.9"], "no value network"),
    (["objective.variant=dr_grpo", "objective.kl.estimator=k3"], "while kl_coef is 0"),
    (["objective.variant=dr_grpo", "objective.kl.coef=0.1"], "kl_estimator"),
    (["objective.mismatch.cap=2"], "no cap"),
    (["objective.advantage=batch_standardized"], "batch_standardised"),
    (["objective.advantage=raw", "objective.ddof=0"], "never be read"),
    (["rollout.group_size=1"], "no baseline"),
    (["rollout.group_size=1", "objective.variant=ppo", "rollout.dynamic_sampling=true"], "never mixed"),
    (["objective.variant=reinforce_baseline", "rollout.group_size=1"], "mean of the batch"),
    (["update.max_kl=0.1"], "takes one step"),
    (["update.passes=2", "objective.variant=cispo", "update.max_clip_share=0.1"], "no clip"),
    (["update.minibatches=9"], "more than the 8 completions"),
    (["critic.clip=0.1"], "no value network"),
    (["objective.variant=ppo", "critic.coef=0.3"], "critic.backbone = 'shared'"),
    (["objective.variant=ppo", "critic.backbone=shared", "critic.lr=0.1"], "[optimizer]"),
    (["rollout.max_dead_groups=3"], "rollout.dynamic_sampling is off"),
    (["reward.overlong_penalty=2"], "reward.overlong_buffer is 0"),
    (["reward.overlong_buffer=300"], "longer than rollout.max_new_tokens"),
    (["rollout.top_p=0.9"], "refused in training"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "reason"), REFUSED)
def test_a_combination_without_meaning_is_refused_with_its_reason(overrides: list[str], reason: str):
    with pytest.raises(ConfigError) as refused:
        recipe(*overrides)
    assert reason in str(refused.value)


def run(monkeypatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["steelyard", *args])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_the_command_prints_the_story_or_the_reason_and_leaves_with_0_or_2(monkeypatch, capsys):
    assert run(monkeypatch, "explain", "booking", "objective.variant=gspo") == 0
    assert capsys.readouterr().out.startswith("Objective: gspo")
    assert run(monkeypatch, "explain", "booking", "objective.eps_max=5") == 2
    out, err = capsys.readouterr()
    assert not out and "never be read" in err and "Traceback" not in err
