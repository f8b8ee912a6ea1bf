"""The four references against a count of active bookings at every start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.tasks.booking.faults import inclusive_endpoint
from steelyard.tasks.booking.patterns import PATTERNS, Draw, peak_starts, shares_endpoint, touch_at_peak
from steelyard.tasks.booking.references import FUNCTIONS

narrow = st.tuples(st.integers(0, 12), st.integers(1, 6)).map(lambda pair: [pair[0], pair[0] + pair[1]])
wide = st.tuples(st.integers(0, 9_999), st.integers(1, 10_000)).map(lambda p: [p[0], min(10_000, p[0] + p[1])])
booking_lists = st.lists(narrow, max_size=15) | st.lists(wide, max_size=30)

SHAPES = [(family, index) for family, patterns in PATTERNS.items() for index in range(len(patterns))]


def brute_force(bookings):
    """Most bookings active at any start; the maximum is always reached at one."""
    return max((sum(s <= start < e for s, e in bookings) for start, _ in bookings), default=0)


@pytest.mark.oracle
@pytest.mark.parametrize("name", FUNCTIONS)
@given(bookings=booking_lists)
def test_references_equal_a_count_at_every_start(name, bookings):
    before = [list(booking) for booking in bookings]
    assert FUNCTIONS[name](bookings) == brute_force(bookings)
    assert bookings == before, "a reference must leave its input alone"


@pytest.mark.parametrize(("family", "index"), SHAPES)
@given(seed=st.integers(0, 10**6), size=st.sampled_from((1, 2, 3, 8, 25, 200)))
def test_shapes_keep_size_and_domain_and_touch_only_where_meant(family, index, seed, size):
    size = max(size, 2) if family == "boundary" else size
    bookings = PATTERNS[family][index](Draw(seed), size)
    assert len(bookings) == size
    assert all(0 <= start < end <= 10_000 for start, end in bookings)
    if family != "boundary":
        assert not shares_endpoint(bookings)


@given(seed=st.integers(0, 10**6), bookings=st.lists(wide, min_size=2, max_size=12))
def test_a_touch_at_the_peak_changes_the_inclusive_answer(seed, bookings):
    touched = touch_at_peak(Draw(seed), bookings)
    assert all(0 <= start < end <= 10_000 for start, end in touched)
    if shares_endpoint(touched) and not shares_endpoint(bookings):
        moments = [start for start, _ in touched if any(end == start for _, end in touched)]
        assert set(moments) <= set(peak_starts(bookings))
        assert inclusive_endpoint(touched) > brute_force(touched)


@given(seed=st.integers(0, 2**64), count=st.integers(0, 50))
def test_draws_stay_in_range_and_repeat_for_a_seed(seed, count):
    draw, again = Draw(seed), Draw(seed)
    times = draw.times(count, low=5, high=70)
    assert times == sorted(set(times)) and len(times) == count
    assert all(5 <= time <= 70 for time in times)
    assert sorted(draw.shuffled(times)) == times
    assert again.times(count, low=5, high=70) == times
