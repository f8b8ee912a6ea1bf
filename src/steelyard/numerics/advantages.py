"""Advantages: how much better each completion did than its baseline.

Every function takes rewards, group ids and a mask of scored completions, all of length B. Groups are
formed by id, never by position: they may be ragged and interleaved. A completion without a reward is
unscored: its advantage is 0, it enters no mean, no deviation and no count of a group.

A group is **constant** when max − min ≤ 8 · resolution · max|r| over its scored members; `resolution`
is the rounding unit of the dtype in which the rewards were *computed* (2.22e-16 for float64,
1.19e-7 for float32), whatever dtype carries them now. Rewards that differ by rounding alone
(0.1 + 0.2 against 0.3) are equal, and a constant group has advantage exactly 0: the decision is made
before any division, never by "std < eps".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from steelyard.numerics._checks import check_number
from steelyard.numerics._groups import Groups, check_rewards
from steelyard.numerics.variants import GROUP_RELATIVE, STANDARDISED

__all__ = [
    "ADVANTAGES",
    "GROUP_RELATIVE",
    "STANDARDISED",
    "STD_DELTA",
    "AdvantageFn",
    "GroupSignal",
    "advantages",
    "batch_centred",
    "batch_standardised",
    "group_centred",
    "group_signal",
    "group_standardised",
    "leave_one_out",
    "raw",
]

STD_DELTA = 1e-6
"""δ, added to the standard deviation of numbers that are *not* constant, after the root; in their units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSignal:
    """How many groups of a batch can teach a group-relative advantage anything."""

    n_groups: int
    """Distinct group ids; the sum of the three below."""
    n_informative: int
    """At least two scored members whose rewards differ."""
    n_constant: int
    """At least two scored members, all with the same reward: advantage 0."""
    n_short: int
    """Fewer than two scored members, so no baseline: advantage 0."""


def raw(
    rewards_B: Float[Tensor, " B"], group_ids_B: Int[Tensor, " B"], scored_B: Bool[Tensor, " B"], *, resolution: float
) -> Float[Tensor, " B"]:
    r"""Return the reward itself, as REINFORCE uses it.

    A_b = r_b

    Williams 1992. No baseline: unbiased, with the largest variance of this module, and not invariant
    to a shift of the rewards.

    Args:
        rewards_B: r, finite where scored; may be nan elsewhere.
        group_ids_B: Checked for length only: there is no group in the formula.
        scored_B: True where the completion has a reward.
        resolution: Checked only: nothing is compared.

    Returns:
        The advantages, in reward units; 0 at unscored places.

    Raises:
        ValueError: If lengths differ, or a scored reward is not finite.

    Example:
        >>> r, ids, scored = torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.tensor([True, True])
        >>> raw(r, ids, scored, resolution=2.22e-16).tolist()
        [1.0, 0.0]
    """
    check_rewards(rewards_B, group_ids_B, scored_B, resolution)
    return rewards_B.where(scored_B, 0.0)


def batch_centred(
    rewards_B: Float[Tensor, " B"], group_ids_B: Int[Tensor, " B"], scored_B: Bool[Tensor, " B"], *, resolution: float
) -> Float[Tensor, " B"]:
    r"""Return the reward less the mean reward of the batch, as REINFORCE with a baseline uses it.

    A_b = r_b − (1/N) Σ_j r_j

    N counts the scored completions of the batch. The baseline contains r_b itself, which scales the
    expected gradient by (N−1)/N. It does not tell an easy prompt from a lucky answer: every completion
    of an easy prompt gets a positive advantage.

    Args:
        rewards_B: r, finite where scored; may be nan elsewhere.
        group_ids_B: Checked for length only: the whole batch is one group.
        scored_B: True where the completion has a reward.
        resolution: Rounding unit of the dtype in which the rewards were computed, above 0.

    Returns:
        The advantages, in reward units; exactly 0 for a constant batch and at unscored places.

    Raises:
        ValueError: If lengths differ, or a scored reward is not finite.

    Example:
        >>> r, ids, scored = torch.tensor([1.0, 0.0]), torch.tensor([0, 1]), torch.tensor([True, True])
        >>> batch_centred(r, ids, scored, resolution=2.22e-16).tolist()
        [0.5, -0.5]
    """
    return group_centred(rewards_B, torch.zeros_like(group_ids_B), scored_B, resolution=resolution)


def group_centred(
    rewards_B: Float[Tensor, " B"], group_ids_B: Int[Tensor, " B"], scored_B: Bool[Tensor, " B"], *, resolution: float
) -> Float[Tensor, " B"]:
    r"""Return the reward less the mean reward of its group, as Dr. GRPO uses it.

    A_b = r_b − (1/n) Σ_{j in group of b} r_j

    Dr. GRPO: arXiv:2503.20783. n counts the scored members of the group. The mean contains r_b itself,
    so the expected policy gradient is (n−1)/n times the unbiased one: the direction is right.

    Args:
        rewards_B: r, finite where scored; may be nan elsewhere.
        group_ids_B: Equal for completions that are weighed against each other.
        scored_B: True where the completion has a reward.
        resolution: Rounding unit of the dtype in which the rewards were computed, above 0.

    Returns:
        The advantages, in reward units, summing to 0 in each group; exactly 0 in a constant group,
        for a lone member and at unscored places.

    Raises:
        ValueError: If lengths differ, or a scored reward is not finite.

    Example:
        >>> r, ids = torch.tensor([1.0, 5.0, 3.0]), torch.tensor([0, 1, 0])
        >>> group_centred(r, ids, torch.ones(3, dtype=torch.bool), resolution=2.22e-16).tolist()
        [-1.0, 0.0, 1.0]
    """
    centred_B, _ = _centred(rewards_B, group_ids_B, scored_B, resolution)
    return centred_B.to(rewards_B.dtype)


def group_standardised(
    rewards_B: Float[Tensor, " B"],
    group_ids_B: Int[Tensor, " B"],
    scored_B: Bool[Tensor, " B"],
    *,
    resolution: float,
    ddof: int,
) -> Float[Tensor, " B"]:
    r"""Return the group-centred reward divided by the group's standard deviation, as GRPO uses it.

    A_b = (r_b − mean) / (std + δ),   std² = (1/(n − ddof)) Σ_{j in group of b} (r_j − mean)²

    GRPO: arXiv:2402.03300. ddof is 0 in the paper's arithmetic and 1 in TRL, verl and OpenRLHF; the
    scale differs by √(n/(n−1)). δ is `STD_DELTA` = 1e-6, added after the root. n counts the scored
    members of the group.

    Dividing by the deviation weighs prompts unequally: a group with one right answer of eight pushes
    harder on it than a group with four.

    Args:
        rewards_B: r, finite where scored; may be nan elsewhere.
        group_ids_B: Equal for completions that are weighed against each other.
        scored_B: True where the completion has a reward.
        resolution: Rounding unit of the dtype in which the rewards were computed, above 0.
        ddof: 0 (population) or 1 (sample).

    Returns:
        The advantages, a pure number; exactly 0 in a constant group, for a lone member and at
        unscored places.

    Raises:
        ValueError: If lengths differ, a scored reward is not finite, or ddof is neither 0 nor 1.

    Example:
        >>> r, ids, scored = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4).long(), torch.ones(4).bool()
        >>> a_B = group_standardised(r, ids, scored, resolution=2.22e-16, ddof=0)
        >>> [round(a, 3) for a in a_B.tolist()]
        [1.732, -0.577, -0.577, -0.577]
    """
    check_number("ddof", ddof)
    centred_B, groups = _centred(rewards_B, group_ids_B, scored_B, resolution)
    free_P = (groups.count_P - ddof).clamp(min=1)  # a lone member is already 0; only 0/0 is kept away
    std_P = (groups.sum(centred_B**2) / free_P).sqrt()
    return (centred_B / (std_P[groups.index_B] + STD_DELTA)).to(rewards_B.dtype)


def leave_one_out(
    rewards_B: Float[Tensor, " B"], group_ids_B: Int[Tensor, " B"], scored_B: Bool[Tensor, " B"], *, resolution: float
) -> Float[Tensor, " B"]:
    r"""Return the reward less the mean reward of the other members of its group, as RLOO uses it.

    A_b = r_b − (1/(n−1)) Σ_{j ≠ b} r_j  =  n/(n−1) · (r_b − mean)

    RLOO: arXiv:2402.14740, after Kool 2019. n counts the scored members of the group. Unbiased: the
    baseline does not depend on the answer it is subtracted from. Computed in the right-hand form,
    which sums to 0 in each group.

    Args:
        rewards_B: r, finite where scored; may be nan elsewhere.
        group_ids_B: Equal for completions that are weighed against each other.
        scored_B: True where the completion has a reward.
        resolution: Rounding unit of the dtype in which the rewards were computed, above 0.

    Returns:
        The advantages, in reward units; exactly 0 in a constant group, for a lone member and at
        unscored places.

    Raises:
        ValueError: If lengths differ, or a scored reward is not finite.

    Example:
        >>> r, ids, scored = torch.tensor([1.0, 0.0, 0.5]), torch.zeros(3).long(), torch.ones(3).bool()
        >>> leave_one_out(r, ids, scored, resolution=2.22e-16).tolist()
        [0.75, -0.75, 0.0]
    """
    centred_B, groups = _centred(rewards_B, group_ids_B, scored_B, resolution)
    factor_P = groups.count_P.double() / (groups.count_P - 1).clamp(min=1)  # two integers would divide in float32
    return (factor_P[groups.index_B] * centred_B).to(rewards_B.dtype)


def batch_standardised(
    rewards_B: Float[Tensor, " B"],
    group_ids_B: Int[Tensor, " B"],
    scored_B: Bool[Tensor, " B"],
    *,
    resolution: float,
    ddof: int,
) -> Float[Tensor, " B"]:
    r"""Return the group-centred reward divided by the deviation of the batch, as REINFORCE++ with a baseline uses it.

    A_b = c_b / (std + δ),   c_b = r_b − mean of the group of b,   std² = (1/(N − ddof)) Σ_j c_j²

    REINFORCE++: arXiv:2501.03262. N counts the scored completions that have a baseline (groups of two or
    more scored members) over the whole batch handed in, those of constant groups included, with c = 0. The
    mean of c is 0 in each group, so none is taken off again. δ is `STD_DELTA` = 1e-6, added after the root.

    One scale for all groups: prompts keep their weights against each other, which `group_standardised`
    changes. Dead groups make the deviation smaller, and so the other advantages larger.

    Args:
        rewards_B: r, finite where scored; may be nan elsewhere.
        group_ids_B: Equal for completions that are weighed against each other.
        scored_B: True where the completion has a reward.
        resolution: Rounding unit of the dtype in which the rewards were computed, above 0.
        ddof: 0 (population) or 1 (sample).

    Returns:
        The advantages, a pure number; exactly 0 in a constant group, for a lone member and at
        unscored places.

    Raises:
        ValueError: If lengths differ, a scored reward is not finite, or ddof is neither 0 nor 1.

    Example:
        >>> r, ids = torch.tensor([3.0, 1.0, 0.5, 0.5]), torch.tensor([0, 0, 1, 1])
        >>> a_B = batch_standardised(r, ids, torch.ones(4).bool(), resolution=2.22e-16, ddof=0)
        >>> [round(a, 3) for a in a_B.tolist()]
        [1.414, -1.414, 0.0, 0.0]
    """
    check_number("ddof", ddof)
    centred_B, groups = _centred(rewards_B, group_ids_B, scored_B, resolution)
    n_with_baseline = groups.count_P[groups.count_P > 1].sum()
    free = (n_with_baseline - ddof).clamp(min=1)  # without a baseline all are already 0; only 0/0 is kept away
    std = ((centred_B**2).sum() / free).sqrt()
    return (centred_B / (std + STD_DELTA)).to(rewards_B.dtype)


AdvantageFn = Callable[..., Tensor]
"""(rewards_B, group_ids_B, scored_B, *, resolution) → advantages_B; those of `STANDARDISED` take ddof too."""

ADVANTAGES: Mapping[str, AdvantageFn] = MappingProxyType(
    {
        "raw": raw,
        "batch_centred": batch_centred,
        "group_centred": group_centred,
        "group_standardised": group_standardised,
        "leave_one_out": leave_one_out,
        "batch_standardised": batch_standardised,
    }
)
"""By the name that recipes use; call through `advantages` when the name is data. `gae` is not among them: it
needs a value per token, and is a function of `steelyard.numerics.values`."""


def advantages(
    name: str,
    rewards_B: Float[Tensor, " B"],
    group_ids_B: Int[Tensor, " B"],
    scored_B: Bool[Tensor, " B"],
    *,
    resolution: float,
    ddof: int | None,
) -> Float[Tensor, " B"]:
    """Return the advantages that a recipe names; every choice is read, or refused.

    Args:
        name: A key of `ADVANTAGES`.
        rewards_B: Rewards, finite where scored; may be nan elsewhere.
        group_ids_B: Equal for completions that are weighed against each other.
        scored_B: True where the completion has a reward.
        resolution: Rounding unit of the dtype in which the rewards were computed, above 0.
        ddof: 0 or 1 for those of `STANDARDISED`, None for the others, which have no deviation.

    Returns:
        The advantages; 0 at unscored places.

    Raises:
        ValueError: If the name is unknown or `gae`, or ddof is missing or has no place in the formula.

    Example:
        >>> r, ids, scored = torch.tensor([1.0, 0.0]), torch.zeros(2).long(), torch.ones(2).bool()
        >>> advantages("group_centred", r, ids, scored, resolution=2.22e-16, ddof=None).tolist()
        [0.5, -0.5]
    """
    if name == "gae":
        raise ValueError(
            "advantage 'gae' needs a value and a reward per token: call steelyard.numerics.values.gae, then whitened"
        )
    if name not in ADVANTAGES:
        raise ValueError(f"unknown advantage {name!r}; choose one of {', '.join(ADVANTAGES)}")
    if name in STANDARDISED:
        if ddof is None:
            raise ValueError(f"advantage {name!r} needs ddof: 0 (population) or 1 (sample)")
        return ADVANTAGES[name](rewards_B, group_ids_B, scored_B, resolution=resolution, ddof=ddof)
    if ddof is not None:
        raise ValueError(f"advantage {name!r} has no standard deviation, so ddof={ddof} would never be read")
    return ADVANTAGES[name](rewards_B, group_ids_B, scored_B, resolution=resolution)


def group_signal(
    rewards_B: Float[Tensor, " B"], group_ids_B: Int[Tensor, " B"], scored_B: Bool[Tensor, " B"], *, resolution: float
) -> GroupSignal:
    """Count the groups that carry a signal, and why the others do not.

    A batch may have a large deviation of rewards and no signal at all: rewards −8 ×4 and 2 ×4 are two
    constant groups.

    Args:
        rewards_B: Rewards, finite where scored; may be nan elsewhere.
        group_ids_B: Equal for completions that are weighed against each other.
        scored_B: True where the completion has a reward.
        resolution: Rounding unit of the dtype in which the rewards were computed, above 0.

    Returns:
        The counts.

    Raises:
        ValueError: If lengths differ, or a scored reward is not finite.

    Example:
        >>> r, ids = torch.tensor([-8.0, -8.0, 2.0, 2.0]), torch.tensor([0, 0, 1, 1])
        >>> group_signal(r, ids, torch.ones(4).bool(), resolution=2.22e-16).n_constant
        2
    """
    groups = Groups.of(rewards_B, group_ids_B, scored_B, resolution)
    short_P = groups.count_P < 2
    n_short = int(short_P.sum())
    n_constant = int((groups.constant_P & ~short_P).sum())
    return GroupSignal(
        n_groups=len(short_P),
        n_informative=len(short_P) - n_short - n_constant,
        n_constant=n_constant,
        n_short=n_short,
    )


def _centred(
    rewards_B: Tensor, group_ids_B: Tensor, scored_B: Tensor, resolution: float
) -> tuple[Float[Tensor, " B"], Groups]:
    """Return r − mean of the group in float64, exactly 0 where there is nothing to compare; and the groups."""
    groups = Groups.of(rewards_B, group_ids_B, scored_B, resolution)
    mean_P = groups.sum(groups.rewards_B) / groups.count_P.clamp(min=1)
    informative_B = scored_B & ~groups.constant_P[groups.index_B]
    return (groups.rewards_B - mean_P[groups.index_B]).where(informative_B, 0.0), groups
