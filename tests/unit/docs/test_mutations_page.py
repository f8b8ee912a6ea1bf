"""docs/mutations.md explains every mutant that survived, and shows the scores of the last run."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "mutations.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "benchmarks/results/mutants.json").read_text(encoding="utf-8"))
SURVIVORS = [each for row in RESULTS["modules"].values() for each in row["survivors"]]


def rows() -> list[list[str]]:
    section = TEXT.split("## Survivors")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if "`" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


def explains(row: list[str], mutant: dict[str, str | int]) -> bool:
    module, line, fragment, reason = row
    changed = bare(fragment.strip("`"))
    here = (module, line) == (mutant["module"], str(mutant["line"])) and len(reason) > 5
    return here and changed in bare(str(mutant["after"])) and changed not in bare(str(mutant["before"]))


def test_every_survivor_is_explained():
    assert [each for each in SURVIVORS if not any(explains(row, each) for row in rows())] == []


def test_every_explanation_is_of_a_survivor():
    assert [row for row in rows() if not any(explains(row, each) for each in SURVIVORS)] == []


@pytest.mark.parametrize("mutant", SURVIVORS, ids=lambda each: f"{each['module']}-{each['line']}-{each['occurrence']}")
def test_what_is_explained_is_still_the_code(mutant):
    source = (ROOT / "src/steelyard/numerics" / f"{mutant['module']}.py").read_text(encoding="utf-8")
    assert source.splitlines()[mutant["line"] - 1].strip() == mutant["before"].strip()


def test_scores_are_those_of_the_last_run(monkeypatch):
    specification = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "mutants", module)
    specification.loader.exec_module(module)
    table = module.score_table(RESULTS)
    assert table in TEXT
    assert float(table.rsplit("|", 2)[1].strip(" %")) >= 95.0
    modules = {path.stem for path in (ROOT / "src/steelyard/numerics").glob("*.py")} - {"__init__"}
    assert set(RESULTS["modules"]) == modules
