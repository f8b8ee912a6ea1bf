"""Shrinking, growing and counting, without a sandbox."""

from typing import Any, cast

import pytest
from strength_tools import asserts_suite, calls_suite

from steelyard.audit.strength.grow import arguments_of, grown
from steelyard.audit.strength.repair import choose
from steelyard.audit.strength.shares import cover, partial_credit, redundancy, share
from steelyard.audit.strength.shrink import shrink, size
from steelyard.tasks.booking.probe import valid


def shrunk(args, differs, domain=lambda _: True):
    return shrink(args, lambda many: [differs(*each) for each in many], domain)


class TestShrink:
    def test_a_list_loses_what_does_not_matter(self):
        assert shrunk(([5, 3, 9, 3, 8],), lambda x: len(set(x)) < len(x)) == ([0, 0],)

    def test_numbers_move_together(self):
        """One number that stands twice: neither place can move alone."""
        touching = shrunk(
            ([[40, 170], [170, 300]],),
            lambda x: any(a[1] == b[0] for a in x for b in x),
            valid,
        )
        assert touching == ([[0, 1], [1, 2]],)

    def test_a_number_sinks_in_all_its_places_to_the_least_that_will_do(self):
        assert shrunk(([70, 70, 9],), lambda x: x[:1] == x[1:2] and x[:1] > [13]) == ([14, 14],)

    def test_nothing_outside_the_domain_is_tried(self):
        tried = []
        shrunk(([7, 8],), lambda x: tried.append(x) or bool(x), lambda args: len(args[0]) > 0)
        assert tried and [] not in tried

    @pytest.mark.parametrize(
        ("value", "differs", "least"),
        [
            (-40, lambda x: x < 0, -1),
            ("hello world", lambda x: "w" in x, "w"),
            ({"a": 1, "b": 9}, lambda x: "b" in x, {"b": 0}),
            ((3, (4, "xyz")), lambda x: len(x[1][1]) > 0, (0, (0, "a"))),
            (0.37, lambda x: x > 0.2, 0.3),
            ({1, 2, 3}, lambda x: 3 in x, {3}),
            (True, lambda x: True, False),
            (10**30, lambda x: x > 5, 6),
        ],
    )
    def test_every_kind_of_value(self, value, differs, least):
        assert shrunk((value,), differs) == (least,)

    def test_size_is_values_then_magnitude(self):
        assert size(([1],)) < size(([0, 0],)) < size(([0, 1],)) < size(([0, 1, 1],))


SEEDS: list[tuple[Any, ...]] = [([1, 2], "ab", {"k": 1.5}), ([3], "", {"l": 2.0})]


class TestGrow:
    def test_the_same_seed_makes_the_same_inputs_and_another_does_not(self):
        assert grown(SEEDS, 3, 60) == grown(SEEDS, 3, 60) != grown(SEEDS, 4, 60)

    def test_types_stay_and_values_move(self):
        made = grown(SEEDS, 0, 300)
        assert all([type(each) for each in args] == [list, str, dict] for args in made)
        assert len({repr(args) for args in made}) > 200
        assert {True, False} == {any(v < 0 for v in cast("list[int]", args[0])) for args in made}
        assert any(args[0] == [] for args in made)
        assert any(len(set(args[0])) < len(args[0]) for args in made)

    def test_without_seeds_nothing_grows(self):
        assert grown([], 0, 10) == []

    def test_calls_in_test_code_are_found_where_their_values_are_literal(self):
        test = (
            "def check(candidate):\n    assert candidate([1], 2) == 3\n    assert abs(candidate(-0.5, None) - 1) < 1e-6\n"
            "    for i in range(3):\n        candidate(i)\n    assert f('x', (1,)) and g(7)\n    candidate(x=1)\n"
            "inputs = [[1, 'a'], [2, 'b']]\nfor arguments in [[8], [9]]:\n    candidate(*arguments)\n"
        )
        found = arguments_of(asserts_suite([test, "not python ("], entry_point="f"))
        assert sorted(map(repr, found)) == sorted(
            map(repr, [([1], 2), (-0.5, None), ("x", (1,)), (1, "a"), (2, "b"), (8,), (9,)])
        )


class TestCounting:
    def test_c61_wilson(self):
        assert (share("x", 0, 25).high, share("x", 8, 10).low) == pytest.approx((0.1332, 0.4902), abs=5e-5)
        assert share("x", 0, 0).value is None and share("x", 0, 0).low is None

    def test_a_cover_catches_everything_and_nothing_in_it_is_spare(self):
        caught = {"a": {"1", "2"}, "b": {"2", "3"}, "c": {"3"}, "d": {"1", "4"}}
        found = cover({name: frozenset(ids) for name, ids in caught.items()})
        assert all(found & ids for ids in caught.values())
        assert all(any(not (found - {one}) & ids for ids in caught.values()) for one in found)
        assert len(found) == 2

    def test_what_later_choices_make_spare_is_left_out(self):
        """Greed takes the widest test first, and then needs both others."""
        catches = {"wide": "1234", "left": "125", "right": "346"}
        caught = {m: frozenset(test for test, mutants in catches.items() if m in mutants) for m in "123456"}
        assert cover(caught) == {"left", "right"}

    def test_order_of_partial_credit(self):
        found = partial_credit([0.0, 0.5, 0.5, 1.0], [0.0, 0.4, 0.2, 0.1], group_size=4)
        assert (found.pairs, found.opposite, found.tied, found.rewards) == (6, 2, 1, 3)
        assert found.constant["0.5"] == pytest.approx(2 / 16)

    def test_c54_tests_that_ask_the_same_are_named(self):
        """Extra tests that are copies of the base ones, as inputs and as test code; and a test that asks twice."""
        rows = [(([1],), 1), (([2],), 2), (([1],), 1), (([2],), 2), (([3],), 3)]
        suite = calls_suite(rows, entry_point="f", families=["base", "base", "plus", "plus", "plus"])
        assert redundancy(suite, {}).duplicates == (("t0", "t2"), ("t1", "t3"))
        code = asserts_suite(
            ["assert f([1]) == 1", "assert candidate( [ 1 ] ) == 1", "f(2); f(2)", "f(3)"], entry_point="f"
        )
        assert redundancy(code, {}).duplicates == (("t0", "t1"), ("t2", "t2"))

    def test_tests_that_catch_nothing_are_named(self):
        suite = calls_suite([((i,), i) for i in range(3)], entry_point="f")
        found = redundancy(suite, {"m": frozenset({"t0", "t2"}), "n": frozenset({"t2"})})
        assert (found.minimal, found.idle, found.duplicates) == (("t2",), ("t1",), ())


class TestChoice:
    def test_first_every_survivor_once_then_again(self):
        survivors = {"a": frozenset("xyz"), "b": frozenset("w"), "c": frozenset("xy")}
        sizes = {"x": 2, "y": 1, "z": 0, "w": 9}
        assert choose(survivors, list("wxyz"), sizes=sizes, most=2) == ["y", "w"]
        assert choose(survivors, list("wxyz"), sizes=sizes, most=9) == ["y", "w", "x", "z"]

    def test_what_catches_nothing_is_never_taken(self):
        assert choose({"a": frozenset("x")}, list("qx"), sizes={"q": 0, "x": 1}, most=5) == ["x"]
