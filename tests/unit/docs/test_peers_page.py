"""docs/peers.md names every case of the peer oracles once, and no other."""

import json
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
CASES = json.loads((ROOT / "tests/oracle/peers/literals.json").read_text(encoding="utf-8"))["cases"]


def test_every_case_stands_in_the_tables_once():
    named = Counter(re.findall(r"`((?:trl|verl|openrlhf)/[^`]+)`", TEXT))
    assert named == Counter(dict.fromkeys(CASES, 1))


def test_a_case_stands_in_the_column_of_its_trainer():
    for line in TEXT.splitlines():
        if line.startswith("|") and "`" in line:
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            for peer, cell in zip(("trl", "verl", "openrlhf"), cells[2:5], strict=True):
                assert {name.split("/")[0] for name in re.findall(r"`([a-z]+/[^`]+)`", cell)} <= {peer}


def test_what_is_confirmed_is_said_for_each_trainer():
    for line in TEXT.splitlines():
        if line.startswith("|") and "/" in line:
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            for cell, how in zip(cells[2:5], cells[5].strip(" |").split(", "), strict=True):
                assert (how == "–") == (cell == "–"), line
                assert how in ("run", "read", "–")
