"""Judges of answers: by the right answer in the row, by a reward function in its own process, by length; and their sum."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steelyard.evals.judges import Judge, Judgement, columns_of, in_the_prompts_form
from steelyard.types import Completion, Prompt, Status, Verdict
from steelyard.verify.answer_verifiers import AnswerVerifier
from steelyard.verify.composition import combine
from steelyard.verify.reward_process import RewardProcess

PART = "reward:part:"
"""Before the name of a further part, as a judge in the ledger."""
TOTAL = "reward:total"
"""The judge of the weighted sum, in the ledger."""
_FLOAT64 = float(np.finfo(np.float64).eps)


class AnswerJudge:
    """Compares the final answer of a completion with the right one in its row."""

    resolution = _FLOAT64

    def __init__(self, verifier: AnswerVerifier, *, name: str, column: str | None = "answer") -> None:
        """Judge by `verifier`; `column` holds the right answers, None where none are needed."""
        self.name = f"reward:{name}"
        self.verifier = verifier
        self.column = column

    def check_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Refuse prompts whose right answer is missing or cannot be compared with.

        Raises:
            TaskError: Naming the prompt.
        """
        if self.column is not None:
            self.verifier.check_golds([(_where(prompt), prompt.columns.get(self.column)) for prompt in prompts])

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Extract each answer once and compare it."""
        pairs = [
            (None if self.column is None else prompt.columns.get(self.column), completion.text)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        return [Judgement(verdict=verdict) for verdict in self.verifier.check(pairs)]


class ProcessJudge:
    """Answers scored by a reward function that runs in a process of its own."""

    resolution = _FLOAT64

    def __init__(self, process: RewardProcess) -> None:
        """Judge by the function in `process`; it stays the caller's to close."""
        self.name = f"reward:{process.spec}"
        self.process = process

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Call the function once on all of them; what it abstains from or fails on is unscored, with prompt and sample.

        Raises:
            RewardError: If it returns something that is no reward.
        """
        answers = [
            in_the_prompts_form(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)
        ]
        found = self.process.score([prompt.content for prompt in prompts], answers, columns_of(prompts))
        return [
            Judgement(verdict=_verdict(one.reward, one.detail, one.seconds, completion))
            for one, completion in zip(found, completions, strict=True)
        ]


class LengthJudge:
    """A term for length alone: minus thousands of sampled tokens."""

    resolution = _FLOAT64
    name = "reward:length"

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Count the tokens of each completion."""
        return [
            Judgement(verdict=Verdict(status=Status.PASSED, reward=-len(completion.token_ids) / 1000))
            for _, completion in zip(prompts, completions, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A further term of a composed reward."""

    name: str
    """As the recipe calls it."""
    weight: float
    """Its factor."""
    judge: Judge
    """Who gives its value."""


class ComposedJudge:
    """A primary judge and further parts; the weighted sum trains, the primary verdict filters and measures."""

    def __init__(self, primary: Judge, *, weight: float, parts: Sequence[Part]) -> None:
        """Add `parts` to `primary`, which keeps its name and its verdicts."""
        self.primary = primary
        self.name = primary.name
        self.resolution = max(primary.resolution, *(part.judge.resolution for part in parts))
        self.weights = (weight, *(part.weight for part in parts))
        self.parts = tuple(parts)

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Judge by every part and add up; see `combine` for parts that abstain.

        Raises:
            RewardError: If a value or a sum is not finite.
        """
        found = self.primary.check(prompts, completions)
        further = [part.judge.check(prompts, completions) for part in self.parts]
        return [self._add(each, [column[index].verdict for column in further]) for index, each in enumerate(found)]

    def _add(self, primary: Judgement, further: Sequence[Verdict]) -> Judgement:
        names = (self.name, *(part.name for part in self.parts))
        values = [primary.verdict.reward, *(verdict.reward for verdict in further)]
        total = combine(values, self.weights, names=names)
        others = {f"{PART}{part.name}": verdict for part, verdict in zip(self.parts, further, strict=True)}
        summed = Verdict(status=primary.verdict.status, reward=total)
        return replace(primary, total=total, others={**primary.others, **others, TOTAL: summed})


def _where(prompt: Prompt) -> str:
    content = prompt.content if isinstance(prompt.content, str) else prompt.content[-1]["content"]
    shown = content if len(content) <= 60 else f"{content[:57]}..."
    return f"row {prompt.id!r} ({shown!r})"


def _verdict(reward: float | None, detail: str, seconds: float, completion: Completion) -> Verdict:
    if reward is None:
        where = f"prompt {completion.prompt_id!r}, sample {completion.sample}: {detail}"
        return Verdict(status=Status.CHECKER_FAILED, reward=None, seconds=seconds, detail=where[:600])
    return Verdict(status=Status.PASSED if reward > 0 else Status.FAILED, reward=reward, seconds=seconds)
