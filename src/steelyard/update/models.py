"""Loading a policy: any causal language model that transformers loads, from a local directory or a hub id."""

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as hf_logging

from steelyard.errors import ModelError, RunError


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A model with its tokenizer, ready to sample and to be trained."""

    model: PreTrainedModel
    """In evaluation mode for good: dropout would make two scores of one token differ."""
    tokenizer: PreTrainedTokenizerBase
    """Renders prompts and decodes answers."""

    @property
    def context(self) -> int | None:
        """Longest sequence in tokens that the model was built for, where its configuration says so."""
        return getattr(self.model.config, "max_position_embeddings", None)

    @property
    def parameter_count(self) -> int:
        """Number of distinct parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())


def load_policy(source: str) -> Policy:
    """Load model and tokenizer in float32.

    Args:
        source: A local directory in Hugging Face format, or a hub id.

    Raises:
        ModelError: If there is nothing to load, or it is no causal language model.
    """
    check_source(source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise _missing(source, error) from None
    return Policy(model=model.eval(), tokenizer=tokenizer)


def check_source(source: str) -> None:
    """Refuse a source that cannot be a model, reading no more than its configuration.

    Raises:
        ModelError: If the directory is missing or not a model, or the hub does not have it.
    """
    path = Path(source)
    looks_local = source.startswith((".", "/", "~")) or source.count("/") > 1 or path.exists()
    if looks_local and not path.is_dir():
        raise ModelError(
            f"model.source = {source!r}: no such directory. Give a Hugging Face model directory or a hub id."
        )
    if looks_local and not (path / "config.json").is_file():
        raise ModelError(
            f"model.source = {source!r}: the directory has no config.json, so it is no Hugging Face model."
        )
    try:
        AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise _missing(source, error) from None


def _missing(source: str, error: Exception) -> ModelError:
    first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return ModelError(
        f"model.source = {source!r} cannot be loaded: {first_line} "
        "Check the name, the network and, for gated models, your access token; a local directory needs neither."
    )


def frozen_copy(policy: Policy) -> PreTrainedModel:
    """Return a copy of the model as it stands now, without gradients: the reference policy."""
    return copy.deepcopy(policy.model).eval().requires_grad_(requires_grad=False)


def save_policy(policy: Policy, directory: Path) -> None:
    """Write model and tokenizer in Hugging Face format: to a temporary name, renamed when complete.

    Raises:
        RunError: If it cannot be written (disk full).
    """
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    try:
        policy.model.save_pretrained(unfinished)
        policy.tokenizer.save_pretrained(unfinished)
        unfinished.rename(directory)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        free = shutil.disk_usage(directory.parent).free
        raise RunError(
            f"the policy cannot be saved to {directory}: {error}. {free} bytes are free there; it needs about "
            f"{4 * policy.parameter_count}. The ledger is kept; free some space or set run.dir to another disk."
        ) from error


def quiet() -> None:
    """Switch off the progress bars of transformers; we draw our own."""
    hf_logging.disable_progress_bar()
