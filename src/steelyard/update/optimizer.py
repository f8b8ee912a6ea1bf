"""AdamW with its schedule and gradient clipping, driven one optimizer step at a time."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from steelyard.update.config import OptimizerSection


class AdamW:
    """torch's AdamW, told the learning rate of each step by the recipe's schedule."""

    def __init__(self, parameters: Iterable[nn.Parameter], settings: OptimizerSection, *, total_steps: int) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.settings = settings
        self.total_steps = total_steps
        self.steps = 0
        self.inner = torch.optim.AdamW(
            self.parameters,
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        return self.settings.lr * schedule_factor(self.settings, step=self.steps, total_steps=self.total_steps)

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self.inner.zero_grad(set_to_none=True)

    def zero_gradient(self) -> None:
        """Make the gradient exactly 0, which moves parameters by momentum; a missing one would move none."""
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)

    def clip(self) -> tuple[float, float]:
        """Scale the gradient down to the configured norm; return the norm before and after."""
        limit = self.settings.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, limit).item()
        return norm, min(norm, limit) if math.isfinite(norm) else norm

    def step(self) -> None:
        """Take one step at the scheduled learning rate."""
        for group in self.inner.param_groups:
            group["lr"] = self.lr
        self.inner.step()
        self.steps += 1

    def seek(self, step: int) -> None:
        """Place the schedule before this step, counted from 0, whether or not all steps before it were taken."""
        self.steps = step


def schedule_factor(settings: OptimizerSection, *, step: int, total_steps: int) -> float:
    """Return the share of the peak learning rate for a step, counted from 0.

    Warm-up rises linearly, (step + 1) / warmup, so that the first step already moves. After it `constant`
    stays at 1; `linear` and `cosine` fall towards 0, which they would reach one step after the last.
    """
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    progress = (step - settings.warmup) / max(1, total_steps - settings.warmup)
    if settings.schedule == "linear":
        return 1.0 - progress
    if settings.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0
