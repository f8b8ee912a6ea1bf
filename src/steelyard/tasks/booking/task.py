"""The booking task, loaded from the committed data."""

import json
from functools import cache
from importlib import resources

from steelyard.tasks.booking.prompt import ENTRY_POINT, PROMPT
from steelyard.tasks.booking.references import REFERENCES
from steelyard.types import Case, Suite, Task


@cache
def booking_task() -> Task:
    """Return the booking task: one prompt, four suites, four references, the signatures of known faults.

    Nothing is generated here; `steelyard.tasks.booking.generate` makes the data and checks them.
    """
    rows = _read("cases.json")
    cases = [Case(id=row[0], family=row[1], args=(row[2],), expected=row[3]) for row in rows]
    by_id = {case.id: case for case in cases}
    suites = {
        name: Suite(
            task="booking",
            name=name,
            version=entry["version"],
            entry_point=ENTRY_POINT,
            cases=tuple(by_id[case_id] for case_id in entry["cases"]),
        )
        for name, entry in _read("suites.json").items()
    }
    keys = [case.key for case in cases]
    return Task(
        name="booking",
        train_prompts=(PROMPT,),
        eval_prompts=(PROMPT,),
        suites=suites,
        eval_suite="audit",
        references=REFERENCES,
        signatures={fault: dict(zip(keys, values, strict=True)) for fault, values in _read("signatures.json").items()},
    )


def committed_hashes() -> dict[str, str]:
    """Return the suite hashes as committed beside the cases; `Suite.hash` must give the same."""
    return {name: entry["hash"] for name, entry in _read("suites.json").items()}


def _read(name: str):  # noqa: ANN202 - JSON of our own making
    return json.loads(resources.files("steelyard.tasks.booking").joinpath("data", name).read_text(encoding="utf-8"))
