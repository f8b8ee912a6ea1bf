"""Surrogates: what is maximised, token by token.

Three log-probs meet here and are never one variable: `logp_BT` of the policy being trained, and
`logp_old_BT` of the trainer's own policy at the version the batch was drawn from. (The sampler's own
log-probs are a third; its mismatch weight is a separate factor.)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steelyard.numerics._bounds import bounded, log_difference, log_ratio_limit, widened

EDGE_STEPS = 8
"""A ratio within this many rounding units of 1 ± ε is *at* the edge: the subtraction of two log-probs
and exp move the last bits, and the edge counts as unclipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateTerms:
    """The per-token terms of a surrogate, and what its metrics need."""

    term_BT: Float[Tensor, "B T"]
    """To be maximised, in units of the advantage; exactly 0 at masked places, with gradient exactly 0."""
    ratio_BT: Float[Tensor, "B T"]
    """ρ = π_θ/π_old, detached; 1 at masked places, so select by the mask before averaging."""
    clipped_low_BT: Bool[Tensor, "B T"]
    """True where the flat branch ρ < 1 − ε_low of a bad completion is the active one."""
    clipped_high_BT: Bool[Tensor, "B T"]
    """True where the flat branch ρ > 1 + ε_high of a good completion is the active one."""


def policy_gradient(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages_B: Float[Tensor, " B"],
    mask_BT: Bool[Tensor, "B T"],
) -> SurrogateTerms:
    r"""Return the advantage times the log-prob of each token, as REINFORCE uses it.

    term_bt = A_b · logp_bt

    Williams 1992. On-policy: nothing corrects for tokens drawn from an older policy; `logp_old_BT`
    enters the ratio metric only.

    Gradient A_b flows into `logp_BT` at every live token, and is exactly 0 at masked ones; masked
    entries of all arguments may be nan. `logp_old_BT` and `advantages_B` get none.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages_B: One advantage per completion.
        mask_BT: True on sampled tokens.

    Returns:
        The terms; nothing is ever clipped.

    Raises:
        ValueError: If the shapes do not agree.

    Example:
        >>> logp_BT, mask_BT = torch.tensor([[-1.0, -2.0]]), torch.tensor([[True, True]])
        >>> policy_gradient(logp_BT, logp_BT.detach(), torch.tensor([0.5]), mask_BT).term_BT.tolist()
        [[-0.5, -1.0]]
    """
    ratio_BT, advantages_BT = _ratio_and_advantages(logp_BT.detach(), logp_old_BT, advantages_B, mask_BT)
    return _unclipped(advantages_BT * widened(logp_BT).masked_fill(~mask_BT, 0.0), ratio_BT)


def importance(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages_B: Float[Tensor, " B"],
    mask_BT: Bool[Tensor, "B T"],
) -> SurrogateTerms:
    r"""Return the advantage times the ratio of each token, without a clip.

    term_bt = ρ_bt A_b,   ρ_bt = exp( logp_bt − logp_old_bt )

    The surrogate of TRPO, arXiv:1502.05477, per token. At ρ = 1 its gradient is that of
    `policy_gradient` while its value is A: a loss that sums to 0 has a gradient that does not.

    Gradient ρ_bt A_b flows into `logp_BT` at every live token, and is exactly 0 at masked ones; masked
    entries of all arguments may be nan. `logp_old_BT` and `advantages_B` get none. The log ratio is
    bounded in value (20 nats; 10 for float16), never in slope.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages_B: One advantage per completion.
        mask_BT: True on sampled tokens.

    Returns:
        The terms; nothing is ever clipped.

    Raises:
        ValueError: If the shapes do not agree.

    Example:
        >>> logp_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
        >>> out = importance(logp_BT, logp_BT.detach(), torch.tensor([0.5]), torch.tensor([[True, True]]))
        >>> out.term_BT.sum().backward()
        >>> out.term_BT.tolist(), logp_BT.grad.tolist()
        ([[0.5, 0.5]], [[0.5, 0.5]])
    """
    ratio_BT, advantages_BT = _ratio_and_advantages(logp_BT, logp_old_BT, advantages_B, mask_BT)
    return _unclipped(ratio_BT * advantages_BT, ratio_BT)


def clipped(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages_B: Float[Tensor, " B"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    eps_low: float,
    eps_high: float,
) -> SurrogateTerms:
    r"""Return the clipped surrogate of PPO per token, as GRPO and DAPO use it.

    term_bt = min( ρ_bt A_b , clip(ρ_bt, 1−ε_low, 1+ε_high) A_b ),   ρ_bt = exp( logp_bt − logp_old_bt )

    PPO: arXiv:1707.06347 eq. 7. Unequal ε: DAPO, arXiv:2503.14476. There is no third, "dual" bound: a
    bad completion that became likelier is pushed back in full.

    Gradient flows into `logp_BT` only: for A > 0 while ρ ≤ 1+ε_high, for A < 0 while ρ ≥ 1−ε_low. The
    edge itself counts as unclipped, within 8 rounding units. It is exactly 0 in the flat branches and
    at masked places; masked entries of all arguments may be nan. The log ratio is bounded in value
    (20 nats; 10 for float16), never in slope. Clipping removes an incentive; it does not keep the
    ratio inside the interval after an optimizer step.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages_B: One advantage per completion.
        mask_BT: True on sampled tokens.
        eps_low: ε_low, in (0, 1).
        eps_high: ε_high, finite, above 0.

    Returns:
        The terms, and which flat branch was active where.

    Raises:
        ValueError: If the shapes do not agree, or an ε is out of its range.

    Example:
        >>> logp_BT, old_BT = torch.log(torch.tensor([[1.4, 0.6]])), torch.zeros(1, 2)
        >>> out = clipped(logp_BT, old_BT, torch.ones(1), torch.ones(1, 2).bool(), eps_low=0.2, eps_high=0.2)
        >>> [round(x, 4) for x in out.term_BT[0].tolist()], out.clipped_high_BT.tolist()
        ([1.2, 0.6], [[True, False]])
    """
    if not (0.0 < eps_low < 1.0 and 0.0 < eps_high < float("inf")):
        raise ValueError(f"eps_low must be in (0, 1) and eps_high above 0, got eps_low={eps_low}, eps_high={eps_high}")
    ratio_BT, advantages_BT = _ratio_and_advantages(logp_BT, logp_old_BT, advantages_B, mask_BT)
    slack = EDGE_STEPS * torch.finfo(ratio_BT.dtype).eps
    high_BT = (advantages_BT > 0) & (ratio_BT > (1.0 + eps_high) * (1.0 + slack))
    low_BT = (advantages_BT < 0) & (ratio_BT < (1.0 - eps_low) * (1.0 - slack))
    # Selected by name: torch.min and clamp share the gradient out at ties, which are the edge itself.
    flat_BT = torch.where(high_BT, (1.0 + eps_high) * advantages_BT, (1.0 - eps_low) * advantages_BT)
    return SurrogateTerms(
        term_BT=torch.where(high_BT | low_BT, flat_BT, ratio_BT * advantages_BT),
        ratio_BT=ratio_BT.detach(),
        clipped_low_BT=low_BT,
        clipped_high_BT=high_BT,
    )


SURROGATES: Mapping[str, Callable[..., SurrogateTerms]] = MappingProxyType(
    {"policy_gradient": policy_gradient, "importance": importance, "clipped": clipped}
)
"""By the name that recipes use; call through `surrogate` when the name is data."""


def surrogate(
    name: str,
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages_B: Float[Tensor, " B"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    eps_low: float | None,
    eps_high: float | None,
) -> SurrogateTerms:
    """Return the terms of the surrogate that a recipe names; every choice is read, or refused.

    Args:
        name: A key of `SURROGATES`.
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages_B: One advantage per completion.
        mask_BT: True on sampled tokens.
        eps_low: ε_low for clipped, None for the others, which have no clip.
        eps_high: ε_high for clipped, None for the others.

    Returns:
        The terms.

    Raises:
        ValueError: If the name is unknown, or an ε is missing or has no place in the formula.

    Example:
        >>> logp_BT, mask_BT = torch.tensor([[-1.0]]), torch.tensor([[True]])
        >>> a_B = torch.tensor([2.0])
        >>> surrogate("importance", logp_BT, logp_BT, a_B, mask_BT, eps_low=None, eps_high=None).term_BT.item()
        2.0
    """
    if name not in SURROGATES:
        raise ValueError(f"unknown surrogate {name!r}; choose one of {', '.join(SURROGATES)}")
    if name != "clipped":
        if eps_low is not None or eps_high is not None:
            raise ValueError(f"surrogate {name!r} has no clip: eps_low={eps_low}, eps_high={eps_high} are never read")
        return SURROGATES[name](logp_BT, logp_old_BT, advantages_B, mask_BT)
    if eps_low is None or eps_high is None:
        raise ValueError(f"surrogate 'clipped' needs both bounds, got eps_low={eps_low}, eps_high={eps_high}")
    return clipped(logp_BT, logp_old_BT, advantages_B, mask_BT, eps_low=eps_low, eps_high=eps_high)


def _ratio_and_advantages(
    logp_BT: Tensor, logp_old_BT: Tensor, advantages_B: Tensor, mask_BT: Tensor
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Return ρ (1 at masked places) and the advantage of each token (0 at masked places)."""
    shapes = [tuple(x.shape) for x in (logp_BT, logp_old_BT, mask_BT)]
    if len(set(shapes)) != 1 or logp_BT.dim() != 2 or tuple(advantages_B.shape) != shapes[0][:1]:
        raise ValueError(
            f"log-probs, old log-probs and mask must be (B, T) and advantages (B,), got {shapes[0]}, {shapes[1]}, "
            f"{shapes[2]} and {tuple(advantages_B.shape)}"
        )
    limit = log_ratio_limit(logp_BT.dtype)
    log_ratio_BT = log_difference(logp_BT, logp_old_BT.detach(), mask_BT)
    ratio_BT = bounded(log_ratio_BT, low=-limit, high=limit).exp()
    advantages_BT = advantages_B.detach().to(ratio_BT.dtype).unsqueeze(1).where(mask_BT, 0.0)
    return ratio_BT, advantages_BT


def _unclipped(term_BT: Tensor, ratio_BT: Tensor) -> SurrogateTerms:
    never_BT = torch.zeros_like(ratio_BT, dtype=torch.bool)
    return SurrogateTerms(
        term_BT=term_BT, ratio_BT=ratio_BT.detach(), clipped_low_BT=never_BT, clipped_high_BT=never_BT
    )
