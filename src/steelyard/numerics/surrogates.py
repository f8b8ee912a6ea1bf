"""Surrogates: what is maximised, token by token.

Three log-probs meet here and are never one variable: `logp_BT` of the policy being trained, and
`logp_old_BT` of the trainer's own policy at the version the batch was drawn from. (The sampler's own
log-probs are a third; its mismatch weight, `steelyard.numerics.mismatch`, is a separate factor.)

Advantages are one per completion, (B,), or one per token, (B, T), as a value network gives them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from jaxtyping import Bool, Float
from torch import Tensor

from steelyard.numerics._surrogate_terms import EDGE_STEPS, SurrogateTerms, live_logp, ratio_and_advantages, unclipped
from steelyard.numerics._surrogates_held import cispo, clipped, dual_clipped, sequence_clipped
from steelyard.numerics.variants import READS

__all__ = [
    "EDGE_STEPS",
    "SURROGATES",
    "SurrogateTerms",
    "cispo",
    "clipped",
    "dual_clipped",
    "importance",
    "policy_gradient",
    "sequence_clipped",
    "surrogate",
]


def policy_gradient(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"] | Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
) -> SurrogateTerms:
    r"""Return the advantage times the log-prob of each token, as REINFORCE uses it.

    term_bt = A_bt · logp_bt

    Williams 1992. On-policy: nothing corrects for tokens drawn from an older policy; `logp_old_BT`
    enters the ratio metric only.

    Gradient A_bt flows into `logp_BT` at every live token, and is exactly 0 at masked ones; masked
    entries of all arguments may be nan. `logp_old_BT` and `advantages` get none.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages: One per completion, or one per token.
        mask_BT: True on sampled tokens.

    Returns:
        The terms; nothing is ever clipped.

    Raises:
        ValueError: If the shapes do not agree.

    Example:
        >>> import torch
        >>> logp_BT, mask_BT = torch.tensor([[-1.0, -2.0]]), torch.tensor([[True, True]])
        >>> policy_gradient(logp_BT, logp_BT.detach(), torch.tensor([0.5]), mask_BT).term_BT.tolist()
        [[-0.5, -1.0]]
    """
    ratio_BT, advantages_BT = ratio_and_advantages(logp_BT.detach(), logp_old_BT, advantages, mask_BT)
    return unclipped(advantages_BT * live_logp(logp_BT, mask_BT), ratio_BT)


def importance(
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"] | Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
) -> SurrogateTerms:
    r"""Return the advantage times the ratio of each token, without a clip.

    term_bt = ρ_bt A_bt,   ρ_bt = exp( logp_bt − logp_old_bt )

    The surrogate of TRPO, arXiv:1502.05477, per token. At ρ = 1 its gradient is that of
    `policy_gradient` while its value is A: a loss that sums to 0 has a gradient that does not.

    Gradient ρ_bt A_bt flows into `logp_BT` at every live token, and is exactly 0 at masked ones; masked
    entries of all arguments may be nan. `logp_old_BT` and `advantages` get none. The log ratio is
    bounded in value (20 nats; 10 for float16), never in slope.

    Args:
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages: One per completion, or one per token.
        mask_BT: True on sampled tokens.

    Returns:
        The terms; nothing is ever clipped.

    Raises:
        ValueError: If the shapes do not agree.

    Example:
        >>> import torch
        >>> logp_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
        >>> out = importance(logp_BT, logp_BT.detach(), torch.tensor([0.5]), torch.tensor([[True, True]]))
        >>> out.term_BT.sum().backward()
        >>> out.term_BT.tolist(), logp_BT.grad.tolist()
        ([[0.5, 0.5]], [[0.5, 0.5]])
    """
    ratio_BT, advantages_BT = ratio_and_advantages(logp_BT, logp_old_BT, advantages, mask_BT)
    return unclipped(ratio_BT * advantages_BT, ratio_BT)


SURROGATES: Mapping[str, Callable[..., SurrogateTerms]] = MappingProxyType(
    {
        "policy_gradient": policy_gradient,
        "importance": importance,
        "clipped": clipped,
        "dual_clipped": dual_clipped,
        "sequence_clipped": sequence_clipped,
        "cispo": cispo,
    }
)
"""By the name that recipes use; call through `surrogate` when the name is data."""


def surrogate(
    name: str,
    logp_BT: Float[Tensor, "B T"],
    logp_old_BT: Float[Tensor, "B T"],
    advantages: Float[Tensor, " B"] | Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    eps_low: float | None,
    eps_high: float | None,
    dual_clip: float | None = None,
    eps_max: float | None = None,
) -> SurrogateTerms:
    """Return the terms of the surrogate that a recipe names; every number is read, or refused.

    Args:
        name: A key of `SURROGATES`.
        logp_BT: log π_θ of each sampled token, nats.
        logp_old_BT: log π_old of each sampled token, nats.
        advantages: One per completion, or one per token (not for sequence_clipped).
        mask_BT: True on sampled tokens.
        eps_low: ε_low where there is a clip, None elsewhere.
        eps_high: ε_high where there is a clip, None elsewhere.
        dual_clip: c for dual_clipped, None elsewhere.
        eps_max: ε_max for cispo, None elsewhere.

    Returns:
        The terms.

    Raises:
        ValueError: If the name is unknown, or a number is missing or has no place in the formula.

    Example:
        >>> import torch
        >>> logp_BT, mask_BT = torch.tensor([[-1.0]]), torch.tensor([[True]])
        >>> a_B = torch.tensor([2.0])
        >>> surrogate("importance", logp_BT, logp_BT, a_B, mask_BT, eps_low=None, eps_high=None).term_BT.item()
        2.0
    """
    if name not in SURROGATES:
        raise ValueError(f"unknown surrogate {name!r}; choose one of {', '.join(SURROGATES)}")
    numbers = {"eps_low": eps_low, "eps_high": eps_high, "dual_clip": dual_clip, "eps_max": eps_max}
    reads = READS["surrogate"].get(name, ())
    unread = {key: value for key, value in numbers.items() if value is not None and key not in reads}
    if unread:
        raise ValueError(
            f"{_listed(unread)} would never be read: surrogate {name!r} reads {', '.join(reads) or 'no number'}. "
            f"Pass None for {'it' if len(unread) == 1 else 'them'}."
        )
    missing = [key for key in reads if numbers[key] is None]
    if missing:
        raise ValueError(f"surrogate {name!r} needs {', '.join(reads)}: {', '.join(missing)} is None")
    return SURROGATES[name](logp_BT, logp_old_BT, advantages, mask_BT, **{key: numbers[key] for key in reads})


def _listed(numbers: Mapping[str, float | None]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in numbers.items())
