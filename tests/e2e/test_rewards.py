"""Where rewards come from: verifiers, parts, functions that fail; real runs on the random tiny model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from steelyard.ledger.reader import LedgerReader

QUICK = ("eval.samples=0",)


@pytest.fixture
def recipe(own_task: Path) -> Path:
    """The recipe of `own_task` without its reward, on rows that have an answer."""
    text = own_task.read_text().replace('[reward]\nfunction = "reward.py:score"\n', "")
    own_task.write_text(text.replace("data.jsonl", "answers.jsonl"))
    rows = [json.dumps({"prompt": f"question {n}", "answer": str(n)}) for n in range(20)]
    Path("answers.jsonl").write_text("\n".join(rows))
    Path("sometimes.py").write_text(
        "import time\n"
        "def often(prompts, completions, **_):\n"
        "    return [None if i % 2 else float(len(t) % 3) for i, t in enumerate(completions)]\n"
        "def rarely(prompts, completions, **_):\n"
        "    return [None if i == 0 else float(len(t) % 3) for i, t in enumerate(completions)]\n"
        "def stuck(prompts, completions, **_):\n"
        "    if prompts[0].endswith(('1', '2', '3', '4', '5', '6', '7', '8', '9', '0')): time.sleep(60)\n"
        "    return [1.0] * len(completions)\n"
        "def size(prompts, completions, **_):\n    return [float(sum(map(ord, t)) % 5) for t in completions]\n"
        "def zero(prompts, completions, **_):\n    return [0.0] * len(completions)\n"
    )
    return own_task


def reader(result) -> LedgerReader:
    assert result.code == 0, result.err
    return LedgerReader(Path(result.last_line) / "ledger.sqlite")


# ------------------------------------------------------------------ what cannot be judged


def test_a_run_that_often_cannot_judge_stops_and_says_why(cli, recipe):
    result = cli("train", recipe, *QUICK, "run.updates=5", "reward.function=sometimes.py:often")
    assert result.code == 1
    assert (
        "updates 1 to 2: 8 of 16 answers could not be judged (50%), more than reward.max_unscored = 0.1" in result.err
    )
    assert "the reward function gave no score" in result.err
    assert "Traceback" not in result.err
    with LedgerReader(Path("runs/own-s0/ledger.sqlite")) as ledger:
        assert [row.unscored for row in ledger.updates()] == [4, 4], (
            "four of eight in one small update were no reason yet"
        )
        assert ledger.events("verdicts")[0].data["unscored"] == 4
        counts: Any = ledger.events("verdicts")[0].data["statuses"]
        assert (counts["checker_failed"], sum(counts.values())) == (4, 8)
        assert ledger.events("stop")[-1].data["reason"] == "failed"


def test_below_the_limit_unscored_members_leave_their_group_and_the_run_goes_on(cli, recipe):
    result = cli("train", recipe, *QUICK, "reward.function=sometimes.py:rarely", "reward.max_unscored=0.3")
    assert "4 of 16" in result.out + result.err
    with reader(result) as ledger:
        assert [row.unscored for row in ledger.updates()] == [2, 2]
        assert all(len(row.members) == 6 for row in ledger.updates())


def test_c33_a_function_that_hangs_names_the_sample_and_the_run_stops(cli, recipe):
    result = cli("train", recipe, *QUICK, "run.updates=5", "reward.function=sometimes.py:stuck", "reward.seconds=0.2")
    assert result.code == 1
    assert "8 of 8 answers could not be judged" in result.err
    with LedgerReader(Path("runs/own-s0/ledger.sqlite")) as ledger:
        slowest: Any = ledger.attempts()[-2].data["slowest_verdict"]
        rows = [row for member in ledger.members(1) for row in member.verdicts]
    assert slowest["status"] == "checker_failed"
    assert slowest["seconds"] >= 0.2
    assert any("'stuck' gave no answer within reward.seconds = 0.2" in row.verdict.detail for row in rows)


# ------------------------------------------------------------------ verifiers


@pytest.mark.parametrize("verifier", ["number", "closeness", "maths"])
def test_rows_with_an_answer_train_without_a_function(cli, recipe, verifier):
    with reader(cli("train", recipe, f"reward.verifier={verifier}")) as ledger:
        assert len(ledger.updates()) == 2
        rows = [row for member in ledger.members(1) for row in member.verdicts]
        assert {row.judge for row in rows} == {f"reward:{verifier}"}
        assert {row.verdict.status.value for row in rows} <= {"no_answer", "failed", "passed"}
        assert {event.data["judge"] for event in ledger.events("eval")} == {f"reward:{verifier}"}, (
            "C30: the same function"
        )


def test_c31_a_right_answer_that_does_not_parse_is_refused_before_a_model_is_loaded(cli, recipe):
    Path("answers.jsonl").write_text(
        "\n".join(
            json.dumps({"id": f"row-{n}", "prompt": f"q{n}", "answer": "???" if n == 3 else "6"}) for n in range(6)
        )
    )
    for verifier in ("maths", "number"):
        result = cli("train", recipe, f"reward.verifier={verifier}")
        assert result.code == 2
        assert "row 'row-3' ('q3'): the right answer '???' cannot be compared with" in result.err
    result = cli("train", recipe, "reward.verifier=number", "reward.answer_column=anwser")
    assert result.code == 2
    assert "None cannot be compared with" in result.err
    assert not Path("runs").exists()


def test_problems_of_reasoning_gym_are_a_task_scored_by_their_own_rule(cli, recipe):
    pytest.importorskip("reasoning_gym")
    data = "task.data=reasoning-gym:chain_sum?size=20&seed=3"
    with reader(cli("train", recipe, data, "eval.samples=1", "rollout.max_new_tokens=4")) as ledger:
        assert {row.judge for member in ledger.members(1) for row in member.verdicts} == {"reward:reasoning-gym"}
        assert ledger.run().task["prompts"] + ledger.run().task["held_out_prompts"] == 20
    result = cli("train", recipe, "task.data=reasoning-gym:chain_sun")
    assert result.code == 2
    assert "did you mean chain_sum" in result.err


# ------------------------------------------------------------------ parts

SPREAD = ("rollout.max_new_tokens=64", "rollout.temperature=3.0", "rollout.group_size=8")
"""Answers of different lengths."""
PARTS = """
[reward]
function = "sometimes.py:%s"
weight = 2.0
[[reward.parts]]
name = "form"
verifier = "boxed"
weight = 0.5
[[reward.parts]]
name = "short"
verifier = "length"
weight = 10.0
"""


def test_every_part_is_a_verdict_row_and_the_sum_trains(cli, recipe):
    recipe.write_text(recipe.read_text() + PARTS % "size")
    result = cli("train", recipe)
    with reader(result) as ledger:
        update, members = ledger.update(1), ledger.members(1)
        card = json.loads((Path(result.last_line) / "card.json").read_text())
    assert "A weighted sum trains, mean" in cli("why", result.last_line, "--update", 1).out
    sums = []
    for member in members:
        rows = {row.judge: row.verdict.reward for row in member.verdicts}
        assert [row.judge for row in member.verdicts if row.is_primary] == ["reward:sometimes.py:size"]
        assert rows["reward:part:short"] == -len(member.stored.completion.token_ids) / 1000
        sums.append(
            2 * rows["reward:sometimes.py:size"] + 0.5 * rows["reward:part:form"] + 10 * rows["reward:part:short"]
        )
        assert rows["reward:total"] == pytest.approx(sums[-1])
    first = [
        total
        for total, member in zip(sums, members, strict=True)
        if member.stored.completion.group_id == members[0].stored.completion.group_id
    ]
    centred = [total - sum(first) / len(first) for total in first]
    assert all(a * b >= 0 for a, b in zip(centred, update.advantages, strict=False)), "advantages follow the sum"
    assert card["objective"]["choices"]["reward_parts"]["short"] == {"source": "length", "weight": 10.0}
    assert card["judged"]["mean_reward"].keys() == {"reward:sometimes.py:size", *card["eval"]["before"]["parts"]}
    assert sum(card["judged"]["statuses"].values()) == 16
    assert card["eval"]["before"]["parts"].keys() == {"reward:part:form", "reward:part:short", "reward:total"}


def test_signal_filters_look_at_the_primary_part_only(cli, recipe):
    """Length tells the answers apart, and the groups are dead all the same."""
    recipe.write_text(recipe.read_text() + PARTS % "zero")
    result = cli("train", recipe, *QUICK, *SPREAD, "rollout.dynamic_sampling=true", "rollout.max_dead_groups=3")
    assert result.code == 1
    assert "3 all 0" in result.err
    with reader(cli("train", recipe, *QUICK, *SPREAD, "run.dir=kept")) as ledger:
        assert all(row.groups_informative == 0 for row in ledger.updates())
        assert any(any(row.advantages) for row in ledger.updates()), "kept, such a group trains on its sum"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["reward.function=sometimes.py:size", "reward.verifier=number"],
            "reward.function or reward.verifier, not both",
        ),
        (["reward.verifier=numbr"], "'maths', 'number' or 'closeness'"),
        (["reward.verifier=maths", "reward.width=0.5"], "nothing is paid by closeness"),
        (["reward.verifier=maths", "reward.weight=2.0"], "there are no reward.parts"),
        (["reward.function=sometimes.py:size", "reward.answer_column=a"], "there is no verifier"),
        (["reward.verifier=maths", "reward.seconds=2.0"], "there is no reward function"),
        (["reward.verifier=maths", 'reward.parts=[{name="a", verifier="boxed", weight=0.0}]'], "a part of weight 0"),
        (["reward.verifier=maths", 'reward.parts=[{name="a"}]'], "exactly one of function and verifier"),
        (
            ["reward.verifier=maths", 'reward.parts=[{name="a", verifier="boxed"}, {name="a", verifier="length"}]'],
            "two of",
        ),
        (["reward.verifier=maths", 'reward.parts=[{name="a", verifer="boxed"}]'], "verifer is not a known key"),
    ],
)
def test_keys_without_meaning_are_refused(cli, recipe, overrides, says):
    result = cli("train", recipe, *overrides)
    assert result.code == 2
    assert says in result.err


@pytest.mark.sandbox
def test_a_suite_is_the_primary_part_and_the_yardstick_measures_alone(cli, recipe, model_directory):
    shutil.copytree(model_directory, "model")
    config = json.loads(Path("model/config.json").read_text())
    Path("model/config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
    text = recipe.read_text().replace('data = "answers.jsonl"', 'name = "booking"')
    recipe.write_text(text + '\n[[reward.parts]]\nname = "short"\nverifier = "length"\nweight = 10.0\n')
    result = cli("train", recipe, "eval.samples=1", "run.updates=1", "model.source=model", *SPREAD)
    with reader(result) as ledger:
        judges = {row.judge for member in ledger.members(1) for row in member.verdicts}
        assert {event.data["judge"] for event in ledger.events("eval")} == {"booking:audit"}
        assert any(ledger.update(1).advantages), "no program passes, and length alone trains"
    assert {"reward:part:short", "reward:total"} < judges
    assert [judge for judge in judges if judge.startswith("booking:") and "recheck" not in judge]
