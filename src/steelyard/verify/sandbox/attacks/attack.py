"""The form of one row, and running the table against a sandbox.

Every program answers for `f(x)`, where 2 * x is right. A program made by `refused` gives the right answer when its
attempt was refused, so that `passed` says both: the wall held, and the program lived on.
"""

import platform
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from steelyard.types import Case, Status, Suite
from steelyard.verify.programs import ProgramVerifier
from steelyard.verify.sandbox.pool import Sandbox

HONEST = "def f(x):\n    return 2 * x\n"
"""Does what it is asked for."""
SUITE = Suite(
    task="attacks",
    name="double",
    version=1,
    entry_point="f",
    cases=tuple(Case(id=f"t{x}", family="all", args=(x,), expected=2 * x) for x in range(3)),
)
"""What judges a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attempt."""

    name: str
    """What it tries."""
    family: str
    """Which kind of attempt it is."""
    source: str
    """The program."""
    right: tuple[Status, ...]
    """The statuses that are right."""
    guards: tuple[str, ...]
    """What stops it: walls by their names, or `clock`, `output cap`, `value cap`, `nonce`, `frames`, `decoder`,
    `encoder`, `comparator`, `judge's process`, `fresh process`. Any one of several is enough."""
    tame: str | None = None
    """A form that is safe to run without its guards, where the program itself is not."""
    machine: str | None = None
    """The one kind of machine that has this attempt; None for all."""

    @property
    def applies(self) -> bool:
        """Whether this machine has what the attempt needs."""
        return self.machine in (None, platform.machine())


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of one row."""

    attack: Attack
    status: Status
    held: bool
    """Whether the status is a right one, and the honest program beside it kept full marks."""
    detail: str


def refused(name: str, attempt: str, *, guards: tuple[str, ...], error: str = "Exception", tame: str = "") -> Attack:
    """Return a row whose attempt has to raise; the program then gives the right answer."""
    source = _trying(attempt, error)
    return Attack(
        name=name,
        family="",
        source=source,
        right=(Status.PASSED,),
        guards=guards,
        tame=_trying(tame, error) if tame else None,
    )


def ends(name: str, source: str, *right: Status, guards: tuple[str, ...], tame: str | None = None) -> Attack:
    """Return a row whose program has to end in one of these statuses."""
    tame = None if tame is None else textwrap.dedent(tame).lstrip("\n")
    return Attack(
        name=name, family="", source=textwrap.dedent(source).lstrip("\n"), right=right, guards=guards, tame=tame
    )


SYSCALL = """
import ctypes, errno
def call(*arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(*map(ctypes.c_long, arguments))
    return 0 if result != -1 else ctypes.get_errno()
"""


def system_call(
    name: str, x86_64: int, aarch64: int, *arguments: int, guards: tuple[str, ...] = ("seccomp",)
) -> Attack:
    """Return a row for a system call that must not reach the kernel: any error but a refusal says that it did."""
    number = {"x86_64": x86_64, "aarch64": aarch64}.get(platform.machine(), x86_64)
    source = SYSCALL + (
        f"def f(x):\n    found = call{(number, *arguments)!r}\n"
        "    return 2 * x if found in (errno.EPERM, errno.ENOSYS) else errno.errorcode.get(found, 'done')\n"
    )
    return Attack(name=name, family="", source=source, right=(Status.PASSED,), guards=guards)


def killing_call(name: str, x86_64: int, aarch64: int | None, *arguments: int) -> Attack:
    """Return a row for a system call that ends the process."""
    machine = platform.machine()
    number = x86_64 if aarch64 is None or machine != "aarch64" else aarch64
    source = SYSCALL + f"def f(x):\n    call{(number, *arguments)!r}\n    return 2 * x\n"
    only = "x86_64" if aarch64 is None else None
    return Attack(name=name, family="", source=source, right=(Status.FORBIDDEN,), guards=("seccomp",), machine=only)


def family(name: str, *rows: Attack) -> tuple[Attack, ...]:
    """Return the rows under one family."""
    return tuple(replace(row, family=name) for row in rows)


def _trying(attempt: str, error: str) -> str:
    body = textwrap.indent(textwrap.dedent(attempt).strip(), "        ")
    return f"def f(x):\n    try:\n{body}\n    except {error}:\n        return 2 * x\n    return 'escaped'\n"


def run_attacks(
    sandbox: Sandbox,
    attacks: Sequence[Attack],
    *,
    suite: Suite = SUITE,
    tame: bool = False,
    done: Callable[[], object] = lambda: None,
    at_once: int = 16,
) -> list[Finding]:
    """Run rows with an honest program beside each.

    Args:
        sandbox: What is attacked.
        attacks: The rows.
        suite: What judges them.
        tame: Run the safe form of a row where it has one.
        done: Called after each row.
        at_once: Rows in one call of the sandbox.
    """
    findings: list[Finding] = []
    for start in range(0, len(attacks), at_once):
        part = attacks[start : start + at_once]
        verifier = ProgramVerifier(sandbox, suite)
        answers: list[tuple[str, str]] = []
        for number, attack in enumerate(part):
            source = attack.tame if tame and attack.tame else attack.source
            answers.append((f"attack {number}", f"```python\n{source}\n```"))
            answers.append((f"honest {number}", f"{HONEST}\nbeside = {attack.name!r}\n"))
        checks = {check.id: check for check in verifier.check(answers)}
        for number, attack in enumerate(part):
            verdict, beside = checks[f"attack {number}"].verdict, checks[f"honest {number}"].verdict
            held = verdict.status in attack.right and verdict.reward is not None and beside.reward == 1.0
            detail = verdict.detail if beside.reward == 1.0 else f"the honest program beside it: {beside.detail}"
            findings.append(Finding(attack=attack, status=verdict.status, held=held, detail=detail))
            done()
    return findings
