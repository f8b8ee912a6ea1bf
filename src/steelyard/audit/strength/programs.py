"""Runs many programs in the sandbox, with a word on how far it is."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from steelyard.tasks.probes import Args
from steelyard.types import Case, Form, Plain, Suite
from steelyard.verify.compare import equal
from steelyard.verify.programs import ProgramCheck, ProgramVerifier
from steelyard.verify.sandbox import InputOutcome, Limits, ProgramJob, Sandbox

Progress = Callable[[str, int, int], None]
"""(what is being done, done, of how many)."""
T = TypeVar("T")

LIMITS = Limits(input_seconds=1.0, timeouts=1)
"""Endless loops are common among mutants: one second tells them as well as two."""
_PER_WORKER = 8
_FENCE = "`" * 12
"""Longer than any fence inside a docstring."""


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Say nothing."""


def input_key(args: Args) -> str:
    """Name of an input: equal inputs have equal keys, as in `Case.key`."""
    return Case(id="", family="", args=args, expected=None).key


def is_right(expected: Plain, outcome: InputOutcome, form: Form) -> bool:
    """Whether a program returned the expected value, as strictly as a suite of this form can ask.

    `calls`: as the judge compares. `asserts`: test code compares with `==`, for which 1 is True and 1.0.
    """
    return outcome.returned and (equal(expected, outcome.value) or (form == "asserts" and expected == outcome.value))


class Bench:
    """Runs programs by the dozen in one sandbox."""

    def __init__(self, sandbox: Sandbox, progress: Progress = no_progress) -> None:
        self.sandbox = sandbox
        self.progress = progress

    def judge(self, suite: Suite, sources: Sequence[str], what: str) -> list[ProgramCheck]:
        """Judge each program by a suite of any form; one check per source, in order. Nothing is remembered."""
        return self.judge_texts(suite, [f"{_FENCE}\n{source}\n{_FENCE}\n" for source in sources], what)

    def judge_texts(self, suite: Suite, texts: Sequence[str], what: str) -> list[ProgramCheck]:
        """Judge completions as a model wrote them; one check per text, in order. Nothing is remembered between calls."""
        verifier = ProgramVerifier(self.sandbox, suite)
        answers = [(str(i), text) for i, text in enumerate(texts)]
        return self._in_chunks(answers, verifier.check, what)

    def outcomes(
        self, entry_point: str, inputs: Sequence[Args], sources: Sequence[str], what: str, *, rounds: int = 1
    ) -> list[tuple[InputOutcome, ...]]:
        """Call each program with each input; one row per source, in order.

        A program that runs out of time leaves the inputs after that one unrun; with more than one round they get another
        process, as often as that.
        """
        rows = self._calls(entry_point, [(source, inputs) for source in sources], what)
        for _ in range(rounds - 1):
            left = [[i for i, outcome in enumerate(row) if not outcome.ran] for row in rows]
            again = [number for number, places in enumerate(left) if places]
            more = self._calls(entry_point, [(sources[n], [inputs[i] for i in left[n]]) for n in again], what)
            for number, found in zip(again, more, strict=True):
                by_place = dict(zip(left[number], found, strict=True))
                rows[number] = tuple(by_place.get(i, outcome) for i, outcome in enumerate(rows[number]))
        return rows

    def _calls(
        self, entry_point: str, calls: Sequence[tuple[str, Sequence[Args]]], what: str
    ) -> list[tuple[InputOutcome, ...]]:
        jobs = [
            ProgramJob(id=str(i), source=source, entry_point=entry_point, inputs=tuple(inputs))
            for i, (source, inputs) in enumerate(calls)
        ]
        return [run.outcomes for run in self._in_chunks(jobs, self.sandbox.run, what)]

    def _in_chunks(self, items: Sequence[T], run: Callable[[Sequence[T]], list], what: str) -> list:
        size = _PER_WORKER * self.sandbox.workers
        found: list = []
        for start in range(0, len(items), size):
            self.progress(what, start, len(items))
            found += run(items[start : start + size])
        if items:
            self.progress(what, len(items), len(items))
        return found


def by_key(inputs: Sequence[Args]) -> Mapping[str, Args]:
    """Return the distinct inputs by key, in order of their first places."""
    found: dict[str, Args] = {}
    for args in inputs:
        found.setdefault(input_key(args), args)
    return found
