"""Batches that teach, and PPO with its value network, as whole runs through the command line."""

from pathlib import Path

import pytest

from steelyard.ledger.reader import LedgerReader

CONSTANTS = """
def zero(prompts, completions, **columns):
    return [0.0 for _ in completions]
def one(prompts, completions, **columns):
    return [1.0 for _ in completions]
def enormous(prompts, completions, **columns):
    return [1e60 * (i % 2) for i, _ in enumerate(completions)]
calls = []
def every_other_group(prompts, completions, **columns):
    calls.append(1)
    return [float(i % 2) if len(calls) % 2 else 0.0 for i, _ in enumerate(completions)]
"""


@pytest.fixture
def task(own_task: Path) -> Path:
    (own_task.parent / "constants.py").write_text(CONSTANTS)
    return own_task


def ledger(result) -> LedgerReader:
    assert result.code == 0, result.err
    return LedgerReader(Path(result.last_line) / "ledger.sqlite")


QUICK = ("eval.samples=0",)
DYNAMIC = (*QUICK, "rollout.dynamic_sampling=true")


# ------------------------------------------------------------------ dynamic sampling


@pytest.mark.parametrize(
    ("function", "cause", "way_out"),
    [
        ("constants.py:zero", "5 all 0", "too hard"),
        ("constants.py:one", "5 all 1", "everything is solved"),
        ("reward.py:abstains", "5 all errors", "could not judge"),
        ("reward.py:constant", "5 constant", "more levels"),
    ],
)
def test_c22_no_group_with_signal_stops_after_the_configured_number_and_says_why(cli, task, function, cause, way_out):
    result = cli("train", task, *DYNAMIC, "rollout.max_dead_groups=5", f"reward.function={function}")
    assert result.code == 1
    assert f"met 5 groups without a mixed outcome ({cause})" in result.err
    assert way_out in result.err
    assert "Traceback" not in result.err
    with LedgerReader(Path("runs/own-s0/ledger.sqlite")) as reader:
        assert len(reader.completions("train")) == 5 * 4
        assert reader.updates() == []


def test_c22_a_reward_function_that_always_raises_ends_the_run_with_its_name(cli, task):
    result = cli("train", task, *DYNAMIC, "reward.function=reward.py:raises")
    assert result.code == 1
    assert "ZeroDivisionError" in result.err


def test_dead_groups_are_replaced_recorded_and_counted(cli, task):
    with ledger(cli("train", task, *DYNAMIC, "reward.function=constants.py:every_other_group")) as reader:
        for update in (1, 2):
            row = reader.update(update)
            assert (row.groups, row.groups_informative, row.groups_constant) in [(3, 2, 1), (4, 2, 2)]
            assert row.n_sequences == len(row.members) == 8
            assert len(reader.completions("train", update)) == 4 * row.groups
            assert all(row.advantages)
    text = cli("why", "runs/own-s0", "--update", 1).out
    assert "dynamic sampling" in text
    assert " out " in text


def test_the_filter_looks_at_the_primary_reward_only(cli, task):
    """The overlong penalty tells answers apart, and the group is still dead."""
    overlong = ("reward.overlong_buffer=64", "rollout.max_new_tokens=64", "rollout.temperature=3.0")
    overlong = (*overlong, "rollout.group_size=8", "reward.function=constants.py:one")
    result = cli("train", task, *DYNAMIC, *overlong, "rollout.max_dead_groups=3")
    assert result.code == 1
    assert "3 all 1" in result.err
    with ledger(cli("train", task, *QUICK, *overlong, "run.dir=kept")) as reader:
        rows = reader.updates()
    assert any(any(row.advantages) for row in rows)
    assert all(row.groups_informative == 0 for row in rows)


def test_each_update_goes_on_where_the_one_before_stopped_in_the_order_of_prompts(cli, task):
    with ledger(
        cli("train", task, *DYNAMIC, "reward.function=constants.py:every_other_group", "run.updates=4")
    ) as reader:
        drawn = list(dict.fromkeys(row.completion.group_id for row in reader.completions("train")))
    prompts = [group.partition(":")[2] for group in drawn]
    assert len(prompts) > 8
    assert len(set(prompts)) == len(prompts), "16 of 20 prompts at most, none twice before all were drawn"


# ------------------------------------------------------------------ curriculum, masking, skipping


def test_the_curriculum_prefers_prompts_with_a_mixed_outcome(cli, task):
    (task.parent / "parity.py").write_text(
        "def score(prompts, completions, wanted, **columns):\n"
        "    return [float(i % 2) if n < 4 else 0.0 for i, n in enumerate(wanted)]\n"
    )
    edge = ("reward.function=parity.py:score", "rollout.curriculum=edge", "run.updates=30", "task.held_out=0")
    with ledger(cli("train", task, *QUICK, *edge)) as reader:
        groups = dict.fromkeys(row.completion.group_id for row in reader.completions("train") if row.update_no > 15)
        prompts = {row.id: row.columns["wanted"] for row in reader.prompts()}
    alive = [prompts[group.partition(":")[2]] < 4 for group in groups]
    assert sum(alive) / len(alive) > 0.3  # 4 of 20 without it


def test_truncated_answers_leave_loss_and_baseline(cli, task):
    cut = ("rollout.max_new_tokens=2", "update.truncated=mask", "rollout.temperature=3.0", "rollout.group_size=16")
    with ledger(cli("train", task, *QUICK, *cut)) as reader:
        row = reader.update(1)
        finish = {stored.id: stored.completion.finish for stored in reader.completions("train", 1)}
    assert {finish[member] for member in row.members} <= {"stop"}
    assert len(row.members) < len(finish)


def test_skipping_zero_advantages_gives_the_same_policy_but_for_rounding(cli, task):
    """The tiny model is float32: 1e-6 relative in the gradient, and the same answers afterwards."""
    norms = []
    for skip in ("true", "false"):
        run = cli(
            "train",
            task,
            *QUICK,
            "reward.function=constants.py:every_other_group",
            f"update.skip_zero_advantages={skip}",
        )
        with ledger(run) as reader:
            norms.append([row.grad_norm for row in reader.updates()])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


# ------------------------------------------------------------------ PPO


@pytest.mark.parametrize("backbone", ["own", "shared"])
def test_ppo_trains_explains_itself_and_keeps_its_value_network(cli, task, backbone):
    ppo = ("objective.variant=ppo", "objective.kl.coef=0.05", f"critic.backbone={backbone}", "update.passes=2")
    result = cli("train", task, *QUICK, *ppo)
    with ledger(result) as reader:
        rows = reader.updates()
    for row in rows:
        assert row.optimizer_steps == 2
        assert all(step["value_loss"] is not None for step in row.steps)
        assert (row.steps[0]["loss_value"] is None) == (backbone == "own")
        assert row.loss_kl is None, "the penalty is in the reward"
    assert rows[0].kl_ref == 0.0
    assert rows[1].kl_ref != 0.0
    assert (Path(result.last_line) / "critic.safetensors").is_file()
    assert "ppo" in cli("why", result.last_line, "--update", 2).out


def test_an_early_stop_is_logged_and_explained(cli, task):
    stop = ("objective.variant=ppo", "update.passes=6", "update.max_kl=0.001", "optimizer.lr=0.05")
    result = cli("train", task, *QUICK, *stop)
    with ledger(result) as reader:
        events = reader.events("early_stop")
        rows = reader.updates()
    assert events
    assert "update.max_kl = 0.001" in events[0].data["text"]
    row = rows[events[0].update_no - 1]
    assert events[0].data["steps"] == row.optimizer_steps < 6
    assert not row.skipped
    assert "stopped early" in cli("why", result.last_line, "--update", row.update_no).out


def test_minibatches_are_dealt_by_the_seed(cli, task):
    hashes = []
    for name in ("a", "b"):
        run = cli("train", task, *QUICK, "update.minibatches=4", f"run.dir={name}")
        with ledger(run) as reader:
            assert [row.optimizer_steps for row in reader.updates()] == [4, 4]
            hashes.append(reader.updates()[-1].parameter_hash_after)
    assert hashes[0] == hashes[1]


def test_mismatch_weight_entropy_bonus_and_dual_clip_reach_the_ledger(cli, task):
    parts = (
        "objective.entropy_coef=0.01",
        "objective.mismatch.weight=truncate",
        "objective.surrogate=dual_clipped",
        "update.passes=2",
    )
    with ledger(cli("train", task, *QUICK, *parts)) as reader:
        first = reader.update(1).steps[0]
    assert first["loss_entropy"] < 0
    assert first["mismatch_mean"] == pytest.approx(1.0, abs=1e-3)
    assert first["cap_share"] == 0.0


# ------------------------------------------------------------------ numbers that ran away


def test_a_gradient_that_is_not_finite_was_not_scaled_down(cli, task):
    """A reward of 1e60 is no float32 number: no step, with the reason, and no claim about the norm."""
    run = cli("train", task, *QUICK, "objective.variant=reinforce", "reward.function=constants.py:enormous")
    with ledger(run) as reader:
        for row in reader.updates():
            assert (row.skipped, row.grad_norm, row.grad_norm_clipped, row.clipped) == (True, None, None, None)
            assert "the gradient norm is" in row.skip_reason
    assert "0 of 2  had their gradient scaled down" in cli("why", "runs/own-s0").out


def test_a_value_network_out_of_range_ends_the_run_with_the_update_and_the_value(cli, task):
    result = cli("train", task, *QUICK, "objective.variant=ppo", "reward.function=constants.py:enormous")
    assert result.code == 1
    assert "steelyard: update 1 cannot be computed: returns must be finite" in result.err
    assert "Traceback" not in result.err
