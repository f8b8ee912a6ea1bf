"""`steelyard explain --from` as a user runs it."""

from steelyard.config import load
from steelyard.run.recipe import Recipe


def test_a_trl_file_becomes_a_page_and_a_recipe_that_loads(cli, workdir):
    (workdir / "grpo.yaml").write_text("loss_type: dr_grpo\nscale_rewards: false\nlearning_rate: 1e-6\n")
    done = cli("explain", "--from", "trl", "grpo.yaml")
    assert done.code == 0
    assert "as TRL 1.16.0 reads it" in done.out
    assert "Objective: dr_grpo" in done.out
    (workdir / "ours.toml").write_text(done.out.split("(fill in model, data and reward):")[1])
    assert load(workdir / "ours.toml", Recipe).objective.resolve()[0].variant == "dr_grpo"
    assert "Objective: dr_grpo" in cli("explain", "ours.toml").out


def test_a_verl_script_becomes_a_page(cli, workdir):
    (workdir / "run.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\\n  actor_rollout_ref.rollout.n=8\n"
    )
    done = cli("explain", "--from", "verl", "run.sh")
    assert done.code == 0
    assert "dual_clip       3" in done.out
    assert "* dual_clip = 3: always on in verl" in done.out


def test_what_cannot_be_read_ends_with_2_and_one_message(cli, workdir):
    (workdir / "typo.yaml").write_text("bta: 0.1\n")
    for arguments, said in [
        (("trl", "typo.yaml"), "did you mean beta?"),
        (("trl", "none.yaml"), "no file at none.yaml"),
        (("openrlhf", "typo.yaml"), "choose trl or verl"),
        (("trl", "typo.yaml", "objective.variant=grpo"), "is no part of it"),
    ]:
        done = cli("explain", "--from", *arguments)
        assert done.code == 2
        assert said in done.err
        assert "Traceback" not in done.err
