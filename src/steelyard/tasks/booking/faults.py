"""Typical wrong programs for the booking task, and what they return.

Each function is a complete program of its own (no helper of ours is called), so that its source can be
judged like a model's. Those that return a value for every input have a *signature*: a program whose
outputs equal theirs on all inputs very likely makes the same mistake.
"""

import heapq
import inspect
import itertools
from collections.abc import Iterable, Mapping

from steelyard.tasks.booking.references import Program
from steelyard.types import Case


def inclusive_endpoint(bookings: list[list[int]]) -> int:
    """Keep a booking active at its own end: one that ends at 10 overlaps one that starts at 10."""
    ends: list[int] = []
    best = 0
    for start, end in sorted(bookings):
        while ends and ends[0] < start:
            heapq.heappop(ends)
        heapq.heappush(ends, end)
        best = max(best, len(ends))
    return best


def order_sensitive_ties(bookings: list[list[int]]) -> int:
    """Sort events by time alone: at equal times the order of the input decides."""
    events: list[tuple[int, int]] = []
    for start, end in bookings:
        events.append((start, 1))
        events.append((end, -1))
    events.sort(key=lambda event: event[0])
    active = best = 0
    for _, step in events:
        active += step
        best = max(best, active)
    return best


def deduplicating(bookings: list[list[int]]) -> int:
    """Count identical bookings once."""
    change: dict[int, int] = {}
    for start, end in {(start, end) for start, end in bookings}:
        change[start] = change.get(start, 0) + 1
        change[end] = change.get(end, 0) - 1
    active = best = 0
    for time in sorted(change):
        active += change[time]
        best = max(best, active)
    return best


def neighbours_only(bookings: list[list[int]]) -> int:
    """Compare each booking with the one before it, and count the longest run of overlaps."""
    ordered = sorted(bookings)
    run = best = min(1, len(ordered))
    for before, after in itertools.pairwise(ordered):
        run = run + 1 if after[0] < before[1] else 1
        best = max(best, run)
    return best


def assumes_sorted(bookings: list[list[int]]) -> int:
    """Release ended bookings in the order of the input, as if it were sorted by start."""
    ends: list[int] = []
    best = 0
    for start, end in bookings:
        while ends and ends[0] <= start:
            heapq.heappop(ends)
        heapq.heappush(ends, end)
        best = max(best, len(ends))
    return best


def merged_interval_count(bookings: list[list[int]]) -> int:
    """Merge what overlaps and count the blocks that remain."""
    blocks: list[list[int]] = []
    for start, end in sorted(bookings):
        if blocks and start < blocks[-1][1]:
            blocks[-1][1] = max(blocks[-1][1], end)
        else:
            blocks.append([start, end])
    return len(blocks)


def largest_block(bookings: list[list[int]]) -> int:
    """Count the bookings of the largest connected block, whether or not they meet."""
    best = members = reach = 0
    for start, end in sorted(bookings):
        members = members + 1 if start < reach else 1
        reach = max(reach, end) if members > 1 else end
        best = max(best, members)
    return best


def overlap_degree(bookings: list[list[int]]) -> int:
    """Count, for each booking, all that overlap it at any time, and take the largest count."""
    best = 0
    for start, end in bookings:
        best = max(best, sum(other[0] < end and start < other[1] for other in bookings))
    return best


def shared_end_lost(bookings: list[list[int]]) -> int:
    """Note one end per time: of several bookings that end together only one is released."""
    change: dict[int, int] = {}
    for start, end in bookings:
        change[start] = change.get(start, 0) + 1
        change[end] = -1
    active = best = 0
    for time in sorted(change):
        active += change[time]
        best = max(best, active)
    return best


def counts_all(bookings: list[list[int]]) -> int:
    """Return the number of bookings."""
    return len(bookings)


def empty_is_one(bookings: list[list[int]]) -> int:
    """Start the maximum at 1, also when there is no booking."""
    ends: list[int] = []
    best = 1
    for start, end in sorted(bookings):
        while ends and ends[0] <= start:
            heapq.heappop(ends)
        heapq.heappush(ends, end)
        best = max(best, len(ends))
    return best


def empty_crash(bookings: list[list[int]]) -> int:
    """Take the maximum of nothing when there is no booking."""
    return max(sum(other[0] <= start < other[1] for other in bookings) for start, _ in bookings)


FAULTS: Mapping[str, Program] = {
    function.__name__: function
    for function in (
        inclusive_endpoint,
        order_sensitive_ties,
        deduplicating,
        neighbours_only,
        assumes_sorted,
        merged_interval_count,
        largest_block,
        overlap_degree,
        shared_end_lost,
        counts_all,
        empty_is_one,
        empty_crash,
    )
}
"""Every authored fault by name."""

SIGNED: tuple[str, ...] = tuple(name for name in FAULTS if name != "empty_crash")
"""Faults that return a value for every input; `empty_crash` has none for the empty list, so no signature."""


def faulty_program(name: str) -> str:
    """Return a fault as self-contained source that defines `required_capacity`."""
    source = inspect.getsource(FAULTS[name]).replace(f"def {name}(", "def required_capacity(", 1)
    return f"import heapq\nimport itertools\n\n\n{source}"


def signatures(inputs: Iterable[tuple[str, list[list[int]]]]) -> dict[str, dict[str, int]]:
    """Return what each signed fault returns: fault → input key → value.

    Args:
        inputs: Pairs of `Case.key` and bookings.
    """
    pairs = list(inputs)
    return {name: {key: FAULTS[name](bookings) for key, bookings in pairs} for name in SIGNED}


def catches(fault: str, case: Case) -> bool:
    """Whether the case tells the fault from a right program: another value, or an exception."""
    bookings = case.args[0]
    assert isinstance(bookings, list)
    try:
        return FAULTS[fault](bookings) != case.expected
    except ValueError:  # empty_crash: max() of nothing
        return True
