"""A warm-up: loss, order, determinism, cache."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoTokenizer

from steelyard.config import build, load
from steelyard.errors import ConfigError, RunError, TaskError, UpdateError
from steelyard.run import sft as sft_module
from steelyard.run.sft import SftProgress, cache_key, sft
from steelyard.run.sft_data import Pair, Row, batches, corpus_hash, load_pairs, tokenise
from steelyard.run.sft_loss import negative_log_likelihood
from steelyard.run.sft_recipe import SftRecipe
from steelyard.tasks.booking import PROMPT
from steelyard.update.hashing import parameter_hash
from steelyard.update.models import load_policy
from steelyard.update.tiny import Shape, build_model, train_tokenizer

SHAPE = Shape(layers=2, width=32, heads=2, mlp_width=48, context=256)
TOKENIZER = train_tokenizer(["return x", "def f(x): return x + 1"], vocabulary=300)


def model(seed: int = 0):
    return build_model(SHAPE, TOKENIZER, generator=torch.Generator().manual_seed(seed))


def rows(*lengths: tuple[int, int]) -> list[Row]:
    """Rows of given prompt and completion lengths; equal prompt lengths are equal prompts."""
    rng = np.random.default_rng(0)
    return [
        Row(
            prompt_ids=tuple(range(10, 10 + prompt)),
            completion_ids=tuple(int(token) for token in rng.integers(5, 260, size=completion)),
        )
        for prompt, completion in lengths
    ]


# ------------------------------------------------------------------ loss


def plain_loss(policy, row: Row) -> torch.Tensor:
    """One row at a time, nothing shared, nothing padded."""
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
    logits = policy(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1]
    return functional.cross_entropy(logits, torch.tensor(row.completion_ids), reduction="sum")


MIXES = {
    "one_prompt": [(7, 5), (7, 9), (7, 1), (7, 12), (7, 3)],
    "prompts_of_unequal_length": [(7, 5), (3, 9), (12, 1), (7, 12), (3, 3), (2, 6)],
    "one_row": [(4, 6)],
}


@pytest.mark.oracle
@pytest.mark.parametrize("lengths", MIXES.values(), ids=MIXES)
def test_shared_prompts_give_the_loss_and_gradient_of_rows_computed_alone(lengths):
    policy = model().double()
    shared = negative_log_likelihood(policy, rows(*lengths), pad=0)
    shared.backward()
    gradients = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    policy.zero_grad()
    alone = torch.stack([plain_loss(policy, row) for row in rows(*lengths)]).sum()
    alone.backward()
    torch.testing.assert_close(shared, alone, rtol=1e-6, atol=1e-6)
    for name, parameter in policy.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-5, atol=1e-6, msg=name)


def test_the_loss_does_not_look_at_padding():
    policy = model()
    batch = rows((7, 5), (3, 9), (12, 1))
    losses = [negative_log_likelihood(policy, batch, pad=pad).item() for pad in (0, 99)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


# ------------------------------------------------------------------ data


def test_prompts_are_rendered_as_at_sampling_time_and_answers_end():
    pair = Pair(prompt=({"role": "user", "content": "say x"},), completion="return x")
    (row,) = tokenise([pair], TOKENIZER, context=64)
    rendered = TOKENIZER.apply_chat_template(list(pair.prompt), add_generation_prompt=True, return_dict=True)
    assert list(row.prompt_ids) == rendered["input_ids"]
    assert list(row.completion_ids) == [*TOKENIZER("return x")["input_ids"], TOKENIZER.eos_token_id]


def test_a_pair_longer_than_the_context_is_refused():
    pair = Pair(prompt=({"role": "user", "content": "say x"},), completion="x" * 80)
    with pytest.raises(TaskError, match=r"pair 1 .* model.context = 64"):
        tokenise([pair], TOKENIZER, context=64)


def test_batches_go_round_the_corpus_in_new_orders(recipe):
    table = rows(*[(2, size) for size in range(1, 13)])
    settings = recipe(sft={"steps": 12, "batch_tokens": 26})
    drawn = [row for batch in batches(table, settings, rng=np.random.default_rng(0)) for row in batch]
    first, second = drawn[:12], drawn[12:24]
    assert set(first) == set(second) == set(table)
    assert first != second
    sizes = [
        sum(len(row.completion_ids) for row in batch)
        for batch in batches(table, settings, rng=np.random.default_rng(0))
    ]
    assert min(sizes) >= 26
    assert max(sizes) < 26 + 12


def test_corpus_hash_depends_on_seed_and_shares_only(recipe):
    def digest(seed=0, **changes):
        return corpus_hash(load_pairs(recipe(corpus=changes).corpus, seed=seed))

    assert digest() == digest()
    assert len({digest(), digest(seed=1), digest(right_share=0.2), digest(inclusive_share=0.2)}) == 4


def test_generated_pairs_ask_the_question_of_the_task(recipe):
    (pair,) = load_pairs(recipe(corpus={"programs": 1}).corpus, seed=0)
    assert pair.prompt == ({"role": "user", "content": PROMPT.content},)


def write(path, *lines: str) -> dict[str, str | None]:
    path.write_text("\n".join(lines), encoding="utf-8")
    return {"name": None, "data": str(path)}


def test_own_pairs_from_a_file(tmp_path, recipe):
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2?"}]
    lines = [json.dumps({"prompt": "1?", "completion": "1"}), "", json.dumps({"prompt": chat, "completion": "2"})]
    pairs = load_pairs(recipe(corpus=write(tmp_path / "p.jsonl", *lines)).corpus, seed=0)
    assert [pair.prompt for pair in pairs] == [({"role": "user", "content": "1?"},), tuple(chat)]
    assert [pair.completion for pair in pairs] == ["1", "2"]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "3", '{"prompt": "1?"}', '{"prompt": 1, "completion": "1"}', '{"prompt": "1?", "completion": 1}',
     '{"prompt": [], "completion": "1"}', '{"prompt": [{"role": "user"}], "completion": "1"}'],
)  # fmt: skip
def test_a_line_that_is_no_pair_is_named(tmp_path, recipe, line):
    good = json.dumps({"prompt": "1?", "completion": "1"})
    with pytest.raises(TaskError, match=r"p\.jsonl, line 2"):
        load_pairs(recipe(corpus=write(tmp_path / "p.jsonl", good, line)).corpus, seed=0)


def test_a_missing_or_empty_file_is_refused(tmp_path, recipe):
    with pytest.raises(TaskError, match="cannot be read"):
        load_pairs(recipe(corpus={"name": None, "data": str(tmp_path / "no.jsonl")}).corpus, seed=0)
    with pytest.raises(TaskError, match="holds no pairs"):
        load_pairs(recipe(corpus=write(tmp_path / "p.jsonl", "")).corpus, seed=0)


# ------------------------------------------------------------------ the whole


def test_equal_recipes_give_equal_weights_and_another_seed_others(cache, recipe):
    first = sft(recipe())
    shutil.rmtree(cache)
    again, other = sft(recipe()), sft(recipe(run={"seed": 1}))
    assert not again.cached
    assert again.parameter_hash == first.parameter_hash
    assert again.loss == first.loss
    assert other.parameter_hash != first.parameter_hash
    assert other.directory != again.directory


def test_the_first_weights_depend_on_the_seed_even_where_the_corpus_does_not(cache, tmp_path, recipe):
    own = write(tmp_path / "p.jsonl", json.dumps({"prompt": "1?", "completion": "1"}))
    hashes = {sft(recipe(corpus=own, run={"seed": seed})).parameter_hash for seed in (0, 1)}
    assert len(hashes) == 2


def test_the_directory_holds_the_weights_that_were_hashed_and_a_usable_tokenizer(cache, recipe):
    result = sft(recipe())
    policy = load_policy(str(result.directory))
    assert parameter_hash(policy.model).digest == result.parameter_hash
    assert policy.context == 512
    messages = [{"role": "user", "content": PROMPT.content}]
    ids = policy.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    pairs = load_pairs(recipe().corpus, seed=0)
    trained = tokenise(pairs, AutoTokenizer.from_pretrained(result.directory), context=512)
    assert list(trained[0].prompt_ids) == ids


def test_the_loss_falls_and_progress_is_told(cache, recipe):
    told: list[SftProgress] = []
    result = sft(recipe(sft={"steps": 30}, optimizer={"lr": 1e-2, "warmup": 3}), progress=told.append)
    assert [item.step for item in told] == list(range(1, 31))
    assert told[0].loss == pytest.approx(np.log(320), rel=0.15)  # a mean per token: at first every token is as likely
    assert told[-1].loss < 0.6 * told[0].loss
    assert result.loss == pytest.approx(np.mean([item.loss for item in told[-3:]]))
    assert all(item.tokens_per_second > 0 for item in told)


def test_a_second_call_reuses_the_directory(cache, recipe):
    first = sft(recipe())
    stamp = (first.directory / "model.safetensors").stat().st_mtime_ns
    second = sft(recipe())
    assert (first.cached, second.cached) == (False, True)
    assert (second.directory, second.parameter_hash, second.loss) == (first.directory, first.parameter_hash, first.loss)
    assert (first.directory / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_half_written_directory_is_never_used(cache, recipe):
    first = sft(recipe())
    (first.directory / sft_module.RECORD).unlink()
    (first.directory / "model.safetensors").write_bytes(b"half")
    second = sft(recipe())
    assert not second.cached
    assert parameter_hash(load_policy(str(second.directory)).model).digest == first.parameter_hash


def test_a_failed_write_leaves_nothing_behind(cache, recipe, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.save_pretrained", full)
    with pytest.raises(RunError, match=r"No space left.*STEELYARD_CACHE"):
        sft(recipe())
    assert list(cache.iterdir()) == []


def test_the_cache_key_names_what_the_weights_depend_on(recipe, tmp_path, monkeypatch):
    base = recipe()
    pairs = load_pairs(base.corpus, seed=0)
    keys = {cache_key(base, pairs), cache_key(base, pairs[1:]), cache_key(recipe(run={"threads": 2}), pairs)}
    assert cache_key(base, pairs) in keys
    with monkeypatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda name: "0")
        keys.add(cache_key(base, pairs))
    other_code = tmp_path / "tiny.py"
    other_code.write_text("pass")
    monkeypatch.setattr(sft_module.tiny, "__file__", str(other_code))
    assert len(keys | {cache_key(base, pairs)}) == 5


def test_a_loss_that_is_not_finite_stops_the_warm_up(cache, recipe):
    with pytest.raises(UpdateError, match=r"Lower optimizer\.lr"):
        sft(recipe(optimizer={"lr": 1e30, "max_grad_norm": float("inf")}, sft={"steps": 20}))
    assert not cache.exists()


def test_thread_count_is_restored(cache, recipe):
    before = torch.get_num_threads()
    sft(recipe(run={"threads": before + 1}))
    assert torch.get_num_threads() == before


# ------------------------------------------------------------------ recipe


def test_the_shipped_recipe_loads(pytestconfig):
    settings = load(pytestconfig.rootpath / "recipes" / "booking-sft.toml", SftRecipe)
    assert settings.corpus.name == "booking"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"corpus": {"name": "booking"}, "sft": {"step": 3}}, "did you mean sft.steps"),
        ({"corpus": {"name": "booking"}, "model": {"width": 100}}, "multiple of 2"),
        ({"corpus": {}}, "exactly one"),
        ({"corpus": {"name": "booking", "data": "x.jsonl"}}, "exactly one"),
        ({"corpus": {"name": "booking", "right_share": 0.9, "inclusive_share": 0.2}}, "above 1"),
    ],
)
def test_bad_recipes_are_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        build(data, SftRecipe, where="test")
