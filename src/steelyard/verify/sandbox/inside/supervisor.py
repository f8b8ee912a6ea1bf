"""The process between trainer and zygote: it holds the inputs, owns the clock, and decides what happened.

It is small, has no torch, and is started fresh: a fork from the trainer would cost in proportion to the trainer's
memory. It runs one program at a time; a pool has one supervisor per worker.
"""

import json
import marshal
import os
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

from . import frames, walls, wire, zygote
from .session import Child, Ending, ParentGone, Trouble, ZygoteGone, ZygoteHandle

START_SECONDS = 20.0
"""For a child to raise its walls; this is our time, not the program's."""
_LENGTH = struct.Struct("<Q")
_REPLIES = {
    frames.VALUE: "returned",
    frames.NOT_PLAIN: "failed",
    frames.TOO_LARGE: "output_limit",
    frames.RAISED: "crashed",
    frames.NO_MEMORY: "memory_limit",
}


@dataclass(frozen=True)
class Limits:
    """The trainer's `Limits`, as numbers."""

    input_seconds: float
    program_seconds: float
    timeouts: int
    memory_bytes: int
    output_bytes: int
    value_bytes: int
    values_bytes: int


class ProgramRunner:
    """Runs one program on its inputs: all in one child, and on after trouble in a fresh one."""

    def __init__(
        self, handle: ZygoteHandle, watched: list[int], limits: Limits, job: tuple[str, str, list[bytes]]
    ) -> None:
        self.handle = handle
        self.watched = watched
        self.limits = limits
        self.source, self.entry_point, self.inputs = job
        self.outcomes: list[tuple[str, bytes, bool]] = []  # status or "returned", encoded value, whether it ran
        self.detail = ""
        self.deadline = time.monotonic() + limits.program_seconds
        self.slow = 0
        self.returned_bytes = 0

    def run(self) -> None:
        """Give every input an outcome."""
        while len(self.outcomes) < len(self.inputs):
            if time.monotonic() >= self.deadline:
                self._give_up("timeout", "the program's time was used up")
                return
            self._one_child()

    def _one_child(self) -> None:
        child = new_child(self.handle, self.watched, self.limits)
        finished = False
        loading = True
        try:
            require_walls(child)
            body = marshal.dumps((self.source, self.entry_point))
            tag, body = child.ask(frames.SOURCE, body, self._seconds())
            if tag != frames.LOADED:
                self._give_up(_load_status(tag), _text(body))
                return
            loading = False
            self._ask_inputs(child)
        except Trouble as trouble:
            finished = True
            self._after(trouble, child.finish(patient=trouble.died), loading=loading)
        finally:
            if not finished:
                child.finish()

    def _ask_inputs(self, child: Child) -> None:
        while len(self.outcomes) < len(self.inputs):
            tag, body = child.ask(frames.INPUT, self.inputs[len(self.outcomes)], self._seconds())
            status = _status(tag)
            if status == "returned":
                self.outcomes.append((status, body, True))
                self.returned_bytes += len(body)
                if self.returned_bytes > self.limits.values_bytes:
                    raise Trouble("output_limit", f"more than {self.limits.values_bytes} bytes of returned values")
                continue
            self._mark(status, _text(body))
            if status == "memory_limit":
                return  # what it had allocated may still be there: go on in a fresh child

    def _after(self, trouble: Trouble, ending: Ending, *, loading: bool) -> None:
        status, detail = trouble.status, trouble.detail
        if trouble.died:
            status, detail = explain(ending, self.limits)
        spent = self.returned_bytes > self.limits.values_bytes
        if loading or spent or status == "forbidden" or len(self.outcomes) == len(self.inputs):
            self._give_up(status, detail)
            return
        self._mark(status, detail)
        if status in ("timeout", "output_limit"):
            self.slow += 1
            if self.slow >= self.limits.timeouts:
                self._give_up(status, detail)

    def _seconds(self) -> float:
        return min(self.limits.input_seconds, self.deadline - time.monotonic())

    def _mark(self, status: str, detail: str) -> None:
        if not self.detail:
            self.detail = f"input {len(self.outcomes)}: {status}: {detail}"
        self.outcomes.append((status, b"", True))

    def _give_up(self, status: str, detail: str) -> None:
        """The inputs that are left get this status without being run."""
        left = len(self.inputs) - len(self.outcomes)
        if left == 0:  # its last value was one too many
            self.outcomes[-1] = (status, b"", True)
        self.detail = self.detail or f"input {len(self.outcomes)}: {status}: {detail}"
        self.outcomes += [(status, b"", False)] * left


def _status(tag: bytes) -> str:
    if tag not in _REPLIES:
        raise Trouble("forbidden", "a result of an unknown kind was sent")
    return _REPLIES[tag]


def _load_status(tag: bytes) -> str:
    if tag not in (frames.RAISED, frames.NO_MEMORY):
        raise Trouble("forbidden", "a result was sent while the program was loaded")
    return _REPLIES[tag]


def _text(body: bytes) -> str:
    return body[:500].decode("utf-8", "replace")


def explain(ending: Ending, limits: Limits) -> tuple[str, str]:
    """Say why a child closed its channel."""
    if ending.killed:
        return "crashed", "the program closed the channel of its results"
    code = os.waitstatus_to_exitcode(ending.status)
    if code == -signal.SIGSYS:
        return "forbidden", "a system call that ends the process"
    if code in (-signal.SIGXCPU, -signal.SIGKILL) and ending.cpu_seconds >= cpu_limit(limits) - 1:
        return "timeout", "the limit of CPU time"
    if code in (frames.MEMORY_EXIT, -signal.SIGKILL):
        return "memory_limit", f"{ending.largest_kib // 1024} MiB in use at its end"
    name = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return "crashed", f"the process ended: {name}"


def cpu_limit(limits: Limits) -> int:
    """Return the limit of CPU seconds of one child, past the program's time: the clock decides first."""
    return int(limits.program_seconds) + 2


def new_child(handle: ZygoteHandle, watched: list[int], limits: Limits) -> Child:
    """Fork a child under these limits."""
    return Child(handle, watched, output_bytes=limits.output_bytes, value_bytes=limits.value_bytes)


def require_walls(child: Child) -> None:
    """Wait until the child is ready; anything else is our fault, not the program's."""
    try:
        missing = child.ready(START_SECONDS)
    except Trouble as trouble:
        raise ZygoteGone(f"a child did not start: {trouble.detail}; it wrote {child.tail!r}") from trouble
    if missing:
        raise walls.MissingWall(*missing[0].split("\0"))


# ------------------------------------------------------------------ the process


class Supervisor:
    """The loop: one job in, one answer out."""

    def __init__(self, trainer: socket.socket, parent: int, limits: Limits) -> None:
        self.trainer = trainer
        self.limits = limits
        # Readable once the trainer is gone. (A parent-death signal would come when the trainer's *thread* ends.)
        self.parent = os.pidfd_open(parent)
        if os.getppid() != parent:
            raise ParentGone
        self.watched = [trainer.fileno(), self.parent]

    def start(self, wanted: frozenset[str]) -> list[list[str]]:
        """Start the zygote and one child on trial; return the walls that are missing: name, why, fix."""
        self.second_id = walls.enter_user_namespace() if "user namespace" in wanted else False
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            self.trainer.close()
            os.close(self.parent)
            limits = self.limits
            zygote.main(
                theirs,
                zygote.Settings(
                    wanted=wanted,
                    second_id=self.second_id,
                    memory_bytes=limits.memory_bytes,
                    cpu_seconds=cpu_limit(limits),
                    value_bytes=limits.value_bytes,
                ),
            )
        theirs.close()
        self.handle = ZygoteHandle(ours)
        report = wire.decode(ours.recv(1 << 16))
        name, why, fix = report  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        if name:
            raise walls.MissingWall(str(name), str(why), str(fix))  # pyright: ignore[reportUnknownArgumentType]
        trial = new_child(self.handle, self.watched, self.limits)
        try:
            require_walls(trial)
        finally:
            trial.finish()
        return [["landlock", str(why), ""]] if why else []  # pyright: ignore[reportUnknownArgumentType]

    def serve(self) -> None:
        """Run jobs until the trainer closes the connection."""
        while True:
            job = marshal.loads(self._receive())
            started = time.monotonic()
            runner = ProgramRunner(self.handle, self.watched, self.limits, job)
            runner.run()
            self.send([[list(row) for row in runner.outcomes], time.monotonic() - started, runner.detail])

    def send(self, value: object) -> None:
        """Send one answer to the trainer."""
        data = wire.encode(value)
        self.trainer.sendall(_LENGTH.pack(len(data)) + data)

    def _receive(self) -> bytes:
        descriptor = self.trainer.fileno()
        (length,) = _LENGTH.unpack(frames.read_exactly(descriptor, _LENGTH.size))
        return frames.read_exactly(descriptor, length)


def main() -> NoReturn:
    """Entry of the fresh interpreter: descriptor of the trainer's socket, its process, settings as JSON."""
    descriptor, parent, settings = int(sys.argv[-3]), int(sys.argv[-2]), json.loads(sys.argv[-1])
    trainer = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - the standard library's signature
    try:
        supervisor = Supervisor(trainer, parent, Limits(**settings["limits"]))
        try:
            missing = supervisor.start(frozenset(settings["walls"]))
        except walls.MissingWall as wall:
            supervisor.send([False, [[wall.name, wall.why, wall.fix]]])
            sys.exit(0)
        supervisor.send([True, missing])
        supervisor.serve()
    except (EOFError, BrokenPipeError, ConnectionResetError, ParentGone):
        pass  # the trainer is gone, or has closed the sandbox; the zygote and its child die with this process
    sys.exit(0)
