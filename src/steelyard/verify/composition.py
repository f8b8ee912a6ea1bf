"""Several named rewards in one: a weighted sum, with a rule for parts that abstain."""

import math
from collections.abc import Sequence

from steelyard.errors import RewardError


def combine(values: Sequence[float | None], weights: Sequence[float], *, names: Sequence[str] = ()) -> float | None:
    """Return Σ weight · value over the parts that gave a value; None where the primary part gave none.

    A further part that abstains adds nothing; the weights of the others stay as they are (nothing is renormalised), so a
    completion that every part has scored is not paid less because another was not. The first part is the primary one: an
    answer that it could not judge is unscored, whatever form or length would have earned.

    Args:
        values: One per part, the primary first; None: it abstained.
        weights: One per part.
        names: For messages.

    Raises:
        RewardError: If a value or the sum is not finite.
        ValueError: If the counts differ or there is no part.

    Example:
        >>> combine([1.0, None], [1, 2]), combine([0.0, 1.0], [1, 2]), combine([None, None], [1, 2])
        (1.0, 2.0, None)
    """
    if not values or len(values) != len(weights):
        raise ValueError(f"{len(values)} values for {len(weights)} weights; give one each, and at least one")
    for index, value in enumerate(values):
        if value is not None and not math.isfinite(value):
            name = names[index] if names else f"number {index}"
            raise RewardError(f"reward part {name} is {value}; it must be finite, or None where it cannot be judged.")
    if values[0] is None:
        return None
    total = math.fsum(weight * value for weight, value in zip(weights, values, strict=True) if value is not None)
    if not math.isfinite(total):
        raise RewardError(f"the reward parts add up to {total}; lower their weights.")
    return total
