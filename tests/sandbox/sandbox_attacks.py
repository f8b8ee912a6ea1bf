"""What model-written programs try, as a table: name, source, the statuses that are right.

Every program answers for `f(x)`, where 2 * x is right. A program made by `refused` gives the right answer when its
attempt was refused, so that `passed` says both: the wall held, and the program lived on.
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path

from steelyard.types import Status

HONEST = "def f(x):\n    return 2 * x\n"
PROJECT = Path(__file__).parents[2]

PASSED, FAILED, CRASHED = Status.PASSED, Status.FAILED, Status.CRASHED
TIMEOUT, MEMORY, OUTPUT, FORBIDDEN = Status.TIMEOUT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT, Status.FORBIDDEN


@dataclass(frozen=True)
class Attack:
    name: str
    source: str
    right: tuple[Status, ...]


def refused(name: str, attempt: str, *, error: str = "Exception") -> Attack:
    body = textwrap.indent(textwrap.dedent(attempt).strip(), "        ")
    source = f"def f(x):\n    try:\n{body}\n    except {error}:\n        return 2 * x\n    return 'escaped'\n"
    return Attack(name, source, (PASSED,))


def ends(name: str, source: str, *right: Status) -> Attack:
    return Attack(name, textwrap.dedent(source).lstrip("\n"), right)


SYSCALL = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    def call(*arguments):
        if libc.syscall(*map(ctypes.c_long, arguments)) == -1:
            raise OSError(ctypes.get_errno(), "refused")
"""


def system_call(name: str, *arguments: int) -> Attack:
    return refused(name, textwrap.dedent(SYSCALL) + f"call{arguments!r}\n", error="OSError")


def killing_call(name: str, *arguments: int) -> Attack:
    body = textwrap.indent(textwrap.dedent(SYSCALL) + f"call{arguments!r}\nreturn 2 * x\n", "    ")
    return Attack(name, f"def f(x):\n{body}", (FORBIDDEN,))


READING = [
    refused("read the password file", "open('/etc/passwd').read()"),
    refused("read the tests", f"open({str(Path(__file__))!r}).read()"),
    refused("list the project", f"import os; os.listdir({str(PROJECT)!r})"),
    refused(
        "list the root",
        "import os, json; assert set(os.listdir('/')) - {json.__file__.split('/')[1]}",
    ),
    refused("import the project", "import steelyard"),
    refused("import an installed package", "import numpy"),
    refused("environment of the init", "open('/proc/1/environ').read()"),
    refused("own environment", "import os; assert os.environ"),
    refused(
        "environment by libc",
        "import ctypes; g = ctypes.CDLL(None).getenv; g.restype = ctypes.c_char_p; assert g(b'STEELYARD_TEST_SECRET')",
    ),
    refused("inherited descriptors", "import os\nfor d in range(4, 64): os.fstat(d); break", error="OSError"),
    refused(
        "installed packages beside the library",
        "import os, json; p = os.path.dirname(os.path.dirname(json.__file__)); assert os.listdir(p + '/site-packages')",
    ),
]
WRITING = [
    refused("write to the root", "open('/x', 'w')", error="OSError"),
    refused("write to /tmp", "open('/tmp/x', 'w')", error="OSError"),
    refused("write beside the library", "import json; open(json.__file__ + 'x', 'w')", error="OSError"),
    refused("a sparse file", "import os; os.truncate('/x', 10**12)", error="OSError"),
    refused("a temporary file", "import tempfile; tempfile.TemporaryFile()", error="OSError"),
    refused("a symlink", "import os; os.symlink('/etc/passwd', '/x')", error="OSError"),
    refused("a folder", "import os; os.mkdir('/x')", error="OSError"),
    refused("shared memory", "import mmap; mmap.mmap(-1, 4096)", error="OSError"),
    refused("a memory file", "import os; os.memfd_create('x')", error="OSError"),
    refused("unlink by posix (C40)", "import posix; posix.unlink('/tests.json')", error="OSError"),
]
NETWORK = [
    refused("TCP", "import socket; socket.create_connection(('127.0.0.1', 80), 1)", error="OSError"),
    refused("DNS", "import socket; socket.gethostbyname('localhost.example')", error="OSError"),
    refused("UDP", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", error="OSError"),
    refused("UNIX socket", "import socket; socket.socket(socket.AF_UNIX).connect('/run/x')", error="OSError"),
    refused("abstract socket", "import socket; socket.socket(socket.AF_UNIX).bind('\\0x')", error="OSError"),
    refused("socket pair", "import socket; socket.socketpair()", error="OSError"),
    refused("VSOCK", "import socket; socket.socket(40, socket.SOCK_STREAM)", error="OSError"),
    refused("netlink", "import socket; socket.socket(16, socket.SOCK_RAW)", error="OSError"),
    ends("network, uncaught", "import socket\ndef f(x):\n    socket.create_connection(('127.0.0.1', 80))", CRASHED),
]
PROCESSES = [
    refused("fork", "import os; os.fork()", error="OSError"),
    ends(
        "fork bomb",
        "import os\ndef f(x):\n    while True:\n        try:\n            os.fork()\n        except OSError:\n            pass\n",
        TIMEOUT,
    ),
    ends("fork bomb at load", "import os\nwhile True:\n    os.fork()\n" + HONEST, CRASHED),
    refused("posix_spawn", "import os; os.posix_spawn('/bin/sh', ['sh'], {})", error="OSError"),
    refused("subprocess", "import subprocess; subprocess.run(['sleep', '600'])", error="(OSError, ImportError)"),
    refused("a shell", "import os; assert os.system('true') == 0", error="(OSError, AssertionError)"),
    refused("a thread", "import threading; threading.Thread(target=print).start()", error="RuntimeError"),
    refused("vfork through ctypes", "import ctypes; assert ctypes.CDLL(None).vfork() >= 0", error="AssertionError"),
    system_call("clone3 through ctypes", 435, 0, 0),
    refused("exec", "import os; os.execv('/bin/sh', ['sh'])", error="OSError"),
]
KERNEL = [
    killing_call("ptrace", 101, 0, 0, 0, 0),
    killing_call("process_vm_readv", 310, 1, 0, 0, 0, 0, 0),
    killing_call("bpf", 321, 0, 0, 0),
    killing_call("x32 getpid", 0x40000000 + 39),
    system_call("io_uring", 425, 8, 0),
    system_call("userfaultfd", 323, 0),
    system_call("perf_event_open", 298, 0, 0, -1, -1, 0),
    system_call("keyctl", 250, 0, -4, 0),
    system_call("add_key", 248, 0, 0, 0, 0, -4),
    system_call("mount", 165, 0, 0, 0, 0, 0),
    system_call("unshare", 272, 0x10000000),
    system_call("setns", 308, 3, 0),
    system_call("chroot", 161, 0),
    system_call("execveat", 322, 3, 0, 0, 0, 0),
    system_call("personality", 135, 0xFFFFFFFF),
    refused("own memory file", "open('/proc/self/mem', 'r+b')", error="OSError"),
    refused("file lock", "import fcntl, json; fcntl.flock(open(json.__file__), fcntl.LOCK_EX)"),
    refused("lease", "import fcntl, json; fcntl.fcntl(open(json.__file__), fcntl.F_SETLEASE, fcntl.F_RDLCK)"),
    ends(
        "32-bit getpid",
        """
        import ctypes, mmap
        def f(x):
            page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
            page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
            ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
            return 2 * x
        """,
        FORBIDDEN,
    ),
]
SIGNALS = [
    refused("kill everybody", "import os; os.kill(-1, 9)", error="OSError"),
    refused("kill the parent's group", "import os; os.kill(0, 9)", error="OSError"),
    refused("kill the parent", "import os; os.kill(os.getppid() or 2, 9)", error="OSError"),
    ends(
        "stop itself",
        "import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return 2 * x",
        PASSED,
    ),
    ends("abort", "import os\ndef f(x):\n    os.abort()", CRASHED),
    ends("segmentation fault", "import ctypes\ndef f(x):\n    ctypes.string_at(0)", CRASHED),
]
TIME = [
    ends("endless loop", "def f(x):\n    while True:\n        pass", TIMEOUT),
    ends("endless loop at load", "while True:\n    pass\n" + HONEST, TIMEOUT),
    ends(
        "loop that catches everything (C39 b)",
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        TIMEOUT,
    ),
    ends("sleep", "import time\ndef f(x):\n    time.sleep(600)", TIMEOUT),
    ends("catastrophic regex (C39 e)", "import re\ndef f(x):\n    return re.match('(a+)+$', 'a' * 60 + 'b')", TIMEOUT),
    ends("huge power (C39 e)", "def f(x):\n    return 10 ** 10 ** 8", TIMEOUT),
    ends(
        "slow __del__",
        "import time\nclass D:\n    def __del__(self):\n        time.sleep(600)\ndef f(x):\n    d = D()\n    return 2 * x",
        TIMEOUT,
    ),
    ends(
        "deaf to signals (C39 a, c, d)",
        "import signal\nfor s in range(1, 65):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nsignal.setitimer(signal.ITIMER_REAL, 0)\ndef f(x):\n    while True: pass",
        TIMEOUT,
    ),
]
MEMORY_AND_OUTPUT = [
    ends("a long list (C45)", "def f(x):\n    return len([0] * 10 ** 10)", MEMORY),
    ends("2 GB of bytes", "def f(x):\n    return len(b'x' * (2 << 30))", MEMORY),
    ends("a growing list", "def f(x):\n    a = []\n    while True:\n        a.append(bytes(1 << 20))", MEMORY),
    ends("memory at load", "a = [0] * 10 ** 10\n" + HONEST, MEMORY),
    ends(
        "loop that catches MemoryError",
        "def f(x):\n    while True:\n        try:\n            [0] * 10 ** 10\n        except MemoryError: pass",
        TIMEOUT,
    ),
    ends(
        "private anonymous maps",
        "import mmap\ndef f(x):\n    return len([mmap.mmap(-1, 1 << 28, flags=34) for _ in range(99)])",
        MEMORY,
        CRASHED,
    ),
    ends("deep recursion", "def f(x):\n    return f(x) + 1", CRASHED),
    ends(
        "deeper recursion",
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x):\n    return f(x) + 1",
        CRASHED,
        MEMORY,
        TIMEOUT,
    ),
    ends("flood on stdout (C44)", "def f(x):\n    while True: print('1234567890' * 9)", OUTPUT),
    ends(
        "flood on stderr (C44)",
        "import sys\ndef f(x):\n    while True: print('1234567890' * 99, file=sys.stderr)",
        OUTPUT,
    ),
    ends("flood of newlines (C44)", "def f(x):\n    while True: print('\\n' * 99)", OUTPUT),
    ends("one endless line (C44)", "def f(x):\n    while True: print('x' * 10 ** 6, end='')", OUTPUT),
    ends("flood at load", "while True: print('1234567890' * 9)\n" + HONEST, OUTPUT),
    ends("a huge value", "def f(x):\n    return 'x' * (8 << 20)", OUTPUT),
    ends("a chatty honest program", "def f(x):\n    print('x' * 100000)\n    return 2 * x", PASSED),
]
LEAVING = [
    ends("os._exit at load (C37)", "import os\nos._exit(0)\n" + HONEST, CRASHED),
    ends("os._exit in the call (C37)", "import os\ndef f(x):\n    os._exit(0)", CRASHED),
    ends("SystemExit at load (C37)", "raise SystemExit(0)\n" + HONEST, CRASHED),
    ends("exit in the call (C37)", "import sys\ndef f(x):\n    sys.exit(0)", CRASHED),
    ends("exit after a right answer (C37)", "import os\ndef f(x):\n    if x: os._exit(0)\n    return 2 * x", CRASHED),
    ends("atexit (C37)", "import atexit, os\natexit.register(os._exit, 0)\ndef f(x):\n    raise SystemExit", CRASHED),
    ends("KeyboardInterrupt", "def f(x):\n    raise KeyboardInterrupt", CRASHED),
    ends(
        "exception that cannot be shown",
        "class E(BaseException):\n    def __str__(self): raise self\n    __repr__ = __str__\ndef f(x):\n    raise E",
        CRASHED,
    ),
    ends(
        "exception that prints a verdict",
        "class E(Exception):\n    def __str__(self):\n        print('passed', flush=True)\n        return 'passed'\ndef f(x):\n    raise E",
        CRASHED,
    ),
    ends("entry point taken away", "def f(x):\n    return 2 * x\ndel f", CRASHED),
    ends("entry point is no function", "def f(x):\n    return 2 * x\nf = 3", CRASHED),
]
VALUES = [
    ends(
        "equal to everything, bare (C36)",
        "class Same:\n    def __eq__(self, other): return True\ndef f(x):\n    return Same()",
        FAILED,
    ),
    ends(
        "subclass of int",
        "class I(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef f(x):\n    return I(3)",
        FAILED,
    ),
    ends("subclass of list", "class L(list): pass\ndef f(x):\n    return L([2 * x])", FAILED),
    ends("float for int", "def f(x):\n    return 2.0 * x", FAILED),
    ends("nan", "def f(x):\n    return float('nan')", FAILED),
    ends("generator", "def f(x):\n    yield 2 * x", FAILED),
    ends("endless iterator", "import itertools\ndef f(x):\n    return itertools.count()", FAILED),
    ends("list that holds itself", "def f(x):\n    a = []\n    a.append(a)\n    return a", FAILED),
    ends("deep nesting", "def f(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a", FAILED),
    ends("huge int", "def f(x):\n    return 1 << 1000000", FAILED),
    ends("surrogates and NULs", "def f(x):\n    return '\\ud800\\0'", FAILED),
    ends("None", "def f(x):\n    pass", FAILED),
]
# The channel is descriptor 3; a frame is length, nonce of 8 bytes, tag, body.
FORGE = """
import os, struct, sys
def nonce():
    frame = sys._getframe()
    while type(frame.f_locals.get('nonce')) is not bytes: frame = frame.f_back
    return frame.f_locals['nonce']
def send(body, tag=b'V', nonce=bytes(8), length=None):
    os.write(3, struct.pack('<I8sc', len(body) if length is None else length, nonce, tag) + body)
def value(x): return b'i' + struct.pack('<q', 2 * x)
"""


def forged(name: str, source: str, *right: Status) -> Attack:
    return Attack(name, FORGE + textwrap.dedent(source).lstrip("\n"), right)


CHANNEL = [
    forged("garbage at load", "os.write(3, b'passed' * 20)\ndef f(x):\n    return 2 * x", FORBIDDEN),
    forged("early results at load", "for x in range(9): send(value(x))\ndef f(x):\n    pass", FORBIDDEN),
    forged("result in place of loading", "send(value(0), nonce=nonce())\ndef f(x):\n    pass", FORBIDDEN),
    forged("loading reported twice", "send(b'', b'L', nonce())\ndef f(x):\n    return 2 * x", FORBIDDEN),
    forged("two results for one input", "def f(x):\n    send(value(x), nonce=nonce())\n    return 2 * x", FORBIDDEN),
    forged(
        "results for later inputs",
        "def f(x):\n    for y in range(9): send(value(y), nonce=nonce())\n    return 2 * x",
        FORBIDDEN,
    ),
    forged(
        "a second result after the last (nobody reads it)",
        "def f(x):\n    if x == 2: send(value(x), nonce=nonce()); send(value(9))\n    return 2 * x",
        PASSED,
    ),
    forged("unknown tag", "def f(x):\n    send(b'', b'P', nonce())", FORBIDDEN),
    forged("fallen wall reported", "def f(x):\n    send(b'l' + bytes(4), b'W', nonce())", FORBIDDEN),
    forged("checker failure reported", "def f(x):\n    send(b'checker_failed', b'C', nonce())", FORBIDDEN),
    forged("bytes that are no value", "def f(x):\n    send(b'?', nonce=nonce())\n    os._exit(0)", FORBIDDEN),
    forged(
        "nested beyond depth",
        "def f(x):\n    send(b'l\\1\\0\\0\\0' * 9999 + b'N', nonce=nonce())\n    os._exit(0)",
        FORBIDDEN,
    ),
    forged(
        "keys that collide",
        "def f(x):\n    n, p = 9000, 2 ** 61 - 1\n    body = b''.join(b'I' + struct.pack('<I', 12) + (p * k).to_bytes(12, 'little') for k in range(n))\n"
        "    send(b'S' + struct.pack('<I', n) + body, nonce=nonce())\n    os._exit(0)",
        FORBIDDEN,
    ),
    forged("truncated frame", "def f(x):\n    send(b'', nonce=nonce(), length=100)\n    while True: pass", TIMEOUT),
    forged("frame cut short by exit", "def f(x):\n    send(b'', nonce=nonce(), length=100)\n    os._exit(0)", CRASHED),
    forged("frame of 1 GB", "def f(x):\n    send(b'', nonce=nonce(), length=1 << 30)\n    while True: pass", OUTPUT),
    forged("channel closed", "def f(x):\n    os.close(3)\n    while True: pass", CRASHED),
    forged("channel replaced", "os.dup2(1, 3)\ndef f(x):\n    return 2 * x", TIMEOUT, CRASHED),
    ends(
        "builtins replaced",
        "import builtins\nfor n in ('len', 'type', 'str', 'map', 'isinstance'):\n    setattr(builtins, n, lambda *a: True)\ndef f(x):\n    return [1]",
        FAILED,
        CRASHED,
        FORBIDDEN,
        OUTPUT,
        TIMEOUT,
    ),
    ends(
        "comparison helpers replaced",
        "import math, builtins\nmath.isclose = lambda *a, **k: True\nbuiltins.all = lambda *a: True\ndef f(x):\n    return 7.0",
        FAILED,
    ),
    ends("stdout replaced", "import sys\nsys.stdout = sys.stderr = None\ndef f(x):\n    return 2 * x", PASSED),
    ends("trace function", "import sys\nsys.settrace(lambda *a: None)\ndef f(x):\n    return 2 * x", PASSED),
    ends("verdict on stdout", "print('passed', 1.0, flush=True)\ndef f(x):\n    return 'passed'", FAILED),
]

ATTACKS = [
    *READING, *WRITING, *NETWORK, *PROCESSES, *KERNEL, *SIGNALS, *TIME, *MEMORY_AND_OUTPUT, *LEAVING, *VALUES, *CHANNEL,
]  # fmt: skip
