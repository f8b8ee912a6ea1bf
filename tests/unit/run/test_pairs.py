"""Preference pairs: what makes one, in which tokens, and on which side it stands."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from steelyard.config import build
from steelyard.errors import ConfigError, RunDirectoryError, TaskError
from steelyard.ledger import Ledger, PromptRow, RunRow, VerdictRow
from steelyard.run.pairs import EQUAL, FEW, TRUNCATED, PairSet, load_pairs
from steelyard.run.pairs_recipe import PairsSection
from steelyard.types import Completion, Status, Verdict
from steelyard.update.hashing import tokenizer_hash
from steelyard.update.models import Policy

END = 0


@pytest.fixture
def policy(model, tokenizer) -> Policy:
    return Policy(model=model, tokenizer=tokenizer)


def write(path: Path, *rows: dict[str, object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def load(policy: Policy, **section: Any) -> PairSet:
    return load_pairs(PairsSection(**section), policy, chat="auto")


# ------------------------------------------------------------------ from a file


def test_a_file_is_rendered_as_at_sampling_time_and_answers_end_with_the_end_token(tmp_path, policy, tokenizer):
    data = write(tmp_path / "pairs.jsonl", {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"})
    (pair,) = load(policy, data=data, held_out=0.0).train
    assert tokenizer.decode(pair.prompt_ids) == "<|user|>2 + 2?<|assistant|>"
    assert pair.chosen_ids == (*tokenizer("4")["input_ids"], END)
    assert pair.rejected_ids == (*tokenizer("5")["input_ids"], END)
    assert pair.length == len(pair.prompt_ids) + 2


def test_an_answer_may_be_one_assistant_message(tmp_path, policy):
    answer = [{"role": "assistant", "content": "4"}]
    rows = {"prompt": [{"role": "user", "content": "2 + 2?"}], "chosen": answer, "rejected": "5"}
    (pair,) = load(policy, data=write(tmp_path / "a.jsonl", rows), held_out=0.0).train
    plain = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}
    assert (pair,) == load(policy, data=write(tmp_path / "b.jsonl", plain), held_out=0.0).train


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "p", "chosen": "a"}, "no column `rejected`"),
        ({"prompt": "p", "chosen": "a", "rejected": "a"}, "same text"),
        ({"prompt": "p", "chosen": 4, "rejected": "a"}, "chosen is 4"),
        ({"prompt": "p", "chosen": None, "rejected": "a"}, "chosen is None"),
        ({"prompt": "p", "chosen": [{"role": "user", "content": "a"}], "rejected": "b"}, "role"),
        (
            {"prompt": "p", "chosen": "a", "rejected": [{"role": "assistant", "content": "a"}] * 2},
            "everything before it in `prompt`",
        ),
        ({"chosen": "a", "rejected": "b"}, "no column `prompt`"),
        ({"prompt": "p", "chosen": "a" * 200, "rejected": "b"}, "more than the model's context of 128"),
    ],
)
def test_a_row_that_is_no_pair_is_refused_with_its_place(tmp_path, policy, row, said):
    with pytest.raises(TaskError, match=said):
        load(policy, data=write(tmp_path / "pairs.jsonl", row))


def test_an_empty_answer_is_its_end_token_and_without_one_no_answer(tmp_path, policy, monkeypatch):
    data = write(tmp_path / "pairs.jsonl", {"prompt": "p", "chosen": "", "rejected": "a"})
    (pair,) = load(policy, data=data, held_out=0.0).train
    assert pair.chosen_ids == (END,)
    policy.tokenizer.eos_token = None
    monkeypatch.setattr(policy.model.generation_config, "eos_token_id", None)
    try:
        with pytest.raises(TaskError, match="an answer is empty"):
            load(policy, data=data, held_out=0.0)
    finally:
        policy.tokenizer.eos_token = "<|end|>"


def test_exactly_one_source_is_given():
    for section in ({}, {"data": "a.jsonl", "ledger": "runs/a"}):
        with pytest.raises(ConfigError, match=r"exactly one of pairs\.data"):
            build(section, PairsSection, where="test")


# ------------------------------------------------------------------ from a ledger


def ledger(path: Path, tokenizer: PreTrainedTokenizerFast, *groups: list[Any]):
    """Write a run whose groups are lists of (token ids, reward, finish)."""
    empty: dict[str, Any] = dict.fromkeys(RunRow.__dataclass_fields__, "x")
    empty |= {name: {} for name in ("objective", "task", "machine", "sandbox", "tests")}
    run = RunRow(**(empty | {"seed": 0, "model": {"tokenizer_hash": tokenizer_hash(tokenizer)}}))
    path.mkdir()
    with Ledger.create(path / "ledger.sqlite", run) as file:
        file.prompts([PromptRow(id="p", content="Say it.", token_ids=(7, 8))])
        for number, group in enumerate(groups, start=1):
            completions = [
                Completion(
                    prompt_id="p",
                    group_id="same-name",
                    sample=sample,
                    policy_version=0,
                    prompt_ids=(7, 8),
                    token_ids=ids,
                    logprobs=(-1.0,) * len(ids),
                    text="hello",
                    finish=finish,
                )
                for sample, (ids, _, finish) in enumerate(group)
            ]
            keys = file.completions("train", number, completions)
            for key, (_, reward, _) in zip(keys, group, strict=True):
                status = Status.CHECKER_FAILED if reward is None else Status.FAILED
                verdict = Verdict(status=status, reward=reward)
                file.verdicts([VerdictRow(completion_id=key, judge="j", is_primary=True, verdict=verdict)])
                second = Verdict(status=Status.FAILED, reward=-9.0 * (reward or 1.0))
                file.verdicts([VerdictRow(completion_id=key, judge="other", is_primary=False, verdict=second)])
    return str(path)


def answer(first: int, reward: float | None, finish: str = "stop") -> Any:
    return (first, END), reward, finish


def test_the_best_of_a_group_stands_against_its_worst_and_ties_go_to_the_first_sample(tmp_path, policy, tokenizer):
    group = [answer(10, 0.5), answer(11, 1.0), answer(12, 0.0), answer(13, 1.0), answer(14, 0.0)]
    (pair,) = load(policy, ledger=ledger(tmp_path / "run", tokenizer, group)).train
    assert (pair.prompt_ids, pair.chosen_ids, pair.rejected_ids) == ((7, 8), (11, END), (12, END))


def test_what_makes_no_pair_is_counted(tmp_path, policy, tokenizer):
    groups = [
        [answer(10, 1.0), answer(11, 1.0)],
        [answer(10, 1.0), answer(11, None)],
        [answer(10, 1.0), answer(11, 0.0, "length")],
        [answer(10, 2.0, "length"), answer(11, 1.0), answer(12, 0.0)],
    ]
    found = load(policy, ledger=ledger(tmp_path / "run", tokenizer, *groups))
    assert [pair.chosen_ids for pair in found.train] == [(11, END)]
    assert found.left_out == {TRUNCATED: 2, FEW: 2, EQUAL: 1}


def test_groups_of_two_updates_are_not_mixed(tmp_path, policy, tokenizer):
    run = ledger(tmp_path / "run", tokenizer, [answer(10, 1.0), answer(11, 0.5)], [answer(12, 0.2), answer(13, 0.1)])
    assert {(p.chosen_ids[0], p.rejected_ids[0]) for p in load(policy, ledger=run).train} == {(10, 11), (12, 13)}


def test_a_ledger_without_a_pair_says_why(tmp_path, policy, tokenizer):
    with pytest.raises(TaskError, match=f"1 {EQUAL}"):
        load(policy, ledger=ledger(tmp_path / "run", tokenizer, [answer(10, 1.0), answer(11, 1.0)]))


def test_a_directory_that_is_no_run_is_refused(tmp_path, policy):
    with pytest.raises(RunDirectoryError, match="no run directory"):
        load(policy, ledger=str(tmp_path))


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """Knows "he", "llo" and "hello", as in C75."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<|end|>", *alphabet, "he", "ll", "llo", "hello"]
    merges = [("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo")]
    inner = Tokenizer(models.BPE(vocab={piece: place for place, piece in enumerate(pieces)}, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>")


def test_c75_pairs_of_a_run_keep_the_sampled_ids_where_encoding_their_text_gives_others(tmp_path, model):
    tokenizer = merging_tokenizer()
    he, llo, hello = (tokenizer.get_vocab()[piece] for piece in ("he", "llo", "hello"))
    assert tokenizer("hello")["input_ids"] == [hello]
    assert tokenizer.decode([he, llo]) == "hello"
    run = ledger(tmp_path / "run", tokenizer, [((he, llo, END), 1.0, "stop"), ((hello, END), 0.0, "stop")])
    (pair,) = load(Policy(model=model, tokenizer=tokenizer), ledger=run).train
    assert pair.chosen_ids == (he, llo, END)
    assert pair.rejected_ids == (hello, END)


def test_c75_ids_of_another_tokenizer_are_refused(tmp_path, policy):
    run = ledger(tmp_path / "run", merging_tokenizer(), [answer(10, 1.0), answer(11, 0.0)])
    with pytest.raises(TaskError, match="another tokenizer"):
        load(policy, ledger=run)


# ------------------------------------------------------------------ held out


def rows(prompts: int, each: int) -> list[dict[str, object]]:
    return [
        {"prompt": f"question {p}", "chosen": f"yes {n}", "rejected": f"no {n}"}
        for p in range(prompts)
        for n in range(each)
    ]


def test_whole_prompts_are_held_out_where_there_are_several(tmp_path, policy):
    found = load(policy, data=write(tmp_path / "pairs.jsonl", *rows(20, 3)), held_out=0.3)
    assert found.unit == "prompt"
    sides = [{pair.prompt_ids for pair in side} for side in (found.train, found.held_out)]
    assert all(sides)
    assert not sides[0] & sides[1]
    assert len(found.train) + len(found.held_out) == 60


def test_with_one_prompt_single_pairs_are_held_out_and_equal_pairs_stay_together(tmp_path, policy):
    found = load(policy, data=write(tmp_path / "pairs.jsonl", *rows(1, 30), *rows(1, 30)), held_out=0.3)
    assert found.unit == "pair"
    assert found.held_out
    assert not {pair.chosen_ids for pair in found.train} & {pair.chosen_ids for pair in found.held_out}


def test_rows_added_later_do_not_move_the_others(tmp_path, policy):
    before = load(policy, data=write(tmp_path / "a.jsonl", *rows(40, 1)), held_out=0.3)
    after = load(policy, data=write(tmp_path / "b.jsonl", *rows(60, 1)), held_out=0.3)
    assert set(before.held_out) <= set(after.held_out)
    assert set(before.train) <= set(after.train)


def test_the_hash_names_tokens_and_sides(tmp_path, policy):
    first, second = load(policy, data=write(tmp_path / "pairs.jsonl", *rows(2, 1)), held_out=0.0).train
    sets = [((first, second), ()), ((second, first), ()), ((first,), (second,)), ((first,), ())]
    hashes = {PairSet(train=a, held_out=b, unit="pair", left_out={}).hash for a, b in sets}
    assert len(hashes) == 4
    assert PairSet(train=sets[0][0], held_out=(), unit="prompt", left_out={FEW: 3}).hash in hashes
