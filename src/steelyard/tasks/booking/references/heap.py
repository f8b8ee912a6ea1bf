"""Reference by a heap of ends: before a booking starts, those that have ended leave."""

import heapq


def required_capacity(bookings: list[list[int]]) -> int:
    """Return the largest number of half-open bookings active at once."""
    ends: list[int] = []
    best = 0
    for start, end in sorted(bookings):
        while ends and ends[0] <= start:
            heapq.heappop(ends)
        heapq.heappush(ends, end)
        best = max(best, len(ends))
    return best
