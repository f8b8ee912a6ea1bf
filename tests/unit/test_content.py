import pytest

from steelyard.content import content_hash, plain_json
from steelyard.types import Case, Suite

DIFFERENT = [
    1, 1.0, True, "1", b"1", [1], (1,), {1}, frozenset({1}), {"1": 1}, {1: 1}, {"$tuple": [1]}, 1 << 5000, None,
]  # fmt: skip


def case(value):
    return Case(id="t", family="all", args=(value,), expected=value)


def test_inputs_that_differ_have_keys_that_differ():
    keys = [case(value).key for value in DIFFERENT]
    assert len(set(keys)) == len(DIFFERENT)


@pytest.mark.parametrize("value", DIFFERENT, ids=lambda value: type(value).__name__)
def test_a_suite_with_any_plain_value_has_a_hash(value):
    suite = Suite(task="a", name="b", version=1, entry_point="f", cases=(case(value),))
    assert len(suite.hash) == 64


def test_order_counts_in_lists_and_not_in_sets_and_dicts():
    assert content_hash(plain_json({3, 1, 2})) == content_hash(plain_json({2, 3, 1}))
    assert content_hash(plain_json({(2,): 1, (1,): 2})) == content_hash(plain_json({(1,): 2, (2,): 1}))
    assert content_hash(plain_json((1, 2))) != content_hash(plain_json((2, 1)))


def test_json_data_keep_the_hash_they_had():
    assert plain_json([{"a": [1, 2.5, None]}, "x"]) == [{"a": [1, 2.5, None]}, "x"]


def test_the_form_of_a_suite_is_part_of_its_hash():
    hashes = {
        Suite(task="a", name="b", version=1, entry_point="", cases=(case("x"),), form=form).hash
        for form in ("calls", "stdin", "asserts")
    }
    assert len(hashes) == 3
