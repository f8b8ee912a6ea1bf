"""What runs beside the candidate, in its process: load the source, call the function, send back plain data.

Nothing here is trusted by the supervisor. The candidate shares this process and can do whatever this code can; what it
sends is bounded, decoded and judged elsewhere, and no expected value ever comes here.
"""

import atexit
import contextlib
import gc
import marshal
import os
import sys
import types
from collections.abc import Callable
from typing import cast

from . import frames, wire

MODULE = "candidate"
_DETAIL = 300  # characters of an exception's text
_NO_KEYWORDS: dict[str, object] = {}

Answer = tuple[bytes, bytes]
"""Tag and body of a reply."""


def serve(channel: int, max_value_bytes: int) -> None:
    """Answer frames until the supervisor kills this process: all inputs in this one process."""
    reader = frames.Reader(channel)
    nonce, _, body = reader.frame()
    source, entry_point = marshal.loads(body)
    function, answer = load(source, entry_point)
    send(channel, nonce, answer)
    while function is not None:
        nonce, tag, body = reader.frame()
        asked = marshal.loads(body)
        arguments, keywords = asked if tag == frames.CALL else (asked, _NO_KEYWORDS)
        send(channel, nonce, call(function, arguments, keywords, max_value_bytes))


def load(source: str, entry_point: str) -> tuple[Callable[..., object] | None, Answer]:
    """Run the source as a module; return its entry point, and the reply that says so."""
    try:
        module = types.ModuleType(MODULE)
        sys.modules[MODULE] = module  # dataclasses and typing look their module up
        code = compile(source, MODULE, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - this is the jail
        return cast("Callable[..., object]", module.__dict__[entry_point]), (frames.LOADED, b"")
    except MemoryError:
        return None, (frames.NO_MEMORY, b"")
    except BaseException as error:  # noqa: BLE001 - the candidate may raise anything
        return None, (frames.RAISED, describe(error))


def call(
    function: Callable[..., object], arguments: tuple[object, ...], keywords: dict[str, object], max_value_bytes: int
) -> Answer:
    """Call the candidate's function; return the reply with its value, or why there is none."""
    try:
        return frames.VALUE, wire.encode(function(*arguments, **keywords), max_bytes=max_value_bytes)
    except MemoryError:
        return frames.NO_MEMORY, b""
    except wire.NotPlain as error:
        return frames.NOT_PLAIN, describe(error)
    except wire.TooLarge:
        return frames.TOO_LARGE, b""
    except BaseException as error:  # noqa: BLE001 - the candidate may raise anything
        return frames.RAISED, describe(error)


def compile_script(source: str) -> Answer:
    """Return whether a whole program can be compiled."""
    try:
        compile(source, MODULE, "exec", dont_inherit=True)
    except MemoryError:
        return frames.NO_MEMORY, b""
    except BaseException as error:  # noqa: BLE001 - a parser error of any kind
        return frames.RAISED, describe(error)
    return frames.LOADED, b""


def run_script(source: str) -> Answer:
    """Run a whole program as `__main__`; it reads and writes the standard streams of this process."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        try:
            exec(compile(source, MODULE, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - this is the jail
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                return frames.RAISED, describe(leaving)
        _finalize(module)
        for stream in (sys.stdout, sys.__stdout__):
            with contextlib.suppress(ValueError, AttributeError):  # closed, or replaced by what has no flush
                stream.flush()  # pyright: ignore[reportOptionalMemberAccess]
    except MemoryError:
        return frames.NO_MEMORY, b""
    except BaseException as error:  # noqa: BLE001 - the candidate may raise anything
        return frames.RAISED, describe(error)
    return frames.VALUE, b""


def _finalize(module: types.ModuleType) -> None:
    """Do what happens as an interpreter ends: exit functions, and the end of what the module holds."""
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - what the interpreter itself calls at its end
    module.__dict__.clear()
    gc.collect()


def describe(error: BaseException) -> bytes:
    """Return type, text and line of an exception; its own methods may do anything, so failing here is no fault."""
    try:
        text = str(error) if type(error).__module__ == "builtins" or isinstance(error, wire.NotPlain) else ""
        line, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == MODULE:
                line = trace.tb_lineno
            trace = trace.tb_next
        where = f" (line {line})" if line else ""
        return f"{type(error).__name__}: {text[:_DETAIL]}{where}".encode("utf-8", "replace")
    except BaseException:  # noqa: BLE001 - a hostile exception
        return b"an exception that cannot be described"


def send(channel: int, nonce: bytes, answer: Answer) -> None:
    """Send one reply; without memory for it, end."""
    try:
        frames.write_frame(channel, nonce, *answer)
    except MemoryError:
        os._exit(frames.MEMORY_EXIT)
