"""Reference by sorted events: at equal times the ends (-1) come before the starts (+1)."""


def required_capacity(bookings: list[list[int]]) -> int:
    """Return the largest number of half-open bookings active at once."""
    events = [(start, 1) for start, _ in bookings] + [(end, -1) for _, end in bookings]
    events.sort(key=lambda event: (event[0], event[1]))
    active = best = 0
    for _, step in events:
        active += step
        best = max(best, active)
    return best
