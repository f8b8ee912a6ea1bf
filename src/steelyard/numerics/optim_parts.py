"""One optimizer step, split into what moved each parameter."""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from steelyard.numerics._bounds import widened


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWParts:
    """The step of one tensor as a sum; each part in the units of the parameter."""

    carried: Float[Tensor, "*axes"]
    """−lr · β1 m / (1−β1^t) / (√v̂ + ε): the first moment of earlier steps; moves without any gradient."""
    fresh: Float[Tensor, "*axes"]
    """−lr · (1−β1) g / (1−β1^t) / (√v̂ + ε): the gradient of this step."""
    decay: Float[Tensor, "*axes"]
    """−lr · λ θ: weight decay."""

    @property
    def total(self) -> Float[Tensor, "*axes"]:
        """Δθ, the parameter after the step less the parameter before it."""
        return self.carried + self.fresh + self.decay


def adamw_parts(
    parameter: Float[Tensor, "*axes"],
    gradient: Float[Tensor, "*axes"],
    exp_avg: Float[Tensor, "*axes"],
    exp_avg_sq: Float[Tensor, "*axes"],
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> AdamWParts:
    r"""Return the carried, the fresh and the decay part of one AdamW step of one tensor.

    Δθ = −lr · [ β1 m + (1−β1) g ] / (1−β1^t) / ( √v̂ + ε ) − lr · λ · θ
    v̂ = [ β2 v + (1−β2) g² ] / (1−β2^t)

    AdamW: arXiv:1711.05101; as torch.optim.AdamW computes it (no amsgrad). "Zero gradient" and "unchanged
    parameters" are two statements: with g = 0 the carried part lives on while m does. The split is of the
    numerator; g also enters v̂, which scales the carried part.

    No gradient flows into any argument. Works in float32 at least. A nan in an argument is a nan in the parts.

    Args:
        parameter: θ before the step.
        gradient: g as the optimizer sees it: after the gradient norm was clipped.
        exp_avg: m before the step; zeros before the first.
        exp_avg_sq: v before the step; zeros before the first.
        step: t, the number of this step, from 1.
        lr: Learning rate of this step, at least 0.
        betas: (β1, β2), each in [0, 1).
        eps: ε, above 0: with 0, a parameter that never had a gradient would be 0/0.
        weight_decay: λ, at least 0.

    Returns:
        The three parts.

    Raises:
        ValueError: If the shapes do not agree or a number is out of its range.

    Example:
        >>> import torch
        >>> theta, zero, m, v = torch.ones(1), torch.zeros(1), torch.tensor([0.1]), torch.tensor([0.01])
        >>> parts = adamw_parts(theta, zero, m, v, step=2, lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
        >>> parts.fresh.item(), parts.decay.item(), round(parts.carried.item(), 4)  # no gradient, and yet it moves
        (-0.0, -0.0, -0.0212)
    """
    _check(parameter, gradient, exp_avg, exp_avg_sq)
    _check_numbers(step, lr, betas, eps, weight_decay)
    theta, g, m, v = (widened(x.detach()) for x in (parameter, gradient, exp_avg, exp_avg_sq))
    beta1, beta2 = betas
    v_hat = (beta2 * v + (1.0 - beta2) * g * g) / (1.0 - beta2**step)
    scale = -lr / (1.0 - beta1**step) / (v_hat.sqrt() + eps)
    return AdamWParts(carried=scale * (beta1 * m), fresh=scale * ((1.0 - beta1) * g), decay=-lr * weight_decay * theta)


def _check(*tensors: Tensor) -> None:
    shapes = [tuple(x.shape) for x in tensors]
    if len(set(shapes)) != 1:
        raise ValueError(
            "parameter, gradient and both moments must have one shape, got " + ", ".join(str(shape) for shape in shapes)
        )


def _check_numbers(step: int, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    if step < 1:
        raise ValueError(f"step is the number of this step, counted from 1; got {step}")
    if not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError(f"betas must each be in [0, 1), got {betas}")
    if not (0.0 < eps < math.inf):
        raise ValueError(f"eps must be finite and above 0, got {eps}: a parameter without a gradient would be 0/0")
    for name, value in (("lr", lr), ("weight_decay", weight_decay)):
        if not (0.0 <= value < math.inf):
            raise ValueError(f"{name} must be finite and at least 0, got {value}")
