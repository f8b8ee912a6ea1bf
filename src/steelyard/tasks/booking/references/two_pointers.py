"""Reference by two sorted lists: each start is matched with the ends that lie at or before it."""


def required_capacity(bookings: list[list[int]]) -> int:
    """Return the largest number of half-open bookings active at once."""
    starts = sorted(start for start, _ in bookings)
    ends = sorted(end for _, end in bookings)
    ended = best = 0
    for begun, start in enumerate(starts, start=1):
        while ends[ended] <= start:
            ended += 1
        best = max(best, begun - ended)
    return best
