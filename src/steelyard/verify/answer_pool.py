"""A small pool of worker processes with a hard limit of wall time per call; a worker that passes it is killed and replaced.

No signal handler and no thread is ever waited for beyond its limit, so the pool may be used from any thread, from an event
loop's executor, and from a fork of the process that made it (which starts workers of its own).
"""

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, cast

from steelyard.errors import VerificationError
from steelyard.verify.answer_worker import LENGTH

Ending = Literal["value", "raised", "memory", "timeout", "died"]
_BOOT = (
    "import sys; sys.path[:0] = [sys.argv[2]]; from steelyard.verify.answer_worker import main; main(int(sys.argv[1]))"
)
_SOURCE = str(Path(__file__).resolve().parents[2])
_LARGEST_REPLY = 64 << 20
PATIENCE = 4
"""Times the limit that the rerun of a call gets whose worker had less than half the limit of processor time."""
_GRACE = 5.0
"""Seconds after every limit of ours at which a worker ends itself, should nobody be left to end it."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of one call."""

    ending: Ending
    """value: the handler returned; raised; memory: over the limit; timeout; died: the worker ended in the middle."""
    value: object = None
    """What the handler returned: plain JSON data."""
    detail: str = ""
    """For people: the exception and its line, or the limit that was passed."""
    seconds: float = 0.0
    """Wall time of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a worker is: its handler and its limits."""

    function: str
    """module:function; called once in the worker with `settings`, it returns the handler of requests."""
    settings: Mapping[str, object]
    """Plain data."""
    seconds: float
    """Wall time that one call may take."""
    memory_mb: int | None = None
    """Memory on top of what the worker has mapped when it is ready; None: no limit."""
    walled: bool = True
    """Whether it gives up new processes, sockets and writing before the first request."""
    start_seconds: float = 120.0
    """Wall time that starting may take: imports of large packages."""


class AnswerPool:
    """Workers that are started when they are first needed."""

    def __init__(self, setup: Setup, *, workers: int = 2) -> None:
        """Take what a worker is, and how many there may be at a time."""
        self.setup = setup
        self.workers = workers
        self._owner = os.getpid()
        self._reset()

    def _reset(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        self._free = threading.Semaphore(self.workers)

    def call(self, request: object, *, reruns: int = 1) -> Reply:
        """Call the handler once; when its worker died or was starved of the processor, up to `reruns` times more.

        Raises:
            VerificationError: If a worker cannot be started.
        """
        if os.getpid() != self._owner:  # a fork of the owner: these workers are not ours
            for worker in self._idle:
                worker.forget()
            self._owner = os.getpid()
            self._reset()
        with self._free:
            reply, starved = self._once(request, seconds=self.setup.seconds)
            while reruns and (reply.ending == "died" or starved):
                reruns -= 1
                reply, starved = self._once(request, seconds=self.setup.seconds * (PATIENCE if starved else 1))
        if starved:  # its time went to other programs: nothing was found out about the request
            return Reply(
                ending="died", detail=f"{reply.detail}, most of it waiting for a processor", seconds=reply.seconds
            )
        return reply

    def map(self, requests: Sequence[object]) -> list[Reply]:
        """Call the handler on each request, on all workers; one reply each, in order."""
        if len(requests) < 2 or self.workers == 1:
            return [self.call(request) for request in requests]
        with ThreadPoolExecutor(min(self.workers, len(requests))) as threads:
            try:
                return list(threads.map(self.call, requests))
            except BaseException:  # Ctrl-C: what has not begun is not begun
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def close(self) -> None:
        """End the idle workers; a later call starts new ones."""
        with self._lock:
            workers, self._idle = self._idle, []
        for worker in workers:
            worker.kill()

    def __enter__(self) -> Self:
        """Nothing to do: workers start when they are needed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers."""
        self.close()

    def _once(self, request: object, *, seconds: float) -> tuple[Reply, bool]:
        """Call a worker; say also whether it timed out because other programs had the processor."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        worker = worker or _Worker(self.setup)
        keep = False
        try:
            used = worker.cpu_seconds()
            reply = worker.call(request, seconds=seconds)
            keep = reply.ending in ("value", "raised", "memory")
            starved = reply.ending == "timeout" and worker.cpu_seconds() - used < self.setup.seconds / 2
            return reply, starved and worker.runnable
        finally:
            if keep:
                with self._lock:
                    self._idle.append(worker)
            else:
                worker.kill()


class _Worker:
    """One process and our end of the socket to it."""

    def __init__(self, setup: Setup) -> None:
        self.runnable = False
        self.socket, theirs = socket.socketpair()
        quiet = subprocess.DEVNULL if setup.walled else None  # what a model's text may print is for nobody
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno()), _SOURCE],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=quiet,
            stderr=quiet,
            env=_environment() if setup.walled else None,
            start_new_session=True,  # its own children can be ended with it
        )
        theirs.close()
        settings = {
            "path": sys.path,
            "setup": setup.function,
            "settings": dict(setup.settings),
            "memory_mb": setup.memory_mb,
            "walled": setup.walled,
            "alone_seconds": PATIENCE * setup.seconds + _GRACE,
        }
        ready = self.call(settings, seconds=setup.start_seconds)
        if ready.ending != "value":
            self.kill()
            raise VerificationError(f"A worker that judges answers did not start: {ready.detail}")

    def call(self, request: object, *, seconds: float) -> Reply:
        """Send one request and wait for the answer, no longer than `seconds`."""
        began = time.monotonic()
        data = pickle.dumps(request)
        try:
            self._deadline(began + seconds)
            self.socket.sendall(LENGTH.pack(len(data)) + data)
            answer = self._read(began + seconds)
        except TimeoutError:
            self.runnable = self._state() == "R"
            return Reply(ending="timeout", detail=f"no answer within {seconds:g} s", seconds=time.monotonic() - began)
        except (OSError, EOFError, ValueError) as error:
            return Reply(ending="died", detail=self._end(error), seconds=time.monotonic() - began)
        return _reply(answer, time.monotonic() - began)

    def _read(self, until: float) -> dict[str, object]:
        head = self._exactly(LENGTH.size, until)
        (length,) = LENGTH.unpack(head)
        if length > _LARGEST_REPLY:
            raise ValueError("its answer is too long")
        return cast("dict[str, object]", json.loads(self._exactly(length, until)))

    def _exactly(self, count: int, until: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._deadline(until)
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _deadline(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)

    def _end(self, error: Exception) -> str:
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return f"the worker stopped answering ({error or type(error).__name__})"
        return f"the worker ended with {'signal' if code < 0 else 'exit code'} {abs(code)}"

    def _stat(self) -> list[str]:
        try:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return []

    def _state(self) -> str:
        return (self._stat() or [""])[0]

    def cpu_seconds(self) -> float:
        """Processor time that it has used; 0 where the system does not say."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / _TICKS if len(fields) > 12 else 0.0

    def kill(self) -> None:
        """End it at once, and what it started."""
        self.socket.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.process.wait()

    def forget(self) -> None:
        """Drop a worker that belongs to the process this one was forked from."""
        self.socket.close()
        self.process.returncode = 0


def _environment() -> dict[str, str]:
    """What a walled worker may know of ours: where libraries are; the same order of sets every time; no secrets."""
    kept = ("PATH", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")
    fixed = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**{name: os.environ[name] for name in kept if name in os.environ}, **fixed}


def _reply(answer: Mapping[str, object], seconds: float) -> Reply:
    if "value" in answer:
        return Reply(ending="value", value=answer["value"], seconds=seconds)
    if "memory" in answer:
        return Reply(ending="memory", detail=str(answer["memory"]), seconds=seconds)
    return Reply(ending="raised", detail=str(answer.get("raised", answer.get("failed", ""))), seconds=seconds)
