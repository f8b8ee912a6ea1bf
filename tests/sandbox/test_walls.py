"""What each wall is for: an attack that succeeds once its wall is left out; and refusal where a wall is missing."""

import os
import socket
import sys
from pathlib import Path

import pytest
from sandbox_tools import QUICK, SandboxWithout, alive, descendants, eventually_gone, run_one, verdict_of

from steelyard.errors import ConfigError, SandboxUnavailable
from steelyard.types import Status
from steelyard.verify.sandbox import Limits, Sandbox, probe
from steelyard.verify.sandbox.attacks.attack import HONEST
from steelyard.verify.sandbox.inside import walls

pytestmark = pytest.mark.sandbox

SRC = Path(walls.__file__).parents[4]


@pytest.fixture(scope="module")
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# name, walls left out, program of the input (a port), what comes back without the wall, what comes back behind it
DOWN = [
    (
        "the file view hides the password file",
        ["file view", "landlock"],
        "def f(x):\n    return len(open('/etc/passwd').read()) > 0",
        True,
        Status.CRASHED,
    ),
    (
        "the network namespace hides the machine's loopback",
        ["network", "seccomp", "landlock"],
        "import socket\ndef f(x):\n    socket.create_connection(('127.0.0.1', x), 1)\n    return True",
        True,
        Status.CRASHED,
    ),
    (
        "the filter refuses sockets",
        ["seccomp"],
        "import socket\ndef f(x):\n    socket.socketpair()\n    return True",
        True,
        Status.CRASHED,
    ),
    (
        "the filter refuses shared maps, which the data limit does not count",
        ["seccomp"],
        "import mmap\ndef f(x):\n    return len(mmap.mmap(-1, 4096))",
        4096,
        Status.CRASHED,
    ),
    (
        "filter and process limit refuse a fork",
        ["seccomp", "limits"],
        "import os\ndef f(x):\n    if os.fork() == 0: os._exit(0)\n    return True",
        True,
        Status.CRASHED,
    ),
    (
        "the memory limit refuses 400 MB",
        ["limits"],
        "def f(x):\n    return len(bytes(400 << 20))",
        400 << 20,
        Status.MEMORY_LIMIT,
    ),
    (
        "the user is not the trainer's, and has no capabilities",
        ["privileges", "seccomp"],
        "import ctypes\ndef f(x):\n    return ctypes.CDLL(None).sethostname(b'mine', 4)",
        0,
        -1,
    ),
]


@pytest.mark.parametrize(("name", "without", "source", "escaped", "held"), DOWN, ids=[row[0] for row in DOWN])
def test_each_wall_is_what_stops_its_attack(sandbox, listener, name, without, source, escaped, held):
    outcome = run_one(sandbox, source, [listener]).outcomes[0]
    assert (outcome.value if outcome.returned else outcome.fault) == held
    with SandboxWithout(without) as open_sandbox:
        assert run_one(open_sandbox, source, [listener]).outcomes[0].value == escaped


DAEMON = """
import os, time
def f(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(20)
        os._exit(0)
    time.sleep(0.2)
    return True
"""


@pytest.mark.parametrize("namespace", [True, False], ids=["inside", "left out"])
def test_the_process_namespace_takes_a_daemon_along(namespace):
    """Without it a grandchild that left its session outlives its program; with it nothing does."""
    without = ["seccomp", "limits"] + ([] if namespace else ["process namespace"])
    with SandboxWithout(without) as sandbox:
        server = sandbox._servers[0].process.pid
        assert run_one(sandbox, DAEMON).outcomes[0].value is True
        below = descendants(server)
        running = alive(below)
    assert len(running) == (1 if namespace else 2)  # the zygote, and the daemon where it escaped
    assert eventually_gone(below)  # closing the sandbox takes even that one along


def test_a_wall_that_does_not_stand_when_tried_is_found_out(sandbox):
    """The child reads its walls back before it gets the source: here the limits are claimed but not set."""
    layout = walls.Layout(ids=None, memory_bytes=0, cpu_seconds=0, wanted=frozenset({"limits", "file view"}))
    assert walls.standing(layout) == ["file view", "limits"]


def test_the_candidate_is_another_user_where_root_started_it(sandbox):
    outcome = run_one(
        sandbox, "import os\ndef f(x):\n    return os.getuid(), os.getpid(), os.uname().nodename"
    ).outcomes[0]
    assert outcome.value == (1 if os.getuid() == 0 else 0, 1, "sandbox")


def test_probe_names_every_wall():
    level, found = probe()
    assert level == ("A" if os.getuid() == 0 else "B")
    assert [wall.name for wall in found] == list(walls.NAMES)
    assert all(wall.stands for wall in found if wall.required)


def test_another_system_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match="Linux only, this is darwin"):
        Sandbox(workers=1)


def test_unconfined_still_has_limits_and_a_clock():
    with Sandbox(workers=1, limits=QUICK, unconfined=True) as sandbox:
        assert verdict_of(sandbox, HONEST).reward == 1.0
        assert verdict_of(sandbox, "def f(x):\n    while True: pass").status is Status.TIMEOUT
        assert verdict_of(sandbox, "def f(x):\n    return [0] * 10**10").status is Status.MEMORY_LIMIT
        assert [wall.name for wall in sandbox.walls] == ["limits"]


def test_limits_and_workers_are_checked():
    with pytest.raises(ConfigError, match="memory_mb must be a positive number, got 0"):
        Limits(memory_mb=0)
    with pytest.raises(ConfigError, match="at least 1 worker"):
        Sandbox(workers=0)
