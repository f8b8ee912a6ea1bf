"""What runs in a worker process of an `AnswerPool`: one handler, set up once, called on one request at a time.

The parent starts it with `exec`, so it is not a fork of the trainer. Requests arrive pickled; answers leave as JSON, so the
parent never unpickles what a worker wrote. A handler is a function `setup(**settings)` that returns a function of the
request. With `walled`, a worker that will read a model's text first gives up what it does not need: new processes, sockets,
writing, privileges. (Some graders evaluate parts of an answer as Python.)
"""

import contextlib
import errno
import importlib
import json
import os
import pickle
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

from steelyard.verify.sandbox.inside import seccomp, syscalls

LENGTH = struct.Struct("<Q")
"""Before every message: its length in bytes."""
STACK = 8 << 20
"""Bytes of stack; deep recursion ends in RecursionError before it is used up."""
Handler = Callable[[Any], object]


def main(descriptor: int) -> None:
    """Serve until the parent closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer
    settings: dict[str, Any] = pickle.loads(_receive(descriptor))
    sys.path[:] = settings["path"]
    try:
        handler: Handler = _function(settings["setup"])(**settings["settings"])
        _limit(settings["memory_mb"], walled=settings["walled"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is told to the parent
        _send(descriptor, {"failed": _said(error)})
        return
    _send(descriptor, {"value": None})
    while True:
        try:
            request = pickle.loads(_receive(descriptor))
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, settings["alone_seconds"])  # ends a worker whose parent is gone
        answer = _answer(handler, request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(descriptor, answer)


def _answer(handler: Handler, request: object) -> dict[str, object]:
    try:
        return {"value": handler(request)}
    except MemoryError:
        return {"memory": "it needed more memory than the limit"}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is told to the parent
        return {"raised": _said(error), "kind": type(error).__name__}


def _said(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in where)
    return f"{type(error).__name__}: {str(error)[:2000]}{place}"


def _function(name: str) -> Callable[..., Handler]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


# ------------------------------------------------------------------ limits


def _limit(memory_mb: int | None, *, walled: bool) -> None:
    if memory_mb is not None:
        room = _mapped() + (memory_mb << 20)
        _lower(resource.RLIMIT_AS, room)
    _lower(resource.RLIMIT_CORE, 0)
    if walled:
        _lower(resource.RLIMIT_FSIZE, 0)
        if syscalls.SUPPORTED:
            with contextlib.suppress(OSError):
                syscalls.clear_capabilities()
            syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
            syscalls.install_filter(_read_only(syscalls.MACHINE))  # the stricter of two filters decides
            syscalls.install_filter(seccomp.build_filter(syscalls.MACHINE, own_pid=os.getpid()))


def _read_only(machine: str) -> bytes:
    """Return a system call filter that refuses to open a file for writing, to create or to empty one."""
    arguments = {"x86_64": {2: 1, 257: 2}, "aarch64": {56: 2}}[machine]  # call: which argument holds the flags
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    load, jump_equal, jump_any_bit, answer, allow, refuse = 0x20, 0x15, 0x45, 0x06, 0x7FFF0000, 0x00050000 | errno.EPERM
    program = [(load, 0, 0, 0)]
    for number, argument in arguments.items():
        program += [(jump_equal, 0, 4, number), (load, 0, 0, 16 + 8 * argument), (jump_any_bit, 0, 1, writing)]
        program += [(answer, 0, 0, refuse), (answer, 0, 0, allow)]
    program += [(answer, 0, 0, allow)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _mapped() -> int:
    """Bytes of address space in use, so that the limit is room for the work and not for the libraries."""
    with open("/proc/self/statm") as file:  # noqa: PTH123 - before pathlib is needed
        return int(file.read().split()[0]) * resource.getpagesize()


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (limit, limit))


# ------------------------------------------------------------------ messages


def _receive(descriptor: int) -> bytes:
    (length,) = LENGTH.unpack(_exactly(descriptor, LENGTH.size))
    return _exactly(descriptor, length)


def _exactly(descriptor: int, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = os.read(descriptor, min(count - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _send(descriptor: int, answer: dict[str, object]) -> None:
    try:
        data = json.dumps(answer, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        data = json.dumps({"raised": f"the answer is no plain data: {error}", "kind": "TypeError"}).encode()
    rest = memoryview(LENGTH.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
