"""Settings and fixtures that every test shares: a real, tiny Llama with a byte-level tokenizer."""

import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

# Derandomised: a push fails for what it changed, not for the examples of the day.
examples = int(os.environ.get("STEELYARD_EXAMPLES", "60"))  # fewer where every test is run once per mutant
settings.register_profile("steelyard", derandomize=True, deadline=None, max_examples=examples, database=None)
settings.load_profile("steelyard")

torch.set_num_threads(1)  # several test processes share the cores

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<|end|>", "<|pad|>", *alphabet])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|end|>", pad_token="<|pad|>", chat_template=CHAT_TEMPLATE
    )


def tiny_model(seed: int = 0, *, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2, generator=generator)
            elif "norm" in name:
                parameter.fill_(1.0)
    model.generation_config.eos_token_id = [0]
    return model.eval()


@pytest.fixture
def model() -> LlamaForCausalLM:
    return tiny_model()


@pytest.fixture
def model64() -> LlamaForCausalLM:
    return tiny_model(dtype=torch.float64)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny-model")
    tiny_model().save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    assert json.loads((directory / "config.json").read_text())["model_type"] == "llama"
    return directory
