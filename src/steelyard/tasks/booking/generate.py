"""Makes the cases of the booking suites from a seed, and compares them with the committed ones.

    python -m steelyard.tasks.booking.generate --check     the committed data equal what the seed makes
    python -m steelyard.tasks.booking.generate --write     write them

A case outside the boundary family shares no endpoint unless it was chosen to: random lists collide by
themselves (9 % of them at 25 bookings, 98 % at 200), and a suite meant to miss the endpoint rule would
then test it after all. Every draw is checked for what it was meant to be, and drawn again if it is not.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from steelyard.errors import TaskError
from steelyard.tasks.booking import faults
from steelyard.tasks.booking.patterns import (
    PATTERNS,
    Bookings,
    Draw,
    Pattern,
    shares_endpoint,
    touch_anywhere,
    touch_at_peak,
)
from steelyard.tasks.booking.prompt import ENTRY_POINT
from steelyard.tasks.booking.references import FUNCTIONS
from steelyard.types import Case, Suite

SEED = 20_260_117
"""Seed of the committed cases."""
VERSION = 1
"""Version of the committed suites; raise it when the cases change."""
SIZES = (1, 2, 3, 8, 25, 75, 150, 200)
"""Bookings per case, in turn."""
ROUNDS = {"train": 3, "audit": 6}
"""How often each family goes through the sizes: 24 and 48 cases."""
TOUCHED = frozenset({1, 11, 13, 18, 23})
"""Places in each round of 24 where an ordinary, state or interaction case shares an endpoint on purpose."""
ATTEMPTS = 10_000
"""Draws per case before we say that its specification cannot be met."""
DATA = Path(__file__).parent / "data"


class Touch(StrEnum):
    """What shared endpoints a case has."""

    NONE = "no end equals a start"
    DECISIVE = "they change the answer of a program that counts ends inclusively"
    HARMLESS = "they lie away from the peak and change no answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """What one case is meant to be."""

    id: str
    family: str
    size: int
    pattern: Pattern
    order: str
    """sorted, reversed or shuffled."""
    touch: Touch


def specifications(part: str) -> list[Specification]:
    """Return what the cases of the training part or of the audit are meant to be, in order."""
    specs: list[Specification] = []
    for family, patterns in PATTERNS.items():
        for index in range(len(SIZES) * ROUNDS[part]):
            size = SIZES[index % len(SIZES)]
            turn = index + index // len(SIZES)
            boundary = family == "boundary"
            specs.append(
                Specification(
                    id=f"{part}-{family}-{index:02d}",
                    family=family,
                    size=max(size, 2) if boundary else size,  # it takes two to share an endpoint
                    pattern=patterns[turn % len(patterns)],
                    order=_order(family, index),
                    touch=_boundary_touch(turn, size) if boundary else _other_touch(index),
                )
            )
    return specs


def _order(family: str, index: int) -> str:
    if family == "ordinary":
        return "sorted"
    if family == "state":
        return "shuffled"
    return ("shuffled", "reversed", "sorted")[index % 3]


def _boundary_touch(turn: int, size: int) -> Touch:
    """One shape in six touches away from the peak; two bookings have no place away from it."""
    last = len(PATTERNS["boundary"]) - 1
    return Touch.HARMLESS if turn % len(PATTERNS["boundary"]) == last and size > 2 else Touch.DECISIVE


def _other_touch(index: int) -> Touch:
    return Touch.DECISIVE if index % 24 in TOUCHED else Touch.NONE


def draw_bookings(draw: Draw, spec: Specification) -> Bookings:
    """Draw one list as specified; what it really is must be checked with `matches`."""
    bookings = spec.pattern(draw, spec.size)
    if spec.touch is Touch.DECISIVE and not shares_endpoint(bookings):
        bookings = touch_at_peak(draw, bookings)
    if spec.touch is Touch.HARMLESS:
        bookings = touch_anywhere(draw, bookings)
    if spec.order == "shuffled":
        return draw.shuffled(bookings)
    return sorted(bookings, reverse=spec.order == "reversed")


def matches(bookings: Bookings, spec: Specification) -> bool:
    """Whether a list is what its specification asks for."""
    shared = shares_endpoint(bookings)
    differs = FUNCTIONS["difference_map"](bookings) != faults.inclusive_endpoint(bookings)
    meets = {Touch.NONE: not shared, Touch.DECISIVE: differs, Touch.HARMLESS: shared and not differs}
    return len(bookings) == spec.size and meets[spec.touch] and (spec.order == "sorted" or _out_of_order(bookings))


def _out_of_order(bookings: Bookings) -> bool:
    """Whether a list is out of order; lists that no order can change pass too."""
    return bookings != sorted(bookings) or all(booking == bookings[0] for booking in bookings)


def make_cases(seed: int) -> dict[str, list[Case]]:
    """Return the cases of both parts; the empty list is the first case of each.

    Raises:
        TaskError: If a specification cannot be met, or two references disagree on an input.
    """
    draw = Draw(seed)
    empty = Case(id="empty", family="ordinary", args=([],), expected=0)
    seen: set[tuple[tuple[int, ...], ...]] = set()
    parts: dict[str, list[Case]] = {}
    for part in ROUNDS:
        cases = [empty]
        for spec in specifications(part)[1:]:  # the empty list takes the place of the first, of size 1
            bookings = _draw_new(draw, spec, seen)
            cases.append(Case(id=spec.id, family=spec.family, args=(bookings,), expected=_agreed(bookings, spec.id)))
        parts[part] = cases
    return parts


def _draw_new(draw: Draw, spec: Specification, seen: set[tuple[tuple[int, ...], ...]]) -> Bookings:
    """Draw until the list is as specified and no permutation of an earlier one."""
    for _ in range(ATTEMPTS):
        bookings = draw_bookings(draw, spec)
        name = tuple(sorted(map(tuple, bookings)))
        if name not in seen and matches(bookings, spec):
            seen.add(name)
            return bookings
    raise TaskError(f"case {spec.id}: no list of {spec.size} bookings met {spec.touch.value!r} in {ATTEMPTS} draws.")


def _agreed(bookings: Bookings, case: str) -> int:
    answers = {name: function(bookings) for name, function in FUNCTIONS.items()}
    if len(set(answers.values())) != 1:
        raise TaskError(f"case {case}: the references disagree: {answers}.")
    return next(iter(answers.values()))


def make_suites(seed: int) -> dict[str, Suite]:
    """Return the four suites of the study: reference, weak, repaired, audit.

    The repaired suite gives up one ordinary case of each size for the second round of the boundary family.
    """
    parts = make_cases(seed)
    reference = parts["train"]
    weak = [case for case in reference if not shares_endpoint(_bookings(case))]
    boundary = [case for case in reference if case.family == "boundary"]
    dropped = _one_per_size([case for case in weak if case.family == "ordinary"])
    repaired = [case for case in weak if case.id not in dropped] + boundary[len(SIZES) : 2 * len(SIZES)]
    chosen = {"reference": reference, "weak": weak, "repaired": repaired, "audit": parts["audit"]}
    return {
        name: Suite(task="booking", name=name, version=VERSION, entry_point=ENTRY_POINT, cases=tuple(cases))
        for name, cases in chosen.items()
    }


def _one_per_size(cases: Sequence[Case]) -> set[str]:
    return {next(case.id for case in cases if len(_bookings(case)) == size) for size in SIZES}


def _bookings(case: Case) -> Bookings:
    value = case.args[0]
    assert isinstance(value, list)
    return value


def render(suites: dict[str, Suite]) -> dict[str, str]:
    """Return the data files by name, as text: distinct cases, suites by case id, signatures by case."""
    cases = list({case.id: case for suite in suites.values() for case in suite.cases}.values())
    rows = [[case.id, case.family, _bookings(case), case.expected] for case in cases]
    index = {
        name: {"version": suite.version, "hash": suite.hash, "cases": [case.id for case in suite.cases]}
        for name, suite in suites.items()
    }
    table = {name: [faults.FAULTS[name](_bookings(case)) for case in cases] for name in faults.SIGNED}
    return {
        "cases.json": _lines("[", [_compact(row) for row in rows], "]"),
        "suites.json": _lines("{", [f"{_compact(name)}:{_compact(value)}" for name, value in index.items()], "}"),
        "signatures.json": _lines("{", [f"{_compact(name)}:{_compact(row)}" for name, row in table.items()], "}"),
    }


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _lines(before: str, rows: Sequence[str], after: str) -> str:
    return before + "\n" + ",\n".join(rows) + "\n" + after + "\n"


def stale_files(folder: Path = DATA) -> list[str]:
    """Return the names of committed data files that differ from what the seed makes."""
    return [
        name
        for name, text in render(make_suites(SEED)).items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or write the data; exit code 1 when a file differs."""
    parser = argparse.ArgumentParser(prog="python -m steelyard.tasks.booking.generate", description="booking cases")
    parser.add_argument("--write", action="store_true", help="write the data files (default: compare with them)")
    parser.add_argument("--check", action="store_true", help="compare the data files with what the seed makes")
    options = parser.parse_args(arguments)
    if options.write:
        DATA.mkdir(exist_ok=True)
        for name, text in render(make_suites(SEED)).items():
            (DATA / name).write_text(text, encoding="utf-8")
    stale = stale_files()
    sys.stdout.write(f"differs from seed {SEED}: {', '.join(stale)}\n" if stale else f"data equal seed {SEED}\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
