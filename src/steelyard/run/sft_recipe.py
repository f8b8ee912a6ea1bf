"""The recipe of a supervised warm-up: a small model of one's own, trained on prompts with answers."""

from typing import Literal, Self

from pydantic import Field, model_validator

from steelyard.config import Section
from steelyard.update.config import OptimizerSection


class SftRunSection(Section):
    """What every draw depends on."""

    seed: int = Field(default=0, ge=0)
    """Keys corpus, weights and order."""
    threads: int = Field(default=2, ge=1)
    """CPU threads of torch. Sums depend on it in the last bit, so it belongs to the recipe."""


class TinyModelSection(Section):
    """Size of the model that is built."""

    layers: int = Field(default=4, ge=1)
    """Transformer blocks."""
    width: int = Field(default=128, ge=8)
    """Size of the residual stream."""
    heads: int = Field(default=4, ge=1)
    """Attention heads; they divide the width into even parts."""
    mlp_width: int = Field(default=384, ge=8)
    """Inner size of the gated MLP."""
    vocabulary: int = Field(default=640, ge=300)
    """Tokens, special ones and the 256 bytes included."""
    context: int = Field(default=1024, ge=16)
    """Longest sequence in tokens."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(f"model.width = {self.width} must be a multiple of 2 * model.heads = {2 * self.heads}")
        return self


class CorpusSection(Section):
    """Prompts with answers."""

    name: Literal["booking"] | None = None
    """A generated corpus."""
    data: str | None = None
    """Your own: a JSONL file, each line {"prompt": text or chat messages, "completion": text}."""
    programs: int = Field(default=10_000, ge=1)
    """Size of the generated corpus."""
    right_share: float = Field(default=0.45, ge=0.0, le=1.0)
    """Share of right programs in it."""
    inclusive_share: float = Field(default=0.05, ge=0.0, le=1.0)
    """Share of programs that still count a booking at its end; the other faults share the rest equally."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.data is None):
            raise ValueError("give exactly one of corpus.name (a generated corpus) and corpus.data (your own pairs)")
        if self.right_share + self.inclusive_share > 1.0 + 1e-9:
            raise ValueError("corpus.right_share + corpus.inclusive_share is above 1")
        return self


class SftSection(Section):
    """How long to train."""

    steps: int = Field(default=300, ge=1)
    """Optimizer steps. A warm-up is bounded by steps, never by time: a clock would change the weights."""
    batch_tokens: int = Field(default=2048, ge=1)
    """Completion tokens per step, at least one answer."""


class SftRecipe(Section):
    """A whole warm-up."""

    run: SftRunSection = SftRunSection()
    model: TinyModelSection = TinyModelSection()
    corpus: CorpusSection
    optimizer: OptimizerSection = OptimizerSection(lr=8e-3, schedule="cosine", warmup=20, betas=(0.9, 0.98))
    sft: SftSection = SftSection()
