"""The public fault cases C32 to C45 that concern running programs, each under its number."""

import asyncio
import mmap
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from sandbox_tools import DOUBLE, QUICK, descendants, run_one, suite_of, verdict_of

from steelyard.errors import TaskError
from steelyard.types import Status, Suite
from steelyard.verify.judge import judge
from steelyard.verify.programs import ProgramVerifier, check_references
from steelyard.verify.sandbox import Limits, ProgramJob, Sandbox
from steelyard.verify.sandbox.attacks.attack import HONEST

pytestmark = pytest.mark.sandbox

SAME = """
yes = lambda *_: True
members = dict(__eq__=yes, __ge__=yes, __le__=yes, __sub__=lambda me, _: me, __rsub__=lambda me, _: me, __abs__=lambda me: 0)
Same = type("Same", (), members)
def f(*args): return [Same()]
"""


def test_c32_same_verdict_from_every_thread_and_a_forked_worker(sandbox):
    got = []
    thread = threading.Thread(target=lambda: got.append(verdict_of(sandbox, HONEST).reward))
    thread.start()
    thread.join()
    got.append(verdict_of(sandbox, HONEST).reward)
    got.append(asyncio.run(asyncio.to_thread(verdict_of, sandbox, HONEST)).reward)
    originals = {server.process.pid for server in sandbox._servers}
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            right = verdict_of(sandbox, HONEST).reward == 1.0
            own = originals.isdisjoint(server.process.pid for server in sandbox._servers)
            code = 0 if right and own else 2
        finally:
            sandbox.close()
            os._exit(code)
    _, status = os.waitpid(worker, 0)
    assert (got, os.waitstatus_to_exitcode(status)) == ([1.0, 1.0, 1.0], 0)
    assert verdict_of(sandbox, HONEST + "\n# after the fork\n").reward == 1.0


def test_c32_a_sandbox_opened_in_a_thread_outlives_the_thread():
    opened: list[Sandbox] = []
    thread = threading.Thread(target=lambda: opened.append(Sandbox(workers=1, limits=QUICK)))
    thread.start()
    thread.join()
    with opened[0] as sandbox:
        before = sandbox._servers[0].process.pid
        time.sleep(0.1)
        assert verdict_of(sandbox, HONEST).reward == 1.0
        assert sandbox._servers[0].process.pid == before


def test_c33_hung_checks_do_not_eat_the_pool():
    hung = "def f(x):\n    return 9 ** 9 ** 9 ** 9\n"
    answers = [(f"hung {i}", f"```\n{hung}# {i}\n```") for i in range(4)]
    answers += [(f"honest {i}", f"```\n{HONEST}# {i}\n```") for i in range(4)]
    with Sandbox(workers=2, limits=QUICK) as sandbox:
        started = time.monotonic()
        checks = ProgramVerifier(sandbox, DOUBLE).check(answers)
        assert time.monotonic() - started < 10
    assert [check.verdict.status for check in checks] == [Status.TIMEOUT] * 4 + [Status.PASSED] * 4


def test_c36_object_equal_to_everything(sandbox):
    verdict = verdict_of(sandbox, SAME, suite_of([(0, [1]), (1, [2])]))
    assert (verdict.status, verdict.reward) == (Status.FAILED, 0.0)


def test_c36_bool_where_int_is_expected(sandbox):
    assert verdict_of(sandbox, "def f(x):\n    return x == 1", suite_of([(1, 1), (0, 0)])).reward == 0.0


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos._exit(0)\ndef f(x): return ''",
        "raise SystemExit(0)\ndef f(x): return ''",
        "def f(x): raise ValueError",
        "import atexit, os\natexit.register(lambda: os._exit(0))\ndef f(x): exit()",
    ],
)
def test_c37_leaving_is_no_pass_even_where_the_empty_string_is_expected(sandbox, source):
    verdict = verdict_of(sandbox, source, suite_of([(0, ""), (1, "")]))
    assert (verdict.status, verdict.reward) == (Status.CRASHED, 0.0)


def test_c37_exit_in_the_middle_costs_that_test_only(sandbox):
    source = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    return 2 * x"
    verdict = verdict_of(sandbox, source, suite_of((x, 2 * x) for x in range(4)))
    assert list(verdict.tests.values()) == [Status.PASSED, Status.CRASHED, Status.PASSED, Status.PASSED]
    assert (verdict.status, verdict.reward, verdict.executed) == (Status.CRASHED, 0.75, 4)


def test_c39_timeouts_the_candidate_cannot_defeat(sandbox):
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.setitimer(signal.ITIMER_REAL, 0)\n"
    started = time.monotonic()
    verdict = verdict_of(sandbox, deaf + "def f(x):\n    while True: pass")
    assert verdict.status is Status.TIMEOUT
    assert time.monotonic() - started < QUICK.input_seconds + 2


def test_c39_an_endless_loop_costs_the_same_for_a_long_suite():
    jobs = [ProgramJob(id="a", source="def f(x):\n    while True: pass", entry_point="f", inputs=((1,),) * 96)]
    with Sandbox(workers=1, limits=Limits(input_seconds=0.2, timeouts=2)) as sandbox:
        (run,) = sandbox.run(jobs)
    assert run.seconds < 2
    assert [outcome.fault for outcome in run.outcomes] == [Status.TIMEOUT] * 96
    assert sum(outcome.ran for outcome in run.outcomes) == 2


def test_c39_the_program_has_a_time_of_its_own():
    source = "import time\ndef f(x):\n    time.sleep(0.3)\n    return 2 * x"
    with Sandbox(workers=1, limits=Limits(input_seconds=2.0, program_seconds=1.0)) as sandbox:
        run = run_one(sandbox, source, range(20))
    faults = [outcome.fault for outcome in run.outcomes]
    assert faults[:2] == [None, None]
    assert faults[4:] == [Status.TIMEOUT] * 16
    assert run.seconds < 3


def test_c40_honest_use_of_os_works_and_nothing_outside_is_touched(sandbox, tmp_path):
    victim = tmp_path / "tests.json"
    victim.write_text("{}")
    source = f"import os, importlib, posix\nimportlib.reload(os)\ndef f(x):\n    os.getcwd()\n    posix.unlink({str(victim)!r})"
    run = run_one(sandbox, source)
    assert run.outcomes[0].fault is Status.CRASHED
    assert "Error" in run.detail
    assert victim.exists()
    assert (
        verdict_of(sandbox, "import os\ndef f(x):\n    os.getcwd(), os.path.exists('/x')\n    return 2 * x").reward
        == 1.0
    )


def test_c42_no_tests_is_an_error_never_a_pass(sandbox):
    empty = Suite(task="double", name="empty", version=1, entry_point="f", cases=())
    with pytest.raises(TaskError, match="has no tests"):
        ProgramVerifier(sandbox, empty)
    with pytest.raises(TaskError, match="has no tests"):
        ProgramVerifier(sandbox, DOUBLE, extra_suites=[empty])
    with pytest.raises(TaskError, match="has no tests"):
        judge(empty, {})
    with pytest.raises(TaskError, match="no reference"):
        check_references(sandbox, DOUBLE, {})


def test_c43_a_hundred_timeouts_leave_no_process_and_no_zombie():
    source = "def f(x):\n    while True: pass"
    with Sandbox(workers=2, limits=Limits(input_seconds=0.02, timeouts=1)) as sandbox:
        jobs = [ProgramJob(id=str(i), source=source, entry_point="f", inputs=((i,),)) for i in range(100)]
        runs = sandbox.run(jobs)
        assert {outcome.fault for run in runs for outcome in run.outcomes} == {Status.TIMEOUT}
        below = [descendants(server.process.pid) for server in sandbox._servers]
        assert [len(found) for found in below] == [1, 1]
        assert all(state != "Z" for found in below for state in found.values())
        processes = {server.process.pid for server in sandbox._servers} | {pid for found in below for pid in found}
    assert not processes & set(descendants(os.getpid()))


def test_c43_a_looping_thread_or_a_sleeping_grandchild_does_not_hold_the_call(sandbox):
    source = """
    import os, subprocess, threading, time
    for attempt in (lambda: threading.Thread(target=time.sleep, args=(600,)).start(), os.fork, lambda: subprocess.Popen("sleep")):
        try:
            if attempt() == 0:
                os.setsid()
                time.sleep(600)
        except (OSError, RuntimeError, ImportError):
            pass
    def f(x):
        return 2 * x
    """
    started = time.monotonic()
    assert verdict_of(sandbox, textwrap.dedent(source)).reward == 1.0
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "flood",
    ["print('1234567890')", "print('\\n' * 999)", "print('x' * 10**6, end='')", "sys.stderr.write('x' * 999 + '\\n')"],
)
def test_c44_output_flood(sandbox, flood):
    run = run_one(sandbox, f"import sys\ndef f(x):\n    while x: {flood}\n    return 0", [0, 1, 0])
    assert [outcome.fault for outcome in run.outcomes] == [None, Status.OUTPUT_LIMIT, Status.OUTPUT_LIMIT]
    assert [outcome.ran for outcome in run.outcomes] == [True, True, False]
    assert "bytes of output" in run.detail


def test_c44_the_head_of_the_output_is_kept_and_cannot_speak_to_a_terminal(sandbox):
    run = run_one(sandbox, "def f(x):\n    while True: print('\\x1b[2Jhello')")
    assert "hello" in run.detail
    assert "\x1b" not in run.detail
    run = run_one(sandbox, "def f(x):\n    raise ValueError('hello \\x1b[2J' + 'x' * 10000)")
    assert "ValueError: hello" in run.detail
    assert "\x1b" not in run.detail
    assert len(run.detail) < 500


def test_c45_a_bomb_is_memory_limit_within_seconds_and_an_honest_list_is_not(sandbox):
    started = time.monotonic()
    assert verdict_of(sandbox, "def f(x):\n    return [0] * 10**10").status is Status.MEMORY_LIMIT
    assert time.monotonic() - started < 3
    assert verdict_of(sandbox, "def f(x):\n    return 2 * x + 0 * len([0] * 10**7)").reward == 1.0  # 80 MB


def test_c45_a_large_parent_does_not_count():
    with mmap.mmap(-1, 40 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000), Sandbox(workers=1) as sandbox:
        assert verdict_of(sandbox, HONEST).reward == 1.0


def test_c45_a_hard_limit_below_ours_is_kept_and_never_raised():
    script = """
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (7, 7))
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))
    from steelyard.verify.sandbox import *
    source = "import resource as r\\ndef f(x):\\n    return [r.getrlimit(k) for k in (r.RLIMIT_CPU, r.RLIMIT_STACK)]"
    with Sandbox(workers=1, limits=Limits(memory_mb=4096)) as sandbox:
        (run,) = sandbox.run([ProgramJob(id="a", source=source, entry_point="f", inputs=((1,),))])
    print(run.outcomes[0].value, run.detail)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[(7, 7), (1048576, 1048576)]", done.stderr
