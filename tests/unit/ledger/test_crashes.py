"""kill -9, full disks, second writers: what is committed stays, and the message says what to do."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from steelyard.errors import LedgerError
from steelyard.ledger import Ledger, LedgerReader

GROUP = 8
WRITER = f"""
import json, resource, signal, sys, time
from pathlib import Path
from steelyard.errors import LedgerError
from steelyard.ledger import Ledger, PromptRow, RunRow
from steelyard.types import Completion

def say(*words):
    print(json.dumps(words), flush=True)

def completion(number, sample):
    return Completion(
        prompt_id="p", group_id=f"{{number}}", sample=sample, policy_version=0, prompt_ids=(1,), token_ids=(7,) * 100,
        logprobs=(-0.5,) * 100, text="x" * 300, finish="stop",
    )

def group(number):
    return [completion(number, sample) for sample in range({GROUP})]

class Stalls(list):
    "Blocks in the middle of the transaction that writes it."
    def __iter__(self):
        yield from self[:{GROUP} // 2]
        say("inside")
        time.sleep(60)

run = RunRow(
    name="x", recipe="", recipe_hash="", seed=0, steelyard="", objective={{}}, model={{}}, task={{}}, machine={{}}, sandbox={{}}
)
ledger = Ledger.create(Path(sys.argv[1]), run)
ledger.prompts([PromptRow(id="p", content="q", token_ids=(1,))])
"""
UNTIL_FULL = """
for number in range(10_000):
    try:
        ledger.completions("train", number, group(number))
    except LedgerError as error:
        say("full", number, str(error))
        break
"""


def start(script: str, path: Path, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER + script, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)  # pyright: ignore[reportCallIssue, reportArgumentType]


def spoken(process: "subprocess.Popen[str]") -> list:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the writer stopped early"
    return json.loads(line)


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_kill_9_in_a_transaction_loses_that_transaction_only(path: Path) -> None:
    writer = start('ledger.completions("train", 1, group(1))\nledger.completions("train", 2, Stalls(group(2)))', path)
    assert spoken(writer) == ["inside"]
    kill(writer)
    with LedgerReader(path) as reader:
        assert [(stored.update_no, stored.completion.sample) for stored in reader.completions()] == [
            (1, sample) for sample in range(GROUP)
        ]
        assert reader.damaged() == []


def test_kill_9_at_any_moment_leaves_whole_groups_and_a_file_that_opens_again(
    path: Path, rows: SimpleNamespace
) -> None:
    writer = start('for n in range(10_000):\n    ledger.completions("train", n, group(n))\n    say("kept", n)', path)
    kept = 0
    with LedgerReader(path) if spoken(writer) else pytest.fail() as live:
        while kept < 30:
            kept = spoken(writer)[1]
            assert live.count("completions") >= GROUP * kept  # readable while it is written
    kill(writer)
    with Ledger.open(path) as ledger:  # the dead writer's lock is free
        last = ledger.completions("train", 20_000, [rows.completion(0, prompt_ids=(1,))])
    with LedgerReader(path) as reader:
        assert reader.damaged() == []
        assert reader.count("completions") % GROUP == 1
        assert last[0] == reader.count("completions") > GROUP * kept


def test_a_full_disk_is_reported_with_file_and_free_bytes_and_loses_nothing_committed(path: Path) -> None:
    script = (
        """
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
"""
        + UNTIL_FULL
        + """
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
ledger.completions("train", number, group(number))
say("went on")
"""
    )
    writer = start(script, path)
    _, groups, message = spoken(writer)
    assert groups > 3
    assert spoken(writer) == ["went on"]  # once there is room again, the same writer continues
    kill(writer)
    free = next(word for word in message.split() if word.isdigit())
    assert message.startswith(f"{path} cannot grow")
    assert int(free) > 0
    assert "Free some space, or set run.dir to another disk" in message
    with LedgerReader(path) as reader:
        assert reader.count("completions") == GROUP * (groups + 1)
        assert reader.damaged() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB; needs the right to mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, *, free_pages: int) -> None:
    free = os.statvfs(disk).f_bavail
    (disk / "filler").write_bytes(bytes(4096 * (free - free_pages)))


def test_a_small_disk_that_fills_up(small_disk: Path) -> None:
    path = small_disk / "ledger.sqlite"
    writer = start(UNTIL_FULL, path)
    _, groups, message = spoken(writer)
    writer.communicate()
    assert writer.returncode == 0
    assert groups > 3
    assert f"{path} cannot grow" in message
    with LedgerReader(path) as reader:
        assert reader.count("completions") == GROUP * groups
        assert reader.damaged() == []
    fill(small_disk, free_pages=0)
    with LedgerReader(path) as reader:
        assert reader.count("completions") == GROUP * groups  # reading needs no space


@pytest.mark.parametrize("free_pages", [0, 2])  # room for nothing; for the lock file only
def test_a_ledger_that_cannot_be_made_leaves_nothing_that_would_block_the_next_start(
    small_disk: Path, rows: SimpleNamespace, free_pages: int
) -> None:
    fill(small_disk, free_pages=free_pages)
    with pytest.raises(LedgerError, match="cannot grow"):
        Ledger.create(small_disk / "ledger.sqlite", rows.run())
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_the_writer_flushes_every_commit_and_checks_references(fresh: Ledger) -> None:
    settings = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    # A loss of power cannot be staged here, and the writer's own checks come before SQLite's.
    assert {name: fresh._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in settings} == settings


def test_a_second_writer_is_refused_and_told_who_writes(fresh: Ledger, rows: SimpleNamespace) -> None:
    with pytest.raises(LedgerError, match=rf"{fresh.path} is being written by another process \(pid {os.getpid()}\)"):
        Ledger.open(fresh.path)
    script = f"from pathlib import Path; from steelyard.ledger import Ledger; Ledger.open(Path({str(fresh.path)!r}))"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"pid {os.getpid()}" in other.stderr
    fresh.completions("train", 1, [rows.completion(0)])  # the first writer is not disturbed
    fresh.close()
    Ledger.open(fresh.path).close()


def test_a_truncated_file_gets_a_clear_error(written: Path) -> None:
    content = written.read_bytes()
    written.write_bytes(content[: len(content) // 2])
    with pytest.raises(LedgerError, match=r"damaged.*Use a copy"), LedgerReader(written) as reader:
        reader.damaged()


def test_a_finished_ledger_is_readable_where_nothing_can_be_written(written: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        copy = Path(directory) / "ledger.sqlite"
        copy.write_bytes(written.read_bytes())
        copy.chmod(0o444)
        Path(directory).chmod(0o555)
        script = (
            "import os, sys; from pathlib import Path; from steelyard.ledger import LedgerReader\n"
            "if os.getuid() == 0: os.setuid(65534)\n"
            "print(len(LedgerReader(Path(sys.argv[1])).updates()))"
        )
        done = subprocess.run([sys.executable, "-c", script, str(copy)], capture_output=True, text=True, check=True)
        Path(directory).chmod(0o755)
    assert done.stdout == "2\n"


def test_the_ledger_needs_neither_torch_nor_pyarrow_nor_pydantic() -> None:
    script = "import sys, steelyard.ledger.card, steelyard.ledger.export; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "pydantic", "pyarrow", "pandas"} & set(done.stdout.split())
