"""A fresh process for every input: the init of the program's namespace forks one, relays its reply, and kills it.

This process never runs the candidate's source. It holds the source; each fork gets the one input that was asked for
through a pipe, raises the last walls (no new processes, the filter) and answers through another, so that it cannot read
the next input or outlive its own. Inputs and replies pass through memory that forks do not inherit: freed memory of this
process would let a fork read what earlier ones were asked, and said.
"""

import marshal
import mmap
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

Work = Callable[[bytes], harness.Answer]
"""What a fork does with its input."""


class Region:
    """Memory that forks do not inherit, filled from the front."""

    def __init__(self, size: int) -> None:
        """Take the memory."""
        self.used = 0
        self._take(size)

    @property
    def data(self) -> memoryview:
        """What is in it."""
        return self.view[: self.used]

    def fill(self, descriptor: int, most: int) -> int:
        """Read once into what is free, up to so many bytes; return how many came."""
        if self.used + most > len(self.view):
            self._take(2 * (self.used + most))
        count = os.readv(descriptor, [self.view[self.used : self.used + most]])
        self.used += count
        return count

    def _take(self, size: int) -> None:
        old = self.data if self.used else b""
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_DONTFORK)
        self.view = memoryview(memory)
        self.view[: self.used] = old


@dataclass(frozen=True)
class Reply:
    """What is sent to the supervisor for one input."""

    tag: bytes
    body: bytes | memoryview


class FreshServer:
    """Answers the supervisor's frames, each from a process of its own."""

    def __init__(self, channel: int, max_value_bytes: int, seal: Callable[[], None], *, script: bool) -> None:
        """Take the channel, the size of the largest value, and what each fork does before it runs anything."""
        self.channel = channel
        self.max_value_bytes = max_value_bytes
        self.seal = seal
        self.script = script
        self.input, self.replied, self.printed = Region(_CHUNK), Region(_CHUNK), Region(_CHUNK)

    def missing_walls(self, layout: walls.Layout) -> list[str]:
        """Try the walls in a fork that has raised them all."""
        reply = self._in_a_fork(lambda _: (frames.VALUE, wire.encode(walls.standing(layout))))
        return [str(name) for name in wire.decode(bytes(reply.body))] if reply.tag == frames.VALUE else ["seccomp"]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType, reportUnknownArgumentType]

    def serve(self) -> None:
        """Answer until the supervisor kills this process."""
        nonce, _, body = frames.read_frame(self.channel)
        source, entry_point = marshal.loads(body)
        if self.script:
            self._send(nonce, self._in_a_fork(lambda _: harness.compile_script(source)))
        else:
            self._send(nonce, self._in_a_fork(lambda _: harness.load(source, entry_point)[1]))

        def call(body: bytes) -> harness.Answer:
            function, answer = harness.load(source, entry_point)
            return answer if function is None else harness.call(function, marshal.loads(body), {}, self.max_value_bytes)

        while True:
            nonce = self._read_input()
            work: Work = (lambda _: harness.run_script(source)) if self.script else call
            self._send(nonce, self._in_a_fork(work, streams=self.script))

    def _read_input(self) -> bytes:
        """Read the next frame into the region of inputs; return its nonce."""
        length, nonce, _ = frames.HEADER.unpack(frames.read_exactly(self.channel, frames.HEADER.size))
        self.input.used = 0
        while self.input.used < length:
            if not self.input.fill(self.channel, min(_CHUNK, length - self.input.used)):
                raise EOFError
        return nonce

    def _send(self, nonce: bytes, reply: Reply) -> None:
        header = frames.HEADER.pack(len(reply.body), nonce, reply.tag)
        for part in (memoryview(header), memoryview(reply.body)):
            while part:
                part = part[os.write(self.channel, part) :]

    def _in_a_fork(self, work: Work, *, streams: bool = False) -> Reply:
        """Return what comes of the work in a fork; with streams, its input is its stdin, and its output is kept."""
        pipes = [os.pipe() for _ in range(3 if streams else 2)]
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                body = self._become_forked(pipes, server)
                harness.send(self.channel, frames.NO_NONCE, work(body))
            except BaseException:  # noqa: BLE001 - whatever it was, this must not go on as a second server
                os._exit(70)
            finally:
                os._exit(0)
        relay = _Relay(self, pipes)
        try:
            return relay.run(pid)
        finally:
            relay.close()

    def _become_forked(self, pipes: list[tuple[int, int]], server: int) -> bytes:
        """Leave the server behind; return the input, where it is not on stdin."""
        os.setsid()
        os.dup2(pipes[0][1], self.channel)  # the channel to the supervisor is out of reach from here on
        os.close(pipes[1][1])
        body = b""
        if len(pipes) == 3:
            os.dup2(pipes[1][0], 0)
            os.dup2(pipes[2][1], 1)
        else:
            body = _read_all(pipes[1][0])
        os.closerange(self.channel + 1, 64)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it was gone before that signal could be asked for
            os._exit(70)
        self.seal()
        return body


def _read_all(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


class _Relay:
    """The server's end of one fork: its input, its reply and what it printed."""

    def __init__(self, server: FreshServer, pipes: list[tuple[int, int]]) -> None:
        self.reply, self.input = pipes[0][0], pipes[1][1]
        self.output = pipes[2][0] if len(pipes) == 3 else -1
        for theirs in (pipes[0][1], pipes[1][0], *(pipe[1] for pipe in pipes[2:])):
            os.close(theirs)
        self.open = {self.reply, self.input} | ({self.output} if self.output >= 0 else set[int]())
        os.set_blocking(self.input, False)
        self.replied, self.printed = server.replied, server.printed
        self.replied.used = self.printed.used = 0
        self.text = server.input.data
        self.max_frame = server.max_value_bytes + 1024
        self.max_output = server.max_value_bytes - 16  # encoded, a text is a little longer
        if not self.text:
            self._drop(self.input)

    def close(self) -> None:
        for descriptor in self.open:
            os.close(descriptor)

    def run(self, pid: int) -> Reply:
        """Relay until the reply is whole or the process is gone; then end it and say what came of it."""
        try:
            while self.reply in self.open and not self._whole() and self.printed.used <= self.max_output:
                self._step()
        finally:
            status, killed, usage = _end(pid, patient=self.reply not in self.open)
        while self.output in self.open and self.printed.used <= self.max_output:
            self._read(self.output, self.printed)
        if self.printed.used > self.max_output:
            return Reply(frames.TOO_LARGE, b"more printed than is kept")
        if not self._whole():
            milliseconds = int(1000 * (usage.ru_utime + usage.ru_stime))
            return Reply(frames.DIED, DEATH.pack(status, killed, milliseconds, usage.ru_maxrss))
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

    def _read(self, descriptor: int, into: Region) -> None:
        if not into.fill(descriptor, _CHUNK):
            self._drop(descriptor)

    def _write(self) -> None:
        try:
            self.text = self.text[os.write(self.input, self.text) :]
        except OSError:  # it reads no more
            self.text = self.text[:0]
        if not self.text:
            self._drop(self.input)

    def _drop(self, descriptor: int) -> None:
        self.open.remove(descriptor)
        os.close(descriptor)

    def _whole(self) -> bool:
        size = frames.HEADER.size
        if self.replied.used < size:
            return False
        length = frames.HEADER.unpack_from(self.replied.view)[0]
        return length > self.max_frame or self.replied.used >= size + length

    def _answer(self) -> Reply:
        length, _, tag = frames.HEADER.unpack_from(self.replied.view)
        if length > self.max_frame:
            return Reply(frames.TOO_LARGE, b"")
        if tag not in _FORKED_TAGS:
            return Reply(_UNKNOWN, b"")
        if self.output >= 0 and tag == frames.VALUE:
            return Reply(frames.PRINTED, self.printed.data)
        size = frames.HEADER.size
        return Reply(tag, self.replied.view[size : size + length])


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
