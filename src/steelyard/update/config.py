"""Recipe sections of the model and its update."""

from typing import Literal

from pydantic import Field

from steelyard.config import Section


class ModelSection(Section):
    """Which policy is trained."""

    source: str
    """Hub id, local directory, or sft:RECIPE (builds or reuses a cached warm-up)."""
    chat: Literal["auto", "never"] = "auto"
    """auto: a plain-text prompt becomes one user message when the tokenizer has a chat template."""


class OptimizerSection(Section):
    """AdamW and its schedule."""

    lr: float = Field(default=1e-5, ge=0.0)
    """Peak learning rate; 0 is a control that moves nothing."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up; linear and cosine end at 0 after the last update."""
    warmup: int = Field(default=0, ge=0)
    """Optimizer steps of linear warm-up."""
    betas: tuple[float, float] = Field(default=(0.9, 0.999), strict=False)
    """AdamW β1, β2."""
    eps: float = Field(default=1e-8, gt=0.0)
    """AdamW ε."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """Decoupled weight decay λ."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradients longer than this are scaled down to it; inf never scales."""


class UpdateSection(Section):
    """How one batch becomes gradient."""

    passes: int = Field(default=1, ge=1)
    """Optimizer steps over the same batch, each over the whole of it."""
    token_budget: int = Field(default=8192, ge=1)
    """Padded tokens per micro-batch (a longer single row stands alone). It changes memory, never the result."""
