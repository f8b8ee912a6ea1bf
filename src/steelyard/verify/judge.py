"""From what a program returned to a verdict: a pure function, in our process, with the values that never left it."""

from collections.abc import Mapping

from steelyard.errors import TaskError
from steelyard.types import Case, Plain, Status, Suite, Verdict, worst
from steelyard.verify.compare import equal, same_output
from steelyard.verify.sandbox.records import InputOutcome
from steelyard.verify.suites import require_cases

_ZERO_REWARD = frozenset({Status.NO_ANSWER, Status.FORBIDDEN})


def judge(
    suite: Suite, outcomes_by_key: Mapping[str, InputOutcome], *, seconds: float = 0.0, detail: str = ""
) -> Verdict:
    """Return the verdict of a suite on the outcomes of one program.

    A value passes when it is equal to the expected one; what a whole program printed (`stdin`), when it is the same output.
    reward = tests passed / tests expected, 0 for a forbidden program. A test whose outcome is missing, or that our side
    could not run, is `checker_failed`, and leaves the whole program without a reward.

    Args:
        suite: Cases with their expected values.
        outcomes_by_key: Outcome of each input, by `Case.key`; other inputs may be among them.
        seconds: Wall time of the check, for the record.
        detail: For people, capped.

    Raises:
        TaskError: The suite is empty, so that no test executed would be no failure, or two tests share an id.
    """
    require_cases(suite)
    tests = {case.id: _status(suite, case, outcomes_by_key.get(case.key)) for case in suite.cases}
    status = worst(list(tests.values()))
    passed = sum(test is Status.PASSED for test in tests.values())
    reward = None if status is Status.CHECKER_FAILED else 0.0 if status in _ZERO_REWARD else passed / len(tests)
    return Verdict(
        status=status,
        reward=reward,
        tests=tests,
        expected=len(tests),
        executed=sum(_ran(outcomes_by_key.get(case.key)) for case in suite.cases),
        seconds=seconds,
        detail=detail,
    )


def judge_no_answer(suite: Suite) -> Verdict:
    """Return the verdict on a completion that holds no program: reward 0, nothing executed."""
    require_cases(suite)
    detail = f"no complete program that defines {suite.entry_point!r}" if suite.entry_point else "no complete program"
    tests = {case.id: Status.NO_ANSWER for case in suite.cases}
    return Verdict(status=Status.NO_ANSWER, reward=0.0, tests=tests, expected=len(tests), detail=detail)


def matches(outputs: Mapping[str, Plain], outcomes_by_key: Mapping[str, InputOutcome]) -> bool:
    """Return whether a program returned exactly these outputs, on every one of these inputs.

    Args:
        outputs: Output by input key, as in `Task.signatures`; at least one.
        outcomes_by_key: The program's outcomes.
    """
    if not outputs:
        raise TaskError("A fault signature without inputs would match every program; give it at least one.")
    return all(
        (outcome := outcomes_by_key.get(key)) is not None and outcome.returned and equal(value, outcome.value)
        for key, value in outputs.items()
    )


def _status(suite: Suite, case: Case, outcome: InputOutcome | None) -> Status:
    if outcome is None:
        return Status.CHECKER_FAILED
    if outcome.fault is not None:
        return outcome.fault
    same = same_output if suite.form == "stdin" else equal
    return Status.PASSED if same(case.expected, outcome.value) else Status.FAILED


def _ran(outcome: InputOutcome | None) -> bool:
    return outcome is not None and outcome.ran
