"""The trainer's side of one supervisor: start it, send a job, collect the answer, end it."""

import json
import marshal
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from steelyard.errors import SandboxUnavailable, VerificationError
from steelyard.verify.sandbox.inside import syscalls, walls, wire
from steelyard.verify.sandbox.records import Limits, Wall

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

    def __init__(self, limits: Limits, wanted: Iterable[str]) -> None:
        self.socket, theirs = socket.socketpair()
        self.buffer = bytearray()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill
        settings = json.dumps({"limits": _numbers(limits), "walls": sorted(wanted)})
        folder = str(Path(walls.__file__).parent)
        arguments = ["-c", _BOOT, folder, str(theirs.fileno()), str(os.getpid()), settings]
        environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
        if "LD_LIBRARY_PATH" in os.environ:  # an interpreter may find its own library only there
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
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
        _, missing = cast("tuple[bool, list[list[str]]]", answer)
        return [_wall(name, {row[0]: (row[1], row[2]) for row in missing}) for name in walls.NAMES]

    def send(self, source: str, entry_point: str, inputs: list[bytes]) -> None:
        """Send one job; OSError when the server is gone."""
        data = marshal.dumps((source, entry_point, inputs))
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


def refuse(missing: list[Wall]) -> SandboxUnavailable:
    """Return the error that names each wall and its fix."""
    lines = [f"the wall '{wall.name}' cannot be raised: {wall.why}. Fix: {wall.fix}." for wall in missing]
    return SandboxUnavailable("\n".join([*lines, "To run programs without walls all the same, type --unconfined."]))


def _wall(name: str, missing: dict[str, tuple[str, str]]) -> Wall:
    why, fix = missing.get(name, ("", ""))
    return Wall(name=name, stands=name not in missing, required=name not in walls.OPTIONAL, why=why, fix=fix)


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
