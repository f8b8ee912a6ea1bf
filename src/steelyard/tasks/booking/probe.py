"""Booking lists without end, for reports on the booking suites; and one more way to write the right program."""

from typing import cast

from steelyard.tasks.booking.faults import FAULTS, faulty_program
from steelyard.tasks.booking.patterns import LAST, PATTERNS, Bookings, Draw, touch_at_peak
from steelyard.tasks.probes import Args, Probe

EVENTS_IN_TURN = '''"""Start and end of each booking as events, one booking after the other; ends sort before starts at equal times."""


def required_capacity(bookings):
    events = []
    for start, end in bookings:
        events.append((start, 1))
        events.append((end, -1))
    events.sort()
    active = best = 0
    for _, step in events:
        active += step
        best = max(best, active)
    return best
'''
"""A right program whose order at equal times is its only defence: take it away and the order of the input decides."""
_NARROW = 8
"""Times of the small lists lie in [0, 8], so that endpoints meet often."""
_SIZES = (2, 3, 5, 8, 12, 20, 40)


def inputs(seed: int, count: int) -> list[Args]:
    """Return `count` booking lists: two in three small and narrow, the others in the shapes of the suites."""
    draw = Draw(seed)
    shapes = [pattern for patterns in PATTERNS.values() for pattern in patterns]
    made: list[Args] = [([],)]
    while len(made) < count:
        if len(made) % 3:
            made.append((_small(draw),))
            continue
        bookings = shapes[len(made) // 3 % len(shapes)](draw, draw.pick(_SIZES))
        if draw.between(0, 1):
            bookings = touch_at_peak(draw, bookings)
        made.append((draw.shuffled(bookings),))
    return made[:count]


def valid(args: Args) -> bool:
    """Whether the arguments are one list of 0 to 200 bookings with 0 <= start < end <= 10,000."""
    if len(args) != 1 or not isinstance(args[0], list):
        return False
    bookings = cast("list[object]", args[0])
    return len(bookings) <= 200 and all(map(_is_booking, bookings))


def _is_booking(value: object) -> bool:
    if not isinstance(value, list):
        return False
    times = cast("list[object]", value)
    if len(times) != 2 or not all(type(time) is int for time in times):
        return False
    start, end = cast("list[int]", times)
    return 0 <= start < end <= LAST


def _small(draw: Draw) -> Bookings:
    bookings: Bookings = []
    for _ in range(draw.between(1, 6)):
        start = draw.between(0, _NARROW - 1)
        bookings.append([start, draw.between(start + 1, _NARROW)])
    return bookings


PROBE = Probe(
    inputs=inputs,
    valid=valid,
    faults={name: faulty_program(name) for name in FAULTS},
    references={"events_in_turn": EVENTS_IN_TURN},
)
"""For `steelyard suite`."""
