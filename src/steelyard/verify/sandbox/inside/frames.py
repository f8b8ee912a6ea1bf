"""Frames between two processes: length, nonce, tag, body.

A reply must carry the nonce of the frame it answers. The supervisor draws it anew for each input, so a program cannot
answer an input before that input was sent to it.
"""

import os
import struct

HEADER = struct.Struct("<I8sc")
NO_NONCE = bytes(8)

# supervisor → child
SOURCE = b"S"
INPUT = b"A"
# the judge's child → supervisor → the program's child
CALL = b"C"
# child → supervisor
READY = b"R"
WALL_MISSING = b"W"
LOADED = b"L"
VALUE = b"V"
NOT_PLAIN = b"N"
TOO_LARGE = b"B"
RAISED = b"E"
NO_MEMORY = b"M"
TEST_FAILED = b"F"
DIED = b"D"
PRINTED = b"P"

MEMORY_EXIT = 71
"""Exit code of a child that had no memory left to say so."""


def pack(nonce: bytes, tag: bytes, body: bytes) -> bytes:
    """Return one frame."""
    return HEADER.pack(len(body), nonce, tag) + body


def read_exactly(descriptor: int, count: int) -> bytes:
    """Read `count` bytes from a blocking descriptor; EOFError when the other side is gone."""
    parts: list[bytes] = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Reader:
    """Reads frames from a blocking descriptor, mostly with one call each."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.buffer = b""

    def frame(self) -> tuple[bytes, bytes, bytes]:
        """Return the next frame: nonce, tag, body; EOFError when the other side is gone."""
        self._fill(HEADER.size)
        length, nonce, tag = HEADER.unpack_from(self.buffer)
        end = HEADER.size + length
        self._fill(end)
        body, self.buffer = self.buffer[HEADER.size : end], self.buffer[end:]
        return nonce, tag, body

    def _fill(self, count: int) -> None:
        if len(self.buffer) < count:
            parts = [self.buffer]
            missing = count - len(self.buffer)
            while missing > 0:
                parts.append(os.read(self.descriptor, 1 << 16))
                if not parts[-1]:
                    raise EOFError
                missing -= len(parts[-1])
            self.buffer = b"".join(parts)


def read_frame(descriptor: int) -> tuple[bytes, bytes, bytes]:
    """Read one frame from a blocking descriptor: nonce, tag, body."""
    length, nonce, tag = HEADER.unpack(read_exactly(descriptor, HEADER.size))
    return nonce, tag, read_exactly(descriptor, length)


def write_frame(descriptor: int, nonce: bytes, tag: bytes, body: bytes) -> None:
    """Write one frame to a blocking descriptor."""
    data = memoryview(pack(nonce, tag, body))
    while data:
        data = data[os.write(descriptor, data) :]
