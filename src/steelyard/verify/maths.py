"""Maths answers: math-verify behind our statuses, in worker processes with a hard limit; see docs/verification.md."""

import importlib.util
from collections import OrderedDict
from collections.abc import Sequence
from typing import cast

from steelyard.errors import ConfigError, VerificationError
from steelyard.types import Status, Verdict
from steelyard.verify.answer_pool import AnswerPool, Reply, Setup
from steelyard.verify.answer_verifiers import answered, gold_text, no_answer, unreadable
from steelyard.verify.answers import boxed_answer

SECONDS = 5.0
"""Wall time for one comparison."""
MEMORY_MB = 512
"""Memory for one comparison, on top of what the libraries take."""
_CACHE_SIZE = 4_096


class MathsVerifier:
    """Compares the boxed answer of a completion with the right one."""

    def __init__(self, *, workers: int = 2, seconds: float = SECONDS, memory_mb: int = MEMORY_MB) -> None:
        """Take the limits; processes start when they are first needed.

        Raises:
            ConfigError: If math-verify is not installed.
        """
        require_math_verify()
        setup = Setup(
            function="steelyard.verify.maths_compare:setup", settings={}, seconds=seconds, memory_mb=memory_mb
        )
        self.pool = AnswerPool(setup, workers=workers)
        self._known: OrderedDict[tuple[str, str], Verdict] = OrderedDict()

    def check_golds(self, golds: Sequence[tuple[str, object]]) -> None:
        """Refuse right answers that do not parse.

        Raises:
            TaskError: Naming the first.
            VerificationError: If one could not be read for a reason of ours.
        """
        texts = [gold_text(gold) for _, gold in golds]
        for (where, gold), text in zip(golds, texts, strict=True):
            if not text:
                raise unreadable(
                    where, gold, "it is empty" if text == "" else "it is no text, or its box is not closed"
                )
        distinct = list(dict.fromkeys(text for text in texts if text))
        said = dict(zip(distinct, self.pool.map([(text,) for text in distinct]), strict=True))
        for (where, gold), text in zip(golds, texts, strict=True):
            reply = said[text or ""]
            if reply.ending == "died":
                raise VerificationError(f"{where}: the right answer {gold!r} could not be read: {reply.detail}.")
            why = reply.value if reply.ending == "value" else reply.detail
            if why is not None:
                raise unreadable(where, gold, str(why))

    def check(self, pairs: Sequence[tuple[object, str]]) -> list[Verdict]:
        """Judge (right answer, completion text) pairs; equal comparisons are made once."""
        answers = [boxed_answer(text) for _, text in pairs]
        golds = [gold_text(gold) for gold, _ in pairs]
        return self.compare([(gold, answer.text, answer.why) for gold, answer in zip(golds, answers, strict=True)])

    def compare(self, triples: Sequence[tuple[str | None, str | None, str]]) -> list[Verdict]:
        """Compare answers that were extracted already: (right answer, answer or None, why there is none)."""
        wanted = list(
            dict.fromkeys(
                (gold, answer) for gold, answer, _ in triples if gold and answer and (gold, answer) not in self._known
            )
        )
        fresh = {pair: _verdict(reply) for pair, reply in zip(wanted, self.pool.map(wanted), strict=True)}
        verdicts = [self._look_up(gold, answer, why, fresh) for gold, answer, why in triples]
        for pair, verdict in fresh.items():
            if verdict.scored and verdict.status is not Status.TIMEOUT:
                self._known[pair] = verdict
        while len(self._known) > _CACHE_SIZE:
            self._known.popitem(last=False)
        return verdicts

    def close(self) -> None:
        """End the worker processes."""
        self.pool.close()

    def _look_up(
        self, gold: str | None, answer: str | None, why: str, fresh: dict[tuple[str, str], Verdict]
    ) -> Verdict:
        if not gold:
            return Verdict(status=Status.CHECKER_FAILED, reward=None, expected=1, detail="there is no right answer")
        if not answer:
            return no_answer(why)
        return fresh.get((gold, answer)) or self._known[gold, answer]


def require_math_verify() -> None:
    """Raise ConfigError where math-verify is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError(
            "reward.verifier = 'maths' needs the optional package math-verify: pip install 'steelyard[maths]'."
        )


def _verdict(reply: Reply) -> Verdict:
    """Return the verdict that a worker's reply comes to; what our side did wrong is unscored."""
    if reply.ending == "value":
        equal, why = cast("tuple[bool | None, str]", reply.value)
        if equal is None:
            return Verdict(status=Status.CHECKER_FAILED, reward=None, expected=1, detail=why[:300])
        return answered(correct=equal, seconds=reply.seconds, detail=why)
    status = {"timeout": Status.TIMEOUT, "memory": Status.MEMORY_LIMIT}.get(reply.ending, Status.CHECKER_FAILED)
    reward = None if status is Status.CHECKER_FAILED else 0.0
    return Verdict(status=status, reward=reward, expected=1, seconds=reply.seconds, detail=reply.detail[:300])
