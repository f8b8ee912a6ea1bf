"""A suite of whole amounts and halves, which binary floats hold exactly."""

import math

from steelyard.tasks.blind_spots.spot import Spot
from steelyard.tasks.booking.patterns import Draw
from steelyard.tasks.probes import Args


def by_difference(left: list[float], right: list[float]) -> bool:
    """Allow half a cent."""
    return abs(sum(left) - sum(right)) <= 0.005


def by_isclose(left: list[float], right: list[float]) -> bool:
    """Compare exact sums within half a cent."""
    return math.isclose(math.fsum(left), math.fsum(right), rel_tol=0.0, abs_tol=0.005)


def by_cents(left: list[float], right: list[float]) -> bool:
    """Count in whole cents."""
    return round(sum(left) * 100) == round(sum(right) * 100)


def draw(draw: Draw) -> Args:
    """Draw two lists of 0 to 4 amounts; in every other input the right one pays the left one in other coins."""
    cents = [draw.between(0, 120) for _ in range(draw.between(0, 4))]
    if draw.between(0, 1):
        other = [draw.between(0, 120) for _ in range(draw.between(0, 4))]
    else:
        cut = draw.between(0, sum(cents))
        other = [cut, sum(cents) - cut + (draw.between(0, 3) == 0)]
    return ([cent / 100 for cent in cents], [cent / 100 for cent in other])


def valid(args: Args) -> bool:
    """Whether the arguments are two lists of amounts in whole cents, 0 to 1,000 each."""
    return len(args) == 2 and all(isinstance(side, list) and all(map(_is_amount, side)) for side in args)


def _is_amount(value: object) -> bool:
    return isinstance(value, float) and 0.0 <= value <= 1000.0 and round(value, 2) == value


def needs_tolerance(args: Args) -> bool:
    """Whether the totals are the same to the cent, and rounding shows in one of them."""
    left, right = (sum(side) if isinstance(side, list) else 0.0 for side in args)
    shows = left != right or any(total * 100 != round(total * 100) for total in (left, right))
    return shows and abs(left - right) <= 0.005


SPOT = Spot(
    name="same_total",
    blind_spot="float tolerance",
    prompt=(
        "Write a Python function `same_total(left: list[float], right: list[float]) -> bool`. Both lists hold amounts of "
        "money in whole cents. Return whether they have the same total, to within half a cent. "
        "same_total([1.0, 2.0], [3.0]) gives True."
    ),
    references=(by_difference, by_isclose, by_cents),
    weak=(
        ([], []),
        ([1.0], []),
        ([], [1.0]),
        ([1.0, 2.0], [3.0]),
        ([1.0, 2.0], [4.0]),
        ([5.0], [2.5, 2.5]),
        ([0.5], [0.0]),
        ([0.0], [0.5]),
        ([10.0, 10.0], [10.0]),
        ([0.25, 0.25], [0.5]),
        ([0.01], [0.0]),
        ([0.0], [0.01]),
        ([100.0, 0.5], [100.5]),
        ([1.0, 1.0], [1.0]),
        ([1.0], [1.0, 1.0]),
        ([0.75], [1.5]),
        ([3.0], [2.0]),
        ([2.0], [3.0]),
        ([0.01], [0.02]),
        ([0.02], [0.01]),
    ),
    missed=(([0.1, 0.2], [0.3]), ([0.3], [0.1, 0.2]), ([0.1] * 10, [1.0]), ([0.7, 0.1], [0.8]), ([0.29], [0.2, 0.09])),
    draw=draw,
    valid=valid,
    is_blind=needs_tolerance,
)
