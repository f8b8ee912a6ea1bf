"""docs/variants/which.md: its tables are what the renderer makes of the measurements, and the renderer is right."""

import importlib.util
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def renderer():
    spec = importlib.util.spec_from_file_location("variants_page", ROOT / "benchmarks" / "variants_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_renderer_makes_of_the_results(renderer):
    page = renderer.PAGE.read_text(encoding="utf-8")
    assert renderer.filled(page, renderer.results()) == page, "run: python benchmarks/variants_page.py"


def test_without_results_the_page_says_so(renderer):
    assert renderer.filled(renderer.PAGE.read_text(encoding="utf-8"), {}).count("\nNot measured yet.\n") == 2


def test_a_page_without_its_markers_is_refused(renderer):
    with pytest.raises(ValueError, match="one <!-- bandit -->"):
        renderer.filled("# Which one\n", {})


# ------------------------------------------------------------------ the tables

CELL = {"reached": 150, "seeds": 200, "low": 0.6857, "high": 0.8049, "median_steps": 61.5}
BANDIT = {"grpo/2": CELL, "grpo/0.5": CELL | {"median_steps": None}, "reinforce/2": CELL}


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line[:1] == "|"]


def test_bandit_rates_ascend_variants_keep_their_order_and_gaps_show(renderer):
    head, _, reinforce, grpo = cells(renderer.bandit_table({"bandit": BANDIT}))
    assert head == ["variant", "rate 0.5", "rate 2"]
    assert reinforce == ["`reinforce`", "–", "75.0 % [68.6 %, 80.5 %] (61.5)"]
    assert grpo == ["`grpo`", "75.0 % [68.6 %, 80.5 %]", "75.0 % [68.6 %, 80.5 %] (61.5)"]


def score(value: float) -> dict[str, object]:
    return {"value": value, "low": value - 0.05, "high": value + 0.05, "method": "Wilson, 128 draws"}


def run(before: float, after: float, code: int = 0) -> dict[str, object]:
    measured = {"before": score(before), "after": score(after)}
    return {**measured, "completions": 640, "optimizer_steps": 40, "exit": code, "error": ""}


def booking(renderer, *runs: dict[str, object], variant: str = "grpo") -> tuple[list[list[str]], list[list[str]]]:
    found = {f"{variant}/passes=1/seed={seed}": each for seed, each in enumerate(runs)}
    text = renderer.booking_tables({"booking": found, "machine": {"cores": 2, "load": 1.0, "torch": "2.9"}})
    assert "Wilson, 128 draws. Machine: cores 2, torch 2.9." in text
    summary, single = text.split("\n\n")[:2]
    return cells(summary)[2:], cells(single)[2:]


def test_the_gain_is_the_mean_over_seeds_with_a_t_interval(renderer):
    gains = [0.3, 0.1, 0.2]
    (row,), singles = booking(renderer, *(run(0.2, 0.2 + gain) for gain in gains))
    low, high = stats.t.interval(0.95, 2, loc=0.2, scale=stats.sem(gains))
    assert row == ["`grpo`", "1", "3", "+20.0", f"[−{-100 * low:.1f}, +{100 * high:.1f}]"]
    assert singles[0] == ["`grpo`", "1", "0", "20.0 % [15.0 %, 25.0 %]", "50.0 % [45.0 %, 55.0 %]", "640", "40"]
    assert [line[2] for line in singles] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("runs", "seeds", "mean", "interval"),
    [
        ([run(0.2, 0.1)], "1", "−10.0", "none: fewer than two seeds"),
        ([run(0.25, 0.5), run(0.25, 0.5)], "2", "+25.0", "none: all equal"),
        ([run(0.2, 0.2, code=1)], "0 (1 failed)", "–", "none: fewer than two seeds"),
    ],
)
def test_an_interval_that_cannot_be_had_is_not_made_up(renderer, runs, seeds, mean, interval):
    (row,), singles = booking(renderer, *runs)
    assert row[2:] == [seeds, mean, interval]
    assert ("ended with exit 1" in singles[0][4]) == ("failed" in seeds)


def test_a_run_that_failed_is_shown_and_not_averaged(renderer):
    (row,), singles = booking(renderer, run(0.2, 0.4), run(0.2, 0.9, code=1), run(0.2, 0.5))
    assert (row[2], row[3]) == ("2 (1 failed)", "+25.0")
    assert len(singles) == 3
