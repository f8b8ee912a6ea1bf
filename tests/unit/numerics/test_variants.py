import dataclasses
import math
import subprocess
import sys

import pytest

from steelyard import numerics
from steelyard.numerics.variants import VARIANTS, Objective, Practice, practice_of


def test_the_table():
    found = {
        name: (
            o.advantage,
            o.ddof,
            o.surrogate,
            o.eps_low,
            o.eps_high,
            o.aggregation,
            o.kl_coef,
            o.kl_estimator,
            o.kl_placement,
        )
        for name, o in VARIANTS.items()
    }
    assert found == {
        "reinforce": ("raw", None, "policy_gradient", None, None, "sequence_sum", 0.0, None, None),
        "reinforce_baseline": ("batch_centred", None, "policy_gradient", None, None, "sequence_sum", 0.0, None, None),
        "rloo": ("leave_one_out", None, "policy_gradient", None, None, "sequence_sum", 0.0, None, None),
        "grpo": ("group_standardised", 0, "clipped", 0.2, 0.2, "sequence_mean", 0.04, "k3", "loss"),
        "dr_grpo": ("group_centred", None, "clipped", 0.2, 0.2, "fixed_length", 0.0, None, None),
        "dapo": ("group_standardised", 0, "clipped", 0.2, 0.28, "token_mean", 0.0, None, None),
        "gspo": ("group_standardised", 0, "sequence_clipped", 3e-4, 4e-4, "sequence_mean", 0.0, None, None),
        "cispo": ("group_standardised", 0, "cispo", None, None, "token_mean", 0.0, None, None),
        "reinforce_pp": ("batch_standardised", 0, "clipped", 0.2, 0.2, "token_mean", 0.01, "k2", "loss"),
        "ppo": ("gae", 0, "clipped", 0.2, 0.2, "token_mean", 0.02, "k1", "reward"),
    }
    assert all(name == objective.variant and objective.source for name, objective in VARIANTS.items())


def test_the_table_and_its_rows_are_frozen():
    with pytest.raises(TypeError):
        VARIANTS["mine"] = VARIANTS["grpo"]  # pyright: ignore[reportIndexIssue]
    with pytest.raises(dataclasses.FrozenInstanceError):
        VARIANTS["grpo"].kl_coef = 1.0  # pyright: ignore[reportAttributeAccessIssue]


def test_which_variants_need_groups():
    assert {name for name, objective in VARIANTS.items() if objective.needs_group} == {
        "rloo",
        "grpo",
        "dr_grpo",
        "dapo",
        "gspo",
        "cispo",
        "reinforce_pp",
    }
    assert [name for name, objective in VARIANTS.items() if objective.needs_critic] == ["ppo"]


def test_numbers_that_one_variant_alone_reads():
    assert (VARIANTS["ppo"].gamma, VARIANTS["ppo"].lam) == (1.0, 0.95)
    assert VARIANTS["cispo"].eps_max == 5.0
    assert all(o.mismatch_weight == "none" and o.entropy_coef == 0.0 for o in VARIANTS.values())
    assert {name for name in VARIANTS if practice_of(name) != Practice()} == {"dapo"}
    assert practice_of("dapo") == Practice(dynamic_sampling=True, overlong_share=0.2)


def test_an_override_keeps_the_name_and_changes_the_choice():
    found = VARIANTS["grpo"].overridden(aggregation="token_mean", ddof=1)
    assert (found.variant, found.aggregation, found.ddof, found.eps_low) == ("grpo", "token_mean", 1, 0.2)
    assert VARIANTS["grpo"].aggregation == "sequence_mean"
    assert VARIANTS["grpo"].overridden() == VARIANTS["grpo"]


def test_numbers_leave_with_the_part_they_belong_to():
    grpo = VARIANTS["grpo"]
    assert grpo.overridden(advantage="leave_one_out").ddof is None
    unclipped = grpo.overridden(surrogate="importance")
    assert (unclipped.eps_low, unclipped.eps_high) == (None, None)
    for choices in ({"kl_coef": 0.0}, {"kl_coef": 0, "kl_estimator": "k2", "kl_placement": "loss"}):
        without = grpo.overridden(**choices)
        assert (without.kl_coef, without.kl_estimator, without.kl_placement) == (0.0, None, None)
        assert isinstance(without.kl_coef, float)


def test_a_kl_term_that_enters_is_placed_in_the_loss():
    found = VARIANTS["dapo"].overridden(kl_coef=0.1, kl_estimator="k2")
    assert (found.kl_coef, found.kl_estimator, found.kl_placement) == (0.1, "k2", "loss")
    assert VARIANTS["grpo"].overridden(kl_estimator="k2").kl_coef == 0.04


def test_a_part_that_enters_brings_its_usual_numbers_and_keeps_the_shared_ones():
    grpo = VARIANTS["grpo"]
    dual = grpo.overridden(surrogate="dual_clipped")
    assert (dual.eps_low, dual.eps_high, dual.dual_clip) == (0.2, 0.2, 3.0)
    capped = grpo.overridden(surrogate="cispo")
    assert (capped.eps_low, capped.eps_high, capped.eps_max) == (None, None, 5.0)
    assert grpo.overridden(surrogate="cispo", eps_max=8).eps_max == 8.0
    valued = grpo.overridden(advantage="gae")
    assert (valued.ddof, valued.gamma, valued.lam) == (0, 1.0, 0.95)
    back = VARIANTS["ppo"].overridden(advantage="group_standardised", ddof=1)
    assert (back.ddof, back.gamma, back.lam) == (1, None, None)
    for weight in ("truncate", "mask"):
        corrected = grpo.overridden(mismatch_weight=weight)
        assert corrected.mismatch_cap == 2.0
        assert corrected.overridden(mismatch_weight="none").mismatch_cap is None
    assert VARIANTS["rloo"].overridden(kl_coef=0.1, kl_estimator="k1", kl_placement="reward").kl_placement == "reward"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("variant", "choices", "message"),
    [
        ("grpo", {"advantge": "raw"}, "unknown choice 'advantge'; did you mean 'advantage'"),
        ("grpo", {"variant": "dapo"}, "unknown choice 'variant'"),
        ("grpo", {"source": "me"}, "unknown choice 'source'"),
        ("grpo", {"advantage": "group_centered"}, "did you mean 'group_centred'"),
        ("grpo", {"surrogate": "gspo"}, "unknown surrogate 'gspo'; choose one of policy_gradient"),
        ("grpo", {"aggregation": "mean"}, "unknown aggregation 'mean'"),
        ("grpo", {"ddof": 2}, "ddof must be 0"),
        ("grpo", {"ddof": True}, "ddof must be 0"),
        ("grpo", {"ddof": None}, "ddof must be 0"),
        ("dr_grpo", {"ddof": 1}, "ddof = 1 would never be read: advantage = 'group_centred'"),
        ("dr_grpo", {"advantage": "group_standardised"}, "ddof must be 0"),
        ("rloo", {"surrogate": "clipped"}, "eps_low must be a number"),
        ("rloo", {"surrogate": "clipped", "eps_low": 0.2}, "eps_high must be a number"),
        ("rloo", {"eps_low": 0.2}, "would never be read: surrogate = 'policy_gradient' has no clip"),
        ("rloo", {"eps_high": 0.2}, "would never be read"),
        ("grpo", {"surrogate": "importance", "eps_low": 0.1}, "would never be read"),
        ("grpo", {"eps_low": 0.0}, "eps_low must be a number in"),
        ("grpo", {"eps_low": 1.0}, "eps_low must be a number in"),
        ("grpo", {"eps_low": "0,2"}, "eps_low must be a number in"),
        ("grpo", {"eps_high": -0.2}, "eps_high must be a number above 0"),
        ("grpo", {"eps_high": math.inf}, "eps_high must be a number above 0"),
        ("grpo", {"kl_coef": -0.1}, "kl_coef must be a finite number, at least 0"),
        ("grpo", {"kl_coef": math.nan}, "kl_coef must be a finite number"),
        ("grpo", {"kl_coef": "0,04"}, "kl_coef must be a finite number"),
        ("grpo", {"kl_coef": False}, "kl_coef must be a finite number"),
        ("grpo", {"kl_estimator": "k4"}, "unknown kl_estimator 'k4'"),
        ("grpo", {"kl_coef": 0.0, "kl_estimator": "k4"}, "unknown kl_estimator 'k4'"),
        ("grpo", {"kl_coef": 0.0, "kl_placement": "here"}, "unknown kl_placement 'here'"),
        ("grpo", {"kl_estimator": None}, "unknown kl_estimator None; choose one of k1, k2, k3"),
        ("grpo", {"eps_max": 5.0}, "eps_max = 5.0 would never be read: surrogate = 'clipped' has no cap on the ratio"),
        ("grpo", {"eps_max": 5.0}, "Remove it, or use surrogate = 'cispo'"),
        ("grpo", {"dual_clip": 3.0}, "Remove it, or use surrogate = 'dual_clipped'"),
        ("grpo", {"gamma": 1.0, "lam": 0.9}, "Remove them, or use advantage = 'gae'"),
        ("grpo", {"mismatch_cap": 2.0}, "Remove it, or use mismatch_weight = 'truncate' or 'mask'"),
        ("grpo", {"mismatch_weight": "truncated"}, "did you mean 'truncate'"),
        ("grpo", {"mismatch_weight": "mask", "mismatch_cap": 0}, "mismatch_cap must be a number above 0"),
        ("grpo", {"surrogate": "cispo", "eps_low": 0.2}, "eps_low = 0.2 would never be read"),
        ("cispo", {"eps_max": 0.2}, "eps_max must be a number of at least 1.*TRL's default"),
        ("grpo", {"surrogate": "dual_clipped", "dual_clip": 1}, "dual_clip must be a number above 1"),
        ("ppo", {"gamma": 1.01}, r"gamma must be a number in \[0, 1\]"),
        ("ppo", {"lam": -0.1}, r"lam must be a number in \[0, 1\]"),
        ("ppo", {"ddof": 2}, "ddof must be 0"),
        ("ppo", {"surrogate": "sequence_clipped"}, "one ratio per completion and advantage = 'gae' one advantage per"),
        ("gspo", {"advantage": "gae"}, "Use surrogate = 'clipped'"),
        ("grpo", {"entropy_coef": -0.1}, "entropy_coef must be a finite number, at least 0"),
        ("grpo", {"entropy_coef": math.inf}, "entropy_coef must be a finite number"),
        ("dapo", {"kl_coef": 0.1}, "unknown kl_estimator None; choose one of k1, k2, k3"),
        ("dapo", {"kl_estimator": "k3"}, "would never be read while kl_coef is 0"),
        ("dapo", {"kl_placement": "loss"}, "would never be read while kl_coef is 0"),
    ],
)
def test_choices_without_meaning_are_refused_with_the_way_out(variant: str, choices: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        VARIANTS[variant].overridden(**choices)


def test_an_objective_of_ones_own_is_held_to_the_same_rules():
    with pytest.raises(ValueError, match="ddof must be 0"):
        Objective(
            variant="mine", advantage="group_standardised", surrogate="importance", aggregation="token_mean", source=""
        )


def test_the_table_is_read_without_torch():
    code = (
        "import sys, steelyard.numerics, steelyard.numerics.variants as v; assert len(v.VARIANTS) == 10; "
        "bad = {'torch', 'numpy', 'scipy', 'jaxtyping'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_found_where_it_is_asked_for():
    for name in numerics.__all__:
        assert getattr(numerics, name) is not None
    assert dir(numerics) == sorted(numerics.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'grpo'"):
        _ = numerics.grpo  # pyright: ignore[reportAttributeAccessIssue]
