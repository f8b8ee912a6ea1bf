"""Mismatch weights: correct a sampler μ that is not π_old, as a named factor beside the surrogate.

μ is the distribution the tokens were drawn from; its log-probs were stored with them. π_old is the
trainer's own policy at the version the batch was drawn from. Where an engine computes in other precision,
or is stale, the two differ, and E_μ[(π_old/μ) f] = E_{π_old}[f]. The weight multiplies the term of each
token; ρ = π_θ/π_old stays what it is, so that no clip ever acts on the mismatch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steelyard.numerics._bounds import log_difference
from steelyard.numerics._checks import check_number
from steelyard.numerics._surrogate_terms import above


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchWeights:
    """The weight of each token, and where the cap acted; nothing here carries a gradient."""

    weights_BT: Float[Tensor, "B T"]
    """Factor on the surrogate's term; 1 at masked places, so select by the mask before averaging."""
    acted_BT: Bool[Tensor, "B T"]
    """True where π_old/μ was held at the cap, or the token left out."""


def truncate(
    logp_old_BT: Float[Tensor, "B T"],
    logp_behaviour_BT: Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    cap: float,
) -> MismatchWeights:
    r"""Return the importance weight of each token, held at a cap.

    w_bt = min( cap , exp( logp_old_bt − logp_behaviour_bt ) )

    Truncated importance sampling: Ionides 2008; per token as verl's `rollout_is`, TRL's `vllm_importance_sampling`.
    The cap bounds the variance and costs bias: tokens that μ drew too rarely stay too rare.

    No gradient flows into any argument. Masked entries may be nan. Works in float32 at least.

    Args:
        logp_old_BT: log π_old of each sampled token, nats, as the trainer computes it.
        logp_behaviour_BT: log μ of each sampled token, nats, as the sampler reported it.
        mask_BT: True on sampled tokens.
        cap: Largest weight, finite, above 0.

    Returns:
        The weights, and where the cap acted; exactly at the cap it did not, within 8 rounding units.

    Raises:
        ValueError: If the shapes do not agree, the cap is out of its range, or a live log-prob is not finite.

    Example:
        >>> logp_old_BT, logp_behaviour_BT = torch.log(torch.tensor([[0.6, 0.1]])), torch.log(torch.tensor([[0.2, 0.2]]))
        >>> out = truncate(logp_old_BT, logp_behaviour_BT, torch.ones(1, 2).bool(), cap=2.0)
        >>> [round(w, 4) for w in out.weights_BT[0].tolist()], out.acted_BT.tolist()
        ([2.0, 0.5], [[True, False]])
    """
    ratio_BT, cap = _ratio_and_cap(logp_old_BT, logp_behaviour_BT, mask_BT, cap)
    return MismatchWeights(
        weights_BT=ratio_BT.clamp(max=cap).where(mask_BT, 1.0), acted_BT=above(ratio_BT, cap) & mask_BT
    )


def mask(
    logp_old_BT: Float[Tensor, "B T"],
    logp_behaviour_BT: Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    cap: float,
) -> MismatchWeights:
    r"""Return the importance weight of each token, and 0 where it would be beyond a cap.

    w_bt = ρ'_bt while ρ'_bt ≤ cap, else 0;   ρ'_bt = exp( logp_old_bt − logp_behaviour_bt )

    The masked form of truncated importance sampling (TRL's `token_mask`): a token on which the two policies
    disagree that much is taken as broken rather than as valuable. A token left out stays in the
    denominators: they count what was sampled.

    No gradient flows into any argument. Masked entries may be nan. Works in float32 at least.

    Args:
        logp_old_BT: log π_old of each sampled token, nats, as the trainer computes it.
        logp_behaviour_BT: log μ of each sampled token, nats, as the sampler reported it.
        mask_BT: True on sampled tokens.
        cap: Largest weight that is kept, finite, above 0.

    Returns:
        The weights, and which tokens were left out; exactly at the cap a token stays, within 8 rounding units.

    Raises:
        ValueError: If the shapes do not agree, the cap is out of its range, or a live log-prob is not finite.

    Example:
        >>> logp_old_BT, logp_behaviour_BT = torch.log(torch.tensor([[0.6, 0.1]])), torch.log(torch.tensor([[0.2, 0.2]]))
        >>> out = mask(logp_old_BT, logp_behaviour_BT, torch.ones(1, 2).bool(), cap=2.0)
        >>> [round(w, 4) for w in out.weights_BT[0].tolist()], out.acted_BT.tolist()
        ([0.0, 0.5], [[True, False]])
    """
    ratio_BT, cap = _ratio_and_cap(logp_old_BT, logp_behaviour_BT, mask_BT, cap)
    beyond_BT = above(ratio_BT, cap) & mask_BT
    return MismatchWeights(weights_BT=ratio_BT.masked_fill(beyond_BT, 0.0).where(mask_BT, 1.0), acted_BT=beyond_BT)


MISMATCH: Mapping[str, Callable[..., MismatchWeights]] = MappingProxyType({"truncate": truncate, "mask": mask})
"""By the name that recipes use; `none` has no weight and no function."""


def mismatch_weight(
    name: str,
    logp_old_BT: Float[Tensor, "B T"],
    logp_behaviour_BT: Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    cap: float | None,
) -> MismatchWeights:
    """Return the weights that a recipe names.

    Args:
        name: A key of `MISMATCH`.
        logp_old_BT: log π_old of each sampled token, nats, as the trainer computes it.
        logp_behaviour_BT: log μ of each sampled token, nats, as the sampler reported it.
        mask_BT: True on sampled tokens.
        cap: Largest π_old/μ, finite, above 0.

    Returns:
        The weights, and where the cap acted.

    Raises:
        ValueError: If the name is unknown or `none`, the cap is missing or out of its range, the shapes do not
            agree, or a live log-prob is not finite.

    Example:
        >>> logp_BT, mask_BT = torch.tensor([[-1.0]]), torch.tensor([[True]])
        >>> mismatch_weight("truncate", logp_BT, logp_BT, mask_BT, cap=2.0).weights_BT.item()
        1.0
    """
    if name == "none":
        raise ValueError(
            "mismatch weight 'none' has no weights to compute: leave the surrogate's terms as they are and do not "
            "call mismatch_weight"
        )
    if name not in MISMATCH:
        raise ValueError(f"unknown mismatch weight {name!r}; choose one of {', '.join(MISMATCH)}")
    if cap is None:
        raise ValueError(f"mismatch weight {name!r} needs its cap, a number above 0, such as 2; got None")
    return MISMATCH[name](logp_old_BT, logp_behaviour_BT, mask_BT, cap=cap)


def _ratio_and_cap(
    logp_old_BT: Tensor, logp_behaviour_BT: Tensor, mask_BT: Tensor, cap: float
) -> tuple[Float[Tensor, "B T"], float]:
    """Return π_old/μ, 1 at masked places and inf where exp overflows, and the cap, held inside the ratio's dtype."""
    check_number("mismatch_cap", cap)
    if not (logp_old_BT.shape == logp_behaviour_BT.shape == mask_BT.shape) or mask_BT.dim() != 2:
        raise ValueError(
            f"log-probs of π_old and of μ and the mask must have one shape (B, T), got {tuple(logp_old_BT.shape)}, "
            f"{tuple(logp_behaviour_BT.shape)}, {tuple(mask_BT.shape)}"
        )
    _check_finite("π_old", "the trainer's own forward pass failed there", logp_old_BT, mask_BT)
    _check_finite("μ", "store the sampler's log-prob of each sampled token with it", logp_behaviour_BT, mask_BT)
    log_ratio_BT = log_difference(logp_old_BT.detach(), logp_behaviour_BT.detach(), mask_BT)
    return log_ratio_BT.exp(), min(cap, torch.finfo(log_ratio_BT.dtype).max / 2)


def _check_finite(policy: str, way_out: str, logp_BT: Tensor, mask_BT: Tensor) -> None:
    broken = (mask_BT & ~logp_BT.isfinite()).nonzero()
    if len(broken):
        row, token = int(broken[0, 0]), int(broken[0, 1])
        raise ValueError(
            f"log-prob of {policy} is {logp_BT[row, token].item()} at row {row}, token {token} ({len(broken)} live "
            f"tokens in all): a sampled token has a finite log-prob under both policies; {way_out}"
        )
