"""Attempts on the judge: values that lie about themselves, and forged results."""

import textwrap

from steelyard.types import Status
from steelyard.verify.sandbox.attacks.attack import Attack, ends, family
from steelyard.verify.sandbox.attacks.resources import BUSY

CRASHED, TIMEOUT, FORBIDDEN, FAILED, OUTPUT, PASSED = (
    Status.CRASHED, Status.TIMEOUT, Status.FORBIDDEN, Status.FAILED, Status.OUTPUT_LIMIT, Status.PASSED,
)  # fmt: skip
NOTHING = ("n/a",)
JUDGE = ("judge's process",)
DEPTH = ("depth",)

VALUES = family(
    "hostile values",
    ends("equal to everything, bare (C36)", "class Same:\n    def __eq__(self, other): return True\ndef f(x):\n    return Same()", FAILED, guards=JUDGE),
    ends("subclass of int", "class I(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef f(x):\n    return I(3)", FAILED, guards=JUDGE),
    ends("subclass of str", "class S(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\ndef f(x):\n    return S()", FAILED, guards=JUDGE),
    ends("subclass of float", "class F(float):\n    def __eq__(self, other): return True\n    __hash__ = float.__hash__\ndef f(x):\n    return F()", FAILED, guards=JUDGE),
    ends("subclass of list", "class L(list):\n    def __eq__(self, other): return True\ndef f(x):\n    return L()", FAILED, guards=JUDGE),
    ends("a scalar like numpy's", "class N:\n    def __init__(self, v): self.v = v\n    def __eq__(self, other): return self.v == other\n    def item(self): return self.v\ndef f(x):\n    return N(2 * x)", FAILED, guards=JUDGE),
    ends("float for int", "def f(x):\n    return 2.0 * x", FAILED, guards=("comparator",)),
    ends("bool for int", "def f(x):\n    return 2 * x if x else False", FAILED, guards=("comparator",)),
    ends("minus zero for zero", "def f(x):\n    return 2 * x if x else -0.0", FAILED, guards=("comparator",)),
    ends("nan", "def f(x):\n    return float('nan')", FAILED, guards=NOTHING),
    ends("generator", "def f(x):\n    yield 2 * x", FAILED, guards=NOTHING),
    ends("endless iterator", "import itertools\ndef f(x):\n    return itertools.count()", FAILED, guards=NOTHING),
    ends("list that holds itself", "def f(x):\n    a = []\n    a.append(a)\n    return a", FAILED, guards=DEPTH),
    ends("deep nesting", "def f(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a", FAILED, guards=DEPTH),
    ends("huge int", "def f(x):\n    return 1 << 1000000", FAILED, guards=NOTHING),
    ends("surrogates and NULs", "def f(x):\n    return '\\ud800\\0'", FAILED, guards=NOTHING),
    ends("None", "def f(x):\n    pass", FAILED, guards=NOTHING),
)  # fmt: skip

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


def forged(name: str, source: str, *right: Status, guards: tuple[str, ...], tame: str | None = None) -> Attack:
    """Return a row whose program writes to the channel itself."""
    safe = None if tame is None else BUSY + FORGE + textwrap.dedent(tame).lstrip("\n")
    return ends(name, FORGE + textwrap.dedent(source).lstrip("\n"), *right, guards=guards, tame=safe)


CHANNEL = family(
    "the channel",
    forged("garbage at load", "os.write(3, b'passed' * 20)\ndef f(x):\n    return 2 * x", FORBIDDEN, guards=("nonce",)),
    forged("early results at load", "for x in range(9): send(value(x))\ndef f(x):\n    pass", FORBIDDEN, guards=("nonce", "load")),
    forged("result in place of loading", "send(value(0), nonce=nonce())\ndef f(x):\n    pass", FORBIDDEN, guards=("nonce", "load", "tags")),
    forged("loading reported twice", "send(b'', b'L', nonce())\ndef f(x):\n    return 2 * x", FORBIDDEN, guards=("nonce", "tags")),
    forged("two results for one input", "def f(x):\n    send(value(x), nonce=nonce())\n    return 2 * x", FORBIDDEN, guards=("nonce",)),
    forged(
        "results for later inputs",
        "def f(x):\n    for y in range(9): send(value(y), nonce=nonce())\n    return 2 * x",
        FORBIDDEN,
        guards=("nonce",),
    ),
    forged(
        "a second result after the last (nobody reads it)",
        "def f(x):\n    if x == 2: send(value(x), nonce=nonce()); send(value(9))\n    return 2 * x",
        PASSED,
        guards=NOTHING,
    ),
    forged("unknown tag", "def f(x):\n    send(b'', b'P', nonce())", FORBIDDEN, guards=("tags", "nonce")),
    forged("fallen wall reported", "def f(x):\n    send(b'l' + bytes(4), b'W', nonce())", FORBIDDEN, guards=("tags", "nonce")),
    forged("checker failure reported", "def f(x):\n    send(b'checker_failed', b'X', nonce())", FORBIDDEN, guards=("tags", "nonce")),
    forged("the end of a fork reported", "def f(x):\n    send(bytes(20), b'D', nonce())", FORBIDDEN, guards=("tags", "nonce")),
    forged("a call forged", "def f(x):\n    send(b'l' + bytes(4), b'C', nonce())", FORBIDDEN, guards=("tags", "nonce")),
    forged("bytes that are no value", "def f(x):\n    send(b'?', nonce=nonce())\n    os._exit(0)", FORBIDDEN, guards=("decoder",)),
    forged(
        "nested beyond depth",
        "def f(x):\n    send(b'l\\1\\0\\0\\0' * 9999 + b'N', nonce=nonce())\n    os._exit(0)",
        FORBIDDEN,
        guards=("decoder",),
    ),
    forged(
        "keys that collide",
        "def f(x):\n    n, p = 9000, 2 ** 61 - 1\n    body = b''.join(b'I' + struct.pack('<I', 12) + (p * k).to_bytes(12, 'little') for k in range(n))\n"
        "    send(b'S' + struct.pack('<I', n) + body, nonce=nonce())\n    os._exit(0)",
        FORBIDDEN,
        guards=("decoder",),
    ),
    forged(
        "truncated frame",
        "def f(x):\n    send(b'', nonce=nonce(), length=100)\n    while True: pass",
        TIMEOUT,
        guards=("clock",),
        tame="def f(x):\n    send(b'', nonce=nonce(), length=9)\n    busy()\n    os.write(3, value(x))\n    os._exit(0)",
    ),
    forged("frame cut short by exit", "def f(x):\n    send(b'', nonce=nonce(), length=100)\n    os._exit(0)", CRASHED, guards=("result record",)),
    forged("frame of 1 GB", "def f(x):\n    send(b'', nonce=nonce(), length=1 << 30)\n    while True: pass", OUTPUT, guards=("value cap",)),
    forged("channel closed", "def f(x):\n    os.close(3)\n    while True: pass", CRASHED, guards=("result record",)),
    forged("channel replaced", "os.dup2(1, 3)\ndef f(x):\n    return 2 * x", TIMEOUT, CRASHED, guards=("result record",)),
    ends(
        "builtins replaced",
        "import builtins\nfor n in ('len', 'type', 'str', 'map', 'isinstance'):\n    setattr(builtins, n, lambda *a: True)\ndef f(x):\n    return [1]",
        FAILED,
        CRASHED,
        FORBIDDEN,
        OUTPUT,
        TIMEOUT,
        guards=NOTHING,
    ),
    ends(
        "comparison helpers replaced",
        "import math, builtins\nmath.isclose = lambda *a, **k: True\nbuiltins.all = lambda *a: True\ndef f(x):\n    return 7.0",
        FAILED,
        guards=NOTHING,
    ),
    ends("json, math and time replaced", "import sys\nfor n in ('json', 'math', 'time', 'marshal', 'struct'): sys.modules[n] = None\ndef f(x):\n    return 'passed'", FAILED, guards=NOTHING),
    ends("the harness imported and replaced", "import sys\nfor n, m in list(sys.modules.items()):\n    if n.startswith('jail'):\n        for k in ('encode', 'equal', 'describe'): setattr(m, k, lambda *a, **k: b'T')\ndef f(x):\n    return 'passed'", FAILED, FORBIDDEN, guards=NOTHING),
    ends("walking frames and gc for expected values", "import gc, sys\ndef f(x):\n    frame, seen = sys._getframe(), []\n    while frame: seen.append(frame.f_locals); frame = frame.f_back\n    wanted = [o for o in gc.get_objects() if type(o).__name__ in ('Case', 'Suite')]\n    return wanted[0] if wanted else 'none'", FAILED, guards=NOTHING),
    ends("stdout replaced", "import sys\nsys.stdout = sys.stderr = None\ndef f(x):\n    return 2 * x", PASSED, guards=NOTHING),
    ends("trace function", "import sys\nsys.settrace(lambda *a: None)\ndef f(x):\n    return 2 * x", PASSED, guards=NOTHING),
    ends("verdict on stdout", "print('passed', 1.0, flush=True)\ndef f(x):\n    return 'passed'", FAILED, guards=NOTHING),
)  # fmt: skip
