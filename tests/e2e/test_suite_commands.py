"""`steelyard suite`: what it prints, how it leaves, and a repaired suite in training and on the card."""

import json
import re
import shutil
from pathlib import Path

import pytest

from steelyard.cli_suite import app
from steelyard.tasks.blind_spots import SPOTS
from steelyard.tasks.suite_files import write_suite

COMMANDS = ["strength", "repair"]
QUICKLY = ("--pool", "60")

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(cli, command):
    result = cli("suite", command, "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    assert f"steelyard suite {command}" in result.out


def test_the_list_of_commands_is_complete():
    assert [command.callback.__name__ for command in app.registered_commands if command.callback] == COMMANDS


def test_the_parts_come_in_the_written_order(cli, workdir):
    result = cli("suite", "strength", "closest_to_zero:weak", *QUICKLY)
    assert result.code == 0, result.err
    heads = [line.split(":")[0] for line in result.out.splitlines() if line and not line.startswith(" ")]
    assert heads == [
        "closest_to_zero",
        "Sanity",
        "Survivors",
        "Score",
        "False acceptance",
        "Partial credit",
        "Redundancy",
        "Stability",
    ]
    assert "assert closest_to_zero([-1]) == -1" in result.out
    assert re.search(r"by_key .* 1\.000  9 of 9, passed, the same again", result.out)
    assert "G = 16" in result.out


def test_fail_on_survivor_leaves_with_1_and_the_json_says_the_same(cli, workdir):
    result = cli(
        "suite", "strength", "closest_to_zero:weak", *QUICKLY, "--fail-on", "survivor", "--json", "--to", "r.json"
    )
    assert result.code == 1
    data = json.loads(result.out)
    assert data == json.loads(Path("r.json").read_text())
    assert data["identity"]["suite"] == "closest_to_zero:weak"
    assert all(survivor["test"].startswith("assert closest_to_zero(") for survivor in data["survivors"])
    assert data["score"]["total"]["count"] < data["score"]["total"]["of"]


def test_the_same_request_gives_the_same_report(cli, workdir):
    one, two = (json.loads(cli("suite", "strength", "same_total:weak", "--pool", "20", "--json").out) for _ in range(2))
    for data in (one, two):
        data["stability"] = data["stability"]["changed"]
    assert one == two


def test_a_repaired_suite_has_no_survivor_trains_and_is_on_the_card(cli, workdir, model_directory):
    made = cli("suite", "repair", "closest_to_zero:weak", *QUICKLY, "--tests", "12", "--to", "better.json")
    assert made.code == 0 and made.last_line == "better.json", made.err
    digest = json.loads(Path("better.json").read_text())["hash"]
    assert digest in made.err and re.search(r"paid in full: \d+ before, 0 now", made.err)
    checked = cli("suite", "strength", "closest_to_zero:better.json", *QUICKLY, "--fail-on", "survivor")
    assert checked.code == 0 and digest in checked.out and "version 2" in checked.out
    again = cli("suite", "repair", "closest_to_zero:weak", *QUICKLY, "--to", "better.json")
    assert again.code == 2 and "does not exist yet" in again.err

    recipe = write_recipe(model_directory)
    trained = cli("train", recipe, "task.suite=better.json")
    assert trained.code == 0, trained.err
    card = json.loads(cli("card", trained.last_line, "--json").out)
    assert card["task"]["suites"]["weak"] == {"hash": digest, "version": 2, "cases": 12}
    assert "better.json" in card["recipe"]

    saved = cli("suite", "strength", "closest_to_zero:weak", *QUICKLY, "--run", trained.last_line)
    assert saved.code == 0, saved.err
    assert "False acceptance: 8 completions" in saved.out and "constant groups" in saved.out


def write_recipe(model_directory: Path) -> Path:
    """A random tiny model with room for the prompt; its answers hold no program."""
    long = shutil.copytree(model_directory, Path("model"))
    config = json.loads((long / "config.json").read_text())
    (long / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}))
    recipe = Path("small.toml")
    recipe.write_text(
        '[run]\nupdates = 1\nthreads = 1\n[model]\nsource = "model"\n[task]\nname = "closest_to_zero"\n'
        "[rollout]\nprompts_per_update = 1\ngroup_size = 4\nmax_new_tokens = 4\n[objective]\nkl.coef = 0.0\n"
        "[eval]\nsamples = 2\n"
    )
    return recipe


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("strength", "booking"), "write TASK:SUITE"),
        (("strength", "booking:weka"), "has no suite 'weka'"),
        (("strength", "booking:weak", "--fail-on", "score"), "it takes survivor"),
        (
            ("strength", "closest_to_zero:weak", "--pool", "5", "--to", "no/such/x.json"),
            "name a file that does not exist yet",
        ),
        (("repair", "booking:weak", "--to", "x.txt"), "name a .json file"),
        (("repair", "closest_to_zero:audit", "--to", "x.json"), "the suite that measures"),
        (("repair", "closest_to_zero:weak", "--tests", "0", "--to", "x.json"), "at least 1"),
        (("repair", "closest_to_zero:complete", "--pool", "30", "--to", "x.json"), "nothing to repair"),
    ],
)
def test_a_request_that_cannot_work_leaves_with_2_and_a_reason(cli, workdir, args, words):
    result = cli("suite", *args)
    assert result.code == 2, result.out
    assert words in result.err
    assert "Traceback" not in result.err
    assert not Path("x.json").exists()


def test_the_repaired_suite_of_another_task_is_refused_in_training(cli, workdir, model_directory):
    write_suite(SPOTS["count_pairs"].task().suites["weak"], Path("pairs.json"))
    result = cli("train", write_recipe(model_directory), "task.suite=pairs.json")
    assert result.code == 2
    assert "holds a suite of task count_pairs" in result.err
