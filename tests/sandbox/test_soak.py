"""Long runs, outside `make test`: `pytest -m soak tests/sandbox/test_soak.py -s`. Figures are in docs/verification.md."""

import contextlib
import json
import multiprocessing
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sandbox_tools import DOUBLE, QUICK, children, descendants

from steelyard.tasks import load_task
from steelyard.types import Status
from steelyard.verify.compare import equal
from steelyard.verify.programs import ProgramVerifier
from steelyard.verify.sandbox import Limits, ProgramJob, Sandbox
from steelyard.verify.sandbox.attacks import ATTACKS
from steelyard.verify.sandbox.attacks.attack import HONEST

pytestmark = [pytest.mark.sandbox, pytest.mark.soak, pytest.mark.timeout(1800)]

HERE = [attack for attack in ATTACKS if attack.applies]
ATTEMPTS = [attack.source for attack in HERE if attack.source.startswith("def f(x):\n    try:")]
COUNT = 1000


def combination(number: int, endings: list[str]) -> str:
    """Up to three attempts, then a program that ends in its own way."""
    rng = np.random.default_rng([20261207, number])
    chosen = [ATTEMPTS[i] for i in rng.integers(len(ATTEMPTS), size=int(rng.integers(1, 4)))]
    parts = [re.sub(r"\Adef f\(", f"def attempt_{i}(", source) for i, source in enumerate(chosen)]
    names = ", ".join(f"attempt_{i}" for i in range(len(parts)))
    wrapper = f"""
_last = f
def f(x):
    for attempt in ({names},):
        try: attempt(x)
        except BaseException: pass
    return _last(x)
"""
    return "\n".join([*parts, endings[int(rng.integers(len(endings)))], wrapper, f"number = {number}\n"])


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def state(sandbox: Sandbox) -> dict[str, Any]:
    """Processes, their memory and descriptors, and what lies in the folders that anybody may write to."""
    servers = [server.process.pid for server in sandbox._servers]
    below = {pid: kind for server in servers for pid, kind in descendants(server).items()}
    return {
        "processes": len(below),
        "zombies": sum(kind == "Z" for kind in below.values()),
        "memory": {"trainer": resident(os.getpid()), **{str(pid): resident(pid) for pid in [*servers, *below]}},
        "descriptors": {pid: len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in [os.getpid(), *servers, *below]},
        "files": sorted(str(p) for folder in ("/tmp", "/dev/shm") for p in Path(folder).glob("steelyard-*")),
    }


def test_a_thousand_programs_that_misbehave_leave_nothing_behind():
    endings = [attack.source for attack in HERE]
    wrong, statuses, early = [], {}, {}
    with Sandbox(workers=2, limits=QUICK) as sandbox:
        started = time.monotonic()
        for first in range(0, COUNT, 20):
            answers = []
            for n in range(first, first + 20):
                answers += [(f"{n}", combination(n, endings)), (f"honest {n}", f"{HONEST}\nnumber = {n}\n")]
            fenced = [(id_, f"```python\n{source}\n```") for id_, source in answers]
            for check in ProgramVerifier(sandbox, DOUBLE).check(fenced):
                statuses[check.verdict.status] = statuses.get(check.verdict.status, 0) + 1
                if check.verdict.reward is None or (check.id.startswith("honest") and check.verdict.reward != 1.0):
                    wrong.append((check.id, check.verdict.status, check.verdict.detail))
            if first == 200:
                early = state(sandbox)
        late = state(sandbox)
        seconds = time.monotonic() - started
    growth = {pid: late["memory"][pid] - size for pid, size in early["memory"].items()}
    print(json.dumps({"seconds": seconds, "statuses": statuses, "growth in bytes": growth, "end": late}, indent=1))
    assert wrong == []
    assert (late["processes"], late["zombies"], late["files"]) == (2, 0, [])
    assert late["descriptors"] == early["descriptors"]
    assert max(growth.values()) < 8 << 20
    assert descendants(os.getpid()) == {}


def test_the_same_programs_have_the_same_outcomes_in_another_sandbox():
    restless = {"time", "memory and output", "the channel"}
    endings = [attack.source for attack in HERE if attack.family not in restless and Status.TIMEOUT not in attack.right]
    jobs = [
        ProgramJob(id=str(n), source=combination(n, endings), entry_point="f", inputs=((0,), (1,), (2,)))
        for n in range(COUNT)
    ]
    runs = []
    for workers in (1, 2):
        with Sandbox(workers=workers, limits=Limits(input_seconds=10.0, program_seconds=30.0)) as sandbox:
            runs.append([[(o.fault, o.ran, o.value) for o in run.outcomes] for run in sandbox.run(jobs)])
    different = [n for n, (one, two) in enumerate(zip(*runs, strict=True)) if not equal(one, two)]
    print(len(different), "of", len(jobs), "programs differ")
    assert different == [], jobs[different[0]].source


def test_servers_killed_at_random_moments_cost_no_program_its_verdict():
    stop, kills = threading.Event(), []
    rng = np.random.default_rng(20261207)
    with Sandbox(workers=2, limits=QUICK) as sandbox:

        def killer() -> None:
            while not stop.wait(0.15):
                servers = [server.process.pid for server in list(sandbox._servers)]
                victims = [*servers, *(pid for server in servers for pid in children(server))]
                if victims:
                    victim = int(rng.choice(victims))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                        kills.append(victim)

        thread = threading.Thread(target=killer)
        thread.start()
        try:
            answers = [(str(n), f"{HONEST}\nnumber = {n}\n") for n in range(1500)]
            checks = ProgramVerifier(sandbox, DOUBLE).check(answers)
        finally:
            stop.set()
            thread.join()
        unscored = [check.id for check in checks if check.verdict.status is Status.CHECKER_FAILED]
        again = ProgramVerifier(sandbox, DOUBLE).check(answers[:50])
    print(len(kills), "kills;", len(unscored), "of", len(checks), "programs met two of them and are unscored")
    assert len(kills) > 20
    assert all(check.verdict.reward in (None, 1.0) for check in checks)
    assert len(unscored) < len(checks) / 20
    assert all(check.verdict.reward == 1.0 for check in again)
    assert descendants(os.getpid()) == {}


def _burn() -> None:
    while True:
        pass


def test_a_correct_program_passes_200_of_200_while_both_cores_are_busy():
    task = load_task("booking")
    source = task.references["event_sort"]
    burners = [multiprocessing.get_context("fork").Process(target=_burn, daemon=True) for _ in range(2)]
    for burner in burners:
        burner.start()
    try:
        with Sandbox(workers=2, limits=Limits(input_seconds=2.0)) as sandbox:
            answers = [(str(n), f"{source}\n# {n}\n") for n in range(200)]
            started = time.monotonic()
            checks = ProgramVerifier(sandbox, task.suites["weak"]).check(answers)
            print(
                f"200 programs in {time.monotonic() - started:.1f} s, slowest {max(c.verdict.seconds for c in checks):.3f} s"
            )
    finally:
        for burner in burners:
            burner.kill()
            burner.join()
    assert sum(check.verdict.reward == 1.0 for check in checks) == 200
