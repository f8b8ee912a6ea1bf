"""Answers to reasoning-gym problems, scored by the data set's own rule in worker processes with a hard limit.

Some of those rules evaluate parts of an answer as Python. They run in a process that holds one question at a time, and that has
given up new processes, sockets, writing and privileges before it reads the first answer.
"""

import functools
import importlib
import importlib.util
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from steelyard.errors import ConfigError, TaskError
from steelyard.types import Status, Verdict
from steelyard.verify.answer_pool import AnswerPool, Reply, Setup
from steelyard.verify.answer_verifiers import answered, no_answer
from steelyard.verify.answers import tagged_answer

COLUMN = "reasoning_gym"
"""The column that names a row's data set, its settings and its index."""


class ReasoningVerifier:
    """Scores the tagged answer of a completion by the rule of its row's data set."""

    def __init__(self, *, workers: int = 2, seconds: float = 10.0, memory_mb: int = 1_024) -> None:
        """Take the limits; processes start when they are first needed.

        Raises:
            ConfigError: If reasoning-gym is not installed.
        """
        require_reasoning_gym()
        setup = Setup(function="steelyard.verify.reasoning:setup", settings={}, seconds=seconds, memory_mb=memory_mb)
        self.pool = AnswerPool(setup, workers=workers)

    def check_golds(self, golds: Sequence[tuple[str, object]]) -> None:
        """Refuse rows that do not say which problem they are."""
        for where, gold in golds:
            if (
                not isinstance(gold, Mapping)
                or not {"name", "config", "index"} <= cast("Mapping[str, object]", gold).keys()
            ):
                raise TaskError(
                    f"{where}: the column {COLUMN!r} does not say which problem this is; load it by its name."
                )

    def check(self, pairs: Sequence[tuple[object, str]]) -> list[Verdict]:
        """Score (problem, completion text) pairs; a score of 1 passes, a part of it is paid."""
        answers = [tagged_answer(text) for _, text in pairs]
        asked = [index for index, answer in enumerate(answers) if answer.text is not None]
        requests = [(json.dumps(pairs[index][0], sort_keys=True), answers[index].text) for index in asked]
        replies = dict(zip(asked, self.pool.map(requests), strict=True))
        return [
            _verdict(replies[index]) if index in replies else no_answer(answer.why)
            for index, answer in enumerate(answers)
        ]

    def close(self) -> None:
        """End the worker processes."""
        self.pool.close()


def require_reasoning_gym() -> None:
    """Raise ConfigError where reasoning-gym is not installed."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError("this task needs the optional package reasoning-gym: pip install 'steelyard[reasoning]'.")


def _verdict(reply: Reply) -> Verdict:
    if reply.ending == "value" and isinstance(reply.value, float) and math.isfinite(reply.value):
        return answered(correct=reply.value >= 1.0, reward=reply.value, seconds=reply.seconds)
    status = {"timeout": Status.TIMEOUT, "memory": Status.MEMORY_LIMIT}.get(reply.ending, Status.CHECKER_FAILED)
    reward = None if status is Status.CHECKER_FAILED else 0.0
    detail = reply.detail or f"the data set scored {reply.value!r}"
    return Verdict(status=status, reward=reward, expected=1, seconds=reply.seconds, detail=detail[:300])


# ------------------------------------------------------------------ in the process


def setup() -> Callable[[tuple[str, str]], float]:
    """Return the handler of an `AnswerPool`."""
    importlib.import_module("reasoning_gym")
    return _score


def _score(request: tuple[str, str]) -> float:
    """Score an answer; one that the rule cannot read earns 0, provided that the rule can read the right one."""
    problem, answer = request
    row = json.loads(problem)
    data = _data(row["name"], json.dumps(row["config"], sort_keys=True))
    entry = data[row["index"]]
    try:
        return float(data.score_answer(answer=answer, entry=entry))
    except (Exception, SystemExit):  # noqa: BLE001 - whatever an answer makes the rule do
        data.score_answer(answer=entry["answer"], entry=entry)  # raises where the rule, not the answer, is at fault
        return 0.0


@functools.lru_cache(maxsize=16)
def _data(name: str, config: str) -> Any:  # noqa: ANN401 - the package has its own types
    return importlib.import_module("reasoning_gym").create_dataset(name, **json.loads(config))
