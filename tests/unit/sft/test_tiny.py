"""The tokenizer and the model that a warm-up starts from."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from steelyard.tasks.booking import PROMPT
from steelyard.tasks.booking_corpus import programs
from steelyard.update.hashing import parameter_hash
from steelyard.update.tiny import END, PAD, Shape, build_model, train_tokenizer

SOURCES = [p.source for p in programs(count=300, seed=0, right_share=0.5, inclusive_share=0.1)]
TEXTS = [*SOURCES, *[str(PROMPT.content)] * 100]
TOKENIZER = train_tokenizer(TEXTS, vocabulary=704)
SHAPE = Shape(layers=2, width=32, heads=2, mlp_width=48, context=256)


def build(seed: int):
    return build_model(SHAPE, TOKENIZER, generator=torch.Generator().manual_seed(seed))


@given(st.text())
def test_any_text_round_trips(text):
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


@given(
    st.lists(st.sampled_from(["\n", "    ", " ", "\t", "for ", " in", "[[1, 2]]", "==", "é", "x_1", "12", "(", "#"]))
)
def test_any_code_round_trips(parts):
    assert TOKENIZER.decode(TOKENIZER("".join(parts))["input_ids"]) == "".join(parts)


def test_equal_texts_give_equal_tokenizers():
    again = train_tokenizer(TEXTS, vocabulary=704)
    assert again.backend_tokenizer.to_str() == TOKENIZER.backend_tokenizer.to_str()


def test_a_variable_is_one_token_wherever_it_stands():
    spellings = ["(starts)", "x = starts\n", ", starts\n", "\n    starts.sort()", "for starts in x", "-starts"]
    token = TOKENIZER.convert_tokens_to_ids("starts")
    assert isinstance(token, int)
    assert all(token in TOKENIZER(text)["input_ids"] for text in spellings)


def test_prompt_and_programs_are_short():
    messages = [{"role": "user", "content": PROMPT.content}]
    prompt = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert len(prompt) <= 80
    assert sum(len(TOKENIZER(source)["input_ids"]) for source in SOURCES) / len(SOURCES) < 80


def test_chat_template_marks_roles_and_leaves_text_alone():
    text = TOKENIZER.apply_chat_template(
        [{"role": "system", "content": " a\n"}, {"role": "user", "content": "b"}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert text == "<|system|> a\n<|end|><|user|>b<|end|><|assistant|>"


def test_ends_and_padding_are_known_and_distinct():
    model = build(0)
    assert (TOKENIZER.eos_token, TOKENIZER.pad_token) == (END, PAD)
    assert TOKENIZER.eos_token_id != TOKENIZER.pad_token_id
    assert model.generation_config.eos_token_id == [TOKENIZER.eos_token_id]
    assert model.config.pad_token_id == TOKENIZER.pad_token_id


def test_weights_come_from_the_generator_and_the_global_one_is_left_alone():
    before = torch.random.get_rng_state()
    first = parameter_hash(build(0)).digest
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)  # moves the global generator
    assert parameter_hash(build(0)).digest == first
    assert parameter_hash(build(1)).digest != first


def test_the_first_prediction_is_near_uniform():
    model = build(0)
    ids = torch.tensor([TOKENIZER(SOURCES[0])["input_ids"]])
    entropy = torch.distributions.Categorical(logits=model(input_ids=ids).logits).entropy().mean()
    assert entropy.item() > 0.85 * torch.log(torch.tensor(float(len(TOKENIZER)))).item()


def test_saved_directory_is_an_ordinary_model(tmp_path):
    model = build(0)
    model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert parameter_hash(loaded).digest == parameter_hash(model).digest
    assert tokenizer.chat_template == TOKENIZER.chat_template
    text = SOURCES[0] + " , don 't  stop .\n"  # spaces that clean-up would remove
    assert tokenizer(text)["input_ids"] == TOKENIZER(text)["input_ids"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    torch.testing.assert_close(loaded(input_ids=ids).logits, model(input_ids=ids).logits)


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight"])
def test_scale_of_the_first_weights(name):
    weight = dict(build(0).named_parameters())[name]
    depth = (2 * SHAPE.layers) ** 0.5 if "down_proj" in name else 1.0
    assert weight.std().item() == pytest.approx(weight.shape[1] ** -0.5 / depth, rel=0.1)
