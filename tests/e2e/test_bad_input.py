"""Bad input: one clear message with the way out, exit code 2, and no model loaded where that is possible."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import steelyard.update.models as models_module


def refused(cli, *args: object) -> str:
    result = cli(*args)
    assert result.code == 2, (result.code, result.err)
    assert "Traceback" not in result.err
    return result.err


@pytest.fixture
def no_model(monkeypatch):
    """Loading a model fails the test: the request must be refused before it."""

    def load(*_args: object, **_kwargs: object) -> None:
        pytest.fail("a model was loaded for a request that cannot work")

    monkeypatch.setattr(models_module.AutoModelForCausalLM, "from_pretrained", load)


@pytest.mark.usefixtures("no_model")
class TestBeforeAnyModelIsLoaded:
    @pytest.mark.parametrize(
        ("override", "words"),
        [
            ("rollout.group_sizes=4", "did you mean rollout.group_size?"),
            ("rollout.group_size=four", "rollout.group_size = 'four'"),
            ("rollout.group_size=1", "a group of one has no baseline"),
            ("objective.variant=grppo", "grpo"),
            ('objective.kl.coef="0,04"', "objective.kl.coef = '0,04'"),
            ("task.data=missing.jsonl", "missing.jsonl"),
            ("reward.function=reward.py:scor", "Did you mean 'score'?"),
            ("reward.function=nowhere.py:score", "nowhere.py"),
            ("model.source=./no/such/model", "no such directory"),
            ("model.source=sft:no-such-recipe", "no-such-recipe"),
            ("model.source=gguf:x.gguf", "not implemented yet"),
            ("run.updates=0", "run.updates = 0"),
        ],
    )
    def test_one_message_with_the_way_out(self, cli, own_task, override, words):
        assert words in refused(cli, "train", own_task, override)
        assert not Path("runs").exists()

    def test_a_directory_that_is_no_model(self, cli, own_task, tmp_path):
        (tmp_path / "empty").mkdir()
        assert "no config.json" in refused(cli, "train", own_task, "model.source=./empty")

    def test_a_missing_recipe(self, cli, workdir):
        assert "no recipe at nowhere.toml" in refused(cli, "train", "nowhere.toml")

    def test_a_recipe_that_is_no_toml(self, cli, workdir):
        (workdir / "bad.toml").write_text("[run\n")
        assert "not valid TOML" in refused(cli, "train", "bad.toml")

    def test_an_unreadable_recipe(self, cli, workdir):
        (workdir / "dir.toml").mkdir()
        assert "is a directory" in refused(cli, "train", "dir.toml")

    def test_the_yardstick_is_never_a_training_reward(self, cli, workdir):
        assert "never a training reward" in refused(cli, "train", "booking", "task.suite=audit")

    def test_a_run_directory_that_holds_something_else(self, cli, own_task, workdir):
        (workdir / "precious").mkdir()
        (workdir / "precious/thesis.tex").write_text("x")
        assert "holds something that is no run" in refused(cli, "train", own_task, "run.dir=precious")


def test_a_hub_id_that_cannot_be_reached(cli, own_task, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = refused(cli, "train", own_task, "model.source=nobody/nothing-of-this-name")
    assert "nobody/nothing-of-this-name" in message
    assert "local directory" in message


def test_a_prompt_longer_than_the_context(cli, own_task):
    message = refused(cli, "train", own_task, "rollout.max_new_tokens=127")
    assert "more than the model's context of 128" in message
    assert "rollout.max_new_tokens to at most" in message


def test_why_about_an_update_that_is_not_there(cli, own_task):
    run = cli("train", own_task, "run.updates=1", "eval.samples=0").last_line
    assert "it has 1 to 1" in refused(cli, "why", run, "--update", 9)


@pytest.mark.parametrize("command", ["why", "card"])
def test_a_directory_that_is_no_run(cli, workdir, command):
    assert "no run directory" in refused(cli, command, ".")


def test_export_refuses_another_format_and_a_full_directory(cli, own_task, workdir):
    run = cli("train", own_task, "run.updates=1", "eval.samples=0").last_line
    assert "choose parquet or csv" in refused(cli, "export", run, "--to", "out", "--format", "xls")
    (workdir / "out").mkdir()
    (workdir / "out/file").write_text("x")
    assert cli("export", run, "--to", "out").code in (1, 2)
    assert (workdir / "out/file").read_text() == "x"


@pytest.mark.timeout(150)
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_ends_the_run_with_the_way_out_and_a_readable_ledger(own_task, tmp_path):
    """On a disk of its own, of 600 KB: the run must fail with exit code 1, one message, and what it had."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], check=True)
    try:
        command = [sys.executable, "-m", "steelyard", "train", str(own_task), f"run.dir={disk}/run", "run.updates=400"]
        result = subprocess.run(command, capture_output=True, text=True, cwd=own_task.parent, timeout=120, check=False)
        assert result.returncode == 1, result.stderr
        assert "cannot grow" in result.stderr
        assert "bytes are free" in result.stderr
        assert "Traceback" not in result.stderr
        why = subprocess.run(
            [sys.executable, "-m", "steelyard", "why", f"{disk}/run"], capture_output=True, text=True, check=False
        )
        assert why.returncode == 0, why.stderr
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
