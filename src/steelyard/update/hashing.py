"""One hash for all the weights of a model, and one for its tokenizer."""

import hashlib
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from steelyard.content import content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterHash:
    """What a model's weights are, in 64 hex digits."""

    digest: str
    """SHA-256 over (name, dtype, shape, raw bytes) of the distinct parameters, in name order."""
    aliases: tuple[tuple[str, str], ...]
    """Tied names: (alias, name under which the storage was hashed)."""


def parameter_hash(model: nn.Module) -> ParameterHash:
    """Hash every distinct parameter and persistent buffer once; tied ones are listed as aliases."""
    digest = hashlib.sha256()
    first_name: dict[tuple[int, int, tuple[int, ...]], str] = {}
    aliases: list[tuple[str, str]] = []
    for name, tensor in sorted(model.state_dict(keep_vars=True).items()):
        identity = (tensor.data_ptr(), tensor.storage_offset(), tuple(tensor.shape))
        if tensor.numel() and identity in first_name:
            aliases.append((name, first_name[identity]))
            continue
        first_name[identity] = name
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(_raw_bytes(tensor))
    return ParameterHash(digest=digest.hexdigest(), aliases=tuple(aliases))


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash vocabulary and template: what decides which ids a prompt becomes."""
    vocabulary = sorted(tokenizer.get_vocab().items())
    return content_hash([vocabulary, tokenizer.chat_template])


def _raw_bytes(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data
