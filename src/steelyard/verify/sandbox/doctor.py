"""What the sandbox of this machine is worth: its walls, the attack table against them, and its speed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from steelyard.errors import SandboxUnavailable, VerificationError
from steelyard.verify.sandbox import server as servers
from steelyard.verify.sandbox.attacks import ATTACKS, Attack, Finding, run_attacks
from steelyard.verify.sandbox.pool import Sandbox, probe
from steelyard.verify.sandbox.records import Limits, ProgramJob, Wall

LIMITS = Limits(input_seconds=1.0, program_seconds=5.0, timeouts=1)
"""For the attacks: shorter than the product's, so that endless loops cost a second each."""
LEVELS = {
    "A": "programs are another user, in namespaces of their own, behind every wall",
    "B": "programs are in namespaces of their own, behind every wall, as your own user without rights",
    "C": "no namespaces on this machine: Landlock, privileges, limits and the filter hold alone",
    "D": "too few walls can be raised here, so programs are not run",
}
STOPS = {
    "user namespace": "everything else needs no root",
    "process namespace": "signals to others, daemons, anything left running",
    "file view": "reading tests, project and passwords; writing anywhere",
    "network": "connections, abstract sockets, System V objects",
    "landlock": "reading and writing beside the library, a second time",
    "privileges": "set-uid programs, ptrace, mounts",
    "limits": "memory bombs, long use of the CPU, new processes",
    "seccomp": "new processes, threads, sockets, doors of the kernel",
}
"""What each wall is for."""
_PROGRAM = """
def f(bookings):
    events = sorted([(end, -1) for _, end in bookings] + [(start, 1) for start, _ in bookings])
    best = now = 0
    for _, change in events:
        now += change
        best = max(best, now)
    return best
"""
_INPUTS = tuple(([[i * 7 % 50, i * 7 % 50 + 1 + i % 9] for i in range(size)],) for size in range(57))


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Programs through one worker."""

    programs: float
    """Programs a second, each with 57 inputs in one process."""
    inputs: float
    """Inputs a second, each in a process of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What was found."""

    level: str
    """A, B, C or D."""
    walls: tuple[Wall, ...]
    """Every wall, outermost first."""
    findings: tuple[Finding, ...] = ()
    """One per attack; empty at level D."""
    skipped: tuple[Attack, ...] = ()
    """Attacks that this kind of machine does not have."""
    speed: Speed | None = None
    """None at level D."""

    @property
    def through(self) -> tuple[Finding, ...]:
        """Attacks that did not end as they should."""
        return tuple(finding for finding in self.findings if not finding.held)

    @property
    def refusal(self) -> SandboxUnavailable | None:
        """At level D, the error with the fixes."""
        missing = [[wall] for wall in servers.missing(self.walls)]
        return servers.refuse(missing) if self.level == "D" else None


def examine(
    *,
    attacks: bool = True,
    seconds: float = 3.0,
    workers: int = 2,
    done: Callable[[int, int], object] = lambda _done, _of: None,
) -> Diagnosis:
    """Probe the walls, run the attack table against them, and measure the speed of one worker.

    Args:
        attacks: Whether to run the table; it takes about ten seconds.
        seconds: How long each speed is measured.
        workers: Attacks at a time.
        done: Told how many attacks are done, of how many.
    """
    level, walls = probe()
    if level == "D":
        return Diagnosis(level=level, walls=tuple(walls))
    here = [attack for attack in ATTACKS if attack.applies] if attacks else []
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        done(count, len(here))

    findings: list[Finding] = []
    if here:
        with Sandbox(workers=workers, limits=LIMITS) as sandbox:
            findings = run_attacks(sandbox, here, done=step)
    with Sandbox(workers=1) as sandbox:
        speed = Speed(
            programs=_rate(sandbox, seconds, strict=False), inputs=len(_INPUTS) * _rate(sandbox, seconds, strict=True)
        )
    skipped = tuple(attack for attack in ATTACKS if not attack.applies)
    return Diagnosis(level=level, walls=tuple(walls), findings=tuple(findings), skipped=skipped, speed=speed)


def _rate(sandbox: Sandbox, seconds: float, *, strict: bool) -> float:
    started, count = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        job = ProgramJob(id=str(count), source=_PROGRAM, entry_point="f", inputs=_INPUTS, strict=strict)
        (run,) = sandbox.run([job])
        if not all(outcome.returned for outcome in run.outcomes):
            raise VerificationError(f"an honest program did not come back from the sandbox: {run.detail}")
        count += 1
    return count / (time.monotonic() - started)
