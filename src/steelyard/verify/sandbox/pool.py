"""The pool of sandbox servers that a trainer uses."""

import marshal
import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

from steelyard.errors import ConfigError, SandboxUnavailable, TaskError, VerificationError
from steelyard.types import Status
from steelyard.verify.sandbox import server as servers
from steelyard.verify.sandbox.inside import walls, wire
from steelyard.verify.sandbox.records import InputOutcome, Limits, ProgramJob, ProgramRun, Wall
from steelyard.verify.sandbox.server import Server

_GRACE_SECONDS = 60.0
"""On top of a program's own time before a server counts as hung: forks, raising walls, a loaded machine."""
_DETAIL = 400
_DECODED = 1 << 20
"""Of one program, in the costs of `wire.Budget`: some 40 MB of our memory at most."""
_ATTEMPTS = 2
"""A program whose server died runs once more; a second death is `checker_failed`."""


@dataclass
class _Task:
    """A job under way."""

    index: int
    job: ProgramJob
    inputs: list[bytes]
    attempt: int = 0
    deadline: float = 0.0


class Sandbox:
    """Runs programs behind walls, `workers` at a time; use as a context manager.

    The servers are fresh interpreters without torch, started here; the programs are forked from them. One call of `run`
    at a time; other threads wait. A forked copy of the trainer starts servers of its own.
    """

    def __init__(
        self,
        *,
        workers: int,
        limits: Limits | None = None,
        unconfined: bool = False,
        packages: Sequence[str] = (),
    ) -> None:
        """Start the servers.

        Args:
            workers: Programs at a time, one server each; at least 1.
            limits: What one program may use.
            unconfined: Run without namespaces and filter, in plain processes with resource limits: for trusted programs.
            packages: Installed packages that programs may import, such as numpy; none by default.

        Raises:
            SandboxUnavailable: Too few walls can be raised on this machine; the message has the fix.
            VerificationError: A server did not start.
        """
        problem = servers.machine_problem()
        if problem:
            raise SandboxUnavailable(problem[0].upper() + problem[1:])
        if workers < 1:
            raise ConfigError(f"A sandbox needs at least 1 worker, got {workers}.")
        self.limits = limits or Limits()
        self.workers = workers
        self.unconfined = unconfined
        self.packages = tuple(packages)
        self.level = ""
        """A, B, C or unconfined; see docs/verification.md."""
        self._wanted: frozenset[str] | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._servers: list[Server] = []
        self._finalizer = weakref.finalize(self, _shut_down, self._servers, self._owner)
        self.walls: tuple[Wall, ...] = ()
        self._fill_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the servers and everything in them; a call of `run` in another thread ends with a VerificationError."""
        self._closed = True
        ours = self._owner == os.getpid()
        held = ours and self._lock.acquire(blocking=False)
        if ours and not held:
            for server in list(self._servers):
                server.process.kill()
            held = self._lock.acquire(timeout=_GRACE_SECONDS)
        try:
            self._finalizer()
        finally:
            if held:
                self._lock.release()

    def run(self, jobs: Sequence[ProgramJob]) -> list[ProgramRun]:
        """Run every job and return the runs, same length and order.

        A program's misbehaviour is data in its run. `checker_failed` says that our side failed twice on it.

        Raises:
            TaskError: An input is not plain data.
            VerificationError: Servers cannot be started any more, or the sandbox is closed.
        """
        inputs = _EncodedInputs()
        tasks = deque(_Task(index, job, inputs.encode(job)) for index, job in enumerate(jobs))
        self._adopt()
        with self._lock:
            self._require_open()
            self._fill_up()
            round_ = _Round(self._servers, self.limits, self._start_one)
            try:
                return round_.run(tasks, len(jobs))
            except BaseException:  # an interrupt too: what runs now has nobody to report to
                round_.kill_busy()
                raise

    def _ladder(self) -> list[frozenset[str]]:
        """Return the sets of walls to try, the best first."""
        return [frozenset({"limits"})] if self.unconfined else servers.ladder()

    def _fill_up(self) -> None:
        """Start the servers that are missing, all at once; the first one finds out what this machine can raise."""
        if self._wanted is None:
            self._servers.append(self._start_best())
        started = [self._server(self._wanted or frozenset()) for _ in range(self.workers - len(self._servers))]
        try:
            for server in started:
                self._check(server.await_start())
        except BaseException:
            for server in started:
                server.kill()
            raise
        self._servers += started

    def _start_best(self) -> Server:
        refusals: list[list[Wall]] = []
        for wanted in self._ladder():
            server, found = servers.started(self.limits, wanted, self.packages)
            missing = servers.missing(found)
            if not missing:
                self._wanted, self.level = wanted, server.level
                self.walls = tuple(wall for wall in found if wall.name in wanted)
                return server
            refusals.append(missing)
            server.kill()
        raise servers.refuse(refusals)

    def _server(self, wanted: frozenset[str]) -> Server:
        return Server(self.limits, wanted, self.packages)

    def _require_open(self) -> None:
        if self._closed:
            raise VerificationError("This sandbox is closed: open a new one.")

    def _start_one(self) -> Server:
        self._require_open()
        server, found = servers.started(self.limits, self._wanted or frozenset(), self.packages)
        self._check(found)
        return server

    def _check(self, found: list[Wall]) -> None:
        """Refuse a later server with fewer walls than the first."""
        if missing := servers.missing(found):
            raise servers.refuse([missing])

    def _adopt(self) -> None:
        """In a forked copy of the trainer, leave the original's servers alone."""
        if self._owner == os.getpid():
            return
        self._lock = threading.Lock()  # the original's may be held by a thread that was not copied
        for server in self._servers:
            server.forget()
        self._finalizer.detach()
        self._servers = []
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _shut_down, self._servers, self._owner)


class _Round:
    """One call of `run`: hands tasks to idle servers and collects their answers."""

    def __init__(self, pool: list[Server], limits: Limits, start: Callable[[], Server]) -> None:
        self.pool = pool
        self.limits = limits
        self.start = start
        self.busy: dict[Server, _Task] = {}
        self.waiting: deque[_Task] = deque()
        self.runs: dict[int, ProgramRun] = {}

    def run(self, tasks: deque[_Task], count: int) -> list[ProgramRun]:
        self.waiting = tasks
        with selectors.DefaultSelector() as selector:
            for server in self.pool:
                selector.register(server.socket, selectors.EVENT_READ, server)
            while len(self.runs) < count:
                for server in [server for server in self.pool if server not in self.busy]:
                    if self.waiting and not self._hand_out(server):
                        self._replace(server, selector)
                for key, _ in selector.select(self._patience()):
                    self._collect(cast(Server, key.data), selector)
                for server in [s for s, task in self.busy.items() if time.monotonic() > task.deadline]:
                    self._replace(server, selector)
        return [self.runs[index] for index in range(count)]

    def kill_busy(self) -> None:
        """End the servers whose answer nobody will collect; the next call starts new ones."""
        for server in self.busy:
            self.pool.remove(server)
            server.kill()

    def _hand_out(self, server: Server) -> bool:
        task = self.waiting.popleft()
        task.attempt += 1
        task.deadline = time.monotonic() + self.limits.program_seconds + _GRACE_SECONDS
        self.busy[server] = task
        try:
            server.send(task.job, task.inputs)
        except OSError:
            task.attempt -= 1  # it was dead before it got the program
            return False
        return True

    def _patience(self) -> float:
        return max(0.0, min((task.deadline for task in self.busy.values()), default=0.0) - time.monotonic())

    def _collect(self, server: Server, selector: selectors.BaseSelector) -> None:
        try:
            answer = server.receive()
        except (OSError, EOFError, wire.BadBytes):
            self._replace(server, selector)
            return
        if answer is not None:
            task = self.busy.pop(server)
            self.runs[task.index] = _read_run(task.job, answer)

    def _replace(self, server: Server, selector: selectors.BaseSelector) -> None:
        """Put a fresh server in the place of a dead or hung one; its program runs once more."""
        task = self.busy.pop(server, None)
        selector.unregister(server.socket)
        detail = server.error_tail()
        server.kill()
        self.pool.remove(server)
        if task is not None and task.attempt < _ATTEMPTS:
            self.waiting.appendleft(task)
        elif task is not None:
            outcome = InputOutcome(fault=Status.CHECKER_FAILED, ran=False)
            text = f"the sandbox server died twice on this program: {detail}"
            outcomes = (outcome,) * len(task.inputs)
            self.runs[task.index] = ProgramRun(id=task.job.id, outcomes=outcomes, seconds=0.0, detail=_printable(text))
        fresh = self.start()
        self.pool.append(fresh)
        selector.register(fresh.socket, selectors.EVENT_READ, fresh)


def probe() -> tuple[str, list[Wall]]:
    """Find out the level of this machine, and which walls stand at it; D where too few can be raised.

    A wall that does not stand says why, and what to change; those after a missing one are not tried.
    """
    problem = servers.machine_problem()
    if problem:
        return "D", [Wall(name=name, stands=False, why=problem) for name in walls.NAMES]
    level, found, missing = "D", list[Wall](), dict[str, Wall]()
    for wanted in servers.ladder():
        server, found = servers.started(Limits(), wanted)
        server.kill()
        lacking = servers.missing(found)
        if not lacking:
            level = server.level
            break
        missing |= {wall.name: wall for wall in lacking}
    return level, [wall if wall.stands else missing.get(wall.name, wall) for wall in found]


def _shut_down(pool: list[Server], owner: int) -> None:
    if os.getpid() != owner:
        return
    for server in pool:
        server.close()
    pool.clear()


class _EncodedInputs:
    """Encodes the inputs of one call, each once: many programs run on the same ones."""

    def __init__(self) -> None:
        self.known: dict[int, bytes] = {}  # by identity: the jobs keep the inputs for the length of the call

    def encode(self, job: ProgramJob) -> list[bytes]:
        try:
            return [self._encode(arguments) for arguments in job.inputs]
        except ValueError as error:
            raise TaskError(f"Input of program {job.id!r} is not plain data: {error}.") from error

    def _encode(self, arguments: tuple[object, ...]) -> bytes:
        found = self.known.get(id(arguments))
        if found is not None:
            return found
        wire.encode(arguments)
        # Version 2 has no back references: what is shared here arrives as separate copies.
        data = marshal.dumps(cast(Any, arguments), 2)
        self.known[id(arguments)] = data
        return data


def _read_run(job: ProgramJob, answer: object) -> ProgramRun:
    rows, seconds, detail = cast("tuple[list[tuple[str, bytes, bool]], float, str]", answer)
    budget = wire.Budget(_DECODED)
    outcomes = tuple(_read_outcome(*row, budget) for row in rows)
    size = sum(len(data) for _, data, _ in rows)
    return ProgramRun(id=job.id, outcomes=outcomes, seconds=seconds, value_bytes=size, detail=_printable(detail))


def _read_outcome(status: str, data: bytes, ran: bool, budget: wire.Budget) -> InputOutcome:  # noqa: FBT001 - a row of the answer
    if status != "returned":
        return InputOutcome(fault=Status(status), ran=ran)
    try:
        return InputOutcome(value=wire.decode(data, budget))
    except wire.TooMany:
        return InputOutcome(fault=Status.OUTPUT_LIMIT)
    except wire.BadBytes:  # a forged frame; an honest encoder does not produce it
        return InputOutcome(fault=Status.FORBIDDEN)


def _printable(text: str) -> str:
    """Cap text that a program may have written, and take out what a terminal would obey."""
    shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in text[: _DETAIL + 1])
    return shown if len(text) <= _DETAIL else shown[:_DETAIL] + "…"
