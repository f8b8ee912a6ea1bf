"""What the sandbox tests share: a small suite, and a look at the process table."""

import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from steelyard.types import Case, Plain, Suite, Verdict
from steelyard.verify.programs import ProgramVerifier
from steelyard.verify.sandbox import Limits, ProgramJob, ProgramRun, Sandbox
from steelyard.verify.sandbox.inside import walls

QUICK = Limits(input_seconds=1.0, program_seconds=5.0, timeouts=1)


class SandboxWithout(Sandbox):
    """A sandbox without some of its walls, to see what they are for; the product has no such switch."""

    def __init__(self, without: Collection[str], *, workers: int = 1, limits: Limits = QUICK) -> None:
        self._left = frozenset(walls.NAMES) - frozenset(without)
        super().__init__(workers=workers, limits=limits)

    def _ladder(self) -> list[frozenset[str]]:
        return [self._left]


def suite_of(rows: Iterable[tuple[Plain, Plain]], *, name: str = "main") -> Suite:
    """One-argument tests: input, expected value."""
    cases = tuple(Case(id=f"t{i}", family="all", args=(x,), expected=y) for i, (x, y) in enumerate(rows))
    return Suite(task="double", name=name, version=1, entry_point="f", cases=cases)


DOUBLE = suite_of((x, 2 * x) for x in range(3))


def verdict_of(sandbox: Sandbox, source: str, suite: Suite = DOUBLE) -> Verdict:
    (check,) = ProgramVerifier(sandbox, suite).check([("a", f"```python\n{source}\n```")])
    return check.verdict


def run_one(sandbox: Sandbox, source: str, inputs: Sequence[Plain] = (1,)) -> ProgramRun:
    (run,) = sandbox.run([ProgramJob(id="a", source=source, entry_point="f", inputs=tuple((x,) for x in inputs))])
    return run


def _stat(pid: str) -> tuple[int, str] | None:
    """Parent and state of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0]


def descendants(root: int) -> dict[int, str]:
    """State by process id of everything below `root`."""
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    table = {int(pid): stat for pid in pids if (stat := _stat(pid)) is not None}
    found: dict[int, str] = {}
    while True:
        more = {
            p: state for p, (parent, state) in table.items() if p not in found and (parent == root or parent in found)
        }
        if not more:
            return found
        found |= more


def children(parent: int) -> list[int]:
    """Process ids directly below `parent`."""
    return [pid for pid in descendants(parent) if (stat := _stat(str(pid))) is not None and stat[0] == parent]


def alive(pids: Iterable[int]) -> set[int]:
    return {pid for pid in pids if (stat := _stat(str(pid))) is not None and stat[1] != "Z"}


def eventually_gone(pids: Iterable[int], *, seconds: float = 5.0) -> bool:
    pids = set(pids)
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pids)
