"""The programs that a run really wrote, judged again: what the suite accepted, and what the yardstick says of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steelyard.audit.strength.programs import Bench
from steelyard.audit.strength.records import Groups, Saved, Share
from steelyard.audit.strength.shares import share
from steelyard.audit.strength.subject import Subject
from steelyard.errors import RequestError
from steelyard.ledger.reader import LedgerReader
from steelyard.ledger.records import StoredCompletion
from steelyard.types import Status, Suite
from steelyard.verify.extract import normalised_source
from steelyard.verify.programs import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """One completion, judged by both suites."""

    stored: StoredCompletion
    accepted: bool
    """Full marks by the suite in question."""
    right: bool
    """Full marks by the yardstick."""
    reward: float | None
    source: str | None
    """Normalised, so that equal programs are equal; None without a program."""


def judge_saved(run: Path, subject: Subject, yardstick: Suite, bench: Bench) -> Saved:
    """Return what the suite makes of the completions in a run's ledger.

    Raises:
        RequestError: The run is of another task, or holds no completion for this suite's prompt.
        LedgerError: There is no ledger.
    """
    with LedgerReader(run / "ledger.sqlite" if run.is_dir() else run) as reader:
        trained = reader.run().task.get("name")
        if trained != subject.task:
            raise RequestError(
                f"{run} is a run on task {trained}, not on {subject.task}; name a run on {subject.task}."
            )
        stored = [each for each in reader.completions() if subject.prompt_id in (None, each.completion.prompt_id)]
        recorded = {
            row.completion_id: row.verdict.status is Status.PASSED
            for row in (reader.verdicts() if _same_version(reader, subject) else ())
            if row.judge == subject.judge
        }
    if not stored:
        raise RequestError(f"{run} holds no completion for {subject.name}; name a run that has sampled some.")
    draws = _judge(stored, subject.suite, yardstick, bench)
    again = [draw.accepted == recorded[draw.stored.id] for draw in draws if draw.stored.id in recorded]
    return Saved(
        run=str(run),
        draws=len(draws),
        by_draw=_shares(draws),
        by_source=_shares(list({draw.source or draw.stored.completion.text: draw for draw in draws}.values())),
        recorded=share("recorded verdicts again", sum(again), len(again)) if again else None,
        rewards=len({draw.reward for draw in draws}),
        groups=_groups(draws),
    )


def _same_version(reader: LedgerReader, subject: Subject) -> bool:
    """Whether the run's suite of this name is this one; a run that names no hash is taken at its word."""
    entry = reader.run().task.get("suites", {})
    named = entry.get(subject.suite.name) if isinstance(entry, dict) else None
    return not isinstance(named, dict) or named.get("hash") == subject.suite.hash


def _judge(stored: Sequence[StoredCompletion], suite: Suite, yardstick: Suite, bench: Bench) -> list[_Draw]:
    """Judge each distinct program once; programs that differ in local names, comments and layout alone are one."""
    plan = Plan.of(suite)
    texts = dict.fromkeys(each.completion.text for each in stored)
    sources = {text: _normalised(plan.extract(text)) for text in texts}
    shown = {source: text for text, source in reversed(sources.items())}
    checks = bench.judge_texts(suite, list(shown.values()), "saved programs")
    marks = bench.judge_texts(yardstick, list(shown.values()), "saved programs, yardstick")
    verdicts = {source: (check.verdict, mark.verdict) for source, check, mark in zip(shown, checks, marks, strict=True)}
    draws: list[_Draw] = []
    for each in stored:
        source = sources[each.completion.text]
        verdict, mark = verdicts[source]
        if verdict.scored and mark.scored:
            draw = _Draw(
                stored=each,
                accepted=verdict.status is Status.PASSED,
                right=mark.status is Status.PASSED,
                reward=verdict.reward,
                source=source,
            )
            draws.append(draw)
    return draws


def _normalised(source: str | None) -> str | None:
    return None if source is None else normalised_source(source)


def _shares(draws: Sequence[_Draw]) -> tuple[Share, ...]:
    accepted = [draw for draw in draws if draw.accepted]
    wrong = [draw for draw in draws if not draw.right]
    return (
        share("wrong among accepted", sum(not draw.right for draw in accepted), len(accepted)),
        share("accepted among wrong", sum(draw.accepted for draw in wrong), len(wrong)),
        share("agree with the yardstick", sum(draw.accepted == draw.right for draw in draws), len(draws)),
    )


def _groups(draws: Sequence[_Draw]) -> Groups | None:
    """Constant groups in the last update: expected from the rewards of each prompt, and seen."""
    trained = [draw for draw in draws if draw.stored.purpose == "train"]
    last = max((draw.stored.update_no for draw in trained), default=None)
    groups: dict[str, list[float | None]] = {}
    prompts: dict[str, list[float | None]] = {}
    for draw in trained:
        if draw.stored.update_no == last and draw.reward is not None:
            groups.setdefault(draw.stored.completion.group_id, []).append(draw.reward)
            prompts.setdefault(draw.stored.completion.prompt_id, []).append(draw.reward)
    if not groups:
        return None
    size = max(map(len, groups.values()))
    expected = [sum((n / len(each)) ** size for n in Counter(each).values()) for each in prompts.values()]
    return Groups(
        update=last or 0,
        size=size,
        expected=sum(expected) / len(expected),
        seen=sum(len(set(each)) == 1 for each in groups.values()) / len(groups),
    )
