"""Whole runs through the command line, on a random tiny model and real reward functions."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from steelyard.errors import SteelyardError
from steelyard.ledger.reader import LedgerReader
from steelyard.numerics.variants import VARIANTS
from steelyard.update.hashing import parameter_hash


def final_hash(cli, run: str) -> str:
    return json.loads(cli("card", run, "--json").out)["final_parameter_hash"]


def test_a_run_leaves_everything_that_was_promised(cli, own_task):
    result = cli("train", own_task)
    assert result.code == 0, result.err
    run = Path(result.last_line)
    assert run == Path("runs/own-s0")
    names = {"ledger.sqlite", "recipe.toml", "card.json", "plot.png", "model"}
    assert names <= {path.name for path in run.iterdir()}
    with LedgerReader(run / "ledger.sqlite") as reader:
        assert [row.update_no for row in reader.updates()] == [1, 2]
        assert [event.update_no for event in reader.evals()] == [0, 1, 2]
        assert len(reader.completions("train", 1)) == 8
        assert reader.damaged() == []
    for word in ("ledger", "plot", "before", "after"):
        assert word in result.err


def test_the_saved_policy_is_the_one_of_the_last_update(cli, own_task):
    run = cli("train", own_task).last_line
    model = AutoModelForCausalLM.from_pretrained(Path(run) / "model", dtype=torch.float32)
    assert parameter_hash(model).digest == final_hash(cli, run)


def test_same_recipe_and_seed_give_the_same_hash_and_another_seed_another(cli, own_task):
    runs = [cli("train", own_task, f"run.seed={seed}").last_line for seed in (0, 0, 1)]
    assert runs == ["runs/own-s0", "runs/own-s0-2", "runs/own-s1"]
    first, again, other = (final_hash(cli, run) for run in runs)
    assert first == again
    assert first != other


def test_two_equal_runs_have_equal_ledgers_but_for_times(cli, own_task):
    dumps = []
    for _ in range(2):
        with sqlite3.connect(Path(cli("train", own_task).last_line) / "ledger.sqlite") as connection:
            dumps.append(
                {
                    table: connection.execute(f"SELECT * FROM {table}").fetchall()
                    for table in ("prompts", "completions", "verdicts", "updates", "events")
                }
            )
        connection.close()
    assert dumps[0] == dumps[1]


def test_learning_rate_zero_is_a_control_that_moves_nothing(cli, own_task):
    run = cli("train", own_task, "optimizer.lr=0").last_line
    card = json.loads(cli("card", run, "--json").out)
    assert card["final_parameter_hash"] == card["start_parameter_hash"]
    with LedgerReader(Path(run) / "ledger.sqlite") as reader:
        texts = [[row.completion.text for row in reader.completions("eval", state)] for state in (0, 1, 2)]
        scores = [event.data["score"] for event in reader.evals()]
    assert texts[0] == texts[1] == texts[2], "every state answers with the same draws"
    assert scores[0] == scores[1] == scores[2]
    assert "learning rate of this step is 0" in cli("why", run, "--update", 1).out


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_every_variant_trains_and_explains_itself(cli, own_task, variant):
    result = cli("train", own_task, f"objective.variant={variant}", "run.updates=1", "eval.samples=0")
    assert result.code == 0, result.err
    assert variant in cli("why", result.last_line, "--update", 1).out
    assert f"Objective: {variant}" in cli("explain", own_task, f"objective.variant={variant}").out


def test_c01_loss_zero_with_a_living_gradient_is_explained_in_words_and_numbers(cli, own_task):
    run = cli("train", own_task).last_line
    with LedgerReader(Path(run) / "ledger.sqlite") as reader:
        rows = reader.updates()
    assert all(abs(row.loss) < 1e-6 and row.grad_norm > 0 for row in rows)
    text = cli("why", run, "--update", 1).out
    assert f"gradient {rows[0].grad_norm:.4g}" in text
    assert "cancel to zero by construction" in text
    assert "2 of 2  had zero loss and a living gradient" in cli("why", run).out


def test_c01_constant_groups_give_exactly_zero_gradient(cli, own_task):
    run = cli("train", own_task, "reward.function=reward.py:constant").last_line
    with LedgerReader(Path(run) / "ledger.sqlite") as reader:
        for row in reader.updates():
            assert row.grad_norm == 0.0
            assert set(row.advantages) == {0.0}
            assert (row.groups_constant, row.groups_informative) == (2, 0)
            assert row.parameter_hash_after == row.parameter_hash_before
    assert "No signal: 2 of 2 groups have equal rewards" in cli("why", run, "--update", 2).out


def test_c24_unscored_answers_take_no_step_and_are_counted(cli, own_task):
    result = cli("train", own_task, "reward.function=reward.py:abstains", "reward.max_unscored=1")
    assert result.code == 0, result.err
    with LedgerReader(Path(result.last_line) / "ledger.sqlite") as reader:
        row = reader.update(1)
    assert (row.unscored, row.members, row.skipped) == (8, (), True)
    assert row.reward_mean is None
    assert "no completion entered the loss" in cli("why", result.last_line, "--update", 1).out


def test_the_kl_leash_is_zero_at_the_start_and_pulls_later(cli, own_task):
    run = cli("train", own_task, "objective.kl.coef=0.1", "objective.kl.estimator=k3").last_line
    with LedgerReader(Path(run) / "ledger.sqlite") as reader:
        first, second = reader.updates()
    assert first.kl_ref == 0.0
    assert second.kl_ref > 0.0
    assert second.loss_kl == pytest.approx(0.1 * second.kl_ref)


class TestWhyTellsTheTruth:
    """Combinations in which an easy sentence would be false."""

    def why(self, cli, own_task, update: int, *overrides: str) -> str:
        result = cli("train", own_task, "eval.samples=0", *overrides)
        assert result.code == 0, result.err
        return cli("why", result.last_line, "--update", update).out

    def test_kl_alone(self, cli, own_task):
        """k1 has a slope at the start although its value is 0 there."""
        kl = ["objective.kl.coef=0.1", "objective.kl.estimator=k1", "reward.function=reward.py:constant"]
        text = self.why(cli, own_task, 1, *kl)
        assert "that of the KL penalty alone" in text
        assert "cancel" not in text

    def test_weight_decay_alone(self, cli, own_task):
        decay = ["optimizer.weight_decay=0.1", "reward.function=reward.py:constant"]
        text = self.why(cli, own_task, 2, *decay)
        assert "moved all the same, by weight decay." in text

    def test_momentum(self, cli, own_task):
        """Seven different sums of letters; from update 3 on all rewards are equal."""
        (own_task.parent / "fading.py").write_text(
            "calls = []\n"
            "def score(prompts, completions, **_):\n"
            "    calls.append(1)\n"
            "    return [float(len(set(c))) if len(calls) <= 4 else 1.0 for c in completions]\n"
        )
        text = self.why(cli, own_task, 3, "reward.function=fading.py:score", "run.updates=3")
        assert "along AdamW's first moment, carried over from earlier updates." in text

    def test_several_passes(self, cli, own_task):
        text = self.why(cli, own_task, 1, "update.passes=3")
        assert "3 optimizer steps were taken on this batch" in text
        assert "cancel to zero by construction" in text

    def test_policy_gradient_has_a_value_of_its_own(self, cli, own_task):
        assert "whose value is not the advantage" in self.why(cli, own_task, 1, "objective.variant=rloo")

    def test_token_mean_over_unequal_lengths(self, cli, own_task):
        """c01: token_mean does not cancel."""
        text = self.why(cli, own_task, 1, "objective.variant=dapo", "rollout.max_new_tokens=40")
        assert "weighs answers by their length" in text


def test_export_reads_back(cli, own_task):
    import pyarrow.parquet as pq

    run = cli("train", own_task).last_line
    assert cli("export", run, "--to", "out").code == 0
    table = pq.read_table("out/completions.parquet").to_pylist()
    with LedgerReader(Path(run) / "ledger.sqlite") as reader:
        stored = reader.completions()
    assert [tuple(row["token_ids"]) for row in table] == [row.completion.token_ids for row in stored]


def test_a_reward_function_that_raises_ends_the_run_with_its_line(cli, own_task):
    result = cli("train", own_task, "reward.function=reward.py:raises")
    assert result.code == 1
    assert "raises" in result.err
    assert "ZeroDivisionError" in result.err
    assert "Traceback" not in result.err


def test_c37_a_reward_function_that_exits_does_not_end_us_silently(cli, own_task):
    (own_task.parent / "quits.py").write_text("def score(prompts, completions, **_):\n    raise SystemExit(0)\n")
    result = cli("train", own_task, "reward.function=quits.py:score")
    assert result.code == 1
    assert "SystemExit" in result.err


def test_a_finished_run_keeps_its_directory_and_an_unfinished_one_is_pointed_out(cli, own_task):
    assert cli("train", own_task, "reward.function=reward.py:raises").code == 1
    result = cli("train", own_task)
    assert result.code == 2
    assert "unfinished" in result.err


def start(own_task: Path, *overrides: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "steelyard", "train", str(own_task), "run.updates=400", *overrides]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=own_task.parent)


def wait_for_updates(ledger: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        if ledger.is_file():
            try:
                with LedgerReader(ledger) as reader:
                    if len(reader.updates()) >= count:
                        return
            except SteelyardError:  # the file is being created
                pass
        time.sleep(0.1)
    raise AssertionError(f"no {count} updates: {process.communicate()}")


@pytest.mark.timeout(150)
def test_ctrl_c_ends_after_the_running_update_and_keeps_everything(own_task):
    process = start(own_task, "eval.samples=0")
    ledger = own_task.parent / "runs/own-s0/ledger.sqlite"
    wait_for_updates(ledger, 2, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out.strip().splitlines()[-1] == "runs/own-s0"
    with LedgerReader(ledger) as reader:
        (stop,) = reader.events("stop")
        assert stop.data["reason"] == "interrupted"
        assert stop.update_no == len(reader.updates())
        last = reader.updates()[-1].parameter_hash_after
    model = AutoModelForCausalLM.from_pretrained(ledger.parent / "model", dtype=torch.float32)
    assert parameter_hash(model).digest == last


@pytest.mark.timeout(150)
def test_ctrl_c_before_the_first_update_ends_at_once_and_leaves_no_run(own_task):
    (own_task.parent / "slow.py").write_text(
        "import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(60)\n"
        "def score(prompts, completions, **_):\n    return [0.0 for _ in completions]\n"
    )
    process = start(own_task, "reward.function=slow.py:score")
    deadline = time.monotonic() + 60
    while not (own_task.parent / "loading").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not (own_task.parent / "runs").exists()


@pytest.mark.timeout(150)
def test_kill_9_loses_at_most_the_update_under_way(own_task):
    process = start(own_task, "eval.samples=0")
    ledger = own_task.parent / "runs/own-s0/ledger.sqlite"
    wait_for_updates(ledger, 3, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    with LedgerReader(ledger) as reader:
        rows = reader.updates()
        assert len(rows) >= 3
        assert reader.damaged() == []
        assert max(row.update_no for row in reader.completions("train")) <= len(rows) + 1
