"""`steelyard reward-model` as a user runs it, and a training that is paid by what it made."""

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from steelyard.config import load
from steelyard.errors import UpdateError
from steelyard.evals.model_judge import read_ensemble
from steelyard.ledger.reader import LedgerReader
from steelyard.run.reporter import Silent
from steelyard.run.reward_model import reward_model
from steelyard.run.reward_model_recipe import RewardModelRecipe
from steelyard.update.batching import TrainRow
from steelyard.update.reward_model import load_reward_model, score


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
    spread = record["margin_spread"]
    assert spread["low"] < spread["median"] < spread["high"]
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


def test_several_reward_models_pay_as_one_ensemble(cli, own_task, preferences):
    short = ("reward_model.members=1", "reward_model.epochs=1")
    directories = [cli("reward-model", preferences, f"run.seed={seed}", *short).last_line for seed in (0, 1)]
    done = cli(
        "train",
        paid_by(own_task, directories[0]),
        f"reward.model={json.dumps(directories)}",
        "reward.disagreement_penalty=1",
    )
    assert done.code == 0
    run = Path(done.last_line)
    with LedgerReader(run / "ledger.sqlite") as ledger:
        verdicts = [row.verdict for row in ledger.verdicts("train")]
        judges = {row.judge for row in ledger.verdicts("train")}
    assert judges == {f"reward:model:{directories[0]},{directories[1]}"}
    assert all(verdict.detail.startswith("2 members, deviation") for verdict in verdicts)
    assert cli("train", run / "recipe.toml", "run.dir=again").code == 0  # a list is dumped and read again
    twice = cli("train", own_task.with_name("paid.toml"), f"reward.model={json.dumps([directories[0]] * 2)}")
    assert twice.code == 2
    assert "twice" in twice.err


@pytest.mark.sandbox
def test_a_suite_judges_beside_it_and_is_not_paid(cli, workdir, preferences, model_directory):
    """The booking task with a reward model: both verdicts of every training answer, the suite alone in the measurements."""
    roomy = workdir / "roomy"
    shutil.copytree(model_directory, roomy)
    config = json.loads((roomy / "config.json").read_text())
    (roomy / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2048}))
    short = ("reward_model.members=1", "reward_model.epochs=1", f"model.source={roomy}")
    directory = cli("reward-model", preferences, *short).last_line
    (workdir / "both.toml").write_text(
        f"""
[run]
updates = 1
threads = 1
[model]
source = "{roomy}"
[task]
name = "booking"
[reward]
model = "{directory}"
[rollout]
group_size = 4
max_new_tokens = 8
[optimizer]
lr = 1e-3
[eval]
samples = 2
"""
    )
    done = cli("train", "both.toml")
    assert done.code == 0, done.err
    with LedgerReader(Path(done.last_line) / "ledger.sqlite") as ledger:
        primary = [row for row in ledger.verdicts("train") if row.is_primary]
        beside = [row for row in ledger.verdicts("train") if row.judge == "booking:reference"]
        measured = {row.judge for row in ledger.verdicts("eval")}
        scores = [event.data["score"] for event in ledger.evals()]
    assert {row.judge for row in primary} == {f"reward:model:{directory}"}
    assert len(primary) == len(beside) == 4
    assert {row.verdict.reward for row in beside} == {0.0}
    assert len({row.verdict.reward for row in primary}) == 4
    assert not any(name.startswith("reward:") for name in measured)
    assert [score["value"] for score in scores if isinstance(score, dict)] == [0.0, 0.0]
    narrow = cli("reward-model", preferences, "reward_model.members=1", "reward_model.epochs=1").last_line
    refused = cli("train", "both.toml", f"reward.model={narrow}")
    assert refused.code == 2
    assert "more than the 128 that the reward model" in " ".join(refused.err.split())


class StopAt(Silent):
    def __init__(self, step: int) -> None:
        self.step, self.stop = step, threading.Event()

    def progress(self, text, *, done, total):
        if done == self.step:
            self.stop.set()


def test_a_stop_keeps_the_members_that_were_begun_and_they_can_pay(cli, own_task, preferences):
    recipe = load(preferences, RewardModelRecipe)
    steps = 3 * -(-len(reward_model(recipe, name="whole").pairs.train) // 8)
    for stop_at, members in ((2, 1), (steps, 1), (steps + 1, 2)):
        reporter = StopAt(stop_at)
        result = reward_model(recipe, name=f"stopped-{stop_at}", reporter=reporter, stop=reporter.stop)
        record = json.loads((result.directory / "reward_model.json").read_text())
        assert (result.finished, record["finished"], result.steps) == (False, False, stop_at)
        assert len((result.directory / "steps.jsonl").read_text().splitlines()) == stop_at
        assert len(record["members"]) == len(list(result.directory.glob("member-*"))) == members
    done = cli("train", paid_by(own_task, str(result.directory)))
    assert done.code == 0
    assert "was stopped before its end" in " ".join(done.err.split())


def test_a_stop_before_the_first_step_leaves_one_member(preferences):
    stop = threading.Event()
    stop.set()
    result = reward_model(load(preferences, RewardModelRecipe), stop=stop)
    assert (result.finished, result.steps, len(result.members)) == (False, 0, 1)
    assert result.members[0].ranked_rightly == result.before.ranked_rightly


def test_a_model_that_diverges_ends_with_a_reason_and_keeps_the_steps_before(preferences):
    with pytest.raises(UpdateError, match=r"Lower optimizer\.lr"):
        reward_model(load(preferences, RewardModelRecipe, ["optimizer.lr=1e30", "optimizer.max_grad_norm=inf"]))
    assert Path("runs/reward-model-s0/steps.jsonl").read_text().count("\n") >= 1
    assert not Path("runs/reward-model-s0/reward_model.json").exists()


def test_the_spread_is_that_of_the_margins_of_the_mean(preferences):
    result = reward_model(load(preferences, RewardModelRecipe, ["reward_model.members=1"]))
    (member,) = read_ensemble(result.directory).members
    model, _ = load_reward_model(member.directory)
    rows = [
        TrainRow(prompt_ids=pair.prompt_ids, token_ids=answer, logprobs=())
        for pair in result.pairs.held_out
        for answer in (pair.chosen_ids, pair.rejected_ids)
    ]
    rewards = score(model, rows, token_budget=4096).numpy() / member.std
    margins = rewards[0::2] - rewards[1::2]
    wanted = np.quantile(margins, [0.1, 0.5, 0.9])
    found = result.spread
    assert [found.low, found.median, found.high] == pytest.approx(wanted.tolist(), rel=1e-6)


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
