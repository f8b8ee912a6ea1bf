"""The ladder of levels, each raised for real: as root and as an ordinary user, with more and more denied by a filter."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.verify.sandbox.inside import walls

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("ladder"), pytest.mark.timeout(180)]

SRC = Path(walls.__file__).parents[4]
USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
DENY = """
import json, os, struct, sys
sys.path.insert(0, sys.argv[1])
from steelyard.verify.sandbox.inside import syscalls
UNSHARE = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
LOAD, ARGUMENT = (0x20, 0, 0, 0), (0x20, 0, 0, 16)
DENY, ALLOW = (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)
RULES = {
    "user namespaces": [LOAD, (0x15, 0, 3, UNSHARE), ARGUMENT, (0x45, 0, 1, 0x10000000), DENY, ALLOW],
    "namespaces": [LOAD, (0x15, 0, 1, UNSHARE), DENY, ALLOW],  # as in a container
    "landlock": [LOAD, (0x15, 0, 1, 444), DENY, ALLOW],
}
for rule in json.loads(sys.argv[2]):
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.install_filter(b"".join(struct.pack("<HBBI", *row) for row in RULES[rule]))
"""
TABLE = (
    DENY
    + """
from steelyard.verify.sandbox import Limits, ProgramJob, Sandbox, probe
from steelyard.verify.sandbox.attacks import ATTACKS, run_attacks
with Sandbox(workers=2, limits=Limits(input_seconds=1.0, program_seconds=5.0, timeouts=1)) as sandbox:
    findings = run_attacks(sandbox, [attack for attack in ATTACKS if attack.applies])
    through = {f.attack.name: [f.status, f.detail] for f in findings if not f.held}
    stand = [wall.name for wall in sandbox.walls if wall.stands]
    count = "n = []\\ndef f(x):\\n    n.append(x)\\n    return len(n)"
    jobs = [
        ProgramJob(id="a", source=count, entry_point="f", inputs=((5,), (6,)), strict=True),
        ProgramJob(id="b", source="print(input()[::-1])", entry_point="", inputs=(("ab",), ("cd",)), form="stdin"),
        ProgramJob(id="c", source=count, entry_point="f", inputs=(("", "assert candidate(3) == f(4) - 1 == 1"),), form="asserts"),
    ]
    values = [[outcome.value for outcome in run.outcomes] for run in sandbox.run(jobs)]
    print(json.dumps([sandbox.level, stand, len(findings), through, values, probe()[0], os.getuid()]))
"""
)
REFUSED = (
    DENY
    + """
from steelyard.errors import SandboxUnavailable
from steelyard.verify.sandbox import ProgramJob, Sandbox, probe
try:
    Sandbox(workers=1)
except SandboxUnavailable as error:
    message, code = str(error), error.exit_code
with Sandbox(workers=1, unconfined=True) as sandbox:
    job = ProgramJob(id="a", source="def f(x):\\n    return 2 * x", entry_point="f", inputs=((2,),))
    print(json.dumps([message, code, probe()[0], sandbox.level, sandbox.run([job])[0].outcomes[0].value]))
"""
)


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


def run(script: str, denied: list[str], *, user: bool) -> list:
    python = sys.executable
    if user:
        found = readable_interpreter()
        if found is None:
            pytest.skip("needs root, setpriv, and an interpreter and sources that an ordinary user can read")
        python = found
    command = [*(USER if user else []), python, "-B", "-c", script, str(SRC), json.dumps(denied)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="needs root")
LEVELS = [
    pytest.param(False, [], "A", set(), id="root", marks=ROOT_ONLY),
    pytest.param(
        False, ["user namespaces"], "A", {"user namespace"}, id="root without user namespaces", marks=ROOT_ONLY
    ),
    pytest.param(False, ["namespaces"], "C", walls.NAMESPACES, id="root without namespaces", marks=ROOT_ONLY),
    pytest.param(True, [], "B", set(), id="ordinary user"),
    pytest.param(True, ["namespaces"], "C", walls.NAMESPACES, id="ordinary user without namespaces"),
    pytest.param(True, ["user namespaces"], "C", walls.NAMESPACES, id="ordinary user without user namespaces"),
]


@pytest.mark.parametrize(("user", "denied", "level", "missing"), LEVELS)
def test_the_whole_table_holds_at_each_level(user, denied, level, missing):
    got, stand, rows, through, values, probed, uid = run(TABLE, denied, user=user)
    assert (got, probed) == (level, level)
    assert set(stand) == set(walls.NAMES) - set(missing)
    assert rows >= 170
    assert through == {}
    assert values == [[1, 1], ["ba\n", "dc\n"], [True]]
    assert uid == (65534 if user else 0)


@pytest.mark.parametrize("user", [pytest.param(False, id="root"), pytest.param(True, id="ordinary user")])
def test_without_namespaces_and_landlock_it_is_refused_with_the_fixes(user):
    message, code, probed, level, value = run(REFUSED, ["namespaces", "landlock"], user=user)
    assert "the wall 'user namespace' cannot be raised: unshare: Operation not permitted. Fix: " in message
    assert "the wall 'landlock' cannot be raised: this kernel has no Landlock, or it is switched off. Fix: " in message
    assert "One of these fixes is enough. To run programs without walls all the same, type --unconfined." in message
    assert (code, probed, level, value) == (2, "D", "unconfined", 4)
