"""A sampled program is run again, a process per input, in another order."""

import pytest
from sandbox_tools import DOUBLE, suite_of

from steelyard.evals.judges import SuiteJudge
from steelyard.types import Completion, Prompt, Status
from steelyard.verify.programs import ProgramVerifier
from steelyard.verify.recheck import Rechecker
from steelyard.verify.sandbox.attacks.attack import HONEST
from steelyard.verify.sandbox.attacks.resources import REMEMBERING

pytestmark = pytest.mark.sandbox


def rechecked(sandbox, sources, *, share=1.0, suite=DOUBLE):
    verifier = ProgramVerifier(sandbox, suite)
    checks = verifier.check([(str(n), f"```python\n{source}```") for n, source in enumerate(sources)])
    return checks, Rechecker(sandbox, verifier.plan, share=share).look(checks)


@pytest.mark.parametrize("attack", REMEMBERING, ids=lambda attack: attack.name)
def test_a_program_that_remembers_is_found_out(sandbox, attack):
    (check,), found = rechecked(sandbox, [attack.source])
    assert check.verdict.status is Status.PASSED
    (again,) = found.values()
    assert again.keeps_state
    assert again.compared == 3
    assert again.verdict.reward < 1.0
    assert f"keeps state: {again.different} of 3 inputs have another outcome" in again.verdict.detail


def test_an_honest_program_is_not_accused_whatever_it_returns(sandbox):
    values = "def f(x):\n    if x == 1: raise ValueError\n    return [float('nan'), {1, 2}, 0.1 * x, -0.0]\n"
    slow = "import time\ndef f(x):\n    time.sleep(9)\n"
    checks, found = rechecked(sandbox, [HONEST, values, slow, "no program"])
    assert [again.keeps_state for again in found.values()] == [False] * 3
    assert [found[check.source].compared for check in checks if check.source] == [3, 3, 0]
    assert all(again.verdict.detail == "" for again in found.values())


def test_the_share_is_kept_and_the_choice_follows_from_the_source(sandbox):
    sources = [f"{HONEST}n = {n}\n" for n in range(200)]
    _, found = rechecked(sandbox, sources, share=0.1)
    assert 8 <= len(found) <= 35
    assert found.keys() == rechecked(sandbox, reversed(sources), share=0.1)[1].keys()
    assert rechecked(sandbox, sources[:3], share=0.0)[1] == {}


def test_a_program_is_run_a_second_time_once_only(sandbox):
    verifier = ProgramVerifier(sandbox, suite_of([(1, 2)]))
    rechecker = Rechecker(sandbox, verifier.plan, share=1.0)
    checks = verifier.check([("a", HONEST)])
    first = rechecker.look(checks)
    assert rechecker.look(checks)[checks[0].source] is first[checks[0].source]


def test_the_second_verdict_stands_beside_the_first_and_pays_nothing(sandbox):
    judge = SuiteJudge(sandbox, DOUBLE, recheck=1.0)
    prompt = Prompt(id="p", content="Double it.")
    completions = [
        Completion(
            prompt_id="p", group_id="p/0", sample=n, policy_version=0, prompt_ids=(1,), token_ids=(2,), logprobs=(-1.0,),
            text=f"```python\n{source}```", finish="stop",
        )
        for n, source in enumerate([HONEST, REMEMBERING[0].source])
    ]  # fmt: skip
    honest, remembering = judge.check([prompt] * 2, completions)
    assert [honest.verdict.reward, remembering.verdict.reward] == [1.0, 1.0]
    assert list(honest.others) == list(remembering.others) == ["double:main/recheck"]
    assert honest.others["double:main/recheck"].reward == 1.0
    assert remembering.others["double:main/recheck"].reward < 1.0
    assert honest.notes == ()
    assert remembering.notes[0].startswith("a program keeps state: ")
