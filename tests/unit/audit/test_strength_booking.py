"""What the tool finds on the booking suites, with no help but the task's right programs."""

from dataclasses import replace

import pytest
from strength_tools import QUICK

from steelyard.audit.strength import Report, find_subject
from steelyard.audit.strength.measure import Trial, report_on, try_suite
from steelyard.audit.strength.mutants import AUTHORED
from steelyard.audit.strength.programs import Bench, by_key
from steelyard.audit.strength.repair import repaired
from steelyard.audit.strength.subject import Subject
from steelyard.errors import TaskError
from steelyard.tasks.booking import booking_task, faults
from steelyard.tasks.booking.probe import PROBE
from steelyard.types import Status, Suite
from steelyard.verify.judge import judge
from steelyard.verify.sandbox import Sandbox

pytestmark = [pytest.mark.xdist_group("suite-strength"), pytest.mark.timeout(120), pytest.mark.sandbox]

POOL = 150
SUITES = booking_task().suites


def small_audit() -> Suite:
    """Every family, in a part of the time."""
    audit = SUITES["audit"]
    return replace(audit, cases=tuple(case for case in audit.cases if len(str(case.args)) < 400))


def booking(name: str) -> Subject:
    subject = find_subject(f"booking:{name}")
    return subject if subject.yardstick is None else replace(subject, yardstick=small_audit())


@pytest.fixture(scope="module")
def opened():
    with Sandbox(workers=2, limits=QUICK) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def weak_trial(opened) -> Trial:
    return try_suite(booking("weak"), Bench(opened), seed=0, pool_size=POOL)


@pytest.fixture(scope="module")
def weak(opened, weak_trial) -> Report:
    return report_on(weak_trial, Bench(opened))


@pytest.fixture(scope="module")
def reference(opened) -> Trial:
    return try_suite(booking("reference"), Bench(opened), seed=0, pool_size=POOL)


def as_judged_by(suite: Suite, trial: Trial) -> list[str]:
    """Mutants that a suite whose inputs were run pays in full, and that are wrong somewhere on the pool."""
    alike = {each.mutant.id for each in trial.paid if not each.failed}
    verdicts = {id_: judge(suite, check.outcomes) for id_, check in trial.checks.items()}
    return [id_ for id_, verdict in verdicts.items() if verdict.status is Status.PASSED and id_ not in alike]


def test_weak_pays_both_mechanisms_and_each_has_a_smallest_witness(weak):
    found = {survivor.mechanisms: survivor for survivor in weak.survivors}
    assert set(found) == {("inclusive_endpoint",), ("order_sensitive_ties",)}
    inclusive, ties = found[("inclusive_endpoint",)], found[("order_sensitive_ties",)]
    assert (inclusive.witness, inclusive.expected, inclusive.observed) == (([[0, 1], [1, 2]],), 1, "2")
    assert (ties.witness, ties.expected, ties.observed) == (([[1, 2], [0, 1]],), 1, "2")
    assert inclusive.test == "assert required_capacity([[0, 1], [1, 2]]) == 1"


def test_they_are_found_unaided_by_the_changes_one_would_expect(weak):
    """Not from the authored faults, which are among the mutants too: each class is shown by a changed right program."""
    inclusive, ties = weak.survivors
    assert (inclusive.operator, ties.operator) == ("comparison boundary", "sort key part")
    assert {"heap/comparison boundary/1", "authored/inclusive_endpoint"} < {inclusive.id, *inclusive.same}
    assert "-    events.sort()" in ties.diff and "authored/order_sensitive_ties" in ties.same
    assert AUTHORED not in (inclusive.operator, ties.operator)


def test_survivors_are_ranked_by_the_share_of_the_pool_that_they_fail(weak):
    shares = [survivor.failed / survivor.of for survivor in weak.survivors]
    assert shares == sorted(shares, reverse=True)
    assert all(0 < share < 1 for share in shares)


def test_the_score_alone_would_have_looked_fine(weak):
    total = weak.score.total
    assert (total.count, total.of) == (157, 164)
    assert 0.9 < total.low < total.value < total.high < 1
    assert sum(share.of for share in weak.score.by_operator) == total.of
    assert {share.name for share in weak.score.by_reference} == {*booking_task().references, *PROBE.references}
    assert weak.score.unjudged == ()


def test_right_programs_have_full_marks_twice_and_nothing_else_does(weak):
    rows = {row.name: row for row in weak.sanity}
    right = [rows[name] for name in weak.identity.references]
    assert len(right) == 5 and all(row.passed == row.tests == 57 and row.again for row in right)
    cheats = [row for row in weak.sanity if row.again is None]
    assert [row.name for row in cheats] == ["constant 1", "echo", "empty", "raising", "hanging", "len(argument)"]
    assert all(row.reward < 0.4 for row in cheats)
    assert (rows["len(argument)"].passed, rows["hanging"].status) == (21, "timeout")


def test_a_few_tests_catch_what_all_57_catch_and_none_is_a_copy(weak):
    assert len(weak.redundancy.minimal) < 10
    assert weak.redundancy.duplicates == ()


def test_the_verdicts_are_stable(weak):
    assert weak.stability.changed == ()
    assert weak.stability.programs > 20
    assert weak.stability.slowest_seconds < weak.stability.limit_seconds / 10


def test_identity_names_what_was_measured(weak):
    it = weak.identity
    assert (it.suite, it.hash, it.tests) == ("booking:weak", SUITES["weak"].hash, 57)
    assert it.pool > 287 and it.mutants == 177 and it.yardstick == "audit"


def test_on_reference_and_on_repaired_none_survives(reference):
    assert reference.survivors == []
    assert as_judged_by(SUITES["repaired"], reference) == []
    assert len(as_judged_by(SUITES["weak"], reference)) == 7


def test_the_results_agree_with_the_audit(reference):
    """A mutant is called wrong on the pool exactly when the 192 cases of the audit, or the suites, find it wrong."""
    audit = {case.key for case in SUITES["audit"].cases}
    for paid in reference.paid:
        assert not audit & set(paid.failed), paid.mutant.id
    authored = {m.id.removeprefix("authored/"): m.id for m in reference.mutants if m.operator == AUTHORED}
    assert set(authored) == set(faults.FAULTS)
    for fault, id_ in authored.items():
        caught = {case.id for case in SUITES["reference"].cases if faults.catches(fault, case)}
        tests = reference.checks[id_].verdict.tests
        assert {test for test, status in tests.items() if status is not Status.PASSED} == caught, fault


def test_a_repair_of_the_same_size_catches_them_and_takes_nothing_from_the_audit(opened, weak_trial):
    whole = replace(weak_trial, subject=find_subject("booking:weak"))
    found = repaired(whole, Bench(opened))
    assert len(found.suite.cases) == 57 and found.suite.version == SUITES["weak"].version + 1
    assert found.suite.hash != SUITES["weak"].hash
    assert (len(found.before), found.after, found.lost) == (7, (), ())
    assert len(found.added) == len(found.removed) > 0
    audit = {case.key for case in SUITES["audit"].cases}
    new = {case.key for case in found.suite.cases if case.id in found.added}
    assert not new & audit
    for fault in faults.FAULTS:
        assert any(faults.catches(fault, case) for case in found.suite.cases), fault


def test_right_programs_that_disagree_stop_the_report(opened):
    wrong = faults.faulty_program("inclusive_endpoint")
    subject = booking("weak")
    subject = replace(subject, references={**subject.references, "hasty": wrong})
    with pytest.raises(TaskError, match=r"disagree on required_capacity.*'hasty': '2'"):
        try_suite(subject, Bench(opened), seed=0, pool_size=20)


def test_the_generator_stays_in_the_domain_and_repeats_for_a_seed():
    made = PROBE.inputs(5, 400)
    assert made == PROBE.inputs(5, 400) != PROBE.inputs(6, 400)
    assert len(made) == 400 and all(map(PROBE.valid, made))
    assert len(by_key(made)) > 300
    assert not any(map(PROBE.valid, [((),), ([[1]],), ([[2, 1]],), ([[0, 10_001]],), ([[0, True]],), ([], [])]))
