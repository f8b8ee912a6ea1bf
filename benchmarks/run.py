"""Measure our own pieces on this machine: `make bench`. Results go to benchmarks/results as JSON.

Ratios within one run can be trusted; seconds of a shared machine cannot. Comparisons with other trainers
come with a later change and will run beside these in the same process tree.
"""

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from steelyard import Recipe, load, train
from steelyard.ledger.reader import LedgerReader
from steelyard.tasks import load_task
from steelyard.verify.programs import ProgramVerifier
from steelyard.verify.sandbox import Limits, Sandbox

RESULTS = Path(__file__).parent / "results"
REPEATS = 5
PROGRAMS = 60
UPDATES = 6


def sandbox_throughput() -> dict[str, object]:
    """Programs and tests a second: the booking references on the weak suite (57 cases), one worker."""
    task = load_task("booking")
    suite = task.suites["weak"]
    sources = list(task.references.values())

    def seconds(*, unconfined: bool) -> float:
        with Sandbox(workers=1, limits=Limits(), unconfined=unconfined) as sandbox:
            verifier = ProgramVerifier(sandbox, suite)
            # A comment makes each program a different one: nothing is answered from the cache.
            answers = [(str(n), f"{sources[n % len(sources)]}\n# {n}\n") for n in range(PROGRAMS)]
            verifier.check([("warm", sources[0])])
            start = time.perf_counter()
            checks = verifier.check(answers)
            assert all(check.verdict.reward == 1.0 for check in checks)
            return time.perf_counter() - start

    walls = [seconds(unconfined=False) for _ in range(REPEATS)]
    bare = [seconds(unconfined=True) for _ in range(REPEATS)]
    median = statistics.median(walls)
    return {
        "programs_per_second": PROGRAMS / median,
        "tests_per_second": PROGRAMS * len(suite.cases) / median,
        "seconds_each_run": walls,
        "ratio_to_unconfined": median / statistics.median(bare),
    }


def update_stages() -> dict[str, object]:
    """Seconds per update by stage on the quickstart recipe, first update left out."""
    recipe_path = Path(__file__).parent.parent / "recipes" / "booking.toml"
    with tempfile.TemporaryDirectory() as directory:
        overrides = [f"run.updates={UPDATES}", "eval.samples=0", f"run.dir={directory}/run"]
        result = train(load(recipe_path, Recipe, overrides), name="bench")
        with LedgerReader(result.directory / "ledger.sqlite") as reader:
            rows = [row.data["seconds"] for row in reader.attempts() if row.kind == "update"][1:]
            tokens = [row.n_tokens for row in reader.updates()][1:]
    stages = {stage: statistics.median(row[stage] for row in rows) for stage in rows[0]}
    return {
        "median_seconds": stages,
        "median_seconds_total": sum(stages.values()),
        "median_completion_tokens": statistics.median(tokens),
    }


BENCHMARKS: dict[str, Callable[[], dict[str, object]]] = {
    "sandbox_throughput": sandbox_throughput,
    "update_stages": update_stages,
}


def main() -> None:
    """Run every benchmark, print and keep the results."""
    machine = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        **{name: version(name) for name in ("steelyard", "torch", "transformers", "numpy")},
    }
    results = {"machine": machine, **{name: run() for name, run in BENCHMARKS.items()}}
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / "first-light.json"
    target.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))
    print(f"written to {target}")


if __name__ == "__main__":
    main()
