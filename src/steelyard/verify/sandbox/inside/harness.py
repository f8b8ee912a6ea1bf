"""What runs beside the candidate, in its process: load the source, call the function, send back plain data.

Nothing here is trusted by the supervisor. The candidate shares this process and can do whatever this code can; what it
sends is bounded, decoded and judged elsewhere, and no expected value ever comes here.
"""

import marshal
import os
import sys
import types
from collections.abc import Callable
from typing import cast

from . import frames, wire

MODULE = "candidate"
_DETAIL = 300  # characters of an exception's text


def serve(channel: int, max_value_bytes: int) -> None:
    """Answer frames until the supervisor kills this process."""
    nonce, _, body = frames.read_frame(channel)
    source, entry_point = marshal.loads(body)
    try:
        function = _load(source, entry_point)
        answer = (frames.LOADED, b"")
    except MemoryError:
        function, answer = None, (frames.NO_MEMORY, b"")
    except BaseException as error:  # noqa: BLE001 - the candidate may raise anything
        function, answer = None, (frames.RAISED, _describe(error))
    _send(channel, nonce, answer)
    while function is not None:
        nonce, _, body = frames.read_frame(channel)
        _send(channel, nonce, _call(function, body, max_value_bytes))


def _load(source: str, entry_point: str) -> Callable[..., object]:
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses and typing look their module up
    code = compile(source, MODULE, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - this is the jail
    return cast("Callable[..., object]", module.__dict__[entry_point])


def _call(function: Callable[..., object], body: bytes, max_value_bytes: int) -> tuple[bytes, bytes]:
    try:
        return frames.VALUE, wire.encode(function(*marshal.loads(body)), max_bytes=max_value_bytes)
    except MemoryError:
        return frames.NO_MEMORY, b""
    except wire.NotPlain as error:
        return frames.NOT_PLAIN, _describe(error)
    except wire.TooLarge:
        return frames.TOO_LARGE, b""
    except BaseException as error:  # noqa: BLE001 - the candidate may raise anything
        return frames.RAISED, _describe(error)


def _describe(error: BaseException) -> bytes:
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


def _send(channel: int, nonce: bytes, answer: tuple[bytes, bytes]) -> None:
    try:
        frames.write_frame(channel, nonce, *answer)
    except MemoryError:
        os._exit(frames.MEMORY_EXIT)
