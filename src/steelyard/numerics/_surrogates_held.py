"""The surrogates with a cap or with one ratio per completion; `steelyard.numerics.surrogates` is their home."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steelyard.numerics._bounds import log_difference
from steelyard.numerics._checks import check_number
from steelyard.numerics._surrogate_terms import (
    SurrogateTerms,
    above,
    below,
    bounded_exp,
    check_interval,
    live_logp,
    ratio_and_advantages,
    token_advantages,
    unclipped,
    working_dtype,
)


def clipped(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"] | Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    eps_low: float,
    eps_high: float,
) -> SurrogateTerms:
    r"""Return the clipped surrogate of PPO per token, as GRPO and DAPO use it.

    term_bt = min( ρ_bt A_bt , clip(ρ_bt, 1−ε_low, 1+ε_high) A_bt ),   ρ_bt = exp( logp_bt − logp_old_bt )

    PPO: arXiv:1707.06347 eq. 7. Unequal ε: DAPO, arXiv:2503.14476. There is no third, "dual" bound: a
    bad completion that became likelier is pushed back in full (`dual_clipped` has that bound).

    Gradient flows into `logp_BT` only: for A > 0 while ρ ≤ 1+ε_high, for A < 0 while ρ ≥ 1−ε_low. The
    edge itself counts as unclipped, within 8 rounding units. It is exactly 0 in the flat branches and
    at masked places; masked entries of all arguments may be nan. The log ratio is bounded in value
    (20 nats; 10 for float16), never in slope. Clipping removes an incentive; it does not keep the
    ratio inside the interval after an optimizer step.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages: One per completion, or one per token.
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
    check_interval(eps_low, eps_high)
    ratio_BT, advantages_BT = ratio_and_advantages(logp_BT, logp_old_BT, advantages, mask_BT)
    return _clip(ratio_BT, advantages_BT, eps_low=eps_low, eps_high=eps_high)


def dual_clipped(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"] | Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    eps_low: float,
    eps_high: float,
    dual_clip: float,
) -> SurrogateTerms:
    r"""Return the clipped surrogate with a floor cA under the terms of bad completions.

    term_bt = min( ρA, clip(ρ, 1−ε_low, 1+ε_high) A )              for A ≥ 0
    term_bt = max( min( ρA, clip(ρ, 1−ε_low, 1+ε_high) A ), cA )   for A < 0

    Dual-clip PPO: arXiv:1912.09729 eq. 5; `delta` in TRL, `clip_ratio_c` in verl, where c = 3 is on by
    default. It bounds what one token can cost, and lets a bad completion that became more than c times
    likelier go: nothing pushes it back.

    Gradient flows as in `clipped`, and not while ρ > c for A < 0. The edge ρ = c counts as unclipped,
    within 8 rounding units. Exactly 0 in the flat branches and at masked places, whose entries may be
    nan. The log ratio is bounded in value (20 nats; 10 for float16), never in slope.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages: One per completion, or one per token.
        mask_BT: True on sampled tokens.
        eps_low: ε_low, in (0, 1).
        eps_high: ε_high, finite, above 0.
        dual_clip: c, finite, above 1.

    Returns:
        The terms; the branch cA is counted in `capped_BT`, not in `clipped_high_BT`.

    Raises:
        ValueError: If the shapes do not agree, or a number is out of its range.

    Example:
        >>> logp_BT, old_BT = torch.log(torch.tensor([[5.0, 2.0]])), torch.zeros(1, 2)
        >>> args = (logp_BT, old_BT, -torch.ones(1), torch.ones(1, 2).bool())
        >>> out = dual_clipped(*args, eps_low=0.2, eps_high=0.2, dual_clip=3.0)
        >>> [round(x, 4) for x in out.term_BT[0].tolist()], out.capped_BT.tolist()
        ([-3.0, -2.0], [[True, False]])
    """
    check_interval(eps_low, eps_high)
    check_number("dual_clip", dual_clip)
    ratio_BT, advantages_BT = ratio_and_advantages(logp_BT, logp_old_BT, advantages, mask_BT)
    out = _clip(ratio_BT, advantages_BT, eps_low=eps_low, eps_high=eps_high)
    capped_BT = (advantages_BT < 0) & above(ratio_BT, dual_clip)
    return replace(
        out, term_BT=torch.where(capped_BT, dual_clip * advantages_BT, out.term_BT), capped_BT=capped_BT.detach()
    )


def sequence_clipped(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    eps_low: float,
    eps_high: float,
) -> SurrogateTerms:
    r"""Return the clipped surrogate with one ratio per completion, as GSPO uses it.

    term_bt = min( s_b A_b , clip(s_b, 1−ε_low, 1+ε_high) A_b ) at every live token t of b
    s_b = exp( (1/T_b) Σ_t ( logp_bt − logp_old_bt ) ),   T_b = live tokens of row b

    GSPO: arXiv:2507.18071 eq. 5 and 7. The term is one number per completion and stands at each of its
    live tokens, so `sequence_mean` makes the mean over completions of it. s_b is a geometric mean and
    stays far closer to 1 than a token's ratio: GSPO's ε are 3e-4 and 4e-4.

    Gradient s_b A_b / T_b flows into every live token of the completion, from each place where the term
    stands, while the completion is not clipped; the edge counts as unclipped, within 8 rounding units.
    Exactly 0 in the flat branches and at masked places, whose entries may be nan. A row without a live
    token is 0 and passes no gradient. The mean log ratio, not each token's, is bounded in value
    (20 nats; 10 for float16), never in slope.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages: One per completion; there is no clip to take between one ratio and many advantages.
        mask_BT: True on sampled tokens; each row is a whole completion.
        eps_low: ε_low, in (0, 1).
        eps_high: ε_high, finite, above 0.

    Returns:
        The terms; `ratio_BT` holds s_b at live tokens, and a clipped completion is counted at each of them.

    Raises:
        ValueError: If the shapes do not agree, the advantages are per token, or an ε is out of its range.

    Example:
        >>> logp_BT, old_BT = torch.log(torch.tensor([[4.0, 1.0], [1.0, 1.0]])), torch.zeros(2, 2)
        >>> args = (logp_BT, old_BT, torch.ones(2), torch.tensor([[True, True], [True, False]]))
        >>> out = sequence_clipped(*args, eps_low=0.2, eps_high=0.2)
        >>> [[round(x, 4) for x in row] for row in out.term_BT.tolist()], round(out.ratio_BT[0, 1].item(), 4)
        ([[1.2, 1.2], [1.0, 0.0]], 2.0)
    """
    check_interval(eps_low, eps_high)
    advantages_BT = token_advantages(logp_BT, logp_old_BT, advantages, mask_BT)
    if advantages.dim() == 2:
        raise ValueError(
            f"sequence_clipped takes one advantage per completion, (B,), got {tuple(advantages.shape)}: a completion "
            "has one ratio here, and no clip between it and many advantages. Use clipped for advantages per token."
        )
    # In float64: the width a row was padded to does not reach the last bits of a float32 ratio.
    log_ratio_BT = log_difference(logp_BT.double(), logp_old_BT.detach().double(), mask_BT)
    mean_B1 = log_ratio_BT.sum(dim=1, keepdim=True) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    ratio_BT = bounded_exp(mean_B1, logp_BT.dtype).to(working_dtype(logp_BT, logp_old_BT)).where(mask_BT, 1.0)
    return _clip(ratio_BT, advantages_BT.to(ratio_BT.dtype), eps_low=eps_low, eps_high=eps_high)


def cispo(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"] | Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    eps_max: float,
) -> SurrogateTerms:
    r"""Return the advantage times the log-prob of each token, weighted by its capped and detached ratio.

    term_bt = sg( min( ρ_bt , ε_max ) ) A_bt logp_bt,   ρ_bt = exp( logp_bt − logp_old_bt )

    CISPO: arXiv:2506.13585 eq. 4 and 5, without the lower bound, as MiniMax ran it. ε_max is an absolute cap
    on the ratio, not a distance from 1: a cap below 1 (TRL's default of 0.2) scales down every token.
    It weighs the gradient; the value has no meaning of its own.

    Gradient min(ρ, ε_max) A flows into `logp_BT` at every live token, always, of either sign of A; the
    weight passes none. Exactly 0 at masked places, whose entries may be nan. The log ratio is bounded in
    value (20 nats; 10 for float16).

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages: One per completion, or one per token.
        mask_BT: True on sampled tokens.
        eps_max: ε_max, finite, at least 1.

    Returns:
        The terms; nothing is flat, and `capped_BT` is True where the weight is held at ε_max.

    Raises:
        ValueError: If the shapes do not agree, or ε_max is out of its range.

    Example:
        >>> logp_BT = torch.tensor([[-1.0, -1.0]], requires_grad=True)
        >>> old_BT, mask_BT = torch.tensor([[-3.0, -1.0]]), torch.ones(1, 2).bool()
        >>> out = cispo(logp_BT, old_BT, torch.ones(1), mask_BT, eps_max=5.0)
        >>> out.term_BT.sum().backward()
        >>> logp_BT.grad.tolist(), out.capped_BT.tolist()
        ([[5.0, 1.0]], [[True, False]])
    """
    check_number("eps_max", eps_max)
    ratio_BT, advantages_BT = ratio_and_advantages(logp_BT.detach(), logp_old_BT, advantages, mask_BT)
    weighted_BT = ratio_BT.clamp(max=eps_max) * advantages_BT
    out = unclipped(weighted_BT * live_logp(logp_BT, mask_BT), ratio_BT)
    return replace(out, capped_BT=above(ratio_BT, eps_max) & mask_BT)


def _clip(ratio_BT: Tensor, advantages_BT: Tensor, *, eps_low: float, eps_high: float) -> SurrogateTerms:
    high_BT = (advantages_BT > 0) & above(ratio_BT, 1.0 + eps_high)
    low_BT = (advantages_BT < 0) & below(ratio_BT, 1.0 - eps_low)
    # Selected by name: torch.min and clamp share the gradient out at ties, which are the edge itself.
    flat_BT = torch.where(high_BT, (1.0 + eps_high) * advantages_BT, (1.0 - eps_low) * advantages_BT)
    out = unclipped(torch.where(high_BT | low_BT, flat_BT, ratio_BT * advantages_BT), ratio_BT)
    return replace(out, clipped_low_BT=low_BT, clipped_high_BT=high_BT)
