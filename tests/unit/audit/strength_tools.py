"""What the tests of suite strength share."""

from collections.abc import Iterable

from steelyard.audit.strength.subject import Subject
from steelyard.tasks.probes import Args
from steelyard.types import Case, Plain, Suite
from steelyard.verify.sandbox import Limits

QUICK = Limits(input_seconds=0.5, program_seconds=5.0, timeouts=1)


def calls_suite(rows: Iterable[tuple[Args, Plain]], *, entry_point: str, families: Iterable[str] = ()) -> Suite:
    kinds = list(families)
    cases = tuple(
        Case(id=f"t{i}", family=kinds[i] if kinds else "all", args=args, expected=expected)
        for i, (args, expected) in enumerate(rows)
    )
    return Suite(task="own", name="main", version=1, entry_point=entry_point, cases=cases)


def asserts_suite(tests: Iterable[str], *, entry_point: str) -> Suite:
    cases = tuple(Case(id=f"t{i}", family="all", args=("", test), expected=True) for i, test in enumerate(tests))
    return Suite(task="own", name="main", version=1, entry_point=entry_point, cases=cases, form="asserts")


def subject_of(suite: Suite, reference: str) -> Subject:
    return Subject(task="own", suite=suite, references={"only": reference})
