"""Supervised warm-up: builds a small model and trains it on prompts with answers, once per recipe and machine.

The result is an ordinary Hugging Face directory in the cache. It is named by everything that its weights
depend on, written under a temporary name and renamed last, so a directory of that name is always whole.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from steelyard import config
from steelyard.content import content_hash
from steelyard.errors import RunError, UpdateError
from steelyard.run import sft_data, sft_loss, sft_recipe
from steelyard.run.sft_data import Pair, Row, batches, corpus_hash, load_pairs, tokenise
from steelyard.run.sft_loss import negative_log_likelihood
from steelyard.run.sft_recipe import SftRecipe
from steelyard.tasks import booking_corpus
from steelyard.update import optimizer as optimizer_module
from steelyard.update import tiny
from steelyard.update.hashing import parameter_hash
from steelyard.update.optimizer import AdamW

RECORD = "sft.json"
"""What the warm-up was, beside the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftProgress:
    """Where a warm-up stands."""

    step: int
    """Steps done."""
    steps: int
    """Steps in all."""
    loss: float
    """Mean −log p per completion token of this step's batch, nats."""
    tokens_per_second: float
    """Completion tokens learnt from per second, so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftResult:
    """A warmed-up model on disk."""

    directory: Path
    """Model and tokenizer in Hugging Face format."""
    cached: bool
    """Whether it was there already."""
    seconds: float
    """Wall time of this call."""
    steps: int
    """Optimizer steps behind the weights."""
    loss: float
    """Mean −log p per completion token over the last tenth of the steps, nats."""
    parameter_hash: str
    """SHA-256 of the weights."""


def sft(recipe: SftRecipe | Path, *, progress: Callable[[SftProgress], None] | None = None) -> SftResult:
    """Build and train the model of a recipe, or find it in the cache.

    Args:
        recipe: The recipe, or the path of its TOML file.
        progress: Called after every step.

    Raises:
        ConfigError: If the recipe is not valid.
        TaskError: If the corpus cannot be used.
        UpdateError: If the loss is no longer finite.
        RunError: If the result cannot be written.
    """
    began = time.perf_counter()
    if isinstance(recipe, Path):
        recipe = config.load(recipe, SftRecipe)
    pairs = load_pairs(recipe.corpus, seed=recipe.run.seed)
    directory = cache_root() / cache_key(recipe, pairs)
    cached = (directory / RECORD).is_file()
    if not cached:
        with _threads(recipe.run.threads):
            model, tokenizer, loss = _train(recipe, pairs, progress)
        record = {"steps": recipe.sft.steps, "loss": loss, "parameter_hash": parameter_hash(model).digest}
        _write(directory, model, tokenizer, {**record, "recipe": recipe.model_dump(mode="json")})
    record = json.loads((directory / RECORD).read_text(encoding="utf-8"))
    return SftResult(
        directory=directory,
        cached=cached,
        seconds=time.perf_counter() - began,
        steps=record["steps"],
        loss=record["loss"],
        parameter_hash=record["parameter_hash"],
    )


def cache_root() -> Path:
    """Return where warmed-up models are kept: $STEELYARD_CACHE/sft, or ~/.cache/steelyard/sft."""
    return Path(os.environ.get("STEELYARD_CACHE") or Path.home() / ".cache" / "steelyard").expanduser() / "sft"


def cache_key(recipe: SftRecipe, pairs: Sequence[Pair]) -> str:
    """Name everything that the weights depend on: recipe, corpus, libraries, instruction set, and our own code."""
    modules = (tiny, optimizer_module, sft_data, sft_loss, sft_recipe)
    sources = [Path(str(module.__file__)) for module in modules] + [Path(__file__)]
    sources += sorted(Path(str(booking_corpus.__file__)).parent.glob("*.py"))
    parts = {
        "recipe": recipe.model_dump(mode="json"),
        "corpus": corpus_hash(pairs),
        "libraries": {name: metadata.version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "sources": [hashlib.sha256(path.read_bytes()).hexdigest() for path in sources],
    }
    return content_hash(parts)[:24]


# ------------------------------------------------------------------ training


def _train(
    recipe: SftRecipe, pairs: Sequence[Pair], progress: Callable[[SftProgress], None] | None
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast, float]:
    texts = [text for pair in pairs for text in (*(message["content"] for message in pair.prompt), pair.completion)]
    tokenizer = tiny.train_tokenizer(texts, vocabulary=recipe.model.vocabulary)
    rows = tokenise(pairs, tokenizer, context=recipe.model.context)
    generator = torch.Generator().manual_seed(recipe.run.seed)
    shape = tiny.Shape(**recipe.model.model_dump(exclude={"vocabulary"}))
    model = tiny.build_model(shape, tokenizer, generator=generator)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(recipe.run.seed)))
    losses = list(_steps(model, recipe, batches(rows, recipe, rng=rng), progress))
    last = losses[-max(1, len(losses) // 10) :]
    return model.eval(), tokenizer, sum(last) / len(last)


def _steps(
    model: LlamaForCausalLM,
    recipe: SftRecipe,
    batches_: Iterator[list[Row]],
    progress: Callable[[SftProgress], None] | None,
) -> Iterator[float]:
    """Take every step; yield the loss of each."""
    optimizer = AdamW(model.parameters(), recipe.optimizer, total_steps=recipe.sft.steps)
    began, seen = time.perf_counter(), 0
    for step, batch in enumerate(batches_, start=1):
        n_tokens = sum(len(row.completion_ids) for row in batch)
        loss = negative_log_likelihood(model, batch, pad=tiny.PAD_ID) / n_tokens
        if not torch.isfinite(loss):
            raise UpdateError(f"step {step}: the loss is {loss.item()}. Lower optimizer.lr or raise optimizer.warmup.")
        optimizer.zero_grad()
        loss.backward()
        optimizer.clip()
        optimizer.step()
        seen += n_tokens
        if progress is not None:
            speed = seen / (time.perf_counter() - began)
            progress(SftProgress(step=step, steps=recipe.sft.steps, loss=loss.item(), tokens_per_second=speed))
        yield loss.item()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------------ cache


def _write(
    directory: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, record: dict[str, object]
) -> None:
    """Write under a temporary name, rename last; where another process was first, keep its result."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        try:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            (temporary / RECORD).write_text(json.dumps(record, indent=2), encoding="utf-8")
            if not (directory / RECORD).is_file():
                shutil.rmtree(directory, ignore_errors=True)  # a directory without its record is no result
                temporary.rename(directory)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise RunError(
            f"the warmed-up model cannot be written to {directory}: {error}. "
            "Free some space, or set STEELYARD_CACHE to another directory."
        ) from None
