"""What each wall is for: an attack that succeeds once its wall is left out; and refusal where a wall is missing."""

import os
import shutil
import socket
import subprocess
import sys
import textwrap
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


NO_NAMESPACES = """
import ctypes, os, struct
from steelyard.errors import SandboxUnavailable
from steelyard.verify.sandbox import Sandbox, ProgramJob, probe
from steelyard.verify.sandbox.inside import syscalls
number = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
syscalls.install_filter(b"".join(struct.pack("<HBBI", *row) for row in rows))  # unshare fails with EPERM, as in Docker
try:
    Sandbox(workers=1)
except SandboxUnavailable as error:
    print(error)
print([wall.name for wall in probe() if not wall.stands])
with Sandbox(workers=1, unconfined=True) as sandbox:
    source = "def f(x):\\n    return 2 * x"
    print(sandbox.run([ProgramJob(id="a", source=source, entry_point="f", inputs=((2,),))])[0].outcomes[0].value)
"""


def test_a_missing_wall_is_refused_with_the_fix_unless_unconfined_is_asked_for():
    done = subprocess.run([sys.executable, "-c", NO_NAMESPACES], capture_output=True, text=True, check=False)
    refusal, missing, value = done.stdout.rsplit("\n", 3)[0:3] if done.stdout else (done.stderr, "", "")
    assert "the wall 'user namespace' cannot be raised: unshare: Operation not permitted. Fix: " in refusal
    assert "--unconfined" in refusal
    assert missing == "['user namespace']"
    assert value == "4"


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


def readable_interpreter() -> str | None:
    """An interpreter that an ordinary user can start."""
    if os.getuid() != 0 or shutil.which("setpriv") is None or not os.access(SRC, os.R_OK):
        return None
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-c"]
        # Start itself once more: setpriv may reach an interpreter that its user cannot.
        check = f"""
import subprocess, sys
sys.path.insert(0, {str(SRC)!r})
import steelyard.verify.sandbox
sys.exit(sys.version_info < (3, 11) or subprocess.call([sys.executable, "-c", ""]))
"""
        if subprocess.run([*command, check], capture_output=True, cwd="/", check=False).returncode == 0:
            return python
    return None


def test_an_ordinary_user_has_the_same_walls():
    python = readable_interpreter()
    if python is None:
        pytest.skip("needs root, setpriv, and an interpreter and sources that an ordinary user can read")
    script = f"""
    import os, sys
    sys.path.insert(0, {str(SRC)!r})
    from steelyard.verify.sandbox import *
    source = "def f(x):\\n    return 2 * x if not x else open('/etc/passwd').read()"
    with Sandbox(workers=1) as sandbox:
        (run,) = sandbox.run([ProgramJob(id="a", source=source, entry_point="f", inputs=((0,), (1,)))])
        print(os.getuid(), [o.value if o.returned else str(o.fault) for o in run.outcomes], [w.name for w in sandbox.walls if w.required])
    """
    command = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        python,
        "-B",
        "-c",
        textwrap.dedent(script),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    required = [name for name in walls.NAMES if name in walls.required(walls.NAMES)]
    assert done.stdout.strip() == f"65534 [0, 'crashed'] {required}", done.stderr


def test_limits_and_workers_are_checked():
    with pytest.raises(ConfigError, match="memory_mb must be a positive number, got 0"):
        Limits(memory_mb=0)
    with pytest.raises(ConfigError, match="at least 1 worker"):
        Sandbox(workers=0)
