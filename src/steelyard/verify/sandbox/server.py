"""The trainer's side of one supervisor: start it, send a job, collect the answer, end it."""

import fcntl
import importlib.util
import json
import marshal
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from steelyard.errors import ConfigError, SandboxUnavailable, VerificationError
from steelyard.verify.sandbox.inside import syscalls, walls, wire
from steelyard.verify.sandbox.records import Limits, ProgramJob, Wall

INSIDE = Path(walls.__file__).parent
"""The sources that run in the servers, apart from the rest of the package."""
_SEND_SECONDS = 30.0
"""For any one step of the conversation with a server; a slower one is hung, and is replaced."""
_LENGTH = struct.Struct("<Q")
# `-I` would ignore PYTHONHASHSEED; the environment is ours entirely, so `-P -s` isolate as much.
_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
_BOOT = """\
import sys, types
package = types.ModuleType("jail")
package.__path__ = [sys.argv[1]]
sys.modules["jail"] = package
from jail import supervisor
supervisor.main()
"""


def machine_problem() -> str:
    """Return why no sandbox can run on this system at all, or an empty string."""
    if sys.platform != "linux":
        return f"programs are run on Linux only, this is {sys.platform}: use a Linux machine, virtual machine or container."
    if not syscalls.SUPPORTED:
        return f"programs are run on 64-bit x86_64 and aarch64 only, this is {syscalls.MACHINE}."
    return ""


class Server:
    """One supervisor process with its zygote; runs one program at a time."""

    def __init__(self, limits: Limits, wanted: Iterable[str], packages: Sequence[str] = ()) -> None:
        folders = [[name, _folder_of(name)] for name in packages]
        self.socket, theirs = (_clear_of_the_standard_streams(each) for each in socket.socketpair())
        self.buffer = bytearray()
        self.wanted = frozenset(wanted)
        self.level = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill
        settings = json.dumps({"limits": _numbers(limits), "walls": sorted(self.wanted), "packages": folders})
        arguments = ["-c", _BOOT, str(INSIDE), str(theirs.fileno()), str(os.getpid()), settings]
        # One thread: a package's thread pool would need more processes than a program may have.
        environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        if "LD_LIBRARY_PATH" in os.environ:  # an interpreter may find its own library only there
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        try:
            self.process = subprocess.Popen(
                [sys.executable, *_FLAGS, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment,
                cwd="/",
                start_new_session=True,  # Ctrl-C at the trainer's terminal is not for it
            )
        except OSError as error:
            self.socket.close()
            self._errors.close()
            raise VerificationError(f"The sandbox server cannot be started: {error}.") from error
        finally:
            theirs.close()

    def await_start(self) -> list[Wall]:
        """Wait until the server is ready; return its walls, all required ones standing or the first that does not.

        Raises:
            VerificationError: The server died, or did not answer in time.
        """
        self.socket.settimeout(_SEND_SECONDS)
        try:
            answer = None
            while answer is None:
                answer = self.receive()
        except (OSError, EOFError) as error:
            tail = self.error_tail()
            self.kill()
            raise VerificationError(f"The sandbox server did not start ({error or 'it ended'}): {tail}") from error
        _, self.level, missing = cast("tuple[bool, str, list[list[str]]]", answer)
        reasons = {row[0]: (row[1], row[2]) for row in missing}
        return [self._wall(name, reasons) for name in walls.NAMES]

    def _wall(self, name: str, missing: dict[str, tuple[str, str]]) -> Wall:
        why, fix = missing.get(name, ("", "") if name in self.wanted else ("not raised at this level", ""))
        return Wall(name=name, stands=not why, required=name in walls.required(self.wanted), why=why, fix=fix)

    def send(self, job: ProgramJob, inputs: list[bytes]) -> None:
        """Send one job; OSError when the server is gone."""
        data = marshal.dumps((job.source, job.entry_point, inputs, job.form, job.strict))
        self.socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> object | None:
        """Read once from the server; return its answer, or None while it is not complete.

        Raises:
            EOFError: The server is gone.
        """
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError
        self.buffer += data
        if len(self.buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self.buffer)
        if len(self.buffer) < _LENGTH.size + length:
            return None
        answer = wire.decode(bytes(self.buffer[_LENGTH.size :]))
        self.buffer.clear()
        return answer

    def error_tail(self) -> str:
        """Return the last lines that the server wrote about itself."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode("utf-8", "replace").strip()

    def close(self, *, patience: float = 2.0) -> None:
        """End the server: it leaves by itself when its socket closes."""
        self.socket.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End the server at once; zygote and candidates die with it."""
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self._errors.close()

    def forget(self) -> None:
        """Drop a server that belongs to the process this one was forked from."""
        self.socket.close()
        self._errors.close()
        self.process.returncode = 0  # not our child: never to be waited for


def _clear_of_the_standard_streams(opened: socket.socket) -> socket.socket:
    """Move a socket away from 0, 1 and 2, which it gets where the trainer has closed them."""
    if opened.fileno() > 2:
        return opened
    moved = socket.socket(fileno=fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3))
    opened.close()
    return moved


def ladder() -> list[frozenset[str]]:
    """Return the sets of walls to try on this machine, the best first.

    Root can do without a user namespace. Where no namespace can be had, Landlock, privileges, limits and filter must
    all stand.
    """
    everything = frozenset(walls.NAMES)
    as_root = [everything - {"user namespace"}] if os.geteuid() == 0 else []
    return [everything, *as_root, everything - walls.NAMESPACES]


def started(limits: Limits, wanted: frozenset[str], packages: Sequence[str] = ()) -> tuple[Server, list[Wall]]:
    """Start a server; return it with what came of its walls.

    Raises:
        VerificationError: The server died, or did not answer in time.
    """
    server = Server(limits, wanted, packages)
    try:
        return server, server.await_start()
    except BaseException:
        server.kill()
        raise


def missing(found: Sequence[Wall]) -> list[Wall]:
    """Return the required walls that do not stand."""
    return [wall for wall in found if wall.required and not wall.stands]


def refuse(refusals: Sequence[Sequence[Wall]]) -> SandboxUnavailable:
    """Return the error that names each wall and its fix, for every level that was tried."""
    lines = [
        f"the wall '{wall.name}' cannot be raised: {wall.why}. Fix: {wall.fix}." for tried in refusals for wall in tried
    ]
    way_out = "One of these fixes is enough." if len(refusals) > 1 else ""
    return SandboxUnavailable(
        "\n".join(
            [*dict.fromkeys(lines), f"{way_out} To run programs without walls all the same, type --unconfined.".strip()]
        )
    )


def _folder_of(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"programs may import {package!r}, says the request, but it is not installed here.")
    return str(Path(spec.origin).parents[1])


def _numbers(limits: Limits) -> dict[str, float]:
    return {
        "input_seconds": limits.input_seconds,
        "program_seconds": limits.program_seconds,
        "timeouts": limits.timeouts,
        "memory_bytes": limits.memory_mb << 20,
        "output_bytes": limits.output_bytes,
        "value_bytes": limits.value_bytes,
        "values_bytes": limits.values_bytes,
    }
