"""The report for people: plain lines, part by part; and as JSON data."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from steelyard.audit.strength.records import Report, Saved, Scored, Share, Survivor
from steelyard.content import plain_json
from steelyard.types import Plain

_WIDTH = 26
_MANY = 8
"""Names listed before the rest is counted."""


def report_text(report: Report) -> str:
    """Return the report as text."""
    parts = (_identity, _sanity, _survivors, _score, _saved, _partial_credit, _redundancy, _stability, _notes)
    return "\n\n".join(text for part in parts if (text := "\n".join(part(report)))) + "\n"


def report_json(report: Report) -> dict[str, object]:
    """Return the report as JSON data; values of programs are written as `content.plain_json` does."""
    data = _data(report)
    assert isinstance(data, dict)
    return data


def _data(value: Any) -> Any:  # noqa: ANN401 - any field of a record
    if is_dataclass(value):
        row = {field.name: _data(getattr(value, field.name)) for field in fields(value)}
        return {**row, "value": value.value} if isinstance(value, Share) else row
    if isinstance(value, tuple) and value and (is_dataclass(value[0]) or isinstance(value[0], str)):
        return [_data(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _data(item) for key, item in value.items()}
    return [_data(item) for item in value] if isinstance(value, tuple) else plain_json(value)


def _row(name: str, value: object) -> str:
    return f"  {name:<{_WIDTH}}{value}"


def _identity(report: Report) -> Iterator[str]:
    it = report.identity
    yield f"{it.suite}, version {it.version}: how strong is this suite?"
    yield _row("suite", f"{it.hash}  {it.tests} tests, {it.form}")
    for name, digest in it.references.items():
        yield _row("right program", f"{digest[:16]}…  {name}")
    yield _row("pool", f"{it.pool_hash}  {it.pool} inputs, seed {it.seed}")
    yield _row("", it.pool_origin + (f"; {it.left_out} left out" if it.left_out else ""))
    yield _row("yardstick", it.yardstick)
    yield _row("mutants", it.mutants)
    yield _row("sandbox", "UNCONFINED" if it.unconfined else f"level {it.level}: {', '.join(it.walls)}")
    yield _row("limits", ", ".join(f"{name} {value:g}" for name, value in it.limits.items()))


def _sanity(report: Report) -> Iterator[str]:
    yield "Sanity: what does the suite pay?"
    yield from map(_scored, report.sanity)


def _scored(row: Scored) -> str:
    again = "" if row.again is None else ", the same again" if row.again else ", DIFFERENT when run again"
    reward = "unscored" if row.reward is None else f"{row.reward:.3f}"
    return _row(_short(row.name, _WIDTH - 2), f"{reward}  {row.passed} of {row.tests}, {row.status}{again}")


def _survivors(report: Report) -> Iterator[str]:
    count = len(report.survivors)
    if not count:
        yield "Survivors: none. No wrong program that was tried is paid in full."
        return
    yield f"Survivors: {count} mechanism{'s' if count > 1 else ''} paid in full, those that fail most of the pool first"
    for number, survivor in enumerate(report.survivors, start=1):
        yield from _survivor(number, survivor)


def _survivor(number: int, it: Survivor) -> Iterator[str]:
    known = f": {', '.join(it.mechanisms)}" if it.mechanisms else ""
    yield f"  {number}. {it.id}{known}"
    yield f"     fails {it.failed} of {it.of} inputs of the pool ({it.failed / it.of:.1%})"
    if it.same:
        yield f"     the same outputs: {_list(it.same)}"
    yield from (f"       {line}" for line in it.diff.splitlines())
    yield f"     witness   {_call(it.witness)}"
    yield f"     expected  {_short(repr(it.expected), 200)}   observed  {_short(it.observed, 200)}"
    yield f"     the test that catches it   {it.test}"


def _call(witness: tuple[Plain, ...]) -> str:
    return ", ".join(map(repr, witness))


def _score(report: Report) -> Iterator[str]:
    score = report.score
    yield "Score: wrong programs caught, with 95 % intervals (Wilson). Survivors say more than this number."
    yield _share(score.total)
    yield from map(_share, score.by_operator)
    yield "  by right program:"
    yield from map(_share, score.by_reference)
    yield f"  {score.alike} mutants could not be told from the right programs on the pool, and are not counted."
    if score.unjudged:
        yield f"  {len(score.unjudged)} could not be judged, and are not counted: {_list(score.unjudged)}"


def _share(it: Share) -> str:
    if it.value is None:
        return _row(it.name, "none to count")
    return _row(_short(it.name, _WIDTH - 2), f"{it.count} of {it.of}  {it.value:.1%}  [{it.low:.1%}, {it.high:.1%}]")


def _saved(report: Report) -> Iterator[str]:
    it = report.saved
    if it is None:
        yield "False acceptance: no run was named (--run RUN_DIR)."
        return
    yield f"False acceptance: {it.draws} completions of {it.run}, judged again; {report.identity.yardstick} says what is right"
    yield "  by draw:"
    yield from (f"  {_share(each)}" for each in it.by_draw)
    yield "  by distinct source:"
    yield from (f"  {_share(each)}" for each in it.by_source)
    if it.recorded is not None:
        yield _share(it.recorded)
    yield _row("distinct rewards", it.rewards)
    yield from _groups(it)


def _groups(it: Saved) -> Iterator[str]:
    if it.groups is not None:
        where = f"update {it.groups.update}, G = {it.groups.size}"
        yield _row("constant groups", f"{it.groups.expected:.1%} expected, {it.groups.seen:.1%} seen; {where}")


def _partial_credit(report: Report) -> Iterator[str]:
    it = report.partial_credit
    yield f"Partial credit: does it order wrong programs as {report.identity.yardstick} does?"
    if it.pairs:
        yield _row("pairs of mutants", f"{it.pairs} that {report.identity.yardstick} tells apart")
        yield _row("the other way round", f"{it.opposite}  {it.opposite / it.pairs:.1%}")
        yield _row("paid the same", f"{it.tied}  {it.tied / it.pairs:.1%}")
    yield _row("distinct rewards", it.rewards)
    table = ", ".join(f"{share:.1%} at {p}" for p, share in it.constant.items())
    yield _row("constant groups", f"by pass rate, were there two rewards, G = {it.group_size}: {table}")


def _redundancy(report: Report) -> Iterator[str]:
    it, tests = report.redundancy, report.identity.tests
    yield "Redundancy"
    yield _row("enough", f"{len(it.minimal)} of {tests} tests catch the same mutants: {_list(it.minimal)}")
    if it.idle:
        yield _row("catch nothing", _list(it.idle))
    for ids in it.duplicates:
        yield _row("ask the same", _list(ids))
    if not it.duplicates:
        yield _row("ask the same", "no two tests")


def _stability(report: Report) -> Iterator[str]:
    it = report.stability
    yield "Stability"
    changed = f"{len(it.changed)} verdicts DIFFER: {_list(it.changed)}" if it.changed else "every verdict the same"
    yield _row("judged twice", f"{it.programs} programs, {changed}")
    margin = f"{it.slowest} took {it.slowest_seconds:.3f} s of {it.limit_seconds:g} s"
    yield _row("time", f"the slowest right program, {margin}")


def _notes(report: Report) -> Iterator[str]:
    yield from (f"Note: {note}" for note in report.notes)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
