"""`steelyard dpo` as a user runs it: from a file, from a run, again, stopped, and asked for what cannot be."""

import json
import threading
from pathlib import Path

import pytest

from steelyard.config import load
from steelyard.errors import UpdateError
from steelyard.run.dpo import dpo
from steelyard.run.dpo_recipe import DpoRecipe
from steelyard.update.models import load_policy


@pytest.fixture
def preferences(workdir: Path, model_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty pairs that prefer digits to letters, and a recipe on the random tiny model."""
    monkeypatch.setenv("STEELYARD_CACHE", str(workdir / "cache"))
    rows = [
        {"prompt": f"question {n % 10}", "chosen": str(1000 + 7 * n), "rejected": "abcdefgh"[: 2 + n % 6]}
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
lr = 1e-3
[dpo]
beta = 0.5
epochs = 4
batch_pairs = 8
"""
    )
    return recipe


def test_pairs_of_a_file_are_learnt_and_everything_is_written_down(cli, preferences):
    done = cli("dpo", preferences)
    assert done.code == 0
    directory = Path(done.last_line)
    assert directory == Path("runs/digits-s0")
    record = json.loads((directory / "dpo.json").read_text())
    lines = [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]
    assert record["finished"]
    assert record["steps"] == record["steps_planned"] == len(lines) == 4 * -(-record["pairs"]["train"] // 8)
    assert lines[0]["margin"] == 0.0
    assert lines[0]["loss"] == pytest.approx(0.6931471805599453, rel=1e-15)
    assert sorted(index for line in lines[: len(lines) // 4] for index in line["pairs"]) == list(
        range(record["pairs"]["train"])
    )
    assert record["before"]["by_reward"]["ties"] == record["pairs"]["held_out"]
    assert record["after"]["by_reward"]["ranked_rightly"]["value"] > 0.9
    assert record["after"]["by_reward"]["margin"] > 0.0
    assert record["parameter_hash_before"] != record["parameter_hash_after"]
    assert load_policy(str(directory / "model")).parameter_count > 0
    assert (directory / "plot.png").stat().st_size > 1000
    assert load(directory / "recipe.toml", DpoRecipe) == load(preferences, DpoRecipe)
    assert "ranked rightly" in done.err


def test_the_same_recipe_gives_the_same_weights_and_finds_the_reference_in_the_cache(cli, preferences):
    first, again, other = (cli("dpo", preferences, *more) for more in ((), (), ("run.seed=1",)))
    records = [json.loads((Path(done.last_line) / "dpo.json").read_text()) for done in (first, again, other)]
    assert [Path(done.last_line).name for done in (first, again, other)] == ["digits-s0", "digits-s0-2", "digits-s1"]
    assert records[0] == records[1]
    assert records[2]["parameter_hash_after"] != records[0]["parameter_hash_after"]
    assert "with the reference" in first.err
    assert "with the reference" not in again.err
    assert len(list(Path("cache/reference").iterdir())) == 1


def test_groups_of_a_run_become_pairs(cli, own_task, preferences):
    longer = ("rollout.group_size=16", "rollout.max_new_tokens=64")  # long enough for some answers to end
    run = cli("train", own_task, "run.updates=3", "eval.samples=0", *longer).last_line
    done = cli("dpo", preferences, "dpo.epochs=1", "pairs.data=", f"pairs.ledger={run}")
    record = json.loads((Path(done.last_line) / "dpo.json").read_text())
    made = record["pairs"]["train"] + record["pairs"]["held_out"]
    assert 1 <= made <= 6
    assert made + sum(count for why, count in record["pairs"]["left_out"].items() if why.startswith("groups")) == 6
    assert "answers cut at the token limit" in " ".join(done.err.split())


def test_a_run_whose_answers_are_all_cut_gives_no_pair_and_says_so(cli, own_task, preferences):
    run = cli("train", own_task, "run.updates=1", "eval.samples=0").last_line
    preferences.write_text(preferences.read_text().replace('data = "pairs.jsonl"', f'ledger = "{run}"'))
    done = cli("dpo", preferences)
    assert done.code == 2
    assert "8 answers cut at the token limit; 2 groups with fewer than two whole" in done.err


def test_without_held_out_pairs_it_says_that_nothing_is_measured(cli, preferences):
    done = cli("dpo", preferences, "pairs.held_out=0", "dpo.epochs=1")
    record = json.loads((Path(done.last_line) / "dpo.json").read_text())
    assert (record["before"], record["after"]) == (None, None)
    assert "nothing is measured" in " ".join(done.err.split())


def test_a_stop_keeps_the_steps_taken_and_a_policy(preferences):
    stop = threading.Event()

    class StopAtTwo:
        def stage(self, text): ...
        def started(self, directory, *, updates): ...
        def note(self, text): ...
        def measured(self, measurement): ...
        def updated(self, row, *, seconds): ...
        def progress(self, text, *, done, total):
            if done == 2:
                stop.set()

    result = dpo(load(preferences, DpoRecipe), reporter=StopAtTwo(), stop=stop)
    assert (result.finished, result.steps) == (False, 2)
    assert len((result.directory / "steps.jsonl").read_text().splitlines()) == 2
    assert (result.directory / "model" / "config.json").is_file()
    assert not json.loads((result.directory / "dpo.json").read_text())["finished"]


def test_a_policy_that_diverges_ends_with_a_reason_and_keeps_the_steps_before(preferences):
    recipe = load(preferences, DpoRecipe, ["optimizer.lr=1e30", "optimizer.max_grad_norm=inf"])
    with pytest.raises(UpdateError, match=r"Lower optimizer\.lr"):
        dpo(recipe)
    assert Path("runs/dpo-s0/steps.jsonl").read_text().count("\n") >= 1


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("dpo.beta=0", "dpo.beta"),
        ("dpo.bta=0.1", "did you mean"),
        ("pairs.data=none.jsonl", "no file at none.jsonl; did you mean"),
        ("model.source=./nowhere", "no such directory"),
        ("run.dir=pairs.jsonl", "is a file"),
        ("pairs.held_out=1.0", "pairs.held_out"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(cli, preferences, override, said):
    if override.startswith("pairs.data"):
        (preferences.parent / "nine.jsonl").write_text("")
    done = cli("dpo", preferences, override)
    assert done.code == 2
    assert said in done.err
    assert not Path("runs").exists()
