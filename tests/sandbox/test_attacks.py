import os

import pytest
from sandbox_tools import QUICK, descendants

from steelyard.verify.sandbox import Sandbox
from steelyard.verify.sandbox.attacks import ATTACKS, run_attacks

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("attacks"), pytest.mark.timeout(180)]

HERE = [attack for attack in ATTACKS if attack.applies]


@pytest.fixture(scope="module")
def opened():
    with Sandbox(workers=2, limits=QUICK) as opened:
        yield opened


@pytest.fixture(scope="module")
def findings(opened):
    """All attacks, an honest neighbour beside each."""
    return {finding.attack.name: finding for finding in run_attacks(opened, HERE)}


def test_the_table_has_every_family():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 180
    assert len({attack.family for attack in ATTACKS}) == 14
    assert os.uname().machine != "x86_64" or list(ATTACKS) == HERE


@pytest.mark.parametrize("attack", HERE, ids=lambda attack: attack.name)
def test_attack_gets_its_verdict_and_its_neighbour_full_marks(findings, attack):
    finding = findings[attack.name]
    assert finding.status in attack.right, finding.detail
    assert finding.held, finding.detail


def test_nothing_is_left_running(findings, opened):
    expected = {process for server in opened._servers for process in descendants(server.process.pid)}
    expected |= {server.process.pid for server in opened._servers}
    assert len(expected) == 2 * opened.workers  # supervisor and zygote each: no candidate, no zombie
    assert "Z" not in [state for server in opened._servers for state in descendants(server.process.pid).values()]
