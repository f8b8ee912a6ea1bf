"""The judge that is a reward model: scale, members, refusals."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from steelyard.errors import ConfigError, ModelError, RewardError, TaskError
from steelyard.evals.judges import Judgement
from steelyard.evals.model_judge import RECORD, ModelJudge, check_tokenizer, read_ensemble
from steelyard.types import Completion, Prompt, Status, Verdict
from steelyard.update.batching import TrainRow
from steelyard.update.hashing import parameter_hash, tokenizer_hash
from steelyard.update.reward_model import new_reward_model, score

SCALES = ((0.5, 2.0), (-1.0, 0.25))
PROMPT = Prompt(id="p", content="Say it.")


def completion(*token_ids: int) -> Completion:
    return Completion(
        prompt_id="p",
        group_id="g",
        sample=0,
        policy_version=0,
        prompt_ids=(7, 8, 9),
        token_ids=token_ids,
        logprobs=(-1.0,) * len(token_ids),
        text="another text altogether",
        finish="stop",
    )


COMPLETIONS = [completion(10, 11, 0), completion(12, 0), completion(*range(20, 60)), completion(99)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, model_directory, tokenizer):
    """A directory with two members, of different heads and scales."""
    return made(tmp_path_factory.mktemp("reward-model"), model_directory, tokenizer, SCALES)


def made(directory, model_directory, tokenizer, scales, *, first_seed: int = 0):
    members = []
    for number, (mean, std) in enumerate(scales):
        model = fresh(model_directory, first_seed + number)
        model.save_pretrained(directory / f"member-{number}")
        tokenizer.save_pretrained(directory / f"member-{number}")
        digest = parameter_hash(model).digest
        members.append({"directory": f"member-{number}", "mean": mean, "std": std, "parameter_hash": digest})
    record = {"members": members, "tokenizer_hash": tokenizer_hash(tokenizer), "finished": True}
    (directory / RECORD).write_text(json.dumps(record))
    return directory


def fresh(model_directory, seed: int):
    return new_reward_model(str(model_directory), generator=torch.Generator().manual_seed(seed))


def judge(*directories: Path, penalty: float = 0.0) -> ModelJudge:
    return ModelJudge(read_ensemble(*directories), penalty=penalty, token_budget=4096)


def changed(trained, tmp_path, **values) -> Path:
    """A copy of the reward model with other values in its record."""
    directory = tmp_path / "copy"
    shutil.copytree(trained, directory)
    record = json.loads((directory / RECORD).read_text())
    (directory / RECORD).write_text(json.dumps({**record, **values}))
    return directory


def by_hand(model_directory) -> list[list[float]]:
    """Scaled rewards, one list per member."""
    rows = [TrainRow(prompt_ids=c.prompt_ids, token_ids=c.token_ids, logprobs=()) for c in COMPLETIONS]
    lists = []
    for number, (mean, std) in enumerate(SCALES):
        model = fresh(model_directory, number)
        lists.append([(reward - mean) / std for reward in score(model, rows, token_budget=4096).tolist()])
    return lists


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_the_reward_is_the_mean_of_the_scaled_members_less_the_penalty(trained, model_directory, penalty):
    found = judge(trained, penalty=penalty).check([PROMPT] * 4, COMPLETIONS)
    for each, first, second in zip(found, *by_hand(model_directory), strict=True):
        wanted = (first + second) / 2 - penalty * abs(first - second) / 2
        assert each.verdict.reward == pytest.approx(wanted, rel=1e-6)
        assert each.verdict.status is (Status.PASSED if wanted > 0 else Status.FAILED)
        assert each.verdict.detail.startswith("2 members, deviation")


def test_the_sampled_ids_are_scored_and_not_the_text(trained):
    text = [completion(10, 11, 0), completion(11, 10, 0)]
    first, second = (each.verdict.reward for each in judge(trained).check([PROMPT] * 2, text))
    assert first != second


def test_its_name_is_that_of_a_reward_and_says_which(trained):
    assert judge(trained).name == f"reward:model:{trained}"


def test_another_tokenizer_is_refused(trained):
    ensemble = read_ensemble(trained)
    check_tokenizer(ensemble, ensemble.tokenizer_hash)
    with pytest.raises(ConfigError, match="another tokenizer"):
        check_tokenizer(ensemble, "0" * 64)


def test_a_penalty_needs_somebody_to_disagree(trained, tmp_path):
    record = json.loads((trained / RECORD).read_text())
    record["members"] = [{**record["members"][0], "directory": str(trained / "member-0")}]
    (tmp_path / RECORD).write_text(json.dumps(record))
    assert judge(tmp_path).check([PROMPT], COMPLETIONS[:1])[0].verdict.detail == ""
    with pytest.raises(ConfigError, match="one member"):
        judge(tmp_path, penalty=0.5)


def test_a_directory_that_is_no_reward_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is no reward model"):
        read_ensemble(tmp_path)
    (tmp_path / RECORD).write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read: it lacks 'members'"):
        read_ensemble(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_ensemble(tmp_path / RECORD)


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf, None])
def test_a_member_without_a_scale_is_refused(trained, tmp_path, std):
    members = json.loads((trained / RECORD).read_text())["members"]
    directory = changed(trained, tmp_path, members=[members[0], {**members[1], "std": std}])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_ensemble(directory)


def test_no_member_is_refused(trained, tmp_path):
    with pytest.raises(ConfigError, match="it needs a member"):
        read_ensemble(changed(trained, tmp_path, members=[]))


# ------------------------------------------------------------------ the weights are those of the record


def test_weights_that_are_not_the_recorded_ones_are_refused(trained, tmp_path):
    directory = changed(trained, tmp_path)
    shutil.copy(trained / "member-1" / "model.safetensors", directory / "member-0")
    with pytest.raises(ConfigError, match="member-0 are not those"):
        judge(directory)


def test_a_network_without_a_trained_head_is_refused_and_draws_nothing(trained, tmp_path, model_directory):
    directory = changed(trained, tmp_path)
    shutil.copy(model_directory / "model.safetensors", directory / "member-0")
    before = torch.get_rng_state()
    with pytest.raises(ModelError, match=r"no trained reward model: its weights lack score\.weight"):
        judge(directory)
    assert torch.equal(before, torch.get_rng_state())


def test_weights_that_were_cut_off_are_refused(trained, tmp_path):
    directory = changed(trained, tmp_path)
    weights = directory / "member-0" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be loaded as a reward model"):
        judge(directory)


def test_a_member_without_its_tokenizer_is_refused(trained, tmp_path):
    directory = changed(trained, tmp_path)
    for path in (directory / "member-0").glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match="the tokenizer of reward model"):
        judge(directory)


def test_answers_longer_than_a_member_was_built_for_are_refused(trained):
    found = judge(trained)
    assert found.context == 128
    found.check_length(128)
    with pytest.raises(TaskError, match=r"129 tokens, more than the 128 .* Lower rollout.max_new_tokens by 1\."):
        found.check_length(129)
    found.models[1].config.max_position_embeddings = 64
    assert found.context == 64


# ------------------------------------------------------------------ several directories


def test_several_directories_are_one_ensemble(trained, tmp_path, model_directory, tokenizer):
    other = made(tmp_path / "other", model_directory, tokenizer, [(0.25, 0.5)], first_seed=7)
    found = judge(trained, other, penalty=0.5)
    assert found.name == f"reward:model:{trained},{other}"
    rows = [TrainRow(prompt_ids=c.prompt_ids, token_ids=c.token_ids, logprobs=()) for c in COMPLETIONS]
    third = score(fresh(model_directory, 7), rows, token_budget=4096)
    members_KB = torch.tensor([*by_hand(model_directory), ((third - 0.25) / 0.5).tolist()])
    wanted = members_KB.mean(dim=0) - 0.5 * members_KB.std(dim=0, correction=0)
    rewards = [each.verdict.reward for each in found.check([PROMPT] * 4, COMPLETIONS)]
    assert rewards == pytest.approx(wanted.tolist(), rel=1e-5)


def test_a_directory_named_twice_is_refused(trained):
    with pytest.raises(ConfigError, match="twice"):
        read_ensemble(trained, trained / "." / "member-0" / "..")


def test_directories_of_different_tokenizers_are_refused(trained, tmp_path):
    with pytest.raises(ConfigError, match="different tokenizers"):
        read_ensemble(trained, changed(trained, tmp_path, tokenizer_hash="0" * 64))


def test_a_training_that_was_stopped_is_remembered(trained, tmp_path):
    stopped = changed(trained, tmp_path, finished=False)
    assert read_ensemble(trained, stopped).unfinished == (stopped,)


def test_a_member_that_is_gone_is_refused(trained, tmp_path):
    (tmp_path / RECORD).write_text((trained / RECORD).read_text())
    with pytest.raises(ConfigError, match="member-0 is missing"):
        judge(tmp_path)


def test_a_reward_that_is_no_number_is_our_failure(trained):
    broken = judge(trained)
    with torch.no_grad():
        broken.models[1].get_parameter("score.weight").fill_(math.nan)
    with pytest.raises(RewardError, match="member 1"):
        broken.check([PROMPT], COMPLETIONS[:1])


class Halves:
    """Judges by nothing and pays a half; a judge of its own, to stand beside."""

    name = "task:suite"
    resolution = 1e-16

    def check(self, prompts, completions):
        half = Verdict(status=Status.FAILED, reward=0.5)
        return [
            Judgement(verdict=half, others={"task:more": half}, program="p", signatures=("s",)) for _ in completions
        ]


def test_a_judge_beside_it_is_kept_and_not_paid(trained):
    alone = judge(trained).check([PROMPT] * 4, COMPLETIONS)
    both = ModelJudge(read_ensemble(trained), penalty=0.0, token_budget=4096, beside=Halves())
    for mine, found in zip(alone, both.check([PROMPT] * 4, COMPLETIONS), strict=True):
        assert found.verdict == mine.verdict
        assert {name: verdict.reward for name, verdict in found.others.items()} == {"task:suite": 0.5, "task:more": 0.5}
        assert (found.program, found.signatures) == ("p", ("s",))
