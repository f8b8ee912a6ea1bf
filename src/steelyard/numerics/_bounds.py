"""A bound on the argument of exp that limits the value and never the slope; and the dtype it works in."""

import math
from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Bound on |log ratio| before exp, in nats. e^20 ≈ 4.85e8: no token of a working policy gets near it,
and value and slope stay finite in float32, where exp overflows past 88.72."""

LOG_RATIO_LIMIT_FLOAT16 = 10.0
"""The same for inputs in float16, whose gradients overflow past 65504 ≈ e^11.09; e^10 ≈ 2.2e4."""


class _ValueBound(torch.autograd.Function):
    """Clamp in the forward pass, identity in the backward pass."""

    @staticmethod
    def forward(x: Tensor, low: float, high: float) -> Tensor:
        return x.clamp(low, high)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        """Keep nothing: the backward pass does not depend on the inputs."""

    @staticmethod
    def backward(ctx: object, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        return grad_outputs[0], None, None


# torch types `Function.apply` as unknown; this gives it the signature of `forward`.
_apply_value_bound = cast("Callable[[Tensor, float, float], Tensor]", _ValueBound.apply)  # pyright: ignore[reportUnknownMemberType]


def bounded(x: Float[Tensor, "*axes"], *, low: float = -math.inf, high: float) -> Float[Tensor, "*axes"]:
    r"""Return x clamped to [low, high] in value, with slope 1 everywhere.

    A plain clamp has slope 0 outside the interval: a bad completion that became far likelier, or a KL
    that ran away, would stop pulling. Here exp of the result is finite and still pulls.

    Gradient: exactly that of x, also where the bound acts. nan stays nan.

    Args:
        x: Any float tensor.
        low: Lower bound of the value.
        high: Upper bound of the value.

    Returns:
        A tensor of the same shape and dtype.

    Example:
        >>> x = torch.tensor([1.0, 100.0], requires_grad=True)
        >>> y = bounded(x, low=-20.0, high=20.0)
        >>> y.sum().backward()
        >>> y.tolist(), x.grad.tolist()
        ([1.0, 20.0], [1.0, 1.0])
    """
    return _apply_value_bound(x, low, high)


def log_ratio_limit(dtype: torch.dtype) -> float:
    """Return the bound on |log ratio| for log-probs that came in this dtype, in nats."""
    return LOG_RATIO_LIMIT_FLOAT16 if dtype == torch.float16 else LOG_RATIO_LIMIT


def widened(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Return x in float32 when it came in fewer bits; float32 and float64 stay as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def log_difference(to_BT: Float[Tensor, "B T"], from_BT: Float[Tensor, "B T"], mask_BT: Tensor) -> Float[Tensor, "B T"]:
    """Return to − from where the mask is true and exactly 0 elsewhere, whatever stands there.

    The mask is applied before the subtraction, so that nan or −inf at a masked place reaches neither
    the value nor the gradient of either argument.
    """
    return widened(to_BT).masked_fill(~mask_BT, 0.0) - widened(from_BT).masked_fill(~mask_BT, 0.0)
