import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import TaskError
from steelyard.types import Status
from steelyard.verify.answer_verifiers import BoxVerifier, NumberVerifier
from steelyard.verify.numbers import closeness, equal_numbers, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("$29.00", 29), ("9{,}500", 9500), ("1,234,567.5", Fraction(2469135, 2)), (r"\frac{3}{4}", 0.75)],
        *[("5 cm", 5), ("1e3", 1000), (".5", 0.5), ("50\\%", 50), (r"5\text{ m}^2", 5), (r"\text{5}", 5)],
        *[("−3", -3), ("x = 5", 5), (7, 7), (2.5, 2.5)],
    ],
)
def test_numbers_are_read_exactly(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *[
            "nan",
            "inf",
            "-Infinity",
            math.nan,
            math.inf,
            "1/0",
            r"\frac{1}{0}",
            "8,00",
            "1_000",
            "0x10",
            "5 6",
            "",
            "-",
        ],
        *[".", "1e9999999", "5x", "5 or 6", "٣", "x = y", "5 = 5", None, True, [5], "1" * 500],
    ],
)
def test_what_is_no_number_is_none_and_equals_nothing(text):
    assert parse_number(text) is None
    assert not equal_numbers(text, text)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_closeness_is_in_0_1_and_1_for_the_number_alone(gold, answer):
    found = closeness(Fraction(gold), Fraction(answer), width=0.1)
    assert 0.0 <= found <= 1.0
    assert (found == 1.0) == (gold == answer)


def test_closeness_by_hand():
    assert closeness(Fraction(408), Fraction(380), width=0.1) == pytest.approx(1 - 28 / 40.8)
    assert closeness(Fraction(408), Fraction(400), width=0.1) == pytest.approx(1 - 8 / 40.8)
    assert closeness(Fraction(0), Fraction(1, 20), width=0.1) == pytest.approx(0.5)
    assert closeness(Fraction(408), Fraction(300), width=0.1) == 0.0
    assert closeness(Fraction(1), Fraction(10**30 + 1, 10**30), width=0.1) < 1.0


def test_statuses_of_the_number_verifier():
    exact, close = NumberVerifier(), NumberVerifier(width=0.1)
    pairs = [(408, "408"), ("408", "it is 400"), (408, "no idea"), (408, r"\boxed{abc}")]
    assert [v.status for v in exact.check(pairs)] == [Status.PASSED, Status.FAILED, Status.NO_ANSWER, Status.FAILED]
    assert [v.reward for v in exact.check(pairs)] == [1.0, 0.0, 0.0, 0.0]
    assert [v.reward for v in close.check(pairs)] == [1.0, pytest.approx(0.8039, abs=1e-4), 0.0, 0.0]
    with pytest.raises(TaskError, match=r"row 3: the right answer 'many' cannot be compared with: it is no number"):
        exact.check_golds([("row 1", 5), ("row 2", "so\n#### 1,000"), ("row 3", "many")])
    assert exact.check([("many", "5")])[0].reward is None


def test_the_term_for_form():
    assert [v.reward for v in BoxVerifier().check([(None, r"\boxed{1}"), (None, "1"), (None, r"\boxed{1")])] == [
        1,
        0,
        0,
    ]


def test_c42_nothing_compared_is_no_pass_and_both_counts_are_there():
    none, wrong = NumberVerifier().check([(5, "no idea"), (5, "6")])
    assert (none.expected, none.executed, none.reward) == (1, 0, 0.0)
    assert (wrong.expected, wrong.executed, wrong.reward) == (1, 1, 0.0)
