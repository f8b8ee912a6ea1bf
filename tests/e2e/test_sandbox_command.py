"""The doctor, and what a run does on a machine that cannot raise the walls."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(180), pytest.mark.xdist_group("doctor")]

# As in a container whose kernel has no Landlock: no namespaces and no Landlock from here on.
WITHOUT_WALLS = """
import os, struct, sys
from steelyard.verify.sandbox.inside import syscalls
unshare = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
rows = [(0x20, 0, 0, 0), (0x15, 1, 0, unshare), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
syscalls.install_filter(b"".join(struct.pack("<HBBI", *row) for row in rows))
os.execv(sys.executable, [sys.executable, "-m", "steelyard", *sys.argv[1:]])
"""


def without_walls(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_WALLS, *arguments], capture_output=True, text=True, check=False
    )


def test_the_doctor_prints_the_walls_and_every_attack_is_stopped(cli):
    result = cli("sandbox", "doctor", "--seconds", "0.2")
    assert result.code == 0, result.out + result.err
    assert result.out.startswith(("Level A: ", "Level B: ", "Level C: "))
    for text in ("user namespace", "seccomp", "kernel doors", "hostile values", "programs a second"):
        assert text in result.out
    tried, stopped = next(line for line in result.out.splitlines() if line.startswith("all ")).split()[1:]
    assert tried == stopped
    assert int(tried) >= 170
    assert "GOT THROUGH" not in result.out


def test_the_doctor_speaks_json(cli):
    result = cli("sandbox", "doctor", "--no-attacks", "--seconds", "0.2", "--json")
    found = json.loads(result.out)
    assert found["level"] in "ABC"
    assert found["attacks"] == []
    assert found["speed"]["programs"] > 1
    assert found["walls"][0]["name"] == "user namespace"


def test_the_doctor_says_what_to_change_where_programs_cannot_be_run():
    done = without_walls("sandbox", "doctor")
    assert done.returncode == 2
    assert done.stdout.startswith("Level D: ")
    assert "the wall 'user namespace' cannot be raised: unshare: Operation not permitted. Fix: " in done.stderr
    assert (
        "the wall 'landlock' cannot be raised: this kernel has no Landlock, or it is switched off. Fix: " in done.stderr
    )
    assert "Traceback" not in done.stderr


RECIPE = ["run.updates=1", "eval.samples=2", "rollout.group_size=2"]


def test_train_refuses_without_walls_and_says_the_fix(tmp_path):
    done = without_walls("train", "booking", *RECIPE, f"run.dir={tmp_path / 'run'}")
    assert done.returncode == 2, done.stderr
    for text in ("'user namespace' cannot be raised", "'landlock' cannot be raised", "Fix: ", "--unconfined"):
        assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_unconfined_is_on_the_card(tmp_path):
    done = without_walls("train", "booking", *RECIPE, f"run.dir={tmp_path / 'run'}", "--unconfined")
    assert done.returncode == 0, done.stderr
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["sandbox"] == {"unconfined": True, "level": "unconfined", "walls": ["limits"]}
    assert card["updates"]["done"] == 1


@pytest.mark.parametrize("arguments", [("sandbox", "--help"), ("sandbox", "doctor", "--help")])
def test_help_has_examples(cli, arguments):
    result = cli(*arguments)
    assert result.code == 0
    assert "steelyard sandbox doctor" in result.out
