"""Workers with a hard limit: what a handler can do to them, and what stands afterwards."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steelyard.errors import VerificationError
from steelyard.verify.answer_pool import AnswerPool, Setup

HANDLERS = """
import os, socket, time
def setup(bias=0):
    def handle(request):
        kind = request if isinstance(request, str) else "add"
        if kind == "hang":
            while True: pass
        if kind == "sleep": time.sleep(60)
        if kind == "exit": os._exit(3)
        if kind == "abort": os.abort()
        if kind == "raise": raise KeyError("gone")
        if kind == "leave": raise SystemExit(0)
        if kind == "memory": return len(bytearray(1 << 30))
        if kind == "object": return object()
        if kind == "nan": return float("nan")
        if kind == "fork": return os.fork()
        if kind == "connect": return socket.socket()
        if kind == "write": return open("/tmp/never-written", "w").write("x" * 10)
        if kind == "pid": return os.getpid()
        if kind == "environment": return sorted(os.environ)
        return request + bias
    return handle
def broken(): raise RuntimeError("no such grader")
"""


@pytest.fixture
def pool(tmp_path, monkeypatch):
    (tmp_path / "handlers_of_a_test.py").write_text(HANDLERS)
    monkeypatch.syspath_prepend(tmp_path)

    def make(*, function: str = "setup", workers: int = 1, seconds: float = 5.0, **more) -> AnswerPool:
        setup = Setup(
            function=f"handlers_of_a_test:{function}", settings=more, seconds=seconds, memory_mb=256, start_seconds=30.0
        )
        made.append(AnswerPool(setup, workers=workers))
        return made[-1]

    made: list[AnswerPool] = []
    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("request_", "ending", "says"),
    [
        ("raise", "raised", "KeyError: 'gone'"),
        ("leave", "raised", "SystemExit"),
        ("memory", "memory", "more memory"),
        ("object", "raised", "no plain data"),
        ("nan", "raised", "no plain data"),
        ("exit", "died", "exit code 3"),
        ("abort", "died", "signal 6"),
        ("fork", "raised", "PermissionError"),
        ("connect", "raised", "PermissionError"),
        ("write", "raised", "PermissionError"),
    ],
)
def test_what_a_handler_does_is_data_and_the_next_call_is_answered(pool, request_, ending, says):
    workers = pool(bias=1)
    reply = workers.call(request_)
    assert (reply.ending, says in reply.detail) == (ending, True), reply
    assert workers.call(1).value == 2


def test_a_call_over_its_limit_ends_on_time_and_its_worker_is_gone(pool):
    workers = pool(seconds=0.5)
    process = workers.call("pid").value
    began = time.monotonic()
    assert workers.call("sleep").ending == "timeout"
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert workers.call(1).value == 1


def test_a_worker_is_kept_for_the_next_call_and_many_share_the_work(pool):
    workers = pool(workers=2)
    assert [reply.value for reply in workers.map(list(range(20)))] == list(range(20))
    assert len({reply.value for reply in workers.map(["pid"] * 20)}) <= 2


def test_a_worker_that_cannot_start_is_our_failure(pool):
    with pytest.raises(VerificationError, match="did not start: RuntimeError: no such grader"):
        pool(function="broken").call(1)


def test_a_walled_worker_knows_no_secret(pool, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    assert "SECRET_TOKEN" not in pool().call("environment").value


PARENT = """
import sys
from steelyard.verify.answer_pool import AnswerPool, Setup
sys.path.insert(0, sys.argv[1])
pool = AnswerPool(Setup(function="handlers_of_a_test:setup", settings={}, seconds=0.5), workers=1)
print(pool.call("pid").value, flush=True)
import threading
threading.Thread(target=pool.call, args=("hang",), daemon=True).start()
import time, os, signal
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_whose_parent_was_killed_ends_itself(pool, tmp_path):
    """Busy in a call it sees no closed socket; its own timer ends it."""
    pool()
    script = PARENT.replace("import sys\n", "import sys\nimport steelyard.verify.answer_pool as p\np._GRACE = 0.1\n", 1)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=30)
    worker = int(done.stdout)
    until = time.monotonic() + 10
    while time.monotonic() < until and _runs(worker):
        time.sleep(0.1)
    assert not _runs(worker)


def _runs(process: int) -> bool:
    try:
        return "answer_worker" in Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return False
