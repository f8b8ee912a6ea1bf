"""The groups of a batch, formed by id, and the test for numbers that are constant but for rounding."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ROUNDING_STEPS = 8
"""Rewards of a group within this many rounding units of each other are equal: a mean of a handful of
numbers, or a sum in another order, moves the last few bits."""

REWARD_LIMIT = 1e100
"""Largest |reward|; past about 1e154 the variance overflows in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of a batch, by id; sums run in float64 over scored members only."""

    rewards_B: Float[Tensor, " B"]
    """float64, 0 at unscored places."""
    scored_B: Bool[Tensor, " B"]
    index_B: Int[Tensor, " B"]
    """Number of the group of each completion, in [0, P)."""
    count_P: Int[Tensor, " P"]
    """Scored members."""
    constant_P: Bool[Tensor, " P"]
    """Rewards equal to rounding; true for groups with fewer than two scored members."""

    @classmethod
    def of(cls, rewards_B: Tensor, group_ids_B: Tensor, scored_B: Tensor, resolution: float) -> "Groups":
        """Form the groups; arguments as in `steelyard.numerics.advantages`."""
        check_rewards(rewards_B, group_ids_B, scored_B, resolution)
        safe_B = rewards_B.double().where(scored_B, 0.0)
        ids_P, index_B = _numbered(group_ids_B)
        count_P = torch.zeros_like(ids_P, dtype=torch.long).index_add(0, index_B, scored_B.long())
        kept_B, rewards_kept_B = index_B[scored_B], safe_B[scored_B]
        # Groups without a scored member keep the starting value 0 in both, and so count as constant.
        zeros_P = torch.zeros_like(ids_P, dtype=torch.float64)
        max_P = zeros_P.scatter_reduce(0, kept_B, rewards_kept_B, "amax", include_self=False)
        min_P = zeros_P.scatter_reduce(0, kept_B, rewards_kept_B, "amin", include_self=False)
        return cls(
            rewards_B=safe_B,
            scored_B=scored_B,
            index_B=index_B,
            count_P=count_P,
            constant_P=constant(min_P, max_P, resolution=resolution),
        )

    def sum(self, values_B: Tensor) -> Tensor:
        """Sum over the members of each group."""
        return torch.zeros_like(self.count_P, dtype=torch.float64).index_add(0, self.index_B, values_B)


def _numbered(group_ids_B: Tensor) -> tuple[Int[Tensor, " P"], Int[Tensor, " B"]]:
    """Return the distinct ids in ascending order, and the number of each completion's id among them."""
    sorted_B = group_ids_B.sort().values
    first_B = torch.ones_like(sorted_B, dtype=torch.bool)
    first_B[1:] = sorted_B[1:] != sorted_B[:-1]
    ids_P = sorted_B[first_B]
    return ids_P, torch.searchsorted(ids_P, group_ids_B.contiguous())


def constant(min_X: Tensor, max_X: Tensor, *, resolution: float) -> Tensor:
    """Return whether numbers between these two are equal to rounding: max − min ≤ 8 · resolution · max|x|."""
    return max_X - min_X <= ROUNDING_STEPS * resolution * torch.maximum(max_X.abs(), min_X.abs())


def check_resolution(resolution: float) -> None:
    """Raise ValueError unless this is the rounding unit of some dtype."""
    if not (0.0 < resolution < 1.0 / ROUNDING_STEPS):
        raise ValueError(
            f"resolution must be the rounding unit of the dtype in which the numbers were computed, such as 2.22e-16, "
            f"got {resolution}"
        )


def check_rewards(rewards_B: Tensor, group_ids_B: Tensor, scored_B: Tensor, resolution: float) -> None:
    """Raise ValueError, with shapes or values, for arguments that are no batch of rewards."""
    shapes = [tuple(x.shape) for x in (rewards_B, group_ids_B, scored_B)]
    if len(set(shapes)) != 1 or rewards_B.dim() != 1:
        raise ValueError(
            f"rewards, group ids and scored must be three vectors of one length, got shapes {shapes[0]}, {shapes[1]}, "
            f"{shapes[2]}"
        )
    if not rewards_B.is_floating_point() or group_ids_B.is_floating_point() or scored_B.dtype != torch.bool:
        raise ValueError(
            f"rewards must be floating point (advantages are fractions), group ids integers and scored bool, got "
            f"{rewards_B.dtype}, {group_ids_B.dtype} and {scored_B.dtype}"
        )
    check_resolution(resolution)
    # An advantage is at most max − min, twice this, and must fit in the dtype of the rewards.
    limit = min(REWARD_LIMIT, torch.finfo(rewards_B.dtype).max / 2)
    bad_B = scored_B & ~(rewards_B.double().abs() <= limit)
    if bool(bad_B.any()):
        places = [place for place, bad in enumerate(bad_B) if bad][:8]
        values = [float(rewards_B[place]) for place in places]
        raise ValueError(
            f"scored rewards must be finite (|r| ≤ {limit:g} in {rewards_B.dtype}), got {values} at places {places}; mark a completion "
            "that could not be judged as unscored"
        )
