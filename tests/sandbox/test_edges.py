"""Ends that a review by attack found: each was wrong once."""

import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sandbox_tools import QUICK, SandboxWithout, alive, descendants
from test_forms import outcomes

from steelyard.errors import TaskError, VerificationError
from steelyard.types import Case, Status, Suite
from steelyard.verify.compare import equal
from steelyard.verify.programs import ProgramVerifier
from steelyard.verify.sandbox import Limits, ProgramJob, Sandbox, server
from steelyard.verify.sandbox.inside import walls

pytestmark = pytest.mark.sandbox
CRASHED, FAILED = Status.CRASHED, Status.FAILED


@pytest.mark.parametrize("form", ["calls", "strict", "asserts", "stdin"])
def test_a_signal_without_a_name_is_a_crash_and_costs_no_score(sandbox, form):
    if form == "stdin":
        found = outcomes(sandbox, "import os\nos.kill(os.getpid(), 40)", [("",)], form="stdin")
    elif form == "asserts":
        found = outcomes(sandbox, "import os\ndef f(x): os.kill(os.getpid(), 40)", [("", "f(1)")], form="asserts")
    else:
        source = "import os\ndef f(x):\n    os.kill(os.getpid(), 40)\n    return x"
        found = outcomes(sandbox, source, [(1,)], strict=form == "strict")
    # The init of a process namespace does not hear signals that it has no handler for.
    assert found[0] in ([CRASHED], [1], [True])
    assert form not in ("strict", "stdin") or found == ([CRASHED], "input 0: crashed: the process ended: signal 40")


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("def f(x): return 1 << 20000", "r = f(1)\nassert r == 2, r"),
        ("def f(x): return 1", "class E(Exception):\n    def __str__(self): raise self\nif f(1) == 1: raise E"),
        ("def f(x): return '__import__(\"os\")._exit(0)'", "assert eval(candidate(1)) == 2"),
    ],
    ids=["a number too long to print", "a test's exception that cannot be shown", "a test that runs what it is given"],
)
def test_a_value_that_ends_its_test_is_a_failure_of_the_program(sandbox, source, test):
    assert outcomes(sandbox, source, [("", test)], form="asserts")[0] == [FAILED]


def test_an_exception_that_would_end_a_loop_in_silence_does_not(sandbox):
    source = "def f(x): raise StopIteration"
    assert outcomes(sandbox, source, [("", "assert all(map(candidate, [1, 2]))")], form="asserts")[0] == [CRASHED]


def test_bytes_that_are_no_value_are_no_exception_that_a_test_expects(sandbox):
    source = """
import os, struct, sys
def f(x):
    frame = sys._getframe()
    while type(frame.f_locals.get('nonce')) is not bytes: frame = frame.f_back
    os.write(3, struct.pack('<I8sc', 1, frame.f_locals['nonce'], b'V') + b'?')
"""
    test = "try: candidate(1)\nexcept ValueError: pass"
    assert outcomes(sandbox, source, [("", test)], form="asserts")[0] == [Status.FORBIDDEN]


def test_a_test_may_pass_long_arguments(sandbox):
    source = "def f(x): return len(x)"
    test = "assert candidate(list(range(100000))) == 100000"
    assert outcomes(sandbox, source, [("", test)], form="asserts")[0] == [True]


def test_two_tests_with_one_id_are_refused(sandbox):
    cases = (Case(id="a", family="x", args=(5,), expected=10), Case(id="a", family="x", args=(0,), expected=0))
    suite = Suite(task="t", name="s", version=1, entry_point="f", cases=cases)
    with pytest.raises(TaskError, match="two tests with the id 'a'"):
        ProgramVerifier(sandbox, suite)


def test_nan_keys_count(sandbox):
    nan, other = math.nan, float("nan")
    assert not equal({nan: 1}, {nan: 1, other: 1})
    assert not equal({nan}, {nan, other})
    assert equal({nan: 1}, {other: 1})


def test_flags_of_an_open_file_are_not_passed_on(sandbox):
    source = """
import fcntl
def f(x):
    for d in (0, 1, 2):
        try: fcntl.fcntl(d, fcntl.F_SETFL, fcntl.fcntl(d, fcntl.F_GETFL) ^ 2048)
        except OSError: pass
    return [fcntl.fcntl(d, fcntl.F_GETFL) & 2048 for d in (0, 1, 2)]
"""
    for strict in (True, False):
        for _ in range(2):
            assert outcomes(sandbox, source, [(1,), (2,)], strict=strict)[0] == [[0, 0, 0]] * 2


def test_exit_and_quit_are_there_and_the_servers_arguments_are_not(sandbox):
    assert outcomes(sandbox, "print(6)\nexit()", [("",)], form="stdin")[0] == ["6\n"]
    assert outcomes(sandbox, "print(6)\nquit(2)", [("",)], form="stdin")[0] == [CRASHED]
    source = "import sys\ndef f(x):\n    return [sys.argv, sys.orig_argv]"
    assert outcomes(sandbox, source, [(1,)])[0] == [[["candidate"], ["candidate"]]]
    reads = "import fileinput\nprint(sum(int(line) for line in fileinput.input()))"
    assert outcomes(sandbox, reads, [("1\n2\n",)], form="stdin")[0] == ["3\n"]


@pytest.mark.parametrize(
    "source",
    [
        "import atexit\natexit.register(print, 'end', end='')",
        "out = open(1, 'w', closefd=False)\nout.write('end')",
        "class D:\n    def __del__(self): print('end', end='')\nd = D()",
    ],
    ids=["atexit", "a file left open", "a global's end"],
)
def test_what_is_printed_at_the_end_of_a_whole_program_counts(sandbox, source):
    assert outcomes(sandbox, source, [("",)], form="stdin")[0] == ["end"]


def test_a_fork_that_closes_its_pipe_is_a_crash_not_memory(sandbox):
    source = "import os\ndef f(x):\n    os.close(3)\n    while True: pass"
    found, detail = outcomes(sandbox, source, [(1,)], strict=True)
    assert (found, detail) == ([CRASHED], "input 0: crashed: the program closed the channel of its results")


def test_the_compressors_of_the_library_can_be_imported(sandbox):
    source = (
        "import bz2, lzma, zlib\ndef f(x):\n    return [len(m.compress(b'a' * 99)) < 99 for m in (bz2, lzma, zlib)]"
    )
    assert outcomes(sandbox, source, [(1,)])[0] == [[True, True, True]]


def test_numpys_own_generator_starts_the_same_everywhere():
    source = "import numpy as np\ndef f(x):\n    return int(np.random.randint(10**9))"
    found = []
    for _ in range(2):
        with Sandbox(workers=1, limits=QUICK, packages=["numpy"]) as opened:
            found.append(outcomes(opened, source, [(1,), (2,)])[0])
    assert found[0] == found[1]


def test_values_that_cost_more_memory_than_bytes_are_bounded(sandbox):
    source = "def f(x): return [set() for _ in range(50000)]"
    found, _ = outcomes(sandbox, source, [(x,) for x in range(8)])
    assert Status.OUTPUT_LIMIT in found
    assert found.count(Status.OUTPUT_LIMIT) >= 5
    assert outcomes(sandbox, "def f(x): return list(range(25000))", [(1,), (2,)])[0] == [list(range(25000))] * 2


def test_closing_ends_a_run_of_another_thread_at_once():
    opened = Sandbox(workers=1)
    said = []

    def work():
        job = ProgramJob(id="a", source="def f(x):\n    while True: pass", entry_point="f", inputs=((1,),) * 5)
        try:
            opened.run([job] * 3)
        except VerificationError as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    started = time.monotonic()
    opened.close()
    thread.join(10)
    assert time.monotonic() - started < 5
    assert said == ["This sandbox is closed: open a new one."]


CLOSED_STREAMS = """
import os, sys
for d in (0, 1): os.close(d)
from steelyard.verify.sandbox import ProgramJob, Sandbox
with Sandbox(workers=1) as sandbox:
    job = ProgramJob(id="a", source="def f(x):\\n    return 2 * x", entry_point="f", inputs=((2,),))
    assert sandbox.run([job])[0].outcomes[0].value == 4
"""
FEW_DESCRIPTORS = """
import resource
from steelyard.verify.sandbox import ProgramJob, Sandbox
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
with Sandbox(workers=1) as sandbox:
    job = ProgramJob(id="a", source="def f(x):\\n    return 2 * x", entry_point="f", inputs=((2,),))
    assert sandbox.run([job])[0].outcomes[0].value == 4
"""


@pytest.mark.parametrize("script", [CLOSED_STREAMS, FEW_DESCRIPTORS], ids=["streams closed", "few descriptors"])
def test_a_trainer_in_an_odd_state_has_a_sandbox(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_server_that_cannot_be_started_says_so(monkeypatch):
    monkeypatch.setattr(server.sys, "executable", "/no/such/python")
    with pytest.raises(VerificationError, match=r"cannot be started: .*No such file"):
        Sandbox(workers=1)


@pytest.mark.skipif(
    os.getuid() != 0, reason="without a process namespace it takes root to see every process of the user"
)
def test_without_a_process_namespace_nothing_outlives_its_server(sandbox):

    hasty = Limits(input_seconds=0.004, program_seconds=0.02)
    seen = set()
    with SandboxWithout(walls.NAMESPACES, limits=hasty) as opened:
        root = opened._servers[0].process.pid
        for _ in range(60):
            source = "import time\ndef f(x):\n    time.sleep(60)"
            opened.run([ProgramJob(id="a", source=source, entry_point="f", inputs=((1,), (2,)), strict=True)])
            seen |= set(descendants(root))
    time.sleep(0.5)
    left = [pid for pid in alive(range(min(seen), max(seen) + 500)) if _is_orphan(pid)]
    assert left == []


def _is_orphan(pid: int) -> bool:
    """Whether a process is behind our filter, as the unprivileged user, and has lost its server."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return all(line in status for line in ("Seccomp:\t2", "Uid:\t65534", "PPid:\t1\n"))


SCANS = """
import ctypes, os, struct
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
def heap():
    top = low = libc.sbrk(ctypes.c_long(0))
    while libc.write(2, ctypes.c_void_p(low - 4096), 1) == 1 and top - low < 32 << 20: low -= 4096
    return ctypes.string_at(low, top - low)
def found(first):  # the mark is put together here, so that the source does not hold it
    data, mark = heap(), bytes([first]) + b'eedle-'
    return sorted({data[at + 7 : at + 8].decode() for at in range(len(data)) if data.startswith(mark, at)}) if mark in data else []
"""


def test_no_fork_finds_what_earlier_ones_were_asked(sandbox):
    source = SCANS + "def f(text):\n    return found(ord('n'))"
    inputs = [(f"needle-{n} " * 60,) for n in range(4)]
    assert outcomes(sandbox, source, inputs, strict=True)[0] == [["0"], ["1"], ["2"], ["3"]]
    together, _ = outcomes(sandbox, source, inputs)
    assert together[3] != ["3"]  # in one process it does: the search itself works


def test_no_fork_finds_what_earlier_ones_left_behind_their_reply(sandbox):
    source = (
        SCANS
        + """
def f(x):
    if x < 3:
        reply = struct.pack("<I8sc", 9, bytes(8), b"V") + b"i" + struct.pack("<q", x)
        os.write(3, reply + b"." * 600 + (b"n" + b"eedle-%d" % x) * 50)
        while True: pass
    return found(ord('n'))
"""
    )
    assert outcomes(sandbox, source, [(x,) for x in range(5)], strict=True)[0] == [0, 1, 2, [], []]
