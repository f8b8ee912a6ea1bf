"""Write the measured tables into docs/variants/which.md: python benchmarks/variants_page.py."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from steelyard.numerics.variants import VARIANTS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "variants.json"
PAGE = ROOT / "docs" / "variants" / "which.md"
NOT_YET = "Not measured yet."

Results = Mapping[str, Any]


# ------------------------------------------------------------------ the bandit


def bandit_table(found: Results) -> str:
    """Variants by learning rates: share of runs that got there, Wilson's interval over seeds, median steps."""
    cells = {tuple(key.split("/")): run for key, run in found.get("bandit", {}).items()}
    if not cells:
        return NOT_YET
    rates = sorted({rate for _, rate in cells}, key=float)
    seeds = sorted({run["seeds"] for run in cells.values()})
    lines = _head(["variant", *(f"rate {rate}" for rate in rates)])
    for variant in _in_order(variant for variant, _ in cells):
        lines.append(_row([f"`{variant}`", *(_reached(cells.get((variant, rate))) for rate in rates)]))
    return "\n".join([*lines, "", f"Seeds per cell: {', '.join(map(str, seeds))}."])


def _reached(run: Results | None) -> str:
    if run is None:
        return "–"
    steps = "" if run["median_steps"] is None else f" ({run['median_steps']:g})"
    return f"{_percent(run['reached'] / run['seeds'])} [{_percent(run['low'])}, {_percent(run['high'])}]{steps}"


# ------------------------------------------------------------------ the booking task


def booking_tables(found: Results) -> str:
    """Mean gain over seeds by variant and passes; then every run with the intervals of its two measurements."""
    runs = {_key(key): run for key, run in found.get("booking", {}).items()}
    if not runs:
        return NOT_YET
    conditions = [(v, p) for p in sorted({p for _, p, _ in runs}) for v in _in_order(v for v, _, _ in runs)]
    summary = _head(["variant", "passes", "seeds", "mean gain, points", "t interval over seeds"])
    single = _head(["variant", "passes", "seed", "before", "after", "answers sampled", "optimizer steps"])
    for variant, passes in conditions:
        of_seed = {seed: run for (v, p, seed), run in sorted(runs.items()) if (v, p) == (variant, passes)}
        if of_seed:
            summary.append(_row(_summary(variant, passes, list(of_seed.values()))))
            single += [_row(_single(variant, passes, seed, run)) for seed, run in of_seed.items()]
    methods = sorted({run[when]["method"] for run in runs.values() for when in ("before", "after")})
    return "\n".join(
        [*summary, "", *single, "", f"Intervals of the measurements: {'; '.join(methods)}. {_where(found)}"]
    )


def _in_order(variants: Iterable[str]) -> list[str]:
    present = set(variants)
    return [variant for variant in VARIANTS if variant in present]


def _key(key: str) -> tuple[str, int, int]:
    variant, passes, seed = key.split("/")
    return variant, int(passes.removeprefix("passes=")), int(seed.removeprefix("seed="))


def _summary(variant: str, passes: int, runs: Sequence[Results]) -> list[str]:
    done = [run for run in runs if not run["exit"]]
    gains = [run["after"]["value"] - run["before"]["value"] for run in done]
    failed = f" ({len(runs) - len(done)} failed)" if len(done) < len(runs) else ""
    mean = _points(float(np.mean(gains))) if gains else "–"
    return [f"`{variant}`", str(passes), f"{len(done)}{failed}", mean, _t_interval(gains)]


def _t_interval(gains: Sequence[float]) -> str:
    if len(gains) < 2:
        return "none: fewer than two seeds"
    if np.ptp(gains) < 1e-12:
        return "none: all equal"
    half = float(stats.t.ppf(0.975, len(gains) - 1)) * float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
    return f"[{_points(float(np.mean(gains)) - half)}, {_points(float(np.mean(gains)) + half)}]"


def _single(variant: str, passes: int, seed: int, run: Results) -> list[str]:
    end = f" (ended with exit {run['exit']})" if run["exit"] else ""
    numbers = [str(run["completions"]), str(run["optimizer_steps"])]
    return [f"`{variant}`", str(passes), str(seed), _rate(run["before"]), _rate(run["after"]) + end, *numbers]


def _rate(score: Results) -> str:
    if score["value"] is None:
        return "–"
    bounds = "no interval" if score["low"] is None else f"[{_percent(score['low'])}, {_percent(score['high'])}]"
    return f"{_percent(score['value'])} {bounds}"


def _where(found: Results) -> str:
    machine = found.get("machine", {})
    return "Machine: " + ", ".join(f"{name} {machine[name]}" for name in sorted(machine) if name != "load") + "."


# ------------------------------------------------------------------ the page


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _points(gain: float) -> str:
    return f"{100 * gain:+.1f}".replace("-", "−")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(cells: Sequence[str]) -> list[str]:
    return [_row(cells), "|" + "---|" * len(cells)]


def filled(page: str, found: Results) -> str:
    """Return the page with what stands between its markers made from the results."""
    for name, text in (("bandit", bandit_table(found)), ("booking", booking_tables(found))):
        pattern = rf"<!-- {name} -->\n.*?<!-- /{name} -->"
        block = f"<!-- {name} -->\n{text}\n<!-- /{name} -->"
        page, count = re.subn(pattern, lambda _, block=block: block, page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page needs one <!-- {name} --> with its <!-- /{name} -->, found {count}")
    return page


def results() -> Results:
    """Return what was measured so far; nothing where there is no file."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), results()), encoding="utf-8")
