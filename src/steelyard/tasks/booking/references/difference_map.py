"""Reference by differences: +1 where a booking starts, -1 where one ends, then a running sum over the times."""


def required_capacity(bookings: list[list[int]]) -> int:
    """Return the largest number of half-open bookings active at once."""
    change: dict[int, int] = {}
    for start, end in bookings:
        change[start] = change.get(start, 0) + 1
        change[end] = change.get(end, 0) - 1
    active = best = 0
    for time in sorted(change):
        active += change[time]
        best = max(best, active)
    return best
