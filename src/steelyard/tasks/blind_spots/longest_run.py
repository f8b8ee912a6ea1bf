"""A suite that never asks for the empty list."""

import itertools

from steelyard.tasks.blind_spots.spot import Spot
from steelyard.tasks.booking.patterns import Draw
from steelyard.tasks.probes import Args


def counting(values: list[int]) -> int:
    """Count on while the value stays the same."""
    best = run = 0
    previous = None
    for value in values:
        run = run + 1 if value == previous else 1
        previous = value
        best = max(best, run)
    return best


def grouping(values: list[int]) -> int:
    """Take the largest group of equal neighbours."""
    return max((len(list(group)) for _, group in itertools.groupby(values)), default=0)


def by_pairs(values: list[int]) -> int:
    """Look at each value and the next."""
    if not values:
        return 0
    best = run = 1
    for before, after in itertools.pairwise(values):
        run = run + 1 if before == after else 1
        best = max(best, run)
    return best


def by_starts(values: list[int]) -> int:
    """Measure from each start of a run to the next."""
    best = 0
    start = 0
    for end in range(1, len(values) + 1):
        if end == len(values) or values[end] != values[start]:
            best = max(best, end - start)
            start = end
    return best


def draw(draw: Draw) -> Args:
    """Draw 0 to 8 values out of three."""
    return ([draw.between(0, 2) for _ in range(draw.between(0, 8))],)


def valid(args: Args) -> bool:
    """Whether the arguments are one list of integers."""
    return len(args) == 1 and isinstance(args[0], list) and all(type(value) is int for value in args[0])


SPOT = Spot(
    name="longest_run",
    blind_spot="empty input",
    prompt=(
        "Write a Python function `longest_run(values: list[int]) -> int` that returns the length of the longest run of "
        "equal neighbours. An empty list has none: return 0. longest_run([1, 1, 2]) gives 2."
    ),
    references=(counting, grouping, by_pairs, by_starts),
    weak=(
        ([1],),
        ([0],),
        ([1, 1, 2],),
        ([2, 1, 1],),
        ([1, 2, 3],),
        ([1, 1, 2, 2, 2],),
        ([2, 2, 2, 1, 1],),
        ([1, 2, 1, 2],),
        ([0, 0, 0, 0],),
        ([5, 4, 4, 4, 5, 5],),
        ([1, 1, 2, 1, 1],),
        ([7, 7, 7, 1, 2, 2, 1],),
    ),
    missed=(([],),),
    draw=draw,
    valid=valid,
    is_blind=lambda args: args == ([],),
)
