"""Aggregation: which weight each token has in the loss, with the denominator named and owned by the caller.

One optimizer step has one `Denominators`, counted over all its micro-batches and ranks. Each function
turns a mask into weights; the loss is −Σ weights · terms. Because no function here counts a batch by
itself, adding up micro-batches gives the one-batch value and gradient, however the rows are cut. A row
(one completion) stays whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """What one optimizer step divides by, over all its micro-batches and ranks."""

    n_sequences: int
    """N_seq, the scored completions that enter the loss: those with advantage 0 and those of dead groups
    included, unscored and masked ones excluded."""
    n_tokens: int
    """Σ T_i, the sampled tokens of those completions."""
    max_length: int
    """L_max, the recipe's limit on sampled tokens per completion."""

    def __post_init__(self) -> None:
        if min(self.n_sequences, self.n_tokens) < 0 or self.max_length < 1:
            raise ValueError(f"counts cannot be negative and max_length is at least 1, got {self}")


def sequence_mean(mask_BT: Bool[Tensor, "B T"], *, denominators: Denominators) -> Float[Tensor, "B T"]:
    r"""Return the weights of a mean over sequences of means over tokens, as GRPO uses it.

    w_bt = 1 / (N_seq · T_b),   T_b = live tokens of row b

    DeepSeekMath, arXiv:2402.03300 eq. 3. Length bias: a wrong long answer is pushed down less per token
    than a wrong short one.

    Args:
        mask_BT: True on sampled tokens; each row is a whole completion.
        denominators: Counts of the whole optimizer step.

    Returns:
        Weights in float64; 0 at masked places, and in rows without a live token.

    Raises:
        ValueError: If there are live tokens and N_seq is 0.

    Example:
        >>> mask_BT = torch.tensor([[True, True], [True, False]])
        >>> sequence_mean(mask_BT, denominators=Denominators(n_sequences=2, n_tokens=3, max_length=2)).tolist()
        [[0.25, 0.25], [0.5, 0.0]]
    """
    length_B1 = mask_BT.sum(dim=1, keepdim=True).double()
    n_sequences = _divisor(denominators.n_sequences, "n_sequences", mask_BT)
    return (1.0 / (n_sequences * length_B1.clamp(min=1.0))).where(mask_BT, 0.0)


def token_mean(mask_BT: Bool[Tensor, "B T"], *, denominators: Denominators) -> Float[Tensor, "B T"]:
    r"""Return the weights of a mean over all tokens of the step, as DAPO uses it.

    w_bt = 1 / Σ_j T_j

    DAPO: arXiv:2503.14476 eq. 8. Every token weighs the same; long answers have more of them.

    Args:
        mask_BT: True on sampled tokens.
        denominators: Counts of the whole optimizer step.

    Returns:
        Weights in float64; 0 at masked places.

    Raises:
        ValueError: If there are live tokens and the count of tokens is 0.

    Example:
        >>> mask_BT = torch.tensor([[True, True], [True, True]])
        >>> token_mean(mask_BT, denominators=Denominators(n_sequences=2, n_tokens=4, max_length=2)).tolist()
        [[0.25, 0.25], [0.25, 0.25]]
    """
    return _constant(mask_BT, 1.0 / _divisor(denominators.n_tokens, "n_tokens", mask_BT))


def fixed_length(mask_BT: Bool[Tensor, "B T"], *, denominators: Denominators) -> Float[Tensor, "B T"]:
    r"""Return weights divided by the length limit, not by a length, as Dr. GRPO uses it.

    w_bt = 1 / (N_seq · L_max)

    Dr. GRPO: arXiv:2503.20783. A constant divisor: no length bias; `sequence_sum` on another scale.

    Args:
        mask_BT: True on sampled tokens.
        denominators: Counts of the whole optimizer step.

    Returns:
        Weights in float64; 0 at masked places.

    Raises:
        ValueError: If there are live tokens and N_seq is 0.

    Example:
        >>> mask_BT = torch.tensor([[True, False]])
        >>> fixed_length(mask_BT, denominators=Denominators(n_sequences=1, n_tokens=1, max_length=4)).tolist()
        [[0.25, 0.0]]
    """
    n_sequences = _divisor(denominators.n_sequences, "n_sequences", mask_BT)
    return _constant(mask_BT, 1.0 / (n_sequences * denominators.max_length))


def sequence_sum(mask_BT: Bool[Tensor, "B T"], *, denominators: Denominators) -> Float[Tensor, "B T"]:
    r"""Return the weights of a mean over sequences of sums over tokens: the plain policy gradient.

    w_bt = 1 / N_seq

    Σ_t log π(token) is the log-prob of the whole completion, so this is the gradient of E[r] itself.

    Args:
        mask_BT: True on sampled tokens.
        denominators: Counts of the whole optimizer step.

    Returns:
        Weights in float64; 0 at masked places.

    Raises:
        ValueError: If there are live tokens and N_seq is 0.

    Example:
        >>> mask_BT = torch.tensor([[True, True], [True, False]])
        >>> sequence_sum(mask_BT, denominators=Denominators(n_sequences=2, n_tokens=3, max_length=2)).tolist()
        [[0.5, 0.5], [0.5, 0.0]]
    """
    return _constant(mask_BT, 1.0 / _divisor(denominators.n_sequences, "n_sequences", mask_BT))


AGGREGATIONS: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {
        "sequence_mean": sequence_mean,
        "token_mean": token_mean,
        "fixed_length": fixed_length,
        "sequence_sum": sequence_sum,
    }
)
"""By the name that recipes use; each is called as f(mask_BT, denominators=...)."""


def weighted_sum(
    term_BT: Float[Tensor, "B T"], weights_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    r"""Return the weighted sum of the live terms.

    J = Σ_{bt live} w_bt · term_bt

    Selects by the mask before multiplying (nan times 0 is nan). Sums in float64 when the weights are
    float64, as those of this module are.

    Gradient w_bt flows into live terms and is exactly 0 at masked places; masked terms may be nan. Of an
    empty or fully masked batch the value is 0 and the gradient exactly 0.

    Args:
        term_BT: Per-token terms.
        weights_BT: From one of `AGGREGATIONS`.
        mask_BT: True on sampled tokens.

    Returns:
        A scalar; micro-batches of one step add up.

    Raises:
        ValueError: If the shapes do not agree.

    Example:
        >>> term_BT, mask_BT = torch.tensor([[0.5, float("nan")]]), torch.tensor([[True, False]])
        >>> weighted_sum(term_BT, torch.ones(1, 2), mask_BT).item()
        0.5
    """
    if not (term_BT.shape == weights_BT.shape == mask_BT.shape):
        raise ValueError(
            f"terms, weights and mask must have one shape, got {tuple(term_BT.shape)}, {tuple(weights_BT.shape)}, "
            f"{tuple(mask_BT.shape)}"
        )
    return (weights_BT * term_BT.where(mask_BT, 0.0)).sum()


def _divisor(count: int, name: str, mask_BT: Tensor) -> int:
    """Return the count, or 1 where nothing is divided; a count of 0 beside live tokens is the caller's fault."""
    if count == 0 and bool(mask_BT.any()):
        raise ValueError(
            f"denominators.{name} is 0 but {int(mask_BT.sum())} live tokens enter the loss: count the denominators "
            "over every micro-batch and rank of the optimizer step, before the first of them is reduced"
        )
    return max(count, 1)


def _constant(mask_BT: Tensor, weight: float) -> Tensor:
    return torch.full(mask_BT.shape, weight, dtype=torch.float64, device=mask_BT.device).where(mask_BT, 0.0)
