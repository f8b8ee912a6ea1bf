"""docs/tasks.md says what is there."""

import json
import re
from pathlib import Path

import pytest

from steelyard.errors import TaskError
from steelyard.tasks import load_task
from steelyard.tasks.booking import booking_task, faults
from steelyard.tasks.booking.patterns import shares_endpoint
from steelyard.tasks.formats import FORMATS

PAGE = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text(encoding="utf-8")


def table_rows(columns: int) -> dict[str, list[str]]:
    """First cell (code) → other cells, of every table row with this many columns."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:1] == "|"]
    return {row[0].strip("`"): row[1:] for row in cells if len(row) == columns and row[0].startswith("`")}


def test_the_table_of_faults_is_what_the_suites_catch():
    suites = booking_task().suites
    counted = {
        fault: [str(sum(faults.catches(fault, case) for case in suites[name].cases)) for name in suites]
        for fault in faults.FAULTS
    }
    assert table_rows(5) == counted
    assert "| fault | " + " | ".join(suites) + " |" in PAGE


def test_the_table_of_suites_is_right():
    rows = table_rows(4)
    for name, suite in booking_task().suites.items():
        shared = sum(shares_endpoint(case.args[0]) for case in suite.cases)  # pyright: ignore[reportArgumentType]
        assert rows[name][:2] == [str(len(suite.cases)), str(shared)]


def test_the_example_rows_load(tmp_path):
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "my.jsonl").write_text(block, encoding="utf-8")
    task = load_task(data=str(tmp_path / "my.jsonl"), held_out=0)
    assert [prompt.columns for prompt in task.train_prompts] == [
        {"answers": json.loads(line)["answers"]} for line in block.splitlines()
    ]


def test_the_example_message_is_the_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = '{"prompt": "a", "answer": 1}\n'
    Path("my.jsonl").write_text(row + row + row.replace("prompt", "promt"), encoding="utf-8")
    with pytest.raises(TaskError) as caught:
        load_task(data="my.jsonl")
    assert f"```\n{caught.value}\n```" in PAGE


def test_the_example_problem_loads_in_the_format_that_the_table_names(tmp_path):
    (block,) = re.findall(r"```jsonl\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "own.jsonl").write_text(block, encoding="utf-8")
    assert load_task(data=str(tmp_path / "own.jsonl"), held_out=0).own_suites["Own/1"].entry_point == "double"
    columns = {
        frozenset(re.findall(r"`(\w+)`", line.split("|")[2])) for line in PAGE.splitlines() if "`task_id`" in line
    }
    shown = {
        each.columns for name, each in FORMATS.items() if name not in ("HumanEval+ (EvalPlus)", "MBPP+ (EvalPlus)")
    }
    assert shown <= columns
