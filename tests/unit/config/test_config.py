import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import build, dump, explicit_keys, load, recipe_hash, with_overrides
from steelyard.errors import ConfigError
from steelyard.numerics.variants import VARIANTS
from steelyard.run.recipe import Recipe

GOOD = {"model": {"source": "some/model"}, "task": {"name": "booking"}}


def recipe(**sections: object) -> Recipe:
    return build({**GOOD, **sections}, Recipe, where="test.toml")


def refusal(**sections: object) -> str:
    with pytest.raises(ConfigError) as caught:
        recipe(**sections)
    return str(caught.value)


def test_c80_unknown_key_names_path_nearest_and_choices():
    message = refusal(rollout={"group_sizes": 4})
    assert message.startswith("test.toml: rollout.group_sizes is not a known key; did you mean rollout.group_size?")
    assert "max_new_tokens" in message


def test_c80_key_in_the_wrong_section_is_pointed_home():
    assert "did you mean optimizer.lr?" in refusal(lr=1e-3)


def test_c80_decimal_comma_is_a_wrong_type_with_the_value():
    message = refusal(objective={"kl": {"coef": "0,04"}})
    assert "objective.kl.coef = '0,04'" in message


def test_c80_every_fault_is_reported_at_once():
    message = refusal(rollout={"group_sizes": 4}, objective={"varient": "grpo"})
    assert "group_sizes" in message
    assert "did you mean objective.variant?" in message


def test_numbers_are_not_taken_from_strings_or_bools():
    assert "rollout.group_size = '8'" in refusal(rollout={"group_size": "8"})
    assert "rollout.group_size = True" in refusal(rollout={"group_size": True})


def test_c80_a_key_twice_in_the_file(tmp_path):
    path = tmp_path / "twice.toml"
    path.write_text("[rollout]\ngroup_size = 4\ngroup_size = 8\n")
    with pytest.raises(ConfigError, match=r"not valid TOML.*line 3"):
        load(path, Recipe)


def test_c80_an_override_twice_with_different_values():
    with pytest.raises(ConfigError, match=r"run.seed is given twice, as 1 and as 2"):
        with_overrides(GOOD, ["run.seed=1", "run.seed=2"])


@pytest.mark.parametrize("text", ["run.seed", "=1", "model.source.x=1"])
def test_malformed_overrides_are_refused(text):
    with pytest.raises(ConfigError):
        with_overrides(GOOD, [text])


def test_an_override_without_a_value_takes_the_key_out():
    data = {"pairs": {"data": "a.jsonl", "held_out": 0.5}}
    assert with_overrides(data, ["pairs.data=", "pairs.ledger=runs/a"]) == {
        "pairs": {"held_out": 0.5, "ledger": "runs/a"}
    }
    with pytest.raises(ConfigError, match="does not write it"):
        with_overrides(data, ["pairs.dta="])


def test_overrides_are_toml_values_and_bare_words_are_strings():
    data = with_overrides(GOOD, ["run.seed=3", "objective.variant=dr_grpo", "optimizer.betas=[0.8, 0.9]"])
    built = build(data, Recipe, where="x")
    assert (built.run.seed, built.objective.variant, built.optimizer.betas) == (3, "dr_grpo", (0.8, 0.9))


def test_missing_file_suggests_a_neighbour(tmp_path):
    (tmp_path / "booking.toml").write_text("")
    with pytest.raises(ConfigError, match=r"did you mean .*booking.toml"):
        load(tmp_path / "bokking.toml", Recipe)


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: p.write_bytes(b"\xff\xfe")])
def test_unreadable_recipes_are_one_message(tmp_path, make):
    path = tmp_path / "r.toml"
    make(path)
    with pytest.raises(ConfigError):
        load(path, Recipe)


def test_c17_group_of_one_with_a_group_baseline_is_refused():
    message = refusal(rollout={"group_size": 1})
    assert "group of one has no baseline" in message
    assert recipe(rollout={"group_size": 1}, objective={"variant": "reinforce"}).rollout.group_size == 1


def test_c17_group_of_zero_is_another_message():
    assert "rollout.group_size = 0" in refusal(rollout={"group_size": 0})


def test_c73_truncated_sampling_is_refused_in_training():
    assert "top_p = 0.9 is refused in training" in refusal(rollout={"top_p": 0.9})


def test_c72_temperature_zero_is_refused():
    assert "rollout.temperature = 0.0" in refusal(rollout={"temperature": 0.0})


def test_exactly_one_source_of_prompts():
    assert "exactly one of task.name" in refusal(task={"name": "booking", "data": "x.jsonl"})
    assert "exactly one of task.name" in refusal(task={})


def test_unknown_variant_lists_the_choices():
    assert "dr_grpo" in refusal(objective={"variant": "grppo"})


def test_a_variant_fills_defaults_and_overrides_are_marked():
    objective, overridden = recipe(objective={"variant": "grpo", "ddof": 1, "kl": {"coef": 0.0}}).objective.resolve()
    assert (objective.advantage, objective.ddof, objective.kl_coef) == ("group_standardised", 1, 0.0)
    assert overridden == {"ddof", "kl_coef"}


def test_writing_the_variants_own_value_is_no_override():
    _, overridden = recipe(objective={"variant": "grpo", "ddof": 0}).objective.resolve()
    assert overridden == frozenset()


def test_explicit_keys_are_dotted():
    assert explicit_keys(recipe(objective={"kl": {"coef": 0.1}})) == {"model.source", "task.name", "objective.kl.coef"}


@given(
    seed=st.integers(0, 2**40),
    lr=st.floats(0, 1, allow_nan=False),
    variant=st.sampled_from(sorted(VARIANTS)),
    source=st.text(min_size=1, alphabet=st.characters(codec="utf-8", exclude_characters="\x00")),
)
def test_dump_loads_back_to_the_same_recipe(tmp_path_factory, seed, lr, variant, source):
    first = recipe(run={"seed": seed}, optimizer={"lr": lr}, objective={"variant": variant}, model={"source": source})
    path = tmp_path_factory.mktemp("dump") / "r.toml"
    path.write_text(dump(first), encoding="utf-8")
    second = load(path, Recipe)
    assert second == first
    assert recipe_hash(second) == recipe_hash(first)


def test_hash_changes_with_any_value():
    assert recipe_hash(recipe(run={"seed": 1})) != recipe_hash(recipe(run={"seed": 2}))


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"optimizer": {"lr": float("inf")}}, "optimizer.lr = inf: input should be a finite number"),
        ({"optimizer": {"eps": float("inf")}}, "optimizer.eps = inf"),
        ({"optimizer": {"weight_decay": float("inf")}}, "optimizer.weight_decay = inf"),
        ({"optimizer": {"betas": [1.0, 0.999]}}, "optimizer.betas = [1.0, 0.999]: both must lie in [0, 1)"),
        ({"optimizer": {"betas": [0.9, -0.1]}}, "optimizer.betas = [0.9, -0.1]"),
        ({"optimizer": {"betas": [float("nan"), 0.9]}}, "optimizer.betas = [nan, 0.9]"),
        ({"update": {"passes": 2, "max_kl": float("inf")}}, "update.max_kl = inf"),
        ({"reward": {"overlong_buffer": 4, "overlong_penalty": float("inf")}}, "reward.overlong_penalty = inf"),
        ({"rollout": {"temperature": float("inf")}}, "rollout.temperature = inf"),
        ({"objective": {"variant": "ppo"}, "critic": {"lr": float("inf")}}, "critic.lr = inf"),
        (
            {"objective": {"variant": "ppo"}, "critic": {"backbone": "shared", "coef": float("inf")}},
            "critic.coef = inf",
        ),
    ],
)
def test_numbers_that_no_step_can_be_taken_with_are_refused_before_anything_is_loaded(sections, words):
    assert words in refusal(**sections)


def test_one_token_per_update_is_refused_under_gae():
    one = {"group_size": 1, "prompts_per_update": 1, "max_new_tokens": 1}
    assert "one token per update" in refusal(objective={"variant": "ppo"}, rollout=one)
    assert recipe(objective={"variant": "ppo"}, rollout={**one, "max_new_tokens": 2})


def test_numbers_that_may_be_infinite_stay():
    assert recipe(
        objective={"variant": "ppo"}, critic={"clip": float("inf")}, optimizer={"max_grad_norm": float("inf")}
    )
