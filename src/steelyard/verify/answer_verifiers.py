"""Verifiers that compare a completion's final answer with the right one: the interface, and those for plain numbers."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

from steelyard.errors import TaskError
from steelyard.types import Status, Verdict
from steelyard.verify.answers import Answer, boxed_answer, last_number
from steelyard.verify.numbers import closeness, parse_number


class AnswerVerifier(Protocol):
    """Judges completions by the right answers that stand beside them."""

    def check_golds(self, golds: Sequence[tuple[str, object]]) -> None:
        """Refuse right answers that cannot be compared with; each with the place it came from.

        Raises:
            TaskError: Naming the first such place, the answer, and the way out.
        """
        ...

    def check(self, pairs: Sequence[tuple[object, str]]) -> list[Verdict]:
        """Judge (right answer, completion text) pairs; one verdict each, in order."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...


class NumberVerifier:
    """Compares numbers exactly, or pays by closeness; see `numbers`."""

    def __init__(self, *, width: float | None = None) -> None:
        """Compare exactly, or with `width` pay closeness: the share of gold at which nothing is left."""
        self.width = width

    def check_golds(self, golds: Sequence[tuple[str, object]]) -> None:
        """Refuse right answers that are no number."""
        for where, gold in golds:
            if _gold_number(gold) is None:
                raise unreadable(where, gold, "it is no number")

    def check(self, pairs: Sequence[tuple[object, str]]) -> list[Verdict]:
        """Judge the number that each completion ends on."""
        return [self._check(gold, last_number(text)) for gold, text in pairs]

    def close(self) -> None:
        """Nothing was started."""

    def _check(self, gold: object, answer: Answer) -> Verdict:
        right = _gold_number(gold)
        if right is None:
            return Verdict(
                status=Status.CHECKER_FAILED, reward=None, expected=1, detail="the right answer is no number"
            )
        if answer.text is None:
            return no_answer(answer.why)
        given = parse_number(answer.text)
        if given is None:
            return answered(correct=False, detail=f"{answer.text[:80]!r} is no number")
        if self.width is None or given == right:
            return answered(correct=given == right)
        return answered(correct=False, reward=closeness(right, given, width=self.width))


class BoxVerifier:
    """A term for the form alone: 1 for a text whose answer stands in a box, else 0. It needs no right answer."""

    def check_golds(self, golds: Sequence[tuple[str, object]]) -> None:
        """Any right answer will do."""

    def check(self, pairs: Sequence[tuple[object, str]]) -> list[Verdict]:
        """Look for a box that is closed."""
        return [answered(correct=boxed_answer(text).boxed) for _, text in pairs]

    def close(self) -> None:
        """Nothing was started."""


def gold_text(gold: object) -> str | None:
    r"""Return a right answer as text: of a worked solution, what stands in its last box or after its last `####`."""
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        return None
    text = str(gold)
    if "\\boxed" in text or "####" in text:
        return boxed_answer(text).text
    return text.strip()


def unreadable(where: str, gold: object, why: str) -> TaskError:
    """Return the error about a right answer that no completion could be compared with."""
    shown = repr(gold) if len(repr(gold)) <= 80 else f"{repr(gold)[:77]}..."
    return TaskError(
        f"{where}: the right answer {shown} cannot be compared with: {why}. Correct or remove the row, or name another "
        "column in reward.answer_column."
    )


def no_answer(why: str) -> Verdict:
    """Return the verdict on a completion that gives no answer: reward 0, and its own status."""
    return Verdict(status=Status.NO_ANSWER, reward=0.0, expected=1, detail=why[:300])


def answered(*, correct: bool, reward: float | None = None, seconds: float = 0.0, detail: str = "") -> Verdict:
    """Return the verdict on an answer that was compared."""
    return Verdict(
        status=Status.PASSED if correct else Status.FAILED,
        reward=float(correct) if reward is None else reward,
        expected=1,
        executed=1,
        seconds=seconds,
        detail=detail[:300],
    )


def _gold_number(gold: object) -> Fraction | None:
    text = gold_text(gold)
    return None if text is None else parse_number(text)
