import math

import numpy as np
import pytest
import torch

from steelyard.errors import ConfigError, RewardError
from steelyard.verify.reward_functions import load_reward_function, score

PROMPTS, COMPLETIONS = list("pqrstu"), list("abcdef")


def scored(returned, **columns):
    def reward_length(prompts, completions, **columns):
        return returned

    return score(reward_length, PROMPTS, COMPLETIONS, columns)


# ------------------------------------------------------------------ loading


def test_a_function_of_a_file_and_of_a_module(tmp_path):
    (tmp_path / "my.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\ndef score(**_): return [1.0]\n"
    )
    assert load_reward_function(f"{tmp_path}/my.py:score")() == [1.0]
    assert load_reward_function("math:sqrt") is math.sqrt


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("score", "must be file.py:name or package.module:name, got 'score'"),
        (":score", "must be file.py:name"),
        ("my.py:", "must be file.py:name"),
        ("absent.py:score", "there is no file absent.py"),
        ("no_such_package.module:score", "there is no module 'no_such_package.module'.*write its path"),
        ("math:squrt", "math has no function 'squrt'. Did you mean 'sqrt'?"),
        ("math:pi", "'pi' in math is of type float"),
    ],
)
def test_what_cannot_be_loaded_says_why_and_the_way_out(spec, says):
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        load_reward_function(spec)


def test_a_misspelt_name_and_a_file_that_raises(tmp_path):
    path = tmp_path / "my.py"
    path.write_text("def length_reward(**_): ...\ndef _private(): ...\n")
    with pytest.raises(ConfigError, match=r"no function 'score'. It has: length_reward\."):
        load_reward_function(f"{path}:score")
    with pytest.raises(ConfigError, match="Did you mean 'length_reward'"):
        load_reward_function(f"{path}:lenght_reward")
    path.write_text("import math\nx = 1 / 0\n")
    with pytest.raises(ConfigError, match=r"raised ZeroDivisionError: division by zero .*my.py, line 2: x = 1 / 0"):
        load_reward_function(f"{path}:score")
    path.write_text("import no_such_package\n")
    with pytest.raises(
        ConfigError, match=r"importing .*my\.py raised ModuleNotFoundError: No module named 'no_such_package'"
    ):
        load_reward_function(f"{path}:score")


# ------------------------------------------------------------------ calling


def test_columns_arrive_by_name_and_only_what_the_signature_takes():
    seen = {}

    def all_of_it(prompts, completions, **columns):
        seen.update(columns, prompts=prompts, completions=completions)
        return [1.0] * 6

    def some_of_it(completions, answer, other=None):
        seen.update(answer=answer, other=other)
        return [0.5] * 6

    columns = {"answer": list("ABCDEF"), "completion_ids": [[1]] * 6}
    assert score(all_of_it, PROMPTS, COMPLETIONS, columns) == [1.0] * 6
    assert seen == {"prompts": PROMPTS, "completions": COMPLETIONS, **columns}
    assert score(some_of_it, PROMPTS, COMPLETIONS, columns) == [0.5] * 6
    assert seen["answer"] == columns["answer"]
    assert seen["other"] is None


def test_a_column_that_is_lacking_is_named():
    def needs_answer(completions, answer):
        return [0.0] * len(completions)

    with pytest.raises(
        RewardError, match=r"'needs_answer' needs 'answer'; the data has 'prompts', 'completions', 'level'"
    ):
        score(needs_answer, PROMPTS, COMPLETIONS, {"level": [1] * 6})


@pytest.mark.parametrize(
    ("returned", "right"),
    [
        ([0, 1, 0.5, -2, True, False], [0.0, 1.0, 0.5, -2.0, 1.0, 0.0]),
        ((1.0,) * 6, [1.0] * 6),
        ([None, 1.0, None, 1.0, None, 1.0], [None, 1.0, None, 1.0, None, 1.0]),
        (np.arange(6), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        (torch.arange(6) / 2, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]),
        (torch.tensor([True, False] * 3), [1.0, 0.0] * 3),
        ([np.float32(0.5), torch.tensor(1), np.bool_(True), 0.0, 0.0, 0.0], [0.5, 1.0, 1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_c24_numbers_none_booleans_and_arrays_are_rewards(returned, right):
    got = scored(returned)
    assert got == right
    assert all(value is None or type(value) is float for value in got)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ([1.0], "'reward_length' returned 1 rewards for 6 completions"),
        ([], "'reward_length' returned 0 rewards for 6 completions"),
        ([1.0] * 5, "returned 5 rewards for 6 completions"),
        ([1.0] * 7, "returned 7 rewards for 6 completions"),
        (1.0, "returned a float; return a list of 6 numbers"),
        (None, "returned a NoneType; return a list of 6 numbers"),
        (np.float64(1.0), r"an array of shape \(\)"),
        (torch.zeros(6, 1), r"an array of shape \(6, 1\); return a list of 6 numbers, or shape \(6,\)"),
        (np.zeros((1, 6)), r"an array of shape \(1, 6\)"),
        ("passed", "returned a str"),
        ({"a": 1.0}, "returned a dict"),
        ((x for x in [1.0] * 6), "returned a generator"),
        (["1.0"] * 6, "returned a str for completion 0: '1.0'"),
        ([0.0, 0.0, [1.0], 0.0, 0.0, 0.0], r"returned a list for completion 2: \[1.0\]"),
        ([torch.zeros(1)] * 6, "returned a list for completion 0"),
    ],
)
def test_c23_anything_else_names_the_function_what_was_expected_and_what_came(returned, says):
    with pytest.raises(RewardError, match=says) as caught:
        scored(returned)
    assert "'reward_length'" in str(caught.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan"), 10**400])
def test_c24_numbers_that_are_not_finite_are_refused(bad):
    with pytest.raises(RewardError, match="for completion 5; return a finite number, or None"):
        scored([0.0] * 5 + [bad])


def test_an_exception_names_the_function_and_its_line():
    def reward_by_division(completions, **_):
        return [1 / (len(text) - 1) for text in completions]

    with pytest.raises(
        RewardError,
        match=r"'reward_by_division' raised ZeroDivisionError: .*test_reward_functions.py, line \d+: return \[1 /",
    ):
        score(reward_by_division, PROMPTS, COMPLETIONS, {})


def test_the_line_is_the_users_even_when_a_library_raised():
    def reward_by_numpy(completions, **_):
        return np.stack([])

    with pytest.raises(RewardError, match=r"test_reward_functions.py, line \d+: return np.stack"):
        score(reward_by_numpy, PROMPTS, COMPLETIONS, {})


def test_a_callable_object_has_a_name_too():
    class Constant:
        def __call__(self, **_):
            return [1.0]

    with pytest.raises(RewardError, match="'Constant' returned 1 rewards"):
        score(Constant(), PROMPTS, COMPLETIONS, {})
