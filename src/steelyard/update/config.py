"""Recipe sections of the model and its update."""

from typing import Literal

from pydantic import Field, field_validator

from steelyard.config import Section


class ModelSection(Section):
    """Which policy is trained."""

    source: str
    """Hub id, local directory, or sft:RECIPE (builds or reuses a cached warm-up)."""
    chat: Literal["auto", "never"] = "auto"
    """auto: a plain-text prompt becomes one user message when the tokenizer has a chat template."""


class OptimizerSection(Section):
    """AdamW and its schedule."""

    lr: float = Field(default=1e-5, ge=0.0, allow_inf_nan=False)
    """Peak learning rate; 0 is a control that moves nothing."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up; linear and cosine end at 0 after the last update."""
    warmup: int = Field(default=0, ge=0)
    """Optimizer steps of linear warm-up."""
    betas: tuple[float, float] = Field(default=(0.9, 0.999), strict=False)
    """AdamW β1, β2."""
    eps: float = Field(default=1e-8, gt=0.0, allow_inf_nan=False)
    """AdamW ε."""
    weight_decay: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Decoupled weight decay λ."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradients longer than this are scaled down to it; inf never scales."""

    @field_validator("betas")
    @classmethod
    def _below_one(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError("both must lie in [0, 1), such as [0.9, 0.999]")
        return betas


class UpdateSection(Section):
    """How one batch becomes gradient."""

    passes: int = Field(default=1, ge=1)
    """Times that one batch is gone over (PPO's epochs)."""
    minibatches: int = Field(default=1, ge=1)
    """Optimizer steps per pass, each over its own share of the completions; 1 steps on the whole batch."""
    max_kl: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Stop the steps on a batch when the approximate KL(pi_old || pi) exceeds this, nats per token."""
    max_clip_share: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Stop the steps on a batch when more than this share of tokens is clipped."""
    truncated: Literal["keep", "mask", "mask_loss_only"] = "keep"
    """Completions cut at the limit: in loss and baseline; in neither; in the baseline only (as TRL masks them)."""
    skip_zero_advantages: bool = True
    """Leave completions with advantage 0 out of the forward and backward pass where that changes nothing."""
    token_budget: int = Field(default=8192, ge=1)
    """Padded tokens per micro-batch (a longer row stands alone). Changes memory, and the result by rounding only."""


class CriticSection(Section):
    """The value network of advantage = gae; read by no other advantage."""

    backbone: Literal["own", "shared"] = "own"
    """own: a copy of the policy's network with an optimizer of its own; shared: a head on the policy's."""
    lr: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    """Peak learning rate of an own backbone; default: optimizer.lr."""
    coef: float = Field(default=0.1, gt=0.0, allow_inf_nan=False)
    """Weight of the value loss beside the policy's, with a shared backbone."""
    clip: float = Field(default=0.2, gt=0.0)
    """A value may move this far from its old value before its loss goes flat; inf never clips."""
