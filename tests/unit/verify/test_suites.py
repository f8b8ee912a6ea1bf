import pytest

from steelyard.errors import TaskError
from steelyard.types import Case, Suite
from steelyard.verify.suites import check_suite, union_of_inputs


def suite(form, *cases, entry_point="f", name="main", **extra):
    rows = tuple(
        Case(id=f"t{i}", family="all", args=args, expected=expected) for i, (args, expected) in enumerate(cases)
    )
    return Suite(task="a", name=name, version=1, entry_point=entry_point, cases=rows, form=form, **extra)


@pytest.mark.parametrize(
    ("form", "cases"),
    [
        ("calls", [((1, 2), 3)]),
        ("stdin", [(("1",), "2"), (("",), "")]),
        ("asserts", [(("", "assert f(1) == 2"), True)]),
        ("asserts", [(("import math", "def check(candidate):\n    assert candidate(1)\ncheck(f)"), True)]),
    ],
)
def test_good_suites(form, cases):
    check_suite(suite(form, *cases))


@pytest.mark.parametrize(
    ("form", "cases", "said"),
    [
        ("calls", [], "has no tests"),
        ("stdin", [], "has no tests"),
        ("asserts", [], "has no tests"),
        ("stdin", [((1,), "2")], "must have one text"),
        ("stdin", [(("1", "2"), "2")], "must have one text"),
        ("stdin", [(("1",), 2)], "must expect a text, got 2"),
        ("stdin", [(("1",), ""), (("2",), " \n")], "expects nothing to be printed"),
        ("asserts", [(("assert f(1)",), True)], "must have two texts"),
        ("asserts", [(("", 1), True)], "must have two texts"),
        ("asserts", [(("", "assert f(1)"), 1)], "must expect True, got 1"),
        ("asserts", [(("", "assert f(1)"), False)], "must expect True, got False"),
        ("asserts", [(("def", "assert f(1)"), True)], "its setup cannot be parsed: invalid syntax"),
        ("asserts", [(("", "assert f(1"), True)], "its test code cannot be parsed: '[(]' was never closed"),
        ("asserts", [(("", "assert True"), True)], "never calls 'f' or 'candidate', so every program would pass"),
        ("asserts", [(("", ""), True)], "never calls"),
        ("asserts", [(("", "def check(candidate):\n    assert True\nf = 1"), True)], "never calls"),
        ("asserts", [(("f(1)", "# f(1)\nassert 'candidate'"), True)], "never calls"),
    ],
)  # fmt: skip
def test_c42_suites_that_cannot_judge_are_refused(form, cases, said):
    with pytest.raises(TaskError, match=said):
        check_suite(suite(form, *cases))


def test_suites_of_one_run_must_agree():
    calls = suite("calls", ((1,), 1))
    with pytest.raises(TaskError, match="The tests of suite a:other are 'asserts', those of a:main 'calls'"):
        union_of_inputs(calls, [suite("asserts", (("", "f(1)"), True), name="other")])
    with pytest.raises(TaskError, match="put different source before a program"):
        union_of_inputs(calls, [suite("calls", ((1,), 1), name="other", preamble="import math")])
    assert len(union_of_inputs(calls, [suite("calls", ((1,), 1), ((2,), 2), name="other")])) == 2


def test_the_hash_names_what_a_program_is_run_with():
    plain = suite("calls", ((1,), 1))
    others = [
        suite("calls", ((1,), 1), preamble="x = 1"),
        suite("calls", ((1,), 1), stem="x = 1"),
        suite("stdin", ((1,), 1)),
    ]
    assert len({each.hash for each in [plain, *others]}) == 4
