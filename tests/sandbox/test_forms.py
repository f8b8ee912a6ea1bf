"""A process per input, whole programs on stdin, test code in a process of its own, packages on request."""

import pytest
from sandbox_tools import QUICK

from steelyard.errors import ConfigError
from steelyard.types import Status
from steelyard.verify.sandbox import ProgramJob, Sandbox

pytestmark = pytest.mark.sandbox


def outcomes(sandbox, source, inputs, *, form="calls", strict=False):
    """What came back for each input: the value, or the status in its place."""
    entry_point = "" if form == "stdin" else "f"
    job = ProgramJob(id="a", source=source, entry_point=entry_point, inputs=tuple(inputs), form=form, strict=strict)
    (run,) = sandbox.run([job])
    return [o.value if o.returned else o.fault for o in run.outcomes], run.detail


# ------------------------------------------------------------------ a process per input

COUNTS = "n = []\ndef f(x):\n    n.append(x)\n    return len(n)"


def test_a_process_per_input_starts_with_nothing_remembered(sandbox):
    assert outcomes(sandbox, COUNTS, [(5,), (6,), (7,)])[0] == [1, 2, 3]
    assert outcomes(sandbox, COUNTS, [(5,), (6,), (7,)], strict=True)[0] == [1, 1, 1]


STRICT = """
import os
def f(x):
    if x == 1: os._exit(3)
    if x == 2: return [0] * 10**10
    if x == 3: raise ValueError("no")
    if x == 4: return object()
    if x == 5: os.kill(os.getpid(), 11)
    return x
"""


def test_an_input_that_ends_its_process_costs_no_other(sandbox):
    found, detail = outcomes(sandbox, STRICT, [(x,) for x in range(7)], strict=True)
    crashed, memory = Status.CRASHED, Status.MEMORY_LIMIT
    assert found == [0, crashed, memory, crashed, Status.FAILED, crashed, 6]
    assert detail == "input 1: crashed: the process ended: exit code 3"


def test_a_timeout_is_one_inputs_and_the_rest_goes_on_in_a_fresh_server(sandbox):
    source = "def f(x):\n    while x == 1: pass\n    return x"
    with Sandbox(workers=1) as patient:
        assert outcomes(patient, source, [(0,), (1,), (2,)], strict=True)[0] == [0, Status.TIMEOUT, 2]
    assert outcomes(sandbox, source, [(0,), (1,), (2,)], strict=True)[0] == [0, Status.TIMEOUT, Status.TIMEOUT]


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("1/0\ndef f(x): return x", Status.CRASHED),
        ("import os\nos._exit(0)\ndef f(x): return x", Status.CRASHED),
        ("while True: pass\ndef f(x): return x", Status.TIMEOUT),
        ("def g(x): return x", Status.CRASHED),
    ],
)
def test_a_program_that_does_not_load_has_no_input_run(sandbox, source, status):
    assert outcomes(sandbox, source, [(0,), (1,)], strict=True)[0] == [status, status]


def test_a_fork_cannot_answer_for_later_inputs_or_read_them(sandbox):
    source = """
import os, select, struct
def f(x):
    reply = b"i" + struct.pack("<q", 7)
    frame = struct.pack("<I8sc", len(reply), bytes(8), b"V") + reply
    for _ in range(3): os.write(3, frame)
    return 9
"""
    assert outcomes(sandbox, source, [(0,), (1,), (2,)], strict=True)[0] == [7, 7, 7]
    reads = "import os\ndef f(x):\n    return len(os.read(3, 100))"  # its end of the pipe is for writing alone
    assert outcomes(sandbox, reads, [(0,), (1,)], strict=True)[0] == [Status.CRASHED, Status.CRASHED]


# ------------------------------------------------------------------ whole programs

CRASHED = Status.CRASHED
SCRIPTS = [
    ("reads lines", "import sys\nfor line in sys.stdin: print(line.strip()[::-1])", "ab\ncd\n", "ba\ndc\n"),
    ("reads bytes", "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read().upper())", "ab\n", "AB\n"),
    ("reads by descriptor", "import os\nos.write(1, os.read(0, 9))", "ab", "ab"),
    ("is __main__", "if __name__ == '__main__': print(input())", "x\n", "x\n"),
    ("keeps what is no UTF-8", "import os\nos.write(1, b'\\xff')", "", "\udcff"),
    ("has an empty stdin", "print(repr(__import__('sys').stdin.read()))", "", "''\n"),
    ("reads past the end", "input(); input()", "one\n", CRASHED),
    ("leaves with 0", "import sys\nprint(1)\nsys.exit(0)", "", "1\n"),
    ("leaves with 1", "import sys\nprint(1)\nsys.exit(1)", "", CRASHED),
    ("leaves by os._exit", "import os\nos.write(1, b'1')\nos._exit(0)", "", CRASHED),
    ("raises", "print(1)\n1/0", "", CRASHED),
    ("does not parse", "print(", "", CRASHED),
    ("closes its output", "import os\nprint(1, flush=True)\nos.close(1)", "", "1\n"),
    ("does not read all", "print(1)", "x" * 300000, "1\n"),
    ("floods", "while True: print('x' * 99)", "", Status.OUTPUT_LIMIT),
    ("floods stderr", "import sys\nwhile True: print('x' * 99, file=sys.stderr)", "", Status.OUTPUT_LIMIT),
    ("loops", "while True: pass", "", Status.TIMEOUT),
    ("starts a process", "import os\nos.fork()", "", CRASHED),
]


@pytest.mark.parametrize(("name", "source", "text", "right"), SCRIPTS, ids=[row[0] for row in SCRIPTS])
def test_a_whole_program(sandbox, name, source, text, right):
    assert outcomes(sandbox, source, [(text,)], form="stdin")[0] == [right]


def test_every_text_has_a_process_of_its_own(sandbox):
    source = "import builtins\nprint(getattr(builtins, 'seen', None), input())\nbuiltins.seen = 1"
    assert outcomes(sandbox, source, [("a\n",), ("b\n",)], form="stdin")[0] == ["None a\n", "None b\n"]


def test_a_long_text_passes_both_ways(sandbox):
    text = "0123456789" * 20000
    assert outcomes(sandbox, "print(input()[::-1])", [(text,)], form="stdin")[0] == [text[::-1] + "\n"]


# ------------------------------------------------------------------ test code

DOUBLE = "def f(x, times=2):\n    return times * x"
SAME = """
class Same:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
def f(x): return [Same()]
"""
TESTS = [
    ("passes", DOUBLE, "", "assert candidate(2) == 4 and f(3, times=5) == 15", True),
    ("calls a helper of the setup", DOUBLE, "def half(x): return x / 2", "assert half(candidate(4)) == 4", True),
    ("defines check", DOUBLE, "", "def check(candidate):\n    assert candidate(1) == 2\ncheck(f)", True),
    ("takes sets, tuples and bytes", "def f(x): return x", "", "v = [{1, 2}, (3, b'x'), {1: None}]\nassert candidate(v) == v", True),
    ("expects an exception", "def f(x): raise KeyError(x)", "", "try: candidate('a')\nexcept KeyError as e: assert e.args == (\"'a'\",)", True),
    ("assertion fails", DOUBLE, "", "assert candidate(2) == 5", Status.FAILED),
    ("test code is wrong", DOUBLE, "", "assert candidate(2) == undefined", Status.FAILED),
    ("program raises", "def f(x): raise KeyError(x)", "", "candidate(1)", CRASHED),
    ("program raises AssertionError", "def f(x): assert False", "", "candidate(1)", CRASHED),
    ("program raises its own exception", "class E(Exception): pass\ndef f(x): raise E", "", "candidate(1)", CRASHED),
    ("object equal to everything (C36)", SAME, "", "assert candidate(1) == [1]", Status.FAILED),
    ("exit with success (C37)", "import os\ndef f(x): os._exit(0)", "", "candidate(1)", CRASHED),
    ("exit at load (C37)", "import os\nos._exit(0)", "", "pass", CRASHED),
    ("loops", "def f(x):\n    while True: pass", "", "candidate(1)", Status.TIMEOUT),
    ("test code loops", DOUBLE, "", "while True: candidate(1)", Status.TIMEOUT),
    ("memory", "def f(x): return [0] * 10**10", "", "try: candidate(1)\nexcept Exception: pass", Status.MEMORY_LIMIT),
    ("a huge value", "def f(x): return 'x' * (8 << 20)", "", "try: candidate(1)\nexcept Exception: pass", Status.OUTPUT_LIMIT),
    ("floods", "def f(x):\n    while True: print('x' * 99)", "", "candidate(1)", Status.OUTPUT_LIMIT),
    ("forges", "import os\nos.write(3, bytes(99))\ndef f(x): return x", "", "pass", Status.FORBIDDEN),
    ("looks for the test", "import gc\ndef f(x): return any('needle' in repr(o) for o in gc.get_objects() if type(o) is str)", "", "needle = 1\nassert candidate(1) is False", True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "source", "setup", "test", "right"), TESTS, ids=[row[0] for row in TESTS])
def test_test_code_in_a_process_of_its_own(sandbox, name, source, setup, test, right):
    assert outcomes(sandbox, source, [(setup, test)], form="asserts")[0] == [right]


def test_every_test_has_fresh_processes(sandbox):
    assert outcomes(sandbox, COUNTS, [("", "assert f(5) == 1 and f(5) == 2")] * 2, form="asserts")[0] == [True, True]


# ------------------------------------------------------------------ packages


def test_c45_numpy_runs_at_the_default_memory_limit_where_it_was_asked_for(sandbox):
    source = """
import numpy as np
def f(x):
    a = np.random.default_rng(0).random((200, 200))
    return [float(np.linalg.norm(a @ a)) > x, int(np.fft.fft(a).shape[0]), float(np.polynomial.Polynomial([1, 2])(x))]
"""
    with Sandbox(workers=1, limits=QUICK, packages=["numpy"]) as with_numpy:
        assert outcomes(with_numpy, source, [(0,), (1,)])[0] == [[True, 200, 1.0], [True, 200, 3.0]]
        assert outcomes(with_numpy, "def f(x):\n    return [0] * 10**10", [(0,)])[0] == [Status.MEMORY_LIMIT]
        assert outcomes(with_numpy, "import numpy\ndef f(x):\n    open(numpy.__file__)", [(0,)])[0] == [CRASHED]
    assert outcomes(sandbox, source, [(0,)])[0] == [CRASHED]


def test_a_package_that_is_not_installed_is_refused(sandbox):
    with pytest.raises(ConfigError, match=r"may import 'no_such_package'.* it is not installed here"):
        Sandbox(workers=1, packages=["no_such_package"])
