"""A suite whose lists never repeat a value."""

import collections
import itertools

from steelyard.tasks.blind_spots.spot import Spot
from steelyard.tasks.booking.patterns import Draw
from steelyard.tasks.probes import Args


def each_with_each(values: list[int], target: int) -> int:
    """Try every two places."""
    total = 0
    for first in range(len(values)):
        for second in range(first + 1, len(values)):
            if values[first] + values[second] == target:
                total += 1
    return total


def by_counting(values: list[int], target: int) -> int:
    """Ask of each value how often its partner was seen before."""
    seen = collections.Counter()
    total = 0
    for value in values:
        total += seen[target - value]
        seen[value] += 1
    return total


def by_combinations(values: list[int], target: int) -> int:
    """Sum over all combinations of two."""
    return sum(1 for first, second in itertools.combinations(values, 2) if first + second == target)


def draw(draw: Draw) -> Args:
    """Draw 0 to 7 values between -3 and 6, and a target."""
    return ([draw.between(-3, 6) for _ in range(draw.between(0, 7))], draw.between(-4, 10))


def valid(args: Args) -> bool:
    """Whether the arguments are a list of integers and an integer."""
    return (
        len(args) == 2
        and isinstance(args[0], list)
        and all(type(value) is int for value in args[0])
        and type(args[1]) is int
    )


def has_duplicates(args: Args) -> bool:
    """Whether a value is there twice."""
    values = args[0]
    return isinstance(values, list) and len(set(values)) < len(values)


SPOT = Spot(
    name="count_pairs",
    blind_spot="duplicates",
    prompt=(
        "Write a Python function `count_pairs(values: list[int], target: int) -> int` that returns how many pairs of "
        "places i < j have values that sum to the target. Equal values at different places count separately. "
        "count_pairs([1, 2, 3], 4) gives 1."
    ),
    references=(each_with_each, by_counting, by_combinations),
    weak=(
        ([], 0),
        ([2], 4),
        ([1, 2, 3], 4),
        ([1, 2, 3], 3),
        ([1, 2, 3], 5),
        ([1, 3, 5, 2], 6),
        ([3, 1], 6),
        ([1, 2, 3, 4], 5),
        ([4, 3, 2, 1, 0], 4),
        ([10, -10, 5, -5], 0),
        ([0, 1], 1),
        ([6, 2, 9, 4, 1], 10),
        ([8, 7, 6], 3),
    ),
    missed=(([2, 2], 4), ([1, 3, 3], 4), ([1, 1, 3, 3], 4), ([0, 0, 0], 0), ([5, 5, 5, 5], 10), ([2, 2, 1], 3)),
    draw=draw,
    valid=valid,
    is_blind=has_duplicates,
)
