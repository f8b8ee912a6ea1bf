"""Judges of answers and their sum, from Python, on completions as the sampler makes them."""

import math

import pytest

from steelyard.errors import RewardError, TaskError
from steelyard.evals.answer_judges import AnswerJudge, ComposedJudge, LengthJudge, Part, ProcessJudge
from steelyard.evals.judges import FunctionJudge
from steelyard.types import Completion, Prompt, Status
from steelyard.verify.answer_verifiers import BoxVerifier, NumberVerifier
from steelyard.verify.reward_process import RewardProcess


def completion(text: str, sample: int = 0) -> Completion:
    return Completion(
        prompt_id="p",
        group_id="g",
        sample=sample,
        policy_version=0,
        prompt_ids=(1,),
        token_ids=tuple(range(len(text))),
        logprobs=(-1.0,) * len(text),
        text=text,
        finish="stop",
    )


def check(judge, *texts: str, prompt: Prompt | None = None):
    prompt = prompt or Prompt(id="p", content="how much?", columns={"answer": 5})
    return judge.check([prompt] * len(texts), [completion(text, sample) for sample, text in enumerate(texts)])


def fixed(values, name: str) -> FunctionJudge:
    return FunctionJudge(lambda completions, **_: list(values), spec=name)


def test_answers_are_compared_with_the_row():
    judge = AnswerJudge(NumberVerifier(), name="number")
    assert [found.verdict.reward for found in check(judge, "it is 5", "6", "many")] == [1.0, 0.0, 0.0]
    with pytest.raises(TaskError, match=r"row 'q' \('what\?'\): the right answer None"):
        judge.check_prompts([Prompt(id="q", content="what?", columns={"reply": 5})])


def test_c24_two_scorers_with_weights_1_and_2():
    judge = ComposedJudge(
        fixed([1.0, 0.0, None], "first"),
        weight=1.0,
        parts=[Part(name="b", weight=2.0, judge=fixed([None, 1.0, None], "b"))],
    )
    found = check(judge, "x", "y", "z")
    assert [each.total for each in found] == [1.0, 2.0, None]
    assert [each.verdict.reward for each in found] == [1.0, 0.0, None], "the primary part alone"
    assert [each.others["reward:total"].reward for each in found] == [1.0, 2.0, None]
    assert [each.verdict.status for each in found] == [Status.PASSED, Status.FAILED, Status.CHECKER_FAILED]
    parts = [Part(name="c", weight=2.0, judge=fixed([math.inf], "c"))]
    with pytest.raises(RewardError, match="return a finite number"):
        check(ComposedJudge(fixed([1.0], "first"), weight=1.0, parts=parts), "x")


def test_form_and_length_are_parts_of_their_own():
    parts = [
        Part(name="form", weight=0.5, judge=AnswerJudge(BoxVerifier(), name="boxed", column=None)),
        Part(name="short", weight=10.0, judge=LengthJudge()),
    ]
    judge = ComposedJudge(AnswerJudge(NumberVerifier(), name="number"), weight=2.0, parts=parts)
    found = check(judge, r"\boxed{5}")[0]
    assert {name: verdict.reward for name, verdict in found.others.items()} == {
        "reward:part:form": 1.0,
        "reward:part:short": -0.009,
        "reward:total": pytest.approx(2.0 + 0.5 - 0.09),
    }
    assert judge.name == "reward:number"


def test_a_function_elsewhere_gets_chat_messages_and_columns_and_names_the_sample(tmp_path):
    (tmp_path / "f.py").write_text(
        "def score(prompts, completions, answer, **_):\n"
        "    assert prompts[0][0]['role'] == 'user'\n"
        "    return [None if c[0]['content'] == '?' else float(c[0]['content'] == str(a)) for c, a in zip(completions, answer)]\n"
    )
    process = RewardProcess(f"{tmp_path}/f.py:score")
    chat = Prompt(id="p", content=({"role": "user", "content": "how much?"},), columns={"answer": 5})
    found = check(ProcessJudge(process), "5", "6", "?", prompt=chat)
    process.close()
    assert [each.verdict.reward for each in found] == [1.0, 0.0, None]
    assert found[2].verdict.detail == "prompt 'p', sample 2: the reward function gave no score"
