"""The servers: replaced when they die, gone when the trainer is gone, and no growth over many programs."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from sandbox_tools import QUICK, alive, descendants, eventually_gone, run_one

from steelyard.errors import TaskError, VerificationError
from steelyard.types import Status
from steelyard.verify.sandbox import Limits, ProgramJob, Sandbox
from steelyard.verify.sandbox.attacks.attack import HONEST
from steelyard.verify.sandbox.attacks.channel import FORGE

pytestmark = pytest.mark.sandbox

SLOW = "import time\ndef f(x):\n    time.sleep(0.5)\n    return 2 * x"


def jobs_of(source: str, count: int) -> list[ProgramJob]:
    return [ProgramJob(id=str(i), source=f"{source}\n# {i}\n", entry_point="f", inputs=((i,),)) for i in range(count)]


def zygotes(sandbox: Sandbox) -> list[int]:
    """The one child of each supervisor."""
    return [min(descendants(server.process.pid)) for server in sandbox._servers]


def test_runs_come_back_in_order_with_their_ids():
    with Sandbox(workers=2, limits=QUICK) as sandbox:
        runs = sandbox.run(jobs_of("import time\ndef f(x):\n    time.sleep(0.05 if x % 2 else 0)\n    return x", 12))
        assert [(run.id, run.outcomes[0].value) for run in runs] == [(str(i), i) for i in range(12)]
        assert sandbox.run([]) == []
        assert run_one(sandbox, HONEST, []).outcomes == ()


def test_descriptors_and_memory_stay_flat_over_200_programs():
    def held(pid: int) -> tuple[int, int]:
        return len(list(Path(f"/proc/{pid}/fd").iterdir())), int(Path(f"/proc/{pid}/statm").read_text().split()[0])

    with Sandbox(workers=1, limits=QUICK) as sandbox:
        processes = [os.getpid(), sandbox._servers[0].process.pid, *zygotes(sandbox)]
        sandbox.run(jobs_of(HONEST, 20))
        before = [held(pid) for pid in processes]
        sandbox.run(jobs_of(HONEST, 100) + jobs_of("import os\ndef f(x):\n    os._exit(0)", 100))
        after = [held(pid) for pid in processes]
    assert [files for files, _ in after] == [files for files, _ in before]
    assert all(late - early < 512 for (_, early), (_, late) in zip(before[1:], after[1:], strict=True))  # pages: 2 MiB


@pytest.mark.parametrize("victim", ["zygote", "supervisor"])
def test_a_dead_server_is_replaced_and_its_program_runs_once_more(victim):
    with Sandbox(workers=2, limits=QUICK) as sandbox:
        first = {server.process.pid for server in sandbox._servers}
        prey = zygotes(sandbox)[0] if victim == "zygote" else sandbox._servers[0].process.pid
        threading.Timer(0.25, os.kill, (prey, signal.SIGKILL)).start()
        runs = sandbox.run(jobs_of(SLOW, 4))
        assert [run.outcomes[0].value for run in runs] == [0, 2, 4, 6]
        assert len(first & {server.process.pid for server in sandbox._servers}) == 1


def test_a_program_whose_server_dies_twice_is_checker_failed_and_its_neighbours_are_not():
    killed: list[int] = []

    def kill_two_zygotes_at_work(sandbox: Sandbox) -> None:
        deadline = time.monotonic() + 20
        while len(killed) < 2 and time.monotonic() < deadline:
            for server in list(sandbox._servers):
                at_work = descendants(server.process.pid)
                if len(at_work) == 2 and min(at_work) not in killed:
                    time.sleep(0.1)  # past the trial child of the start
                    if len(descendants(server.process.pid)) == 2:
                        killed.append(min(at_work))
                        os.kill(killed[-1], signal.SIGKILL)
            time.sleep(0.01)

    with Sandbox(workers=1, limits=QUICK) as sandbox:
        killer = threading.Thread(target=kill_two_zygotes_at_work, args=(sandbox,))
        killer.start()
        runs = sandbox.run(jobs_of(SLOW, 2))
        killer.join()
    assert len(killed) == 2
    assert [run.outcomes[0].fault for run in runs] == [Status.CHECKER_FAILED, None]
    assert "died twice" in runs[0].detail


SCRIPT = f"""
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
sys.path.insert(0, {str(Path(__file__).parent)!r})
from sandbox_tools import descendants
from steelyard.verify.sandbox import *
loop = "def f(x):\\n    while x: pass\\n    return x"
def job(x): return ProgramJob(id="a", source=loop, entry_point="f", inputs=((x,),))
sandbox = Sandbox(workers=2, limits=Limits(input_seconds=30.0, program_seconds=30.0))
print("open", flush=True)
"""


def start_script(rest: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(rest)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(pid: int, count: int) -> set[int]:
    """Wait until a process has this many descendants; a supervisor, a zygote and a candidate per running program."""
    deadline = time.monotonic() + 10
    while len(found := set(descendants(pid))) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(found) >= count
    return found


@pytest.mark.parametrize("copy_of_socket", [False, True], ids=["alone", "a fork holds the socket"])
def test_parent_death_leaves_nothing_running(copy_of_socket):
    fork = "if os.fork() == 0: time.sleep(8); os._exit(0)\n" if copy_of_socket else ""
    with start_script(fork + "sandbox.run([job(1), job(1)])") as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "open\n"
        below = wait_for(trainer.pid, 6 + copy_of_socket)
        own_fork = {pid for pid in below if b"sandbox_tools" in Path(f"/proc/{pid}/cmdline").read_bytes()}
        assert len(own_fork) == copy_of_socket
        trainer.kill()
        trainer.wait()
        assert eventually_gone(below - own_fork)
        for pid in own_fork:
            os.kill(pid, signal.SIGKILL)


def test_kill_of_a_supervisor_takes_its_zygote_and_candidate_along():
    with Sandbox(workers=1, limits=Limits(input_seconds=30.0, program_seconds=30.0)) as sandbox:
        supervisor = sandbox._servers[0].process.pid
        thread = threading.Thread(
            target=lambda: sandbox.run(jobs_of("def f(x):\n    while True: pass", 1)), daemon=True
        )
        thread.start()
        below = wait_for(supervisor, 2)
        replaced = threading.Thread(target=lambda: eventually_gone(below))
        os.kill(supervisor, signal.SIGKILL)
        replaced.start()
        replaced.join()
        assert not alive(below)
        for _ in range(2):  # the program is run once more, in a server that is killed too
            time.sleep(0.5)
            for server in list(sandbox._servers):
                server.process.kill()
        thread.join(20)
        assert not thread.is_alive()


def test_interrupt_reaches_the_trainer_only_and_the_sandbox_stays_usable():
    rest = """
    try:
        sandbox.run([job(1), job(1)])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(sandbox.run([job(0)])[0].outcomes[0].value, flush=True)
    sandbox.close()
    print(len(descendants(os.getpid())), flush=True)
    """
    with start_script(rest) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        wait_for(trainer.pid, 6)
        os.killpg(trainer.pid, signal.SIGINT)
        assert trainer.stdout.read().split() == ["interrupted", "0", "0"]
        assert trainer.wait() == 0


def test_a_sandbox_that_was_never_closed_ends_with_the_trainer():
    with start_script("print(*descendants(os.getpid()))") as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        below = {int(pid) for pid in trainer.stdout.readline().split()}
        assert trainer.wait() == 0
    assert len(below) == 4
    assert eventually_gone(below)


def test_closed_twice_is_fine_and_running_afterwards_is_refused():
    sandbox = Sandbox(workers=1)
    sandbox.close()
    sandbox.close()
    with pytest.raises(VerificationError, match="closed"):
        sandbox.run(jobs_of(HONEST, 1))


def test_an_input_that_is_no_plain_data_is_refused_before_anything_runs(sandbox):
    with pytest.raises(TaskError, match="not plain"):
        sandbox.run([ProgramJob(id="a", source=HONEST, entry_point="f", inputs=((object(),),))])


def test_shared_inputs_arrive_as_separate_copies(sandbox):
    row = [0]
    source = "def f(x):\n    x[0][0] = 1\n    return x"
    assert run_one(sandbox, source, [[row, row]]).outcomes[0].value == [[1], [0]]
    assert row == [0]


def test_a_large_input_and_a_large_value_pass_through():
    text = "x" * 300_000
    with Sandbox(workers=1, limits=Limits(value_bytes=1 << 20)) as sandbox:
        assert run_one(sandbox, "def f(x):\n    return [x, x]", [text]).outcomes[0].value == [text, text]


def test_all_values_of_a_program_together_are_bounded():
    with Sandbox(workers=1, limits=Limits(values_bytes=1000)) as sandbox:
        run = run_one(sandbox, "def f(x):\n    return 'x' * 300", range(9))
    assert [outcome.fault for outcome in run.outcomes] == [None] * 4 + [Status.OUTPUT_LIMIT] * 5
    assert run.value_bytes == 4 * 305


def test_a_result_sent_while_loading_ends_the_program_before_any_input(sandbox):
    run = run_one(sandbox, FORGE + "send(value(0), nonce=nonce())\ndef f(x):\n    return 2 * x", range(3))
    assert [(outcome.fault, outcome.ran) for outcome in run.outcomes] == [(Status.FORBIDDEN, False)] * 3
    assert "while the program was loaded" in run.detail
