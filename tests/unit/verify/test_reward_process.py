"""Reward functions in a process of their own: real functions that raise, hang and exit."""

import time

import pytest

from steelyard.errors import ConfigError, RewardError
from steelyard.verify.reward_process import RewardProcess

FUNCTIONS = """
import os, time
import numpy as np
calls = 0
def lengths(prompts, completions, **columns): return [float(len(text)) for text in completions]
def wanted(completions, wanted): return [int(text == want) for text, want in zip(completions, wanted)]
def array(completions, **_): return np.arange(len(completions)) / 2
def counted(completions, **_):
    global calls
    calls += 1
    return [float(calls)] * len(completions)
def one_bad(completions, **_): return [1 / len(text) for text in completions]
def hangs(completions, **_):
    if "hang" in completions: time.sleep(60)
    return [1.0] * len(completions)
def exits(completions, **_):
    if "exit" in completions: os._exit(0)
    return [1.0] * len(completions)
def wrong_count(completions, **_): return [1.0]
def infinite(completions, **_): return [float("inf")] * len(completions)
def abstains(completions, **_): return [None if text == "?" else 1.0 for text in completions]
def always(completions, **_): raise ValueError("no such thing")
"""


@pytest.fixture
def function(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FUNCTIONS)
    made: list[RewardProcess] = []

    def make(name: str, seconds: float = 20.0) -> RewardProcess:
        made.append(RewardProcess(f"{path}:{name}", seconds=seconds))
        return made[-1]

    yield make
    for process in made:
        process.close()


def scored(process: RewardProcess, *texts: str, **columns):
    return process.score(["p"] * len(texts), texts, columns)


def rewards(process: RewardProcess, *texts: str, **columns):
    return [each.reward for each in scored(process, *texts, **columns)]


def test_batches_columns_and_arrays_cross_over_and_the_module_is_imported_once(function):
    assert rewards(function("lengths"), "a", "bb") == [1.0, 2.0]
    assert rewards(function("wanted"), "a", "b", wanted=["a", "c"]) == [1.0, 0.0]
    assert rewards(function("array"), "a", "b") == [0.0, 0.5]
    counted = function("counted")
    assert [rewards(counted, "a"), rewards(counted, "a", "b")] == [[1.0], [2.0, 2.0]]


def test_an_exception_stays_with_the_completion_that_caused_it(function):
    good, bad, last = scored(function("one_bad"), "aa", "", "aaaa")
    assert (good.reward, bad.reward, last.reward) == (0.5, None, 0.25)
    assert "'one_bad' raised ZeroDivisionError" in bad.detail
    assert "mine.py, line 12: def one_bad" in bad.detail
    assert "completion 1 alone" in bad.detail


def test_c22_a_function_that_raises_for_every_completion_is_an_error_with_its_line(function):
    with pytest.raises(
        RewardError, match=r"'always' raised ValueError: no such thing .*mine.py, line \d+.*each of the 2"
    ):
        scored(function("always"), "a", "b")


def test_the_stuck_completion_is_named_and_the_others_are_scored(function):
    process = function("hangs", seconds=0.5)
    began = time.monotonic()
    good, stuck, last = scored(process, "a", "hang", "b")
    assert time.monotonic() - began < 20
    assert (good.reward, stuck.reward, last.reward) == (1.0, None, 1.0)
    assert "'hangs' gave no answer within reward.seconds = 0.5 (completion 1 alone)" in stuck.detail
    assert stuck.seconds >= 0.5
    assert rewards(process, "a") == [1.0], "the process was replaced"


def test_retries_are_capped(function):
    found = scored(function("hangs", seconds=0.3), *["hang"] * 5, "a")
    assert [each.reward for each in found] == [None] * 6
    assert ["not tried" in each.detail for each in found] == [False, False, True, True, True, True]


def test_c37_a_function_that_exits_leaves_its_completion_unscored(function):
    good, gone = scored(function("exits"), "a", "exit")
    assert (good.reward, gone.reward) == (1.0, None)
    assert "exit code 0" in gone.detail


@pytest.mark.parametrize(
    ("name", "says"), [("wrong_count", "returned 1 rewards for 2 completions"), ("infinite", "finite number")]
)
def test_c23_c24_what_is_no_reward_stops_with_the_same_words_as_in_process(function, name, says):
    with pytest.raises(RewardError, match=says) as caught:
        scored(function(name), "a", "b")
    assert f"'{name}'" in str(caught.value)


def test_c24_none_is_unscored_and_a_missing_column_is_named(function):
    found = scored(function("abstains"), "a", "?")
    assert [each.reward for each in found] == [1.0, None]
    assert found[1].detail == "the reward function gave no score"
    with pytest.raises(RewardError, match="needs 'wanted'; the data has"):
        scored(function("wanted"), "a", "b")


def test_what_cannot_be_imported_is_the_request_that_was_wrong(function, tmp_path):
    with pytest.raises(ConfigError, match=r"no function 'length'. Did you mean 'lengths'"):
        function("length")
    (tmp_path / "raises.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match="raised ZeroDivisionError"):
        RewardProcess(f"{tmp_path}/raises.py:score")
