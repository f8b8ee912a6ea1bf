"""The programs of a run, judged again: read from a ledger that the writer wrote."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.audit.strength import find_subject
from steelyard.audit.strength.programs import Bench
from steelyard.audit.strength.saved import judge_saved
from steelyard.errors import LedgerError, RequestError
from steelyard.ledger.records import PromptRow, RunRow, VerdictRow
from steelyard.ledger.writer import Ledger
from steelyard.tasks.booking import PROMPT, REFERENCES, booking_task, faults
from steelyard.types import Completion, Status, Verdict

pytestmark = pytest.mark.sandbox

SUITES = booking_task().suites
WEAKLY = {"inclusive_endpoint", "order_sensitive_ties"}
"""Faults that the weak suite pays in full."""


def run_row(*, task: str = "booking", weak_hash: str = SUITES["weak"].hash) -> RunRow:
    empty: dict[str, Any] = {}
    return RunRow(
        name="made",
        recipe="",
        recipe_hash="r",
        seed=0,
        steelyard="0",
        objective=empty,
        model=empty,
        task={"name": task, "suites": {"weak": {"hash": weak_hash, "version": 1, "cases": 57}}},
        machine=empty,
        sandbox=empty,
        tests={"booking:weak": tuple(case.id for case in SUITES["weak"].cases)},
    )


def completion(text: str, sample: int, group: str) -> Completion:
    return Completion(
        prompt_id=PROMPT.id,
        group_id=group,
        sample=sample,
        policy_version=0,
        prompt_ids=(1,),
        token_ids=(2, sample),
        logprobs=(-1.0, -1.0),
        text=text,
        finish="stop",
    )


def fenced(source: str) -> str:
    return f"Here it is:\n```python\n{source}\n```\n"


def write_run(directory: Path, texts: list[list[str]], *, run: RunRow | None = None) -> Path:
    """One group per list; every recorded verdict says what is true of the weak suite, but for the first draw."""
    directory.mkdir()
    right = {fenced(source) for source in REFERENCES.values()} | {
        fenced(faults.faulty_program(name)) for name in WEAKLY
    }
    with Ledger.create(directory / "ledger.sqlite", run or run_row()) as ledger:
        ledger.prompts([PromptRow(id=PROMPT.id, content="Write it.", token_ids=(1,))])
        sample = 0
        for number, group in enumerate(texts):
            made = [completion(text, sample + i, f"1/{number}:booking") for i, text in enumerate(group)]
            sample += len(group)
            ids = ledger.completions("train", 1, made)
            ledger.verdicts([_verdict(id_, each.text in right) for id_, each in zip(ids, made, strict=True)])
    return directory


def _verdict(id_: int, passed: bool) -> VerdictRow:
    status = Status.PASSED if passed else Status.FAILED
    verdict = Verdict(status=status, reward=float(passed), tests={c.id: status for c in SUITES["weak"].cases})
    return VerdictRow(completion_id=id_, judge="booking:weak", is_primary=True, verdict=verdict, source_hash="h")


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory):
    """Twelve faults, four right programs (one in other words), an answer without a program; then a group of equals."""
    heap = REFERENCES["heap"]
    first = [fenced(faults.faulty_program(name)) for name in faults.FAULTS]
    first += [fenced(source) for source in REFERENCES.values()]
    first += [fenced(heap.replace("ends", "closing")), "I do not know."]
    second = [fenced(heap)] * 18
    return write_run(tmp_path_factory.mktemp("runs") / "every", [first, second])


def shares(rows):
    return {row.name: (row.count, row.of) for row in rows}


def test_false_acceptance_by_draw_and_by_source_against_the_audit(sandbox, every_kind):
    subject = find_subject("booking:weak")
    saved = judge_saved(every_kind, subject, SUITES["audit"], Bench(sandbox))
    assert saved.draws == 36
    assert shares(saved.by_draw) == {
        "wrong among accepted": (2, 2 + 5 + 18),
        "accepted among wrong": (2, 13),
        "agree with the yardstick": (34, 36),
    }
    assert shares(saved.by_source) == {
        "wrong among accepted": (2, 6),
        "accepted among wrong": (2, 13),
        "agree with the yardstick": (15, 17),
    }
    assert saved.recorded is not None and (saved.recorded.count, saved.recorded.of) == (35, 36)  # the renamed heap
    assert saved.rewards > 5


def test_constant_groups_expected_and_seen(sandbox, every_kind):
    saved = judge_saved(every_kind, find_subject("booking:weak"), SUITES["audit"], Bench(sandbox))
    assert saved.groups is not None
    assert (saved.groups.update, saved.groups.size, saved.groups.seen) == (1, 18, 0.5)
    assert saved.groups.expected == pytest.approx((25 / 36) ** 18, rel=0.01)


def test_the_repaired_suite_accepts_no_wrong_program(sandbox, every_kind):
    saved = judge_saved(every_kind, find_subject("booking:repaired"), SUITES["audit"], Bench(sandbox))
    assert shares(saved.by_draw)["agree with the yardstick"] == (36, 36)
    assert saved.recorded is None


def test_verdicts_of_another_version_are_not_compared(sandbox, tmp_path):
    run = write_run(tmp_path / "old", [[fenced(REFERENCES["heap"])]], run=run_row(weak_hash="another"))
    saved = judge_saved(run, find_subject("booking:weak"), SUITES["audit"], Bench(sandbox))
    assert saved.recorded is None and saved.draws == 1


def test_a_run_of_another_task_or_without_answers_is_refused(sandbox, tmp_path):
    subject = find_subject("booking:weak")
    other = write_run(tmp_path / "other", [], run=run_row(task="arithmetic"))
    with pytest.raises(RequestError, match="a run on task arithmetic, not on booking"):
        judge_saved(other, subject, SUITES["audit"], Bench(sandbox))
    empty = write_run(tmp_path / "empty", [])
    with pytest.raises(RequestError, match="holds no completion"):
        judge_saved(empty, subject, SUITES["audit"], Bench(sandbox))
    with pytest.raises(RequestError, match="holds no completion"):
        one = write_run(tmp_path / "one", [["x"]])
        judge_saved(one, replace(subject, prompt_id="other"), SUITES["audit"], Bench(sandbox))
    with pytest.raises(LedgerError, match="no ledger"):
        judge_saved(tmp_path, subject, SUITES["audit"], Bench(sandbox))
