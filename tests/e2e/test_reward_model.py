"""`steelyard reward-model` as a user runs it, and a training that is paid by what it made."""

import json
import shutil
from pathlib import Path

import pytest

from steelyard.ledger.reader import LedgerReader


@pytest.fixture
def preferences(workdir: Path, model_directory: Path) -> Path:
    """Forty pairs that prefer digits to letters of any length, and a recipe on the random tiny model."""
    rows = [
        {"prompt": f"question {n % 10}", "chosen": "0123456789"[: 1 + n % 7], "rejected": "abcdefgh"[: 1 + n % 6]}
        for n in range(40)
    ]
    (workdir / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = workdir / "digits.toml"
    recipe.write_text(
        f"""
[run]
threads = 1
[model]
source = "{model_directory}"
[pairs]
data = "pairs.jsonl"
held_out = 0.3
[optimizer]
lr = 1e-2
[reward_model]
members = 2
epochs = 3
batch_pairs = 8
"""
    )
    return recipe


def paid_by(own_task: Path, directory: str) -> Path:
    recipe = own_task.with_name("paid.toml")
    recipe.write_text(own_task.read_text().replace('function = "reward.py:score"', f'model = "{directory}"'))
    return recipe


def test_an_ensemble_is_trained_measured_and_written_down(cli, preferences):
    done = cli("reward-model", preferences)
    assert done.code == 0
    directory = Path(done.last_line)
    record = json.loads((directory / "reward_model.json").read_text())
    lines = [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]
    assert record["finished"]
    assert len(lines) == record["steps"] == record["steps_planned"] == 2 * 3 * -(-record["pairs"]["train"] // 8)
    assert {line["member"] for line in lines} == {0, 1}
    assert record["after"]["ranked_rightly"]["value"] > 0.9
    assert len(record["after_each"]) == 2
    assert record["disagreement"] > 0.0
    assert 0.0 <= record["length"]["chosen_longer"] <= 1.0
    hashes = [member["parameter_hash"] for member in record["members"]]
    assert hashes[0] != hashes[1]
    assert (directory / "plot.png").stat().st_size > 1000
    assert "MISSING" not in done.err
    again = cli("reward-model", preferences)
    assert json.loads((Path(again.last_line) / "reward_model.json").read_text()) == record


def test_a_policy_is_paid_by_it_and_the_ledger_says_so(cli, own_task, preferences):
    directory = cli("reward-model", preferences).last_line
    done = cli("train", paid_by(own_task, directory), "reward.disagreement_penalty=0.5")
    assert done.code == 0
    with LedgerReader(Path(done.last_line) / "ledger.sqlite") as ledger:
        verdicts = ledger.verdicts("train")
        notes = [str(event.data["text"]) for event in ledger.events("note")]
        informative = [row.groups_informative for row in ledger.updates()]
    assert {row.judge for row in verdicts} == {f"reward:model:{directory}"}
    assert len({row.verdict.reward for row in verdicts}) > 10
    assert informative == [2, 2]
    member = json.loads((Path(directory) / "reward_model.json").read_text())["members"][0]
    assert any(member["parameter_hash"] in note for note in notes)


def test_one_member_and_nothing_held_out(cli, preferences):
    done = cli("reward-model", preferences, "reward_model.members=1", "pairs.held_out=0", "reward_model.epochs=1")
    record = json.loads((Path(done.last_line) / "reward_model.json").read_text())
    assert (record["before"], record["after"], record["after_each"], record["disagreement"]) == (None, None, [], None)
    assert "nothing was measured" in done.err


def test_a_training_that_cannot_be_paid_is_refused(cli, own_task, preferences):
    directory = cli("reward-model", preferences, "reward_model.members=1", "reward_model.epochs=1").last_line
    paid = paid_by(own_task, directory)
    for overrides, said in [
        (["reward.model=nowhere"], "is no reward model"),
        (["reward.disagreement_penalty=0.5"], "one member, which never disagrees"),
        (["reward.function=reward.py:score"], "not both"),
    ]:
        done = cli("train", paid, *overrides)
        assert done.code == 2
        assert said in done.err
    done = cli("train", own_task, "reward.disagreement_penalty=0.5")
    assert done.code == 2
    assert "would never be read" in done.err
    shutil.rmtree(Path(directory) / "member-0")
    done = cli("train", paid)
    assert done.code == 2
    assert "member-0 is missing" in done.err


@pytest.mark.parametrize(
    ("override", "said"),
    [("reward_model.members=0", "reward_model.members"), ("pairs.data=none.jsonl", "no file at none.jsonl")],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(cli, preferences, override, said):
    done = cli("reward-model", preferences, override)
    assert done.code == 2
    assert said in done.err
    assert not Path("runs").exists()
