"""Planted blind spots are found; look-alikes of public cases are found too."""

import json

import pytest
from strength_tools import QUICK, asserts_suite, calls_suite, subject_of

from steelyard.audit.strength import find_subject, measure_strength
from steelyard.audit.strength.measure import try_suite
from steelyard.audit.strength.programs import Bench
from steelyard.audit.strength.repair import repaired
from steelyard.audit.strength.shares import cover
from steelyard.audit.strength.survivors import describe
from steelyard.errors import RequestError, TaskError
from steelyard.tasks.blind_spots import SPOTS
from steelyard.verify.programs import check_references
from steelyard.verify.sandbox import Sandbox

pytestmark = [pytest.mark.xdist_group("suite-strength-spots"), pytest.mark.sandbox]


@pytest.fixture(scope="module")
def bench():
    with Sandbox(workers=2, limits=QUICK) as sandbox:
        yield Bench(sandbox)


def survivors_of(name, bench, *, pool=150):
    trial = try_suite(find_subject(name), bench, seed=0, pool_size=pool)
    return describe(trial.paid, trial.subject, trial.pool, bench)


@pytest.mark.parametrize("spot", SPOTS.values(), ids=list(SPOTS))
def test_the_planted_blind_spot_is_found_and_the_complete_suite_has_none(spot, bench):
    """Five of five: empty input, duplicates, negative numbers, stability of a sort, float tolerance."""
    found = survivors_of(f"{spot.name}:weak", bench)
    assert found, spot.blind_spot
    assert all(spot.is_blind(survivor.witness) for survivor in found), spot.blind_spot
    assert survivors_of(f"{spot.name}:complete", bench) == ()


@pytest.mark.parametrize("spot", SPOTS.values(), ids=list(SPOTS))
def test_right_programs_pass_every_suite_of_a_spot(spot, bench):
    task = spot.task()
    for suite in task.suites.values():
        check_references(bench.sandbox, suite, task.references)
    assert not any(case.family == "blind" for case in task.suites["weak"].cases)
    assert any(case.family == "blind" for case in task.suites["audit"].cases)
    assert all(spot.valid(case.args) for suite in task.suites.values() for case in suite.cases)
    assert not spot.valid(("no", "such", "input"))


def test_a_repair_to_fewer_tests_keeps_those_that_are_needed(bench):
    trial = try_suite(find_subject("count_pairs:weak"), bench, seed=0, pool_size=100)
    needed = len(cover(trial.caught))
    found = repaired(trial, bench, tests=needed + 2)
    assert len(found.suite.cases) == needed + 2 < len(trial.subject.suite.cases)
    assert found.lost == () and len(found.before) == 4 and len(found.after) <= 1
    tight = repaired(trial, bench, tests=needed)
    assert tight.added == () and tight.lost == () and tight.after == tight.before


COMMON = "def common(l1, l2):\n    return sorted(set(l1) & set(l2))\n"
C53 = [
    (([1, 4, 3, 34, 653, 2, 5], [5, 7, 1, 5, 9, 653, 121]), [1, 5, 653]),
    (([5, 3, 2, 8], [3, 2]), [2, 3]),
    (([4, 3, 2, 8], [3, 2, 4]), [2, 3, 4]),
    (([4, 3, 2, 8], []), []),
]


def check_c53(subject, bench):
    trial = try_suite(subject, bench, seed=0, pool_size=400)
    found = describe(trial.paid, subject, trial.pool, bench)
    (unsorted_,) = [survivor for survivor in found if survivor.operator == "sort dropped"]
    assert "+    return list(set(l1) & set(l2))" in unsorted_.diff
    left, right = unsorted_.witness
    assert sorted(set(left) & set(right)) == unsorted_.expected
    assert unsorted_.observed == repr(list(set(left) & set(right))) != repr(unsorted_.expected)
    assert len(left) <= 2 and len(right) <= 2


def test_c53_a_set_that_nobody_sorted_is_found(bench):
    """The four known inputs come out right by luck of how small integers hash."""
    check_c53(subject_of(calls_suite(C53, entry_point="common"), COMMON), bench)


def test_c53_the_same_in_test_code(bench):
    code = "".join(f"assert candidate(*{args!r}) == {expected!r}\n" for args, expected in C53)
    code = code.replace("candidate(*(", "candidate((").replace("candidate((", "candidate(").replace(")) ==", ") ==")
    subject = subject_of(asserts_suite([code], entry_point="common"), COMMON)
    check_c53(subject, bench)
    report = measure_strength(subject, bench.sandbox, pool_size=60)
    assert report.identity.form == "asserts" and report.identity.pool >= 60
    assert any("one right program only" in note for note in report.notes)


def test_c53_a_repaired_suite_of_assertions_keeps_its_test_and_catches_the_unsorted_set(bench):
    code = "".join(f"assert candidate({a!r}, {b!r}) == {expected!r}\n" for (a, b), expected in C53)
    subject = subject_of(asserts_suite([code], entry_point="common"), COMMON)
    found = repaired(try_suite(subject, bench, seed=0, pool_size=200), bench)
    assert found.before and found.after == found.lost == found.removed == ()
    assert (found.suite.version, found.suite.form) == (2, "asserts")
    assert found.suite.cases[0] == subject.suite.cases[0] and 1 <= len(found.added) <= 8
    assert all(
        str(case.args[1]).startswith("assert candidate(") and case.expected is True for case in found.suite.cases[1:]
    )
    check_references(bench.sandbox, found.suite, subject.references)
    wrong = {"unsorted": "def common(l1, l2):\n    return list(set(l1) & set(l2))\n"}
    with pytest.raises(TaskError, match="'unsorted' fails its own suite"):
        check_references(bench.sandbox, found.suite, wrong)


def test_new_assertions_allow_the_rounding_of_floats_and_hold_no_nan(bench):
    reference = "def f(x):\n    return [x / 3, x * 1e308 * 10 - x * 1e308 * 10] if x > 5 else [x / 3]\n"
    subject = subject_of(asserts_suite(["assert len(candidate(9.0)) == 2"], entry_point="f"), reference)
    found = repaired(try_suite(subject, bench, seed=0, pool_size=60), bench)
    assert found.added
    assert "nan" not in "".join(case.args[1] for case in found.suite.cases)
    other = reference.replace("else [x / 3]", "else [x * (1 / 3)]")
    check_references(bench.sandbox, found.suite, {"rounded elsewhere": other})
    with pytest.raises(TaskError):
        check_references(bench.sandbox, found.suite, {"wrong": reference.replace("else [x / 3]", "else [x / 3.001]")})


def test_c53_in_humaneval_itself(bench):
    """HumanEval/58, by its published tests and canonical solution."""
    found = survivors_of("humaneval:HumanEval/58", bench, pool=600)
    assert [survivor.operator for survivor in found] == ["sort dropped"]
    left, right = found[0].witness
    assert sorted(set(left) & set(right)) != list(set(left) & set(right))


def test_c54_for_an_extended_suite_that_adds_nothing_every_extra_test_is_named(bench):
    rows = [(([3, 1],), [1, 3]), (([2],), [2])]
    suite = calls_suite([*rows, *rows], entry_point="f", families=["base", "base", "plus", "plus"])
    report = measure_strength(subject_of(suite, "def f(x):\n    return sorted(x)\n"), bench.sandbox, pool_size=40)
    assert report.redundancy.duplicates == (("t0", "t2"), ("t1", "t3"))
    assert report.score.total.count >= 1  # at least one known-wrong program fails


def test_c54_a_task_graded_by_its_visible_example_pays_a_constant(bench):
    suite = calls_suite([((4,), True)], entry_point="f")
    report = measure_strength(subject_of(suite, "def f(x):\n    return x % 2 == 0\n"), bench.sandbox, pool_size=40)
    constant = next(row for row in report.sanity if row.name.startswith("constant"))
    assert (constant.name, constant.reward) == ("constant True", 1.0)
    assert any("return True" in survivor.diff for survivor in report.survivors)


def test_what_an_assertion_cannot_ask_is_no_survivor(bench):
    """`0 == False` holds in test code, so a program that returns 0 is not called wrong; a suite of calls catches it."""
    reference = "def f(x):\n    if x > 3:\n        return True\n    return False\n"
    code = asserts_suite(["assert f(4) == True\nassert f(3) == False"], entry_point="f")
    trial = try_suite(subject_of(code, reference), bench, seed=0, pool_size=30)
    assert trial.survivors == [] and any("return 0" in each.mutant.source for each in trial.paid)
    strict = calls_suite([((4,), True), ((3,), False)], entry_point="f")
    assert not try_suite(subject_of(strict, reference), bench, seed=0, pool_size=30).paid


def test_an_input_on_which_the_only_right_program_raises_lies_outside(bench):
    suite = calls_suite([(([3, 5],), 3)], entry_point="f")
    trial = try_suite(subject_of(suite, "def f(x):\n    return min(x)\n"), bench, seed=0, pool_size=80)
    assert trial.pool.left_out > 0
    assert all(args[0] for args in trial.pool.inputs.values())


def test_an_input_that_takes_the_right_program_too_long_costs_no_other_input(bench):
    """The process ends there; the inputs after it run in another."""
    suite = calls_suite([((3,), 3), ((-1,), 1)], entry_point="f")
    reference = "def f(x):\n    while x == -2:\n        pass\n    return abs(x)\n"
    rows = bench.outcomes("f", [(-2,), (5,), (-2,), (6,)], [reference, "def f(x):\n    return x\n"], "", rounds=3)
    assert [[outcome.value for outcome in row] for row in rows] == [[None, 5, None, 6], [-2, 5, -2, 6]]
    trial = try_suite(subject_of(suite, reference), bench, seed=0, pool_size=40)
    assert trial.pool.left_out == 1 and len(trial.pool.inputs) > 30


def test_a_suite_without_plain_calls_says_that_nothing_can_be_told(bench):
    suite = asserts_suite(["x = 3\nassert candidate(x) == 3"], entry_point="f")
    report = measure_strength(subject_of(suite, "def f(x):\n    return x\n"), bench.sandbox, pool_size=20)
    assert report.survivors == () and report.identity.pool == 0
    assert any("the pool is empty" in note for note in report.notes)


def test_a_file_of_rows_with_tests_is_a_task_too(bench, tmp_path):
    """The first row of HumanEval's form; the prompt id names its suite."""
    row = {
        "task_id": "own/1",
        "prompt": 'import math\n\n\ndef root(x):\n    """The root of x, rounded down."""\n',
        "canonical_solution": "    return math.isqrt(abs(x))\n",
        "entry_point": "root",
        "test": "def check(candidate):\n    assert candidate(9) == 3\n    assert candidate(8) == 2\n",
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    found = survivors_of(f"{tmp_path}/rows.jsonl:own/1", bench)
    assert [survivor.witness for survivor in found] == [(-1,)]
    assert found[0].operator == "call dropped"


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("booking", RequestError, "write TASK:SUITE"),
        ("booking:weka", RequestError, "has no suite 'weka'; it has reference, weak, repaired, audit"),
        ("arithmetic:x", RequestError, "scored by a reward function"),
        ("boking:weak", TaskError, "did you mean booking"),
        ("booking:none.json", TaskError, "cannot be read"),
    ],
)
def test_a_name_that_names_no_suite_is_refused(spec, error, words):
    with pytest.raises(error, match=words):
        find_subject(spec)
