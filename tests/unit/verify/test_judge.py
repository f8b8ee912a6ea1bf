import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import TaskError
from steelyard.types import Case, Status, Suite, worst
from steelyard.verify.judge import judge, judge_no_answer, matches
from steelyard.verify.sandbox import InputOutcome

FAULTS = [
    status for status in Status if status not in (Status.PASSED, Status.FAILED, Status.CHECKER_FAILED, Status.NO_ANSWER)
]


def suite_of(count):
    cases = tuple(Case(id=f"t{i}", family="all", args=(i,), expected=i) for i in range(count))
    return Suite(task="same", name="main", version=1, entry_point="f", cases=cases)


def outcomes_of(suite, statuses):
    def outcome(case, status):
        if status in (Status.PASSED, Status.FAILED):
            return InputOutcome(value=case.expected if status is Status.PASSED else None)
        return InputOutcome(fault=status)

    return {case.key: outcome(case, status) for case, status in zip(suite.cases, statuses, strict=True)}


@given(st.lists(st.sampled_from([Status.PASSED, Status.FAILED, *FAULTS]), min_size=1, max_size=9))
def test_reward_is_the_share_passed_and_the_status_is_the_worst(statuses):
    suite = suite_of(len(statuses))
    verdict = judge(suite, outcomes_of(suite, statuses), seconds=1.5, detail="d")
    assert list(verdict.tests.values()) == statuses
    assert verdict.status is worst(statuses)
    share = 0.0 if Status.FORBIDDEN in statuses else statuses.count(Status.PASSED) / len(statuses)
    assert verdict.reward == share
    assert (verdict.expected, verdict.executed, verdict.seconds, verdict.detail) == (
        len(statuses),
        len(statuses),
        1.5,
        "d",
    )


@given(st.lists(st.sampled_from([Status.PASSED, *FAULTS]), max_size=5))
def test_one_test_that_could_not_be_judged_leaves_the_program_unscored(statuses):
    suite = suite_of(len(statuses) + 1)
    verdict = judge(suite, outcomes_of(suite, [*statuses, Status.CHECKER_FAILED]))
    assert (verdict.status, verdict.reward, verdict.scored) == (Status.CHECKER_FAILED, None, False)


def test_a_missing_outcome_is_our_failure_not_the_programs():
    suite = suite_of(3)
    outcomes = outcomes_of(suite, [Status.PASSED] * 3)
    del outcomes[suite.cases[1].key]
    verdict = judge(suite, outcomes)
    assert (verdict.status, verdict.reward, verdict.executed) == (Status.CHECKER_FAILED, None, 2)


def test_inputs_that_were_not_run_are_expected_but_not_executed():
    suite = suite_of(4)
    late = {case.key: InputOutcome(fault=Status.TIMEOUT, ran=False) for case in suite.cases}
    outcomes = late | {suite.cases[0].key: InputOutcome(value=0)}
    verdict = judge(suite, outcomes)
    assert (verdict.status, verdict.reward, verdict.expected, verdict.executed) == (Status.TIMEOUT, 0.25, 4, 1)


def test_several_suites_judge_one_run():
    small, large = suite_of(2), suite_of(5)
    outcomes = outcomes_of(large, [Status.PASSED] * 2 + [Status.CRASHED] * 3)
    assert judge(small, outcomes).reward == 1.0
    assert judge(large, outcomes).reward == 0.4


def test_no_answer_scores_zero_and_executes_nothing():
    verdict = judge_no_answer(suite_of(3))
    assert (verdict.status, verdict.reward, verdict.expected, verdict.executed, verdict.passed) == (
        Status.NO_ANSWER,
        0.0,
        3,
        0,
        0,
    )


def test_c42_an_empty_suite_is_refused():
    for judging in (lambda: judge(suite_of(0), {}), lambda: judge_no_answer(suite_of(0))):
        with pytest.raises(TaskError, match="no tests"):
            judging()


def test_a_signature_needs_every_output():
    outcomes = {"a": InputOutcome(value=1), "b": InputOutcome(value=2), "c": InputOutcome(fault=Status.CRASHED)}
    assert matches({"a": 1, "b": 2}, outcomes)
    assert not matches({"a": 1, "b": 3}, outcomes)
    assert not matches({"a": True, "b": 2}, outcomes)
    assert not matches({"a": 1, "c": None}, outcomes)
    assert not matches({"a": 1, "d": 1}, outcomes)
    with pytest.raises(TaskError, match="without inputs"):
        matches({}, outcomes)


def test_printed_text_is_compared_as_output_and_other_values_strictly():
    def verdict(form, printed):
        case = Case(id="t", family="all", args=("1",), expected="2\n")
        suite = Suite(task="same", name="main", version=1, entry_point="", cases=(case,), form=form)
        return judge(suite, {case.key: InputOutcome(value=printed)})

    assert verdict("stdin", "2  ").status is Status.PASSED
    assert verdict("stdin", "2\n\n").status is Status.FAILED
    assert verdict("calls", "2  ").status is Status.FAILED


def test_c37_a_program_that_raises_does_not_pass_where_nothing_is_to_be_printed():
    case = Case(id="t", family="all", args=("1",), expected="")
    suite = Suite(task="same", name="main", version=1, entry_point="", cases=(case,), form="stdin")
    assert judge(suite, {case.key: InputOutcome(fault=Status.CRASHED)}).reward == 0.0
