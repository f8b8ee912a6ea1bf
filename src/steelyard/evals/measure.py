"""A frozen policy on held-out prompts: how often it is right, with an interval, and what its answers are like."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from steelyard.evals.intervals import NOTHING_SCORED, Interval, by_prompt
from steelyard.evals.judges import Judge, Judgement
from steelyard.rollout.draws import DrawKey
from steelyard.rollout.engine import GroupRequest, TorchSampler
from steelyard.types import Completion, Prompt, Status

OnGroup = Callable[[Sequence[Completion], Sequence[Judgement]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one state of the policy scores. It selects nothing."""

    state: int
    """Updates behind the measured weights."""
    judge: str
    """Who judged."""
    headline: str
    """What `score` is: "pass rate" (full marks on the suite) or "mean reward"."""
    score: Interval
    """The headline number with its interval."""
    prompts: int
    """Held-out prompts with at least one scored answer."""
    answers: int
    """Answers drawn."""
    unscored: int
    """Answers that could not be judged; in no number above."""
    passed: int
    """Answers with full marks (suites), or with a positive reward (functions)."""
    distinct_passing: int
    """Different programs among the passing ones, by normalised syntax tree; 0 for reward functions."""
    signatures: Mapping[str, int]
    """Answers that show a known fault on every input, by fault."""
    full_marks: Mapping[str, int]
    """Answers with full marks by further suite on the same run."""
    no_answer: int
    """Answers without a program."""
    mean_tokens: float
    """Mean length of an answer in tokens."""
    truncated: int
    """Answers cut at the token limit."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Mean of each further part of a composed reward, and of the weighted sum, over the answers that have it."""

    def as_json(self) -> dict[str, object]:
        """Return plain data for the ledger."""
        return asdict(self)


def measure(
    sampler: TorchSampler,
    judge: Judge,
    prompts: Sequence[tuple[Prompt, tuple[int, ...]]],
    *,
    samples: int,
    seed: int,
    state: int,
    on_group: OnGroup,
) -> Measurement:
    """Draw `samples` answers per prompt, judge them, and sum up.

    The draws are keyed with update 0 whatever the state, so that every state, and every run with the same
    seed, answers the same prompts with the same uniforms: differences are paired.

    Args:
        sampler: The policy to measure.
        judge: Who scores.
        prompts: Each with its rendered token ids.
        samples: Answers per prompt, at least 1.
        seed: Keys the draws.
        state: State number of the weights.
        on_group: Told of each prompt's answers as they arrive.
    """
    answers: list[list[tuple[Completion, Judgement]]] = []
    for prompt, prompt_ids in prompts:
        request = GroupRequest(
            group_id=f"eval-{state}:{prompt.id}",
            prompt_ids=prompt_ids,
            samples=range(samples),
            draws=DrawKey(seed=seed, purpose="eval", update=0, prompt_id=prompt.id),
            policy_version=state,
        )
        completions = sampler.sample(request)
        judgements = judge.check([prompt] * samples, completions)
        on_group(completions, judgements)
        answers.append(list(zip(completions, judgements, strict=True)))
    return _summary(judge, answers, state=state)


def _summary(judge: Judge, answers: list[list[tuple[Completion, Judgement]]], *, state: int) -> Measurement:
    is_suite = not judge.name.startswith("reward:")
    scored = [[judgement for _, judgement in group if judgement.verdict.scored] for group in answers]
    values = [[_value(judgement, is_suite=is_suite) for judgement in group] for group in scored if group]
    flat = [pair for group in answers for pair in group]
    passing = [judgement for _, judgement in flat if _passed(judgement)]
    missing = Interval(value=None, low=None, high=None, method=NOTHING_SCORED)
    return Measurement(
        state=state,
        judge=judge.name,
        headline="pass rate" if is_suite else "mean reward",
        score=by_prompt(values) if values else missing,
        prompts=len(values),
        answers=len(flat),
        unscored=sum(not judgement.verdict.scored for _, judgement in flat),
        passed=len(passing),
        distinct_passing=len({judgement.program for judgement in passing if judgement.program is not None}),
        signatures=_counts(name for _, judgement in flat for name in judgement.signatures),
        full_marks=_counts(
            name
            for _, judgement in flat
            for name, verdict in judgement.others.items()
            if verdict.status is Status.PASSED and not name.startswith("reward:")
        ),
        no_answer=sum(judgement.verdict.status is Status.NO_ANSWER for _, judgement in flat),
        mean_tokens=sum(len(completion.token_ids) for completion, _ in flat) / max(1, len(flat)),
        truncated=sum(completion.finish == "length" for completion, _ in flat),
        parts=_part_means([judgement for _, judgement in flat]),
    )


def _part_means(judgements: Sequence[Judgement]) -> dict[str, float]:
    """Mean reward by further judge of a composed reward."""
    found: dict[str, list[float]] = {}
    for judgement in judgements:
        for name, verdict in judgement.others.items():
            if name.startswith("reward:") and verdict.reward is not None:
                found.setdefault(name, []).append(verdict.reward)
    return {name: math.fsum(values) / len(values) for name, values in sorted(found.items())}


def _value(judgement: Judgement, *, is_suite: bool) -> float:
    reward = judgement.verdict.reward
    if reward is None:
        raise ValueError("an unscored answer has no value")
    return float(_passed(judgement)) if is_suite else reward


def _passed(judgement: Judgement) -> bool:
    return judgement.verdict.status is Status.PASSED


def _counts(names: Iterable[str]) -> dict[str, int]:
    """Count names, sorted; a plain dict, since `asdict` would count the pairs of a Counter."""
    return dict(sorted(Counter(names).items()))
