"""The judge's process of an assert-style suite: runs the test's code, which calls the program over a pipe.

The program is in another process. What it returns arrives here as plain data, so an object that agrees with everything
is never compared here. This process is jailed like a program's: test code comes from data sets.
"""

import builtins
import contextlib
import marshal
import sys
import types

from . import frames, harness, wire

MODULE = "test"


_ENDS_LOOPS = (StopIteration, StopAsyncIteration)
"""Raised in a test they would end its loops in silence, so they come as `ProgramRaised`."""


class ProgramRaised(Exception):
    """The program raised, and the exception has no type here; its text has the name."""


class NotPlainResult(Exception):
    """The program returned something that is no plain data."""


class Program:
    """Stands in for the entry point in the test's namespace: each call goes to the program's process."""

    def __init__(self, channel: int, name: str, max_bytes: int) -> None:
        self.channel, self.__name__, self.max_bytes = channel, name, max_bytes
        self.nonce = frames.NO_NONCE
        self.raised: BaseException | None = None

    def __call__(self, *arguments: object, **keywords: object) -> object:
        """Call the program with plain data and return its plain data.

        Raises:
            Exception: What the program raised: the builtin exception of that name, else `ProgramRaised`.
            NotPlain: An argument is no plain data.
            NotPlainResult: The result is none.
        """
        body = wire.encode([list(arguments), keywords], max_bytes=self.max_bytes)
        frames.write_frame(self.channel, self.nonce, frames.CALL, body)
        self.nonce, tag, reply = frames.read_frame(self.channel)
        if tag == frames.VALUE:
            return wire.decode(reply)
        text = reply.decode("utf-8", "replace")
        if tag == frames.NOT_PLAIN:
            raise NotPlainResult(text)
        self.raised = _exception(text)
        raise self.raised


def _exception(text: str) -> Exception:
    name, _, rest = text.partition(" (line ")[0].partition(": ")
    kind: object = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, _ENDS_LOOPS):
        with contextlib.suppress(TypeError):  # UnicodeError and others want more than a text
            return kind(rest)
    return ProgramRaised(text)


def serve(channel: int, max_value_bytes: int) -> None:
    """Run one test: setup, then the test's code, with the entry point bound to the program's stand-in."""
    nonce, _, body = frames.read_frame(channel)
    setup, test, entry_point = marshal.loads(body)
    program = Program(channel, entry_point, max_value_bytes)
    program.nonce = nonce
    answer = _run(setup, test, entry_point, program)
    harness.send(channel, program.nonce, answer)


def _run(setup: str, test: str, entry_point: str, program: Program) -> harness.Answer:
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    try:
        exec(compile(setup, MODULE, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - this is the jail
        module.__dict__.update({entry_point: program, "candidate": program})
        exec(compile(test, MODULE, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - this is the jail
    except MemoryError:
        return frames.NO_MEMORY, b""
    except BaseException as error:  # noqa: BLE001 - test code fails by raising
        tag = frames.RAISED if error is program.raised else frames.TEST_FAILED
        return tag, _describe(error)
    return frames.VALUE, wire.encode(True)  # noqa: FBT003 - the value


def _describe(error: BaseException) -> bytes:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == MODULE:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        text = str(error)[:200]
    except BaseException:  # noqa: BLE001 - a huge number in it, or a method of the test's own
        text = "a text that cannot be shown"
    return f"{type(error).__name__}: {text} (line {line} of the test)".encode("utf-8", "replace")
