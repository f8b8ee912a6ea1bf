"""Shapes of booking lists, one function each: what `generate` draws its cases from.

All take a `Draw` and a size and return bookings with 0 <= start < end <= LAST. Shapes outside the
boundary family are built so that no end equals a start.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Bookings = list[list[int]]
T = TypeVar("T")

LAST = 10_000
"""Largest time in the domain."""
GRID = 250
"""Slot length of a calendar, so that about forty slots cover the domain."""


class Draw:
    """Random choices built on `random.Random.random` alone.

    Python promises the stream of `random()` for a seed across versions, but not what `sample` or
    `shuffle` make of it; the committed cases must come out the same on every version.
    """

    def __init__(self, seed: int) -> None:
        self._stream = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + int(self._stream.random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.between(0, len(items) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in random order."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            other = self.between(0, last)
            result[last], result[other] = result[other], result[last]
        return result

    def times(self, count: int, *, low: int = 0, high: int = LAST) -> list[int]:
        """Return `count` distinct times in [low, high], ascending."""
        chosen: set[int] = set()
        while len(chosen) < count:
            chosen.add(self.between(low, high))
        return sorted(chosen)


Pattern = Callable[[Draw, int], Bookings]

# ------------------------------------------------------------------ ordinary


def separate(draw: Draw, size: int) -> Bookings:
    """One after another, with gaps."""
    times = draw.times(2 * size)
    return [list(pair) for pair in zip(times[::2], times[1::2], strict=True)]


def small_blocks(draw: Draw, size: int) -> Bookings:
    """Short blocks of two to five bookings that overlap somehow within the block."""
    times = draw.times(2 * size)
    bookings: Bookings = []
    while times:
        width = 2 * min(draw.between(2, 5), len(times) // 2)
        block, times = draw.shuffled(times[:width]), times[width:]
        bookings += [sorted(pair) for pair in zip(block[::2], block[1::2], strict=True)]
    return bookings


def scattered(draw: Draw, size: int) -> Bookings:
    """Independent starts and lengths; a booking that would touch another one is drawn again."""
    longest = draw.pick((300, 1000, 3000))
    starts: set[int] = set()
    ends: set[int] = set()
    bookings: Bookings = []
    while len(bookings) < size:
        start = draw.between(0, LAST - 1)
        end = draw.between(start + 1, min(LAST, start + longest))
        if start in ends or end in starts:
            continue
        starts.add(start)
        ends.add(end)
        bookings.append([start, end])
    return bookings


# ------------------------------------------------------------------ state


def identical(draw: Draw, size: int) -> Bookings:
    """One booking, repeated."""
    start, end = draw.times(2)
    return [[start, end] for _ in range(size)]


def few_kinds(draw: Draw, size: int) -> Bookings:
    """A handful of different bookings, each repeated several times."""
    kinds = scattered(draw, max(1, min(size, draw.between(2, 9))))
    return [list(draw.pick(kinds)) for _ in range(size)]


def repeated_at_peak(draw: Draw, size: int) -> Bookings:
    """Mostly different bookings; a few copies of one of those that make the peak."""
    copies = min(size - 1, draw.between(1, 4))
    bookings = scattered(draw, size - copies)
    moment = draw.pick(peak_starts(bookings))
    chosen = draw.pick([booking for booking in bookings if booking[0] <= moment < booking[1]])
    return bookings + [list(chosen) for _ in range(copies)]


# ------------------------------------------------------------------ interaction


def nested(draw: Draw, size: int) -> Bookings:
    """Each booking inside the one before."""
    times = draw.times(2 * size)
    return [[times[i], times[-1 - i]] for i in range(size)]


def long_chain(draw: Draw, size: int) -> Bookings:
    """Each booking overlaps the next `depth` ones: one connected block, but few at once."""
    depth = min(size - 1, draw.between(1, 3)) if size > 1 else 0
    times = draw.times(2 * size)
    bookings: Bookings = []
    open_starts: list[int] = []
    for time in times:
        if len(bookings) + len(open_starts) < size and len(open_starts) <= depth:
            open_starts.append(time)
        else:
            bookings.append([open_starts.pop(0), time])
    return bookings


def dense(draw: Draw, size: int) -> Bookings:
    """Ends paired with starts at random over the whole domain: about half of them overlap."""
    times = draw.shuffled(draw.times(2 * size))
    return [sorted(pair) for pair in zip(times[::2], times[1::2], strict=True)]


def hub(draw: Draw, size: int) -> Bookings:
    """One booking over all the others, which hardly meet each other."""
    if size < 3:
        return dense(draw, size)
    times = draw.times(2 * size)
    rest = times[1:-1]
    return [[times[0], times[-1]], *([rest[i], rest[i + 1]] for i in range(0, len(rest), 2))]


# ------------------------------------------------------------------ boundary


def relay(draw: Draw, size: int) -> Bookings:
    """Each booking starts where the one before ends; sometimes from the first to the last time."""
    times = draw.times(size + 1)
    if draw.between(0, 1):
        times[0], times[-1] = 0, LAST
    return [list(pair) for pair in itertools.pairwise(times)]


def handover(draw: Draw, size: int) -> Bookings:
    """Some bookings end, all the others start, at one moment."""
    before = draw.between(max(1, size // 3), max(1, size - 1 - size // 3))
    moment = draw.between(LAST // 4, 3 * LAST // 4)
    starts = draw.times(before, high=moment - 1)
    ends = draw.times(size - before, low=moment + 1)
    return [[start, moment] for start in starts] + [[moment, end] for end in ends]


def layers(draw: Draw, size: int) -> Bookings:
    """Several relays at once; at most one of them changes hands at any moment."""
    count = min(size // 2, draw.between(2, 6))
    lengths = [size // count + (layer < size % count) for layer in range(count)]
    owners = draw.shuffled([layer for layer, length in enumerate(lengths) for _ in range(length + 1)])
    times = draw.times(len(owners))
    stops: list[list[int]] = [[] for _ in lengths]
    for owner, time in zip(owners, times, strict=True):
        stops[owner].append(time)
    return [list(pair) for stop in stops for pair in itertools.pairwise(stop)]


def calendar(draw: Draw, size: int) -> Bookings:
    """Slots of equal length, one to four per booking: most touch others, many are identical."""
    bookings: Bookings = []
    for _ in range(size):
        slot = draw.between(0, LAST // GRID - 1)
        end = min(LAST // GRID, slot + draw.between(1, 4))
        bookings.append([slot * GRID, end * GRID])
    return bookings


# ------------------------------------------------------------------ touching and measuring


def peak_starts(bookings: Bookings) -> list[int]:
    """Return the starts and ends right after which the most half-open bookings are active, ascending."""
    change: dict[int, int] = {}
    for start, end in bookings:
        change[start] = change.get(start, 0) + 1
        change[end] = change.get(end, 0) - 1
    active = 0
    heights: dict[int, int] = {}
    for time in sorted(change):
        active += change[time]
        heights[time] = active
    best = max(heights.values())
    return [time for time, height in heights.items() if height == best]


def touch_at_peak(draw: Draw, bookings: Bookings) -> Bookings:
    """Move one end to a moment at which the peak begins, so that the rule decides the answer.

    The booking that ended last before that moment is extended up to it: no other ends in between, so
    the peak stays as high as it was. Where none ended earlier, one that runs through the moment is
    cut there; where none does either, one booking is replaced by an earlier one.
    """
    result = [list(booking) for booking in bookings]
    moments = peak_starts(bookings)
    first_end = min(end for _, end in bookings)
    moment = draw.pick([time for time in moments if first_end < time] or moments)
    earlier = [booking for booking in result if booking[1] < moment]
    through = [booking for booking in result if booking[0] < moment < booking[1]]
    if earlier:
        max(earlier, key=lambda booking: booking[1])[1] = moment
    elif through:
        draw.pick(through)[1] = moment
    elif moment > 0:
        result[-1] = [draw.between(0, moment - 1), moment]
    return result


def touch_anywhere(draw: Draw, bookings: Bookings) -> Bookings:
    """Move the end of one booking to the start of a later one."""
    ordered = sorted(bookings)
    first = draw.between(0, len(ordered) - 2)
    later = draw.between(first + 1, len(ordered) - 1)
    result = [list(booking) for booking in ordered]
    if result[first][0] < result[later][0]:
        result[first][1] = result[later][0]
    return result


def shares_endpoint(bookings: Bookings) -> bool:
    """Whether some booking ends exactly where another starts."""
    return not {start for start, _ in bookings}.isdisjoint(end for _, end in bookings)


PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "ordinary": (separate, small_blocks, scattered),
    "state": (few_kinds, repeated_at_peak, scattered, identical),
    "interaction": (long_chain, dense, nested, hub),
    "boundary": (relay, calendar, layers, scattered, handover, scattered),
}
"""Shapes by family, taken in turn."""
