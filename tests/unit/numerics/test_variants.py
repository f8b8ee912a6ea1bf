import dataclasses
import math
import subprocess
import sys

import pytest

from steelyard import numerics
from steelyard.numerics.variants import VARIANTS, Objective


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
    }


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
        (
            "grpo",
            {"kl_placement": "reward"},
            "kl_placement = 'reward' is not implemented yet; use kl_placement = 'loss'",
        ),
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
        "import sys, steelyard.numerics, steelyard.numerics.variants as v; assert len(v.VARIANTS) == 6; "
        "bad = {'torch', 'numpy', 'scipy', 'jaxtyping'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_found_where_it_is_asked_for():
    for name in numerics.__all__:
        assert getattr(numerics, name) is not None
    assert dir(numerics) == sorted(numerics.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'grpo'"):
        _ = numerics.grpo  # pyright: ignore[reportAttributeAccessIssue]
