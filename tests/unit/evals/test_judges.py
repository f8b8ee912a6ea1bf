"""Judges on real programs in the real sandbox, and reward functions on text and chat."""

import pytest

from steelyard.evals.judges import FunctionJudge, SuiteJudge, measuring_suites
from steelyard.evals.measure import measure
from steelyard.tasks import load_task
from steelyard.tasks.booking.faults import SIGNED, faulty_program
from steelyard.types import Completion, Prompt, Status
from steelyard.verify.sandbox import Limits, Sandbox

TASK = load_task("booking")
PROMPT = TASK.eval_prompts[0]


def completion(text: str, sample: int = 0) -> Completion:
    return Completion(
        prompt_id="booking",
        group_id="g",
        sample=sample,
        policy_version=0,
        prompt_ids=(1,),
        token_ids=(2, 3),
        logprobs=(-1.0, -1.0),
        text=text,
        finish="stop",
    )


@pytest.fixture(scope="module")
def judge():
    suite, others = measuring_suites(TASK)
    with Sandbox(workers=1, limits=Limits()) as sandbox:
        yield SuiteJudge(sandbox, suite, others=others, signatures=TASK.signatures)


def judged(judge: SuiteJudge, *texts: str):
    return judge.check([PROMPT] * len(texts), [completion(text, sample) for sample, text in enumerate(texts)])


@pytest.mark.sandbox
def test_every_reference_gets_full_marks_from_every_suite_and_shows_no_fault(judge):
    for found in judged(judge, *TASK.references.values()):
        assert found.verdict.status is Status.PASSED
        assert found.verdict.reward == 1.0
        assert {name: verdict.reward for name, verdict in found.others.items()} == {
            "booking:reference": 1.0,
            "booking:weak": 1.0,
            "booking:repaired": 1.0,
        }
        assert found.signatures == ()


@pytest.mark.sandbox
def test_every_known_fault_is_recognised_by_its_outputs_alone(judge):
    for name, found in zip(SIGNED, judged(judge, *(faulty_program(name) for name in SIGNED)), strict=True):
        assert found.signatures == (name,)
        assert found.verdict.reward < 1.0


@pytest.mark.sandbox
def test_the_weak_suite_pays_the_endpoint_bug_in_full_and_the_audit_does_not(judge):
    (found,) = judged(judge, faulty_program("inclusive_endpoint"))
    assert found.others["booking:weak"].reward == 1.0
    assert found.others["booking:repaired"].reward < 1.0
    assert found.verdict.reward == (192 - 72) / 192


@pytest.mark.sandbox
def test_no_program_is_a_verdict_with_reward_zero(judge):
    for found in judged(judge, "I would rather not.", "def other():\n    return 1\n", ""):
        assert found.verdict.status is Status.NO_ANSWER
        assert (found.verdict.reward, found.program) == (0.0, None)


@pytest.mark.sandbox
def test_renaming_variables_does_not_make_another_program(judge):
    source = TASK.references["heap"]
    twin = source.replace("ends", "finishing") if "ends" in source else source.replace("end", "finish")
    assert twin != source
    first, second = judged(judge, source, twin)
    assert first.program == second.program


class FixedSampler:
    """Answers from a list; the judge and the summary are what is tested."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def sample(self, request):
        return [completion(self.texts[sample % len(self.texts)], sample) for sample in request.samples]


@pytest.mark.sandbox
def test_a_measurement_counts_passes_distinct_programs_and_faults(judge):
    heap, sweep = list(TASK.references.values())[:2]
    texts = [heap, heap, sweep, faulty_program("inclusive_endpoint"), "no program"]
    seen = []
    found = measure(
        FixedSampler(texts),
        judge,
        [(PROMPT, (1,))],
        samples=10,
        seed=0,
        state=3,
        on_group=lambda completions, judgements: seen.append((len(completions), len(judgements))),
    )
    assert (found.passed, found.answers, found.score.value) == (6, 10, 0.6)
    assert found.score.method == "Wilson, 10 draws"
    assert found.distinct_passing == 2
    assert found.signatures == {"inclusive_endpoint": 2}
    assert found.full_marks == {"booking:reference": 6, "booking:weak": 8, "booking:repaired": 6}
    assert found.no_answer == 2
    assert seen == [(10, 10)]
    assert found.as_json()["signatures"] == {"inclusive_endpoint": 2}
    assert found.as_json()["full_marks"] == found.full_marks


def test_c24_unscored_answers_are_in_no_number_of_a_measurement():
    def score(prompts, completions):
        return [None if text == "?" else float(text) for text in completions]

    found = measure(
        FixedSampler(["1", "?", "0.5"]),
        FunctionJudge(score, spec="x.py:score"),
        [(PROMPT, (1,))],
        samples=6,
        seed=0,
        state=0,
        on_group=lambda completions, judgements: None,
    )
    assert (found.unscored, found.answers, found.score.value) == (2, 6, 0.75)
    assert found.headline == "mean reward"


def test_functions_see_text_for_text_prompts_and_messages_for_chat_prompts():
    seen = {}

    def score(prompts, completions, colour):
        seen.update(prompts=prompts, completions=completions, colour=colour)
        return [1.0, None]

    chat = Prompt(id="c", content=({"role": "user", "content": "hi"},), columns={"colour": "red"})
    text = Prompt(id="t", content="hi")
    first, second = FunctionJudge(score, spec="x.py:score").check([chat, text], [completion("a"), completion("b")])
    assert seen["completions"] == [[{"role": "assistant", "content": "a"}], "b"]
    assert seen["colour"] == ["red", None]
    assert first.verdict.reward == 1.0
    assert (second.verdict.reward, second.verdict.scored) == (None, False)
