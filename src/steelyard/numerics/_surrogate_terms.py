"""What every surrogate is made of: the ratio, the advantage of each token, and the edges of a clip."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steelyard.numerics._bounds import bounded, log_difference, log_ratio_limit, widened
from steelyard.numerics._checks import check_number

EDGE_STEPS = 8
"""A ratio within this many rounding units of 1 ± ε, or of a cap, is *at* the edge: the subtraction of two
log-probs and exp move the last bits, and the edge counts as unclipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateTerms:
    """The per-token terms of a surrogate, and what its metrics need."""

    term_BT: Float[Tensor, "B T"]
    """To be maximised, in units of the advantage; exactly 0 at masked places, with gradient exactly 0."""
    ratio_BT: Float[Tensor, "B T"]
    """ρ = π_θ/π_old, detached; 1 at masked places, so select by the mask before averaging. For
    `sequence_clipped` the ratio of the whole completion."""
    clipped_low_BT: Bool[Tensor, "B T"]
    """True where the flat branch ρ < 1 − ε_low of a bad completion is the active one."""
    clipped_high_BT: Bool[Tensor, "B T"]
    """True where the flat branch ρ > 1 + ε_high of a good completion is the active one."""
    capped_BT: Bool[Tensor, "B T"]
    """True where the ratio is held at a cap: c of the dual clip, or ε_max in CISPO's weight."""


def ratio_and_advantages(
    logp_BT: Tensor, logp_old_BT: Tensor, advantages: Tensor, mask_BT: Tensor
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Return ρ (1 at masked places) and the advantage of each token (0 at masked places)."""
    advantages_BT = token_advantages(logp_BT, logp_old_BT, advantages, mask_BT)
    ratio_BT = bounded_exp(log_difference(logp_BT, logp_old_BT.detach(), mask_BT), logp_BT.dtype)
    return ratio_BT, advantages_BT.to(ratio_BT.dtype)


def token_advantages(logp_BT: Tensor, logp_old_BT: Tensor, advantages: Tensor, mask_BT: Tensor) -> Float[Tensor, "B T"]:
    """Return the advantage of each token, detached, 0 at masked places; shapes that do not agree are refused."""
    shapes = [tuple(x.shape) for x in (logp_BT, logp_old_BT, mask_BT)]
    fits = tuple(advantages.shape) in (shapes[0], shapes[0][:1])
    if len(set(shapes)) != 1 or logp_BT.dim() != 2 or not fits:
        raise ValueError(
            "log-probs, old log-probs and mask must be (B, T) and advantages (B,), or (B, T) with one per token, got "
            f"{shapes[0]}, {shapes[1]}, {shapes[2]} and {tuple(advantages.shape)}"
        )
    wide_BT = advantages.detach() if advantages.dim() == 2 else advantages.detach().unsqueeze(1)
    return wide_BT.where(mask_BT, 0.0)


def live_logp(logp_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return the log-probs, 0 at masked places; finite ones are bounded so that A times them stays finite."""
    x_BT = widened(logp_BT).masked_fill(~mask_BT, 0.0)
    limit = torch.finfo(x_BT.dtype).max ** 0.5
    return torch.where(x_BT.isinf(), x_BT, bounded(x_BT, low=-limit, high=limit))


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """Return float64 when one of them is, float32 otherwise."""
    return torch.float64 if any(x.dtype == torch.float64 for x in tensors) else torch.float32


def bounded_exp(log_ratio: Float[Tensor, "*axes"], dtype: torch.dtype) -> Float[Tensor, "*axes"]:
    """Return exp of the log ratio, bounded in value and never in slope; `dtype` is that of the log-probs."""
    limit = log_ratio_limit(dtype)
    return bounded(log_ratio, low=-limit, high=limit).exp()


def above(ratio: Float[Tensor, "*axes"], edge: float) -> Bool[Tensor, "*axes"]:
    """Return where the ratio is past an upper edge by more than rounding."""
    return ratio > edge * (1.0 + _slack(ratio))


def below(ratio: Float[Tensor, "*axes"], edge: float) -> Bool[Tensor, "*axes"]:
    """Return where the ratio is past a lower edge by more than rounding."""
    return ratio < edge * (1.0 - _slack(ratio))


def check_interval(eps_low: float, eps_high: float) -> None:
    """Refuse an interval that does not hold 1, or that reaches 0 or infinity."""
    for name, value in (("eps_low", eps_low), ("eps_high", eps_high)):
        check_number(name, value, beside=f" with eps_low={eps_low}, eps_high={eps_high}")


def unclipped(term_BT: Tensor, ratio_BT: Tensor) -> SurrogateTerms:
    """Return the terms of a surrogate that holds nothing."""
    never_BT = torch.zeros_like(ratio_BT, dtype=torch.bool)
    return SurrogateTerms(
        term_BT=term_BT,
        ratio_BT=ratio_BT.detach(),
        clipped_low_BT=never_BT,
        clipped_high_BT=never_BT,
        capped_BT=never_BT,
    )


def _slack(ratio: Tensor) -> float:
    return EDGE_STEPS * torch.finfo(ratio.dtype).eps
