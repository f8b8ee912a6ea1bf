"""Attempts on the clock, the memory, the output, on the end of the process, and on what a process remembers."""

from steelyard.types import Status
from steelyard.verify.sandbox.attacks.attack import HONEST, Attack, ends, family, refused

CRASHED, TIMEOUT, MEMORY, OUTPUT, PASSED = (
    Status.CRASHED, Status.TIMEOUT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT, Status.PASSED,
)  # fmt: skip
BUSY = """
import time
until = time.monotonic() + 1.4
def busy():
    while time.monotonic() < until: pass
"""
"""Busy a little longer than the tests allow, for programs that would never end."""
SLOW = BUSY + "def f(x):\n    busy()\n    return 2 * x\n"
CLOCK = ("clock",)
MEMORY_WALL = ("limits",)
FLOOD = ("output cap",)

SIGNALS = family(
    "signals",
    refused("kill everybody", "import os; os.kill(-1, 9)", error="OSError", guards=("n/a",)),
    refused("kill the parent's group", "import os; os.kill(0, 0)", error="OSError", guards=("seccomp",)),
    refused("kill the parent", "import os; os.kill(os.getppid() or 2, 9)", error="OSError", guards=("n/a",)),
    ends(
        "stop itself",
        "import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return 2 * x",
        PASSED,
        TIMEOUT,
        guards=("n/a",),
    ),
    ends("abort", "import os\ndef f(x):\n    os.abort()", CRASHED, guards=("n/a",)),
    ends("segmentation fault", "import ctypes\ndef f(x):\n    ctypes.string_at(0)", CRASHED, guards=("n/a",)),
    ends(
        "a handler for every signal",
        BUSY + "import signal\nfor s in (signal.SIGXCPU, signal.SIGALRM, signal.SIGTERM):\n"
        "    signal.signal(s, lambda *a: None)\ndef f(x):\n    while True: pass",
        TIMEOUT,
        guards=CLOCK,
        tame=SLOW,
    ),
)
TIME = family(
    "time",
    ends("endless loop", "def f(x):\n    while True:\n        pass", TIMEOUT, guards=CLOCK, tame=SLOW),
    ends("endless loop at load", "while True:\n    pass\n" + HONEST, TIMEOUT, guards=CLOCK, tame=BUSY + "busy()\n" + HONEST),
    ends(
        "loop that catches everything (C39 b)",
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        TIMEOUT,
        guards=CLOCK,
        tame=SLOW,
    ),
    ends("sleep", "import time\ndef f(x):\n    time.sleep(600)", TIMEOUT, guards=CLOCK, tame="import time\ndef f(x):\n    time.sleep(0 if x else 1.4)\n    return 2 * x"),
    ends("catastrophic regex (C39 e)", "import re\ndef f(x):\n    return re.match('(a+)+$', 'a' * 60 + 'b')", TIMEOUT, guards=CLOCK, tame=SLOW),
    ends("huge power (C39 e)", "def f(x):\n    return 10 ** 10 ** 8", TIMEOUT, guards=CLOCK, tame=SLOW),
    ends(
        "slow __del__",
        "import time\nclass D:\n    def __del__(self):\n        time.sleep(600)\ndef f(x):\n    d = D()\n    return 2 * x",
        TIMEOUT,
        guards=CLOCK,
        tame="import time\nclass D:\n    def __del__(self):\n        time.sleep(1.4)\ndef f(x):\n    if not x: d = D()\n    return 2 * x",
    ),
    ends(
        "deaf to signals (C39 a, c, d)",
        "import signal\nfor s in range(1, 65):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nsignal.setitimer(signal.ITIMER_REAL, 0)\ndef f(x):\n    while True: pass",
        TIMEOUT,
        guards=CLOCK,
        tame=SLOW,
    ),
    ends(
        "a bomb that goes off after the verdict",
        "import signal, os\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(3))\ndef f(x):\n    signal.setitimer(signal.ITIMER_REAL, 0.5 if x == 2 else 0)\n    return 2 * x",
        PASSED,
        guards=("n/a",),
    ),
)  # fmt: skip
MEMORY_AND_OUTPUT = family(
    "memory and output",
    ends("a long list (C45)", "def f(x):\n    return len([0] * 10 ** 10)", MEMORY, guards=MEMORY_WALL, tame="def f(x):\n    return 2 * x + 0 * len(bytes(400 << 20))"),
    ends("2 GB of bytes", "def f(x):\n    return len(b'x' * (2 << 30))", MEMORY, guards=MEMORY_WALL, tame="def f(x):\n    return 2 * x + 0 * len(bytes(400 << 20))"),
    # Pages that are never touched: it is the limit that must end it, not the clock of a busy machine.
    ends("a growing list", "def f(x):\n    a = []\n    while True:\n        a.append(bytes(1 << 20))", MEMORY, guards=MEMORY_WALL,
         tame="def f(x):\n    return 2 * x + 0 * len([bytes(1 << 20) for _ in range(400)])"),
    ends("memory at load", "a = [0] * 10 ** 10\n" + HONEST, MEMORY, guards=MEMORY_WALL, tame="a = bytes(400 << 20)\n" + HONEST),
    ends(
        "loop that catches MemoryError",
        "def f(x):\n    while True:\n        try:\n            [0] * 10 ** 10\n        except MemoryError: pass",
        TIMEOUT,
        guards=CLOCK,
        tame=SLOW,
    ),
    ends(
        "private anonymous maps",
        "import mmap\ndef f(x):\n    return 2 * x + 0 * len([mmap.mmap(-1, 1 << 28, flags=34) for _ in range(9)])",
        MEMORY,
        CRASHED,
        guards=MEMORY_WALL,
    ),
    ends("deep recursion", "def f(x):\n    return f(x) + 1", CRASHED, guards=("n/a",)),
    ends(
        "deeper recursion",
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x):\n    return f(x) + 1",
        CRASHED,
        MEMORY,
        TIMEOUT,
        guards=("n/a",),
    ),
    ends("flood on stdout (C44)", "def f(x):\n    while True: print('1234567890' * 9)", OUTPUT, guards=FLOOD),
    ends("flood on stderr (C44)", "import sys\ndef f(x):\n    while True: print('1234567890' * 99, file=sys.stderr)", OUTPUT, guards=FLOOD),
    ends("flood of newlines (C44)", "def f(x):\n    while True: print('\\n' * 99)", OUTPUT, guards=FLOOD),
    ends("one endless line (C44)", "def f(x):\n    while True: print('x' * 10 ** 6, end='')", OUTPUT, guards=FLOOD),
    ends("flood at load", "while True: print('1234567890' * 9)\n" + HONEST, OUTPUT, guards=FLOOD),
    ends("flood after a right answer (C44)", "def f(x):\n    while x: print('1234567890' * 9)\n    return 0", OUTPUT, guards=FLOOD),
    ends("a huge value", "def f(x):\n    return 'x' * (8 << 20)", OUTPUT, guards=("value cap",), tame="def f(x):\n    return 'x' * (1 << 20)"),
    ends("a chatty honest program", "def f(x):\n    print('x' * 100000)\n    return 2 * x", PASSED, guards=("n/a",)),
)  # fmt: skip
RECORD = ("result record",)
LEAVING = family(
    "leaving early",
    ends("os._exit at load (C37)", "import os\nos._exit(0)\n" + HONEST, CRASHED, guards=RECORD),
    ends("os._exit in the call (C37)", "import os\ndef f(x):\n    os._exit(0)", CRASHED, guards=RECORD),
    ends("SystemExit at load (C37)", "raise SystemExit(0)\n" + HONEST, CRASHED, guards=RECORD),
    ends("exit in the call (C37)", "import sys\ndef f(x):\n    sys.exit(0)", CRASHED, guards=RECORD),
    ends("exit after a right answer (C37)", "import os\ndef f(x):\n    if x: os._exit(0)\n    return 2 * x", CRASHED, guards=RECORD),
    ends("exit in the middle of the third input", "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return 2 * x", CRASHED, guards=RECORD),
    ends("atexit (C37)", "import atexit, os\natexit.register(os._exit, 0)\ndef f(x):\n    raise SystemExit", CRASHED, guards=RECORD),
    ends("KeyboardInterrupt", "def f(x):\n    raise KeyboardInterrupt", CRASHED, guards=RECORD),
    ends(
        "exception that cannot be shown",
        "class E(BaseException):\n    def __str__(self): raise self\n    __repr__ = __str__\ndef f(x):\n    raise E",
        CRASHED,
        guards=RECORD,
    ),
    ends(
        "exception that prints a verdict",
        "class E(Exception):\n    def __str__(self):\n        print('passed', flush=True)\n        return 'passed'\ndef f(x):\n    raise E",
        CRASHED,
        guards=RECORD,
    ),
    ends("entry point taken away", "def f(x):\n    return 2 * x\ndel f", CRASHED, guards=RECORD),
    ends("entry point is no function", "def f(x):\n    return 2 * x\nf = 3", CRASHED, guards=RECORD),
)  # fmt: skip
_COUNTS = "calls = []\ndef f(x):\n    calls.append(x)\n"


def _remembers(name: str, body: str) -> Attack:
    """A program that is right only because it remembers: full marks here, none in a process per input."""
    return ends(name, _COUNTS + body, PASSED, guards=("fresh process",))


ACROSS = family(
    "across inputs",
    ends("the argument changed", "def f(x):\n    x += x\n    return x", PASSED, guards=("n/a",)),
    ends("inputs not yet sent", "import select\ndef f(x):\n    return 'escaped' if select.select([3], [], [], 0)[0] else 2 * x", PASSED, guards=("n/a",)),
    ends("the hash seed", "def f(x):\n    return 2 * x if hash('steelyard') == hash('steel' + 'yard') else 0", PASSED, guards=("n/a",)),
)  # fmt: skip
REMEMBERING = family(
    "across inputs",
    _remembers("counting calls", "    return 2 * (len(calls) - 1)\n"),
    _remembers("remembering earlier inputs", "    return 2 * x if calls == list(range(x + 1)) else None\n"),
    _remembers("cheating after the first call", "    return 2 * x if len(calls) > 1 or x == 0 else None\n"),
)
"""Right answers from what a process remembers: only a process per input finds these out."""
