"""One candidate process as the supervisor sees it: frames in and out, its output counted, the clock held here."""

import os
import select
import socket
import time
from dataclasses import dataclass

from . import frames, wire
from .zygote import FINISHED, KILL, REQUEST, SPAWN, WAIT

_SHOWN = 1000
"""Bytes kept of the start and of the end of a program's output, for people."""


class Trouble(Exception):
    """The child did not answer this frame as it should; the status says what that means for the program."""

    def __init__(self, status: str, detail: str, *, died: bool = False, ending: "Ending | None" = None) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.died = died
        self.ending = ending


class ParentGone(Exception):
    """The trainer is gone: nobody waits for this program any more."""


class ZygoteGone(Exception):
    """The fork server is gone, or could not start a child."""


@dataclass(frozen=True)
class Ending:
    """How a child ended."""

    status: int
    """As from `os.wait4`."""
    killed: bool
    """Whether it was still there and was killed by us."""
    cpu_seconds: float
    largest_kib: int


class ZygoteHandle:
    """The supervisor's side of the fork server."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control

    def spawn(self, number: int, kind: int, channel: int, output: int) -> None:
        """Fork a child of a kind that answers on `channel` and writes to `output`."""
        try:
            socket.send_fds(self.control, [REQUEST.pack(SPAWN, number, kind)], [channel, output])
        except OSError as error:
            raise ZygoteGone(str(error)) from error

    def finish(self, number: int, *, patient: bool) -> Ending:
        """End a child: at once, or after a moment in which it may end by itself."""
        try:
            self.control.sendall(REQUEST.pack(WAIT if patient else KILL, number, 0))
            data = frames.read_exactly(self.control.fileno(), FINISHED.size)
        except (OSError, EOFError) as error:
            raise ZygoteGone(str(error)) from error
        status, killed, cpu_milliseconds, largest_kib = FINISHED.unpack(data)
        return Ending(status=status, killed=killed, cpu_seconds=cpu_milliseconds / 1000, largest_kib=largest_kib)


class Child:
    """One candidate process, from fork to end."""

    def __init__(
        self,
        zygote: ZygoteHandle,
        watched: list[int],
        *,
        output_bytes: int,
        value_bytes: int,
        kind: int,
        number: int = 0,
    ) -> None:
        self.zygote = zygote
        self.number = number
        self.max_output, self.max_frame = output_bytes, value_bytes + 1024
        self.written = 0
        self.head, self.tail = b"", b""
        self.buffer = bytearray()
        self.nonces: list[bytes] = []
        self.channel, theirs = socket.socketpair()
        self.channel.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self.output, writer = os.pipe()
        os.set_blocking(self.output, False)
        self.poll = select.poll()
        self.poll.register(self.channel, select.POLLIN)
        self.poll.register(self.output, select.POLLIN)
        for descriptor in watched:
            self.poll.register(descriptor, select.POLLIN | select.POLLHUP)
        try:
            zygote.spawn(number, kind, theirs.fileno(), writer)
        finally:
            theirs.close()
            os.close(writer)

    def ready(self, seconds: float) -> list[str]:
        """Wait until the walls stand; return those that do not, as `name NUL why NUL fix`."""
        _, body = self._receive(frames.NO_NONCE, time.monotonic() + seconds)
        missing = wire.decode(body)
        return [str(item) for item in missing] if isinstance(missing, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    def ask(self, tag: bytes, body: bytes, seconds: float) -> tuple[bytes, bytes]:
        """Send one frame and return tag and body of the reply.

        Raises:
            Trouble: No reply in time, too much output, a forged frame, or the child is gone.
        """
        deadline = time.monotonic() + seconds
        nonce = self._nonce()
        self._send(frames.pack(nonce, tag, body), deadline)
        return self._receive(nonce, deadline)

    def _nonce(self) -> bytes:
        if not self.nonces:
            pool = os.urandom(512)
            self.nonces = [pool[at : at + 8] for at in range(0, len(pool), 8)]
        return self.nonces.pop()

    def finish(self, *, patient: bool = False) -> Ending:
        """End the process and close what is ours."""
        try:
            return self.zygote.finish(self.number, patient=patient)
        finally:
            self.channel.close()
            os.close(self.output)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.channel.send(view) :]
            except BlockingIOError:
                self.poll.modify(self.channel, select.POLLOUT)
                try:
                    self._wait(deadline)
                finally:
                    self.poll.modify(self.channel, select.POLLIN)
            except OSError as error:
                raise Trouble("crashed", "the process ended", died=True) from error

    def _receive(self, nonce: bytes, deadline: float) -> tuple[bytes, bytes]:
        buffer = self.buffer
        size = frames.HEADER.size
        while True:
            if len(buffer) >= size:
                length, got_nonce, tag = frames.HEADER.unpack_from(buffer)
                if got_nonce != nonce:
                    raise Trouble("forbidden", "a result was sent that nobody had asked for")
                if length > self.max_frame:
                    raise Trouble("output_limit", f"a result of {length} bytes")
                if len(buffer) >= size + length:
                    body = bytes(buffer[size : size + length])
                    # What is left was sent unasked: it lacks the next nonce, and after the last input nobody reads it.
                    del buffer[: size + length]
                    return tag, body
            if self._wait(deadline):
                self._fill()

    def _fill(self) -> None:
        try:
            data = self.channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise Trouble("crashed", "the process ended", died=True)
        self.buffer += data

    def _wait(self, deadline: float) -> bool:
        """Wait for something to happen; count output; return whether the channel has news."""
        remaining = deadline - time.monotonic()
        events = self.poll.poll(max(remaining, 0.0) * 1000) if remaining > 0 else []
        if not events:
            raise Trouble("timeout", "no answer within the time limit")
        news = False
        for descriptor, _ in events:
            if descriptor == self.channel.fileno():
                news = True
            elif descriptor == self.output:
                self._count_output()
            else:
                raise ParentGone
        return news

    def _count_output(self) -> None:
        try:
            data = os.read(self.output, 1 << 16)
        except BlockingIOError:
            return
        if not data:  # the program closed its output
            self.poll.unregister(self.output)
            return
        self.written += len(data)
        self.head += data[: _SHOWN - len(self.head)]
        self.tail = (self.tail + data)[-_SHOWN:]
        if self.written > self.max_output:
            raise Trouble("output_limit", f"more than {self.max_output} bytes of output, starting {self.head[:80]!r}")
