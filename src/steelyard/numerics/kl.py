r"""Estimators of KL(π_θ ‖ π_ref) from tokens sampled by π_θ, and what each one does as a loss.

With d = logp_ref − logp per token (Schulman, "Approximating KL divergence", 2020):

| estimator | value | as an estimate of KL(π_θ ‖ π_ref) | expected gradient as a loss |
|---|---|---|---|
| k1 | −d | unbiased, large variance, may be negative | 0: it does not pull |
| k2 | d²/2 | biased, small variance, never negative | that of KL(π_θ ‖ π_ref) |
| k3 | e^d − d − 1 | unbiased, never negative, variance grows with the gap | that of KL(π_ref ‖ π_θ), the other direction |

"As a loss" means: tokens drawn from π_θ and held fixed, the gradient taken through logp alone, as a
training step does. On tokens drawn from an older policy none of these statements holds exactly: the
estimators do not correct for it.

All three: gradient flows into `logp_BT` only, exactly 0 at masked places, whose entries may be nan. Between finite
log-probs d is bounded in value (float32: 1.8e16; float64: 1.3e151), never in slope, so that sums and squares are finite;
a token that is impossible under one of the policies keeps its infinite d.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steelyard.numerics._bounds import bounded, log_difference, log_ratio_limit


def k1(
    logp_BT: Float[Tensor, "B T"], logp_ref_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""Return the plain log-ratio estimate of KL(π_θ ‖ π_ref) per token.

    k1_bt = logp_bt − logp_ref_bt = −d_bt

    Unbiased with large variance; single values may be negative. As a loss its expected gradient is
    E[∇ log π] = 0, so it does not pull towards the reference at all. It has its place in the reward.

    Gradient 1 flows into `logp_BT`; exactly 0 at masked places, whose entries may be nan.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_ref_BT: log π_ref of the same token, nats.
        mask_BT: True on sampled tokens.

    Returns:
        One estimate per token, nats; 0 at masked places.

    Raises:
        ValueError: If the shapes do not agree.

    Example:
        >>> round(k1(torch.tensor([[-1.5]]), torch.tensor([[-1.0]]), torch.tensor([[True]])).item(), 4)
        -0.5
    """
    return -_d(logp_BT, logp_ref_BT, mask_BT)


def k2(
    logp_BT: Float[Tensor, "B T"], logp_ref_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""Return the half-square estimate of KL(π_θ ‖ π_ref) per token.

    k2_bt = d_bt² / 2,   d = logp_ref − logp

    Biased, with small variance; never negative. As a loss its expected gradient is exactly
    ∇ KL(π_θ ‖ π_ref).

    Gradient −d flows into `logp_BT`; exactly 0 at masked places, whose entries may be nan.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_ref_BT: log π_ref of the same token, nats.
        mask_BT: True on sampled tokens.

    Returns:
        One estimate per token, nats, at least 0; 0 at masked places.

    Raises:
        ValueError: If the shapes do not agree.

    Example:
        >>> round(k2(torch.tensor([[-1.5]]), torch.tensor([[-1.0]]), torch.tensor([[True]])).item(), 4)
        0.125
    """
    return 0.5 * _d(logp_BT, logp_ref_BT, mask_BT) ** 2


def k3(
    logp_BT: Float[Tensor, "B T"], logp_ref_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    r"""Return the estimate of KL(π_θ ‖ π_ref) per token that GRPO uses.

    k3_bt = e^d − d − 1,   d = logp_ref − logp

    GRPO: arXiv:2402.03300 eq. 4. Unbiased and never negative; its variance grows with the gap. As a
    loss its expected gradient is exactly that of the *other* direction, KL(π_ref ‖ π_θ).

    Gradient 1 − e^d flows into `logp_BT`; exactly 0 at masked places, whose entries may be nan. d is
    bounded above in value (20 nats; 10 for float16) and never in slope: past the bound the value stays
    at e^20 − 21 and the gradient at 1 − e^20, finite and pulling.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_ref_BT: log π_ref of the same token, nats.
        mask_BT: True on sampled tokens.

    Returns:
        One estimate per token, nats, at least 0; 0 at masked places.

    Raises:
        ValueError: If the shapes do not agree.

    Example:
        >>> round(k3(torch.tensor([[-1.5]]), torch.tensor([[-1.0]]), torch.tensor([[True]])).item(), 5)
        0.14872
    """
    d_BT = bounded(_d(logp_BT, logp_ref_BT, mask_BT), high=log_ratio_limit(logp_BT.dtype))
    # expm1 keeps the digits that e^d − 1 loses near d = 0.
    return torch.expm1(d_BT) - d_BT


KL_ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = MappingProxyType(
    {"k1": k1, "k2": k2, "k3": k3}
)
"""By the name that recipes use."""


def _d(logp_BT: Tensor, logp_ref_BT: Tensor, mask_BT: Tensor) -> Float[Tensor, "B T"]:
    if not (logp_BT.shape == logp_ref_BT.shape == mask_BT.shape):
        raise ValueError(
            f"log-probs, reference log-probs and mask must have one shape, got {tuple(logp_BT.shape)}, "
            f"{tuple(logp_ref_BT.shape)}, {tuple(mask_BT.shape)}"
        )
    d_BT = log_difference(logp_ref_BT.detach(), logp_BT, mask_BT)
    limit = math.sqrt(torch.finfo(d_BT.dtype).max) / 1024  # squares of it, summed over two million tokens, are finite
    impossible_BT = mask_BT & (logp_BT.isinf() | logp_ref_BT.isinf())
    return torch.where(impossible_BT, d_BT, bounded(d_BT, low=-limit, high=limit))
