"""A fresh process for every input: the init of the program's namespace forks one, relays its reply, and kills it.

This process never runs the candidate's source. It holds the source and the one input that was asked for; each fork gets
both, raises the last walls (no new processes, the filter) and answers through a pipe of its own, so that it cannot read
the next input or outlive its own.
"""

import marshal
import os
import resource
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import frames, harness, syscalls, walls, wire

DEATH = struct.Struct("<i?QQ")
"""Body of `frames.DIED`: wait status, whether it had to be killed, milliseconds of CPU time, largest resident size in KiB."""
_FORKED_TAGS = frozenset({
    frames.LOADED, frames.VALUE, frames.NOT_PLAIN, frames.TOO_LARGE, frames.RAISED, frames.NO_MEMORY,
})  # fmt: skip
_UNKNOWN = b"?"
_CHUNK = 1 << 16
_NATURAL_END_SECONDS = 0.2
"""A fork that closed its pipe gets this long to end by itself, so that its own exit status is seen."""


@dataclass(frozen=True)
class Streams:
    """Standard input and output of one fork; None leaves them as they are."""

    text: bytes | None = None
    """What it may read."""
    max_output: int = 0
    """Bytes kept of what it prints."""


class FreshServer:
    """Answers the supervisor's frames, each from a process of its own."""

    def __init__(self, channel: int, max_value_bytes: int, seal: Callable[[], None], *, script: bool) -> None:
        """Take the channel, the size of the largest value, and what each fork does before it runs anything."""
        self.channel = channel
        self.max_value_bytes = max_value_bytes
        self.seal = seal
        self.script = script

    def missing_walls(self, layout: walls.Layout) -> list[str]:
        """Try the walls in a fork that has raised them all."""
        tag, body = self._in_a_fork(lambda: (frames.VALUE, wire.encode(walls.standing(layout))), Streams())
        return [str(name) for name in wire.decode(body)] if tag == frames.VALUE else ["seccomp"]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType, reportUnknownArgumentType]

    def serve(self) -> None:
        """Answer until the supervisor kills this process."""
        nonce, _, body = frames.read_frame(self.channel)
        source, entry_point = marshal.loads(body)
        if self.script:
            frames.write_frame(self.channel, nonce, *self._in_a_fork(lambda: harness.compile_script(source), Streams()))
        else:
            answer = self._in_a_fork(lambda: harness.load(source, entry_point)[1], Streams())
            frames.write_frame(self.channel, nonce, *answer)
        while True:
            nonce, _, body = frames.read_frame(self.channel)
            answer = self._script(source, body) if self.script else self._call(source, entry_point, body)
            frames.write_frame(self.channel, nonce, *answer)

    def _call(self, source: str, entry_point: str, body: bytes) -> harness.Answer:
        def work() -> harness.Answer:
            function, answer = harness.load(source, entry_point)
            return answer if function is None else harness.call(function, marshal.loads(body), {}, self.max_value_bytes)

        return self._in_a_fork(work, Streams())

    def _script(self, source: str, body: bytes) -> harness.Answer:
        (text,) = marshal.loads(body)
        data = text.encode("utf-8", "surrogatepass")
        return self._in_a_fork(
            lambda: harness.run_script(source), Streams(text=data, max_output=self.max_value_bytes - 16)
        )

    def _in_a_fork(self, work: Callable[[], harness.Answer], streams: Streams) -> harness.Answer:
        pipes = [os.pipe() for _ in range(1 if streams.text is None else 3)]
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._become_forked(pipes, server)
                harness.send(self.channel, frames.NO_NONCE, work())
            except BaseException:  # noqa: BLE001 - whatever it was, this must not go on as a second server
                os._exit(70)
            finally:
                os._exit(0)
        relay = _Relay(pipes, streams, max_frame=self.max_value_bytes + 1024)
        try:
            return relay.run(pid)
        finally:
            relay.close()

    def _become_forked(self, pipes: list[tuple[int, int]], server: int) -> None:
        os.setsid()
        os.dup2(pipes[0][1], self.channel)  # the channel to the supervisor is out of reach from here on
        if len(pipes) == 3:
            os.dup2(pipes[1][0], 0)
            os.dup2(pipes[2][1], 1)
        os.closerange(self.channel + 1, 64)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it was gone before that signal could be asked for
            os._exit(70)
        self.seal()


class _Relay:
    """The server's end of one fork: its reply, its standard input and what it printed."""

    def __init__(self, pipes: list[tuple[int, int]], streams: Streams, *, max_frame: int) -> None:
        self.reply = pipes[0][0]
        self.open = {self.reply}
        os.close(pipes[0][1])
        self.input = self.output = -1
        self.text, self.max_output, self.max_frame = memoryview(streams.text or b""), streams.max_output, max_frame
        if len(pipes) == 3:
            self.input, self.output = pipes[1][1], pipes[2][0]
            os.close(pipes[1][0])
            os.close(pipes[2][1])
            os.set_blocking(self.input, False)
            self.open |= {self.input, self.output}
        self.replied, self.printed = bytearray(), bytearray()

    def close(self) -> None:
        for descriptor in self.open:
            os.close(descriptor)

    def run(self, pid: int) -> harness.Answer:
        """Relay until the reply is whole or the process is gone; then end it and say what came of it."""
        try:
            while self.reply in self.open and not self._whole() and len(self.printed) <= self.max_output:
                self._step()
        finally:
            status, killed, usage = _end(pid, patient=self.reply not in self.open)
        while self.output in self.open and len(self.printed) <= self.max_output:
            self._read(self.output, self.printed)
        if len(self.printed) > self.max_output:
            return frames.TOO_LARGE, b"more printed than is kept"
        if not self._whole():
            milliseconds = int(1000 * (usage.ru_utime + usage.ru_stime))
            return frames.DIED, DEATH.pack(status, killed, milliseconds, usage.ru_maxrss)
        return self._answer()

    def _step(self) -> None:
        poll = select.poll()
        for descriptor in self.open:
            poll.register(descriptor, select.POLLOUT if descriptor == self.input else select.POLLIN)
        for descriptor, _ in poll.poll():
            if descriptor == self.input:
                self._write()
            else:
                self._read(descriptor, self.replied if descriptor == self.reply else self.printed)

    def _read(self, descriptor: int, into: bytearray) -> None:
        data = os.read(descriptor, _CHUNK)
        into += data
        if not data:
            self._drop(descriptor)

    def _write(self) -> None:
        try:
            self.text = self.text[os.write(self.input, self.text) :]
        except OSError:  # it reads no more
            self.text = memoryview(b"")
        if not self.text:
            self._drop(self.input)

    def _drop(self, descriptor: int) -> None:
        self.open.remove(descriptor)
        os.close(descriptor)

    def _whole(self) -> bool:
        size = frames.HEADER.size
        if len(self.replied) < size:
            return False
        length = frames.HEADER.unpack_from(self.replied)[0]
        return length > self.max_frame or len(self.replied) >= size + length

    def _answer(self) -> harness.Answer:
        length, _, tag = frames.HEADER.unpack_from(self.replied)
        if length > self.max_frame:
            return frames.TOO_LARGE, b""
        if tag not in _FORKED_TAGS:
            return _UNKNOWN, b""
        if self.output >= 0 and tag == frames.VALUE:
            return tag, wire.encode(self.printed.decode("utf-8", "surrogateescape"))
        size = frames.HEADER.size
        return tag, bytes(self.replied[size : size + length])


def _end(pid: int, *, patient: bool) -> tuple[int, bool, resource.struct_rusage]:
    """End a fork, or let it end; return its wait status, whether it had to be killed, and what it used."""
    deadline = time.monotonic() + (_NATURAL_END_SECONDS if patient else 0.0)
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(0.001)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    return status, not ended, usage
