"""A small language model of one's own: a byte-level BPE tokenizer and a Llama of about a million parameters.

Both are ordinary Hugging Face objects: saved, they make a directory that any tool loads.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<|end|>"
"""Ends every message; sampling it stops an answer."""
PAD = "<|pad|>"
"""Fills batches; never sampled in training data, so never learnt."""
ROLES = ("system", "user", "assistant")
SPECIALS = (PAD, END, *(f"<|{role}|>" for role in ROLES))
"""The first tokens of every vocabulary, in this order."""
PAD_ID, END_ID = SPECIALS.index(PAD), SPECIALS.index(END)

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Every message is its role, its text and the end token; an answer follows <|assistant|> at once."""

KEYWORDS = "and|def|else|for|from|if|import|in|is|lambda|not|or|return|while"
WORD = rf"(?!(?:{KEYWORDS})\b)[A-Za-z_]+"
PIECES = "|".join(
    (
        rf" ?{WORD}(?: {WORD})+",  # a run of plain words is prose: a prompt may become a few long tokens
        r" ?\[\[[0-9, \[\]]+\]\]",  # a list of number lists: an example in a prompt
        rf" ?\b(?:{KEYWORDS})\b ?",
        r" ?[A-Za-z_]+",
        r" ?[0-9]+",
        r" ?[^\sA-Za-z_0-9]+ ?",
        r"\n *",
        r"\s+",
    )
)
"""Pieces that merges never cross, tried in this order. Keywords and operators take the spaces around them, so that
a variable is the same token wherever it stands; a line break takes the indentation after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of the model."""

    layers: int
    """Transformer blocks."""
    width: int
    """Size of the residual stream."""
    heads: int
    """Attention heads; they divide the width."""
    mlp_width: int
    """Inner size of the gated MLP."""
    context: int
    """Longest sequence in tokens."""


def train_tokenizer(texts: Iterable[str], *, vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer: any text goes through it unchanged.

    Args:
        texts: What to compress; a text that occurs often gets long tokens.
        vocabulary: Number of tokens, special ones and the 256 bytes included.
    """
    core = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[f"<|{role}|>" for role in ROLES],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(shape: Shape, tokenizer: PreTrainedTokenizerFast, *, generator: torch.Generator) -> LlamaForCausalLM:
    """Return a freshly initialised Llama whose every weight comes from `generator`."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        intermediate_size=shape.mlp_width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END_ID,
        pad_token_id=PAD_ID,
    )
    # transformers initialises from the global generator: its draws are undone here and overwritten below.
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config)
    _initialise(model, layers=shape.layers, generator=generator)
    model.generation_config = GenerationConfig(eos_token_id=[END_ID], pad_token_id=PAD_ID, do_sample=True)
    return model


def _initialise(model: nn.Module, *, layers: int, generator: torch.Generator) -> None:
    """Normal weights of variance 1 / fan-in; what writes into the residual stream is scaled by its depth."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                parameter.fill_(1.0)
                continue
            scale = 1.0 / math.sqrt(parameter.shape[1])
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                scale /= math.sqrt(2 * layers)
            parameter.normal_(0.0, scale, generator=generator)
