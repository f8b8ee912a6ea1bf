"""docs/suite-strength.md says what is there."""

import re
from pathlib import Path

from steelyard.audit.strength.grow import leaves
from steelyard.audit.strength.operators import OPERATORS
from steelyard.tasks.blind_spots import SPOTS
from steelyard.tasks.booking.probe import PROBE, valid
from steelyard.tasks.booking.task import booking_task

PAGE = (Path(__file__).parents[3] / "docs" / "suite-strength.md").read_text(encoding="utf-8")


def first_cells(header: str) -> list[str]:
    """First cells, in code, of the table under a header row."""
    table = PAGE.partition(header)[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)


def test_every_operator_is_in_the_table_in_order():
    assert first_cells("| operator |") == list(OPERATORS)


def test_every_small_task_is_in_the_table_with_its_blind_spot():
    assert first_cells("| task |") == list(SPOTS)
    for name, spot in SPOTS.items():
        assert f"| `{name}` | {spot.blind_spot} |" in PAGE


def test_the_number_of_right_programs_and_of_inputs_is_the_documented_one():
    task = booking_task()
    known = {case.key for suite in task.suites.values() for case in suite.cases}
    fresh = {repr(args) for args in PROBE.inputs(0, 1200)}
    assert len(task.references) + len(PROBE.references) == 5
    assert len(known) == 287 and len(fresh) == 1101  # the empty list is among both: 1,387 in all
    assert "1,387 in all" in PAGE
    narrow = [args for args in PROBE.inputs(0, 1200) if valid(args) and max(leaves(args), default=0) <= 8]
    assert len(narrow) >= 800
