"""Every row of the attack table against a sandbox without the guards that it names: there it must not end as it should."""

import os
from collections import defaultdict
from pathlib import Path

import pytest
from guards import EDITS, taken_down

from steelyard.types import Status
from steelyard.verify.programs import ProgramVerifier
from steelyard.verify.sandbox.attacks import ATTACKS, run_attacks
from steelyard.verify.sandbox.attacks.attack import SUITE
from steelyard.verify.sandbox.attacks.resources import REMEMBERING
from steelyard.verify.sandbox.inside import walls

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("guards"), pytest.mark.timeout(120)]

PROBES = {"environment of the init": "/proc/1/environ", "environment of the parent": "/proc/self/environ"}
"""What the trainer itself must be able to read for a row to be shown here."""


def refusal(attack) -> str:
    """What this machine answers to the trainer's own attempt; empty where the row can be shown."""
    try:
        Path(PROBES.get(attack.name, "/dev/null")).read_bytes()
    except OSError as error:
        return f"n/a here: {error}"
    return ""


BY_GUARDS = defaultdict(list)
for attack in ATTACKS:
    if attack.applies and not refusal(attack):
        BY_GUARDS[attack.guards].append(attack)
TRAINER = {"comparator", "decoder"}
SPECIAL = {("n/a",), ("judge's process",)}


def test_every_guard_is_known():
    named = {guard for attack in ATTACKS for guard in attack.guards}
    assert named == set(EDITS) | TRAINER | {"n/a", "judge's process"} | (set(walls.NAMES) & named)


@pytest.mark.parametrize("guards", [g for g in BY_GUARDS if g not in SPECIAL], ids=" + ".join)
def test_without_its_guards_an_attack_gets_through(guards, tmp_path):
    if "user namespace" in guards and os.getuid() != 0:
        pytest.skip("only root can do without a user namespace")
    try:
        with taken_down(guards, tmp_path / "inside") as sandbox:
            findings = run_attacks(sandbox, BY_GUARDS[guards], tame=True)
    finally:
        for left in [*Path("/tmp").glob("steelyard-*"), *Path("/dev/shm").glob("steelyard-*")]:
            left.rmdir() if left.is_dir() else left.unlink()
    stopped = {f.attack.name: (f.status.value, f.detail) for f in findings if f.status in f.attack.right}
    assert stopped == {}


@pytest.mark.parametrize("name", PROBES)
def test_a_row_that_this_machine_cannot_show_says_why(name):
    (attack,) = [attack for attack in ATTACKS if attack.name == name]
    if why := refusal(attack):
        pytest.skip(why)
    assert attack in BY_GUARDS[attack.guards]


@pytest.mark.parametrize("attack", BY_GUARDS[("judge's process",)], ids=lambda attack: attack.name)
def test_without_a_judge_of_its_own_process_a_value_says_that_it_is_right(attack):
    namespace = {}
    exec(attack.source, namespace)
    assert all(namespace["f"](case.args[0]) == case.expected for case in SUITE.cases)


@pytest.mark.parametrize("attack", REMEMBERING, ids=lambda attack: attack.name)
def test_a_process_per_input_finds_out_what_a_program_remembers(sandbox, attack):
    answers = [("a", f"```python\n{attack.source}```")]
    assert ProgramVerifier(sandbox, SUITE).check(answers)[0].verdict.status is Status.PASSED
    assert ProgramVerifier(sandbox, SUITE, strict=True).check(answers)[0].verdict.status is not Status.PASSED
