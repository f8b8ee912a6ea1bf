import pytest
from sandbox_attacks import ATTACKS, HONEST
from sandbox_tools import DOUBLE, descendants

from steelyard.types import Status
from steelyard.verify.programs import ProgramVerifier

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("attacks")]


@pytest.fixture(scope="module")
def checks(sandbox):
    """All attacks in one call, an honest neighbour beside each; and the processes left afterwards."""
    answers = []
    for attack in ATTACKS:
        answers.append((attack.name, f"```python\n{attack.source}\n```"))
        answers.append((f"honest beside {attack.name}", f"{HONEST}\nbeside = {attack.name!r}\n"))
    return {check.id: check for check in ProgramVerifier(sandbox, DOUBLE).check(answers)}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_gets_its_verdict(checks, attack):
    verdict = checks[attack.name].verdict
    assert verdict.status in attack.right, verdict.detail
    assert verdict.reward is not None
    assert (verdict.reward == 1.0) == (verdict.status is Status.PASSED)


def test_honest_neighbours_keep_full_marks(checks):
    honest = {id_: check.verdict for id_, check in checks.items() if id_.startswith("honest")}
    assert len(honest) == len(ATTACKS)
    assert {id_: v.detail for id_, v in honest.items() if v.reward != 1.0} == {}


def test_nothing_is_left_running(checks, sandbox):
    expected = {process for server in sandbox._servers for process in descendants(server.process.pid)}
    expected |= {server.process.pid for server in sandbox._servers}
    assert len(expected) == 2 * sandbox.workers  # supervisor and zygote each: no candidate, no zombie
    assert "Z" not in [state for server in sandbox._servers for state in descendants(server.process.pid).values()]
