import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.verify.compare import equal, same_output

NAN = math.nan


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, 1),
        (None, None),
        ("", ""),
        (1.0, 1.0 + 1e-12),
        (1e300, 1e300 * (1 + 1e-12)),
        (0.0, -0.0),
        (0.0, 1e-10),
        (NAN, NAN),
        (math.inf, math.inf),
        ([1, (2, [3.0])], [1, (2, [3.0])]),
        ({"a": [1.0], "b": None}, {"b": None, "a": [1.0 + 1e-12]}),
        ({1, 2, 3}, {3, 2, 1}),
        ({(1, 2): frozenset({1})}, {(1, 2): frozenset({1})}),
        (b"a", b"a"),
        ({NAN: 1}, {math.nan: 1}),
    ],
)
def test_equal(expected, got):
    assert equal(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, True),
        (True, 1),
        (1, 1.0),
        (1.0, 1),
        (0, None),
        ("", None),
        ("", b""),
        ([1], (1,)),
        ((1,), [1]),
        ([], None),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ([1, 1], [1]),
        ([1], [True]),
        (1.0, 1.0 + 1e-8),
        (1.0, NAN),
        (NAN, 1.0),
        (math.inf, -math.inf),
        (math.inf, 1e308),
        (1e-7, 2e-7),
        (10**18, 10**18 + 1),
        ({1: "a"}, {True: "a"}),
        ({1: "a"}, {1.0: "a"}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({1}, {True}),
        ({1}, frozenset({1})),
        ({(1, 2)}, {(1, True)}),
        ({0.5}, {0.5 + 1e-12}),
        ("\ud800", "\ud801"),
    ],
)
def test_not_equal(expected, got):
    assert not equal(expected, got)


def test_c36_an_object_equal_to_everything_is_not_equal():
    class Same:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return hash(1)

    assert not equal(1, Same())
    assert not equal([1], [Same()])
    assert not equal({"a": 1.0}, {"a": Same()})


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault of the values
@given(st.recursive(st.one_of(st.integers(), st.floats(), st.text(), st.booleans()), st.lists, max_leaves=8))
def test_every_value_equals_itself(value):
    assert equal(value, value)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("1", "1"),
        ("1\n", "1"),
        ("1", "1\n"),
        ("1 2\n3", "1 2  \n3\t\n"),
        ("a\r\nb", "a\nb\n"),
        ("", "\n"),
        ("\n\n", "\n\n"),
    ],
)
def test_same_output(expected, got):
    assert same_output(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("1\n2", "1\n2\n\n"),
        ("1\n2", "1 2"),
        ("1\n\n2", "1\n2"),
        ("1", "\n1"),
        ("1", " 1"),
        ("1", "1.0"),
        ("yes", "YES"),
        ("1 2", "1  2"),
        ("1", ""),
        ("", "1"),
        ("1", 1),
        ("1", b"1"),
        ("1", None),
        ("a", "a\x0b"),
        ("a\nb", "a\x0cb"),
    ],
)
def test_not_the_same_output(expected, got):
    assert not same_output(expected, got)
