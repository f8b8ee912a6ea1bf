"""Reward functions in a process of their own: a limit per call, failures that stay with the completion that caused them.

The function is imported once, in a fresh interpreter that lives as long as the run; prompts, completions and columns go there
as plain data. A call is first made on the whole batch. Only when it raises, ends its process or takes too long is it made
again, once for each completion alone: what fails then is unscored and says why, and the others keep their reward.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from steelyard.errors import ConfigError, RewardError
from steelyard.verify.answer_pool import AnswerPool, Reply, Setup
from steelyard.verify.reward_functions import RaisedError, load_reward_function, score

SECONDS = 60.0
"""Wall time for one call of a reward function, whether on a batch or on one completion of it."""
MOST_STUCK = 2
"""Completions of one batch that may run into the limit, or end the process, before the rest is left unscored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a reward function said of one completion."""

    reward: float | None
    """The reward; None: it abstained or failed, and the completion is unscored."""
    detail: str = ""
    """Without a reward: why."""
    seconds: float = 0.0
    """Wall time: its share of the batch's, or of its own call."""


class RewardProcess:
    """A reward function that runs elsewhere."""

    def __init__(self, spec: str, *, seconds: float = SECONDS) -> None:
        """Start the process and import the function.

        Args:
            spec: file.py:name or package.module:name.
            seconds: Limit of one call.

        Raises:
            ConfigError: If there is no such file, module or function, or importing it fails.
        """
        self.spec = spec
        self.name = repr(spec.rpartition(":")[2])
        setup = Setup(
            function="steelyard.verify.reward_process:setup", settings={"spec": spec}, seconds=seconds, walled=False
        )
        self.seconds = seconds
        self.pool = AnswerPool(setup, workers=1)
        problem = self.pool.call(None)
        if problem.value is not None or problem.ending != "value":
            self.close()
            raise ConfigError(str(problem.value or f"reward.function: {spec} could not be imported: {problem.detail}."))

    def close(self) -> None:
        """End the process."""
        self.pool.close()

    def score(
        self, prompts: Sequence[object], completions: Sequence[object], columns: Mapping[str, Sequence[object]]
    ) -> list[Scored]:
        """Score a batch, one result per completion.

        Raises:
            RewardError: If the function returned something else than one finite number or None per completion, needs a
                column that is not there, or raised for every one of several completions: then it is not theirs.
        """
        whole = self._call(prompts, completions, columns)
        if isinstance(whole, list):
            return whole
        alone: list[Scored] = []
        raised: list[str] = []
        stuck = 0
        for index in range(len(completions)):
            if stuck == MOST_STUCK:
                why = f"not tried: {stuck} completions of this batch were stuck in {self.name} already"
                alone.append(Scored(reward=None, detail=why))
                continue
            row = slice(index, index + 1)
            one = self._call(prompts[row], completions[row], {key: values[row] for key, values in columns.items()})
            if isinstance(one, list):
                alone += one
                continue
            stuck += one.ending != "raised"
            raised += [one.detail] if one.ending == "raised" else []
            alone.append(Scored(reward=None, detail=f"{one.detail} (completion {index} alone)", seconds=one.seconds))
        if len(raised) == len(completions) > 1:
            raise RewardError(f"{raised[0]}; so did each of the {len(completions)} completions of this batch alone.")
        return alone

    def _call(
        self, prompts: Sequence[object], completions: Sequence[object], columns: Mapping[str, Sequence[object]]
    ) -> list[Scored] | Reply:
        """Return one result per completion, or what went wrong with the call."""
        request = (list(prompts), list(completions), {key: list(values) for key, values in columns.items()})
        reply = self.pool.call(request, reruns=0)
        if reply.ending == "timeout":
            detail = f"reward function {self.name} gave no answer within reward.seconds = {self.seconds:g}"
            return Reply(ending="timeout", detail=detail, seconds=reply.seconds)
        if reply.ending != "value":
            return Reply(ending="died", detail=f"reward function {self.name}: {reply.detail}", seconds=reply.seconds)
        answer = cast("dict[str, Any]", reply.value)
        if "raised" in answer:
            return Reply(ending="raised", detail=answer["raised"], seconds=reply.seconds)
        if "refused" in answer:
            raise RewardError(answer["refused"])
        share = reply.seconds / max(1, len(completions))
        rewards = cast("list[float | None]", answer["rewards"])
        return [
            Scored(
                reward=reward, detail="" if reward is not None else "the reward function gave no score", seconds=share
            )
            for reward in rewards
        ]


# ------------------------------------------------------------------ in the process


def setup(spec: str) -> Callable[[object], object]:
    """Return the handler of an `AnswerPool` that loads the function when it is first called."""
    return functools.partial(_handle, spec)


@functools.cache
def _loaded(spec: str) -> Callable[..., object]:
    return load_reward_function(spec)


def _handle(spec: str, request: object) -> object:
    if request is None:
        try:
            _loaded(spec)
        except ConfigError as error:
            return str(error)
        return None
    prompts, completions, columns = cast("tuple[list[object], list[object], dict[str, list[object]]]", request)
    try:
        return {"rewards": score(_loaded(spec), prompts, completions, columns)}
    except RaisedError as error:
        return {"raised": str(error)}
    except RewardError as error:
        return {"refused": str(error)}
