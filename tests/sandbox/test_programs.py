import pytest
from sandbox_tools import DOUBLE, QUICK, suite_of

from steelyard.errors import TaskError, VerificationError
from steelyard.types import Case, Status, Suite
from steelyard.verify.judge import matches
from steelyard.verify.programs import ProgramVerifier, check_references
from steelyard.verify.sandbox import Sandbox
from steelyard.verify.sandbox.attacks.attack import HONEST

pytestmark = pytest.mark.sandbox


class CountingSandbox(Sandbox):
    """The real sandbox, which also notes what it was asked to run."""

    def run(self, jobs):
        self.jobs = [*getattr(self, "jobs", []), *jobs]
        return super().run(jobs)


@pytest.fixture(scope="module")
def counting():
    with CountingSandbox(workers=1, limits=QUICK) as opened:
        yield opened


def test_one_check_per_answer_in_order_and_by_id(sandbox):
    answers = [("right", HONEST), ("none", "no program here"), ("wrong", "def f(x):\n    return x"), ("again", HONEST)]
    checks = ProgramVerifier(sandbox, DOUBLE).check(answers)
    assert [check.id for check in checks] == ["right", "none", "wrong", "again"]
    assert [check.verdict.status for check in checks] == [Status.PASSED, Status.NO_ANSWER, Status.FAILED, Status.PASSED]
    assert [check.verdict.reward for check in checks] == [1.0, 0.0, 1 / 3, 1.0]
    assert checks[1].source is None
    assert checks[1].outcomes == {}
    assert ProgramVerifier(sandbox, DOUBLE).check([]) == []


def test_several_suites_judge_one_run_on_the_union_of_their_inputs(counting):
    watching = suite_of([(2, 4), (7, 14), (8, 17)], name="watching")
    verifier = ProgramVerifier(counting, DOUBLE, extra_suites=[watching])
    counting.jobs = []
    (check,) = verifier.check([("a", HONEST)])
    assert [len(job.inputs) for job in counting.jobs] == [5]
    assert check.verdict.reward == 1.0
    assert check.extra["watching"].reward == 2 / 3
    assert list(check.outcomes) == [case.key for case in (*DOUBLE.cases, *watching.cases[1:])]
    assert matches({watching.cases[1].key: 14}, check.outcomes)
    assert (
        ProgramVerifier(counting, DOUBLE, extra_suites=[watching]).check([("b", "")])[0].extra["watching"].reward == 0.0
    )


def test_no_expected_value_goes_into_the_sandbox(counting):
    suite = suite_of([(1, "expected-4711"), (2, "expected-4712")])
    counting.jobs = []
    ProgramVerifier(counting, suite).check([("a", HONEST)])
    assert "expected-47" not in repr(counting.jobs)
    assert "f" in repr(counting.jobs)


def test_a_program_cannot_find_expected_values_in_its_process(sandbox):
    source = """
import gc, sys
def f(x):
    seen, frame = [], sys._getframe()
    while frame: seen.append(repr(frame.f_locals)); frame = frame.f_back
    seen += [repr(o) for o in gc.get_objects() if type(o) in (dict, list, tuple) and len(o) < 50]
    return [len(seen) > 20, any("".join(reversed("1174-detcepxe")) in text for text in seen)]
"""
    (check,) = ProgramVerifier(sandbox, suite_of([(1, "expected-4711")])).check([("a", f"```\n{source}```")])
    assert [outcome.value for outcome in check.outcomes.values()] == [[True, False]]


def test_equal_programs_run_once_and_are_remembered(counting):
    verifier = ProgramVerifier(counting, DOUBLE)
    counting.jobs = []
    first = verifier.check([("a", HONEST), ("b", f"Here:\n```python\n{HONEST}```"), ("c", HONEST + "# another\n")])
    again = verifier.check([("d", HONEST)])
    assert len(counting.jobs) == 2
    assert [check.verdict for check in (first[0], first[1])] == [again[0].verdict] * 2


def test_what_could_not_be_judged_is_not_remembered(counting, monkeypatch):
    verifier = ProgramVerifier(counting, DOUBLE)
    source = HONEST + "# could not be judged at first\n"
    with monkeypatch.context() as patch:
        patch.setattr("steelyard.verify.sandbox.pool._ATTEMPTS", 0)
        patch.setattr(
            "steelyard.verify.sandbox.pool._GRACE_SECONDS", -QUICK.program_seconds
        )  # every server counts as hung
        (check,) = verifier.check([("a", source)])
    assert (check.verdict.status, check.verdict.reward) == (Status.CHECKER_FAILED, None)
    assert verifier.check([("a", source)])[0].verdict.reward == 1.0


def test_the_same_program_gives_the_same_outcomes_in_another_server(sandbox, counting):
    source = (
        "import random\nk = {str(i) for i in range(50)}\ndef f(x):\n    return [random.random(), hash('a'), list(k)]"
    )
    first, second = (ProgramVerifier(each, DOUBLE).check([("a", source)])[0].outcomes for each in (sandbox, counting))
    assert first == second
    assert all(outcome.returned for outcome in first.values())


def test_inputs_cannot_be_remembered_across_programs(sandbox):
    """Each program has a process of its own: what one leaves behind, the next does not find."""
    leave = "import builtins\ndef f(x):\n    builtins.left = x\n    return 2 * x"
    find = "import builtins\ndef f(x):\n    return 2 * x if not hasattr(builtins, 'left') else 'found'"
    checks = ProgramVerifier(sandbox, DOUBLE).check([("a", leave), ("b", find), ("c", find + "\n")])
    assert [check.verdict.reward for check in checks] == [1.0, 1.0, 1.0]


def test_mutating_the_argument_changes_nothing_for_the_judge(sandbox):
    suite = suite_of([([1, 2], [1, 2, 3]), ([1, 2, 3], [1, 2, 3])])
    (check,) = ProgramVerifier(sandbox, suite).check([("a", "def f(x):\n    x.append(3)\n    return x")])
    assert list(check.verdict.tests.values()) == [Status.PASSED, Status.FAILED]
    assert [case.args for case in suite.cases] == [([1, 2],), ([1, 2, 3],)]


def test_references_must_pass_their_own_suite(sandbox):
    check_references(sandbox, DOUBLE, {"one": HONEST, "two": "f = lambda x: x + x\n"})
    with pytest.raises(
        TaskError, match=r"Reference 'two' fails its own suite double:main: 1 of 3 tests pass, test 't1' is failed"
    ):
        check_references(sandbox, DOUBLE, {"one": HONEST, "two": "def f(x):\n    return x\n"})
    with pytest.raises(TaskError, match="'none' fails its own suite"):
        check_references(sandbox, DOUBLE, {"none": "pass"})


def test_suites_that_do_not_fit_together_are_refused(sandbox):
    other = Suite(
        task="double",
        name="other",
        version=1,
        entry_point="g",
        cases=(Case(id="a", family="x", args=(1,), expected=2),),
    )
    with pytest.raises(TaskError, match="calls 'g', but double:main calls 'f'"):
        ProgramVerifier(sandbox, DOUBLE, extra_suites=[other])
    with pytest.raises(TaskError, match="share a name: main, main"):
        ProgramVerifier(sandbox, DOUBLE, extra_suites=[DOUBLE, DOUBLE])
    with pytest.raises(VerificationError, match="share an id"):
        ProgramVerifier(sandbox, DOUBLE).check([("a", HONEST), ("a", HONEST)])
