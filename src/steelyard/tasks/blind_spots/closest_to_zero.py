"""A suite without a negative number."""

from steelyard.tasks.blind_spots.spot import Spot
from steelyard.tasks.booking.patterns import Draw
from steelyard.tasks.probes import Args


def by_key(values: list[int]) -> int:
    """Order by distance, and at equal distance the larger value first."""
    return min(values, key=lambda value: (abs(value), -value))


def by_comparing(values: list[int]) -> int:
    """Keep the best so far."""
    best = values[0]
    for value in values:
        if abs(value) < abs(best) or (abs(value) == abs(best) and value > best):
            best = value
    return best


def by_distance(values: list[int]) -> int:
    """Find the smallest distance, then its sign."""
    nearest = min(abs(value) for value in values)
    return nearest if nearest in values else -nearest


def draw(draw: Draw) -> Args:
    """Draw 1 to 6 values between -6 and 6."""
    return ([draw.between(-6, 6) for _ in range(draw.between(1, 6))],)


def valid(args: Args) -> bool:
    """Whether the arguments are one list of at least one integer."""
    return len(args) == 1 and isinstance(args[0], list) and args[0] != [] and all(type(v) is int for v in args[0])


def has_negatives(args: Args) -> bool:
    """Whether a value is below zero."""
    return isinstance(args[0], list) and any(value < 0 for value in args[0])


SPOT = Spot(
    name="closest_to_zero",
    blind_spot="negative numbers",
    prompt=(
        "Write a Python function `closest_to_zero(values: list[int]) -> int` that returns the value nearest to zero; of "
        "two that are equally near, the positive one. There is at least one value. closest_to_zero([4, 2, 7]) gives 2."
    ),
    references=(by_key, by_comparing, by_distance),
    weak=(
        ([3],),
        ([0],),
        ([4, 2, 7],),
        ([2, 4, 7],),
        ([7, 4, 2],),
        ([1, 0],),
        ([5, 5],),
        ([9, 8, 3, 6, 5],),
        ([10, 1, 100],),
    ),
    missed=(
        ([-3],),
        ([-1, 2],),
        ([2, -1],),
        ([-2, 2],),
        ([2, -2],),
        ([-5, -4],),
        ([-4, -5],),
        ([-9, 3, -3],),
        ([-1, 0],),
    ),
    draw=draw,
    valid=valid,
    is_blind=has_negatives,
)
