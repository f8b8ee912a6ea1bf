"""The README's road for a newcomer: `steelyard init`, train on those 20 prompts, look at what happened."""

import json
from pathlib import Path

import pytest

WARM_UP = """
[run]
threads = 1
[corpus]
name = "booking"
programs = 200
[sft]
steps = 3
batch_tokens = 256
"""


@pytest.fixture
def quick_model(workdir, monkeypatch):
    """The starter's own kind of model, warmed up for three steps only, so that the test takes seconds."""
    monkeypatch.setenv("STEELYARD_CACHE", str(workdir / "cache"))
    (workdir / "warm-up.toml").write_text(WARM_UP)
    return "sft:warm-up.toml"


def test_init_writes_a_starter_that_trains_as_it_is(cli, workdir, quick_model, monkeypatch):
    assert cli("init", "mine").code == 0
    (workdir / "mine/warm-up.toml").write_text((workdir / "warm-up.toml").read_text())
    monkeypatch.chdir(workdir / "mine")
    assert len(Path("prompts.jsonl").read_text().splitlines()) == 20
    result = cli(
        "train", "recipe.toml", f"model.source={quick_model}", "run.updates=2", "run.threads=1", "eval.samples=1"
    )
    assert result.code == 0, result.err
    run = result.last_line
    card = json.loads(cli("card", run, "--json").out)
    assert card["updates"]["done"] == 2
    assert card["task"]["prompts"] + card["task"]["held_out_prompts"] == 20
    assert "Update 1" in cli("why", run, "--update", 1).out


def test_init_never_overwrites(cli, workdir):
    (workdir / "reward.py").write_text("mine")
    result = cli("init")
    assert result.code == 2
    assert (workdir / "reward.py").read_text() == "mine"
    assert not (workdir / "recipe.toml").exists()


def test_ten_lines_of_python(workdir, model_directory):
    """The Python API of the README, on own prompts and reward."""
    from steelyard import LedgerReader, Recipe, train

    Path("my.jsonl").write_text("".join(json.dumps({"prompt": f"Say {n}"}) + "\n" for n in range(20)))
    Path("my.py").write_text(
        "def score(prompts, completions, **_):\n    return [len(set(c)) / 10 for c in completions]\n"
    )
    recipe = Recipe.model_validate(
        {
            "run": {"updates": 1, "threads": 1},
            "model": {"source": str(model_directory)},
            "task": {"data": "my.jsonl"},
            "reward": {"function": "my.py:score"},
            "rollout": {"max_new_tokens": 8, "group_size": 4},
            "eval": {"samples": 1},
        }
    )
    result = train(recipe, name="mine")
    with LedgerReader(result.directory / "ledger.sqlite") as reader:
        assert reader.update(1).grad_norm > 0
