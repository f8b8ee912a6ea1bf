"""Opening a ledger file: its version, its writer lock, and errors that name the way out."""

import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from steelyard.errors import LedgerError
from steelyard.ledger.schema import APPLICATION_ID, MIGRATIONS

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WRITE_FAILURES = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHMSIZE")
_START_AGAIN = "Free some space, or set run.dir to another disk, and start the run again."


@contextmanager
def explained(path: Path, *, way_out: str = _START_AGAIN) -> Generator[None, None, None]:
    """Turn errors of SQLite and of the file system into `LedgerError`s; `way_out` of a full disk is the caller's."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(_explanation(path, error, way_out)) from error


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring an open file to the version of `migrations`, one transaction per step."""
    for number in range(version(connection), len(migrations)):
        connection.executescript(f"BEGIN IMMEDIATE; {migrations[number]} PRAGMA user_version = {number + 1}; COMMIT;")


def version(connection: sqlite3.Connection) -> int:
    """Return the number of migrations that the file has seen."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check_is_ledger(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is no ledger, and one written by a newer Steelyard.

    Raises:
        LedgerError: With what the file is instead.
    """
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise LedgerError(
            f"{path} is no Steelyard ledger, or its run was stopped while it was being created. "
            "Name the ledger.sqlite of a run directory."
        )
    found = version(connection)
    if found > len(MIGRATIONS):
        raise LedgerError(
            f"{path} has ledger format {found}, this Steelyard reads up to {len(MIGRATIONS)}. "
            "Use the version of Steelyard that wrote it, or a newer one."
        )


class WriterLock:
    """The right to write one ledger, held by one open file description; the system frees it if we die."""

    def __init__(self, ledger: Path) -> None:
        """Take the lock beside `ledger`, or raise `LedgerError` naming the process that holds it."""
        self.path = ledger.with_name(ledger.name + ".lock")
        self._fd: int | None = self._acquire(ledger)

    @property
    def held(self) -> bool:
        """Whether we still hold it."""
        return self._fd is not None

    def release(self) -> None:
        """Give the lock back and remove its file."""
        if self._fd is not None:
            self.path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None

    def _acquire(self, ledger: Path) -> int:
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
                os.close(fd)
                raise LedgerError(
                    f"{ledger} is being written by another process (pid {holder}); a ledger has one writer. "
                    "Wait for it or stop it; reading is possible meanwhile."
                ) from None
            if self._is_current(fd):
                return self._signed(fd)
            os.close(fd)  # the last holder removed the file between our open and our lock

    def _signed(self, fd: int) -> int:
        """Write our process number, for the message that a second writer gets; on a full disk leave nothing."""
        try:
            os.truncate(fd, 0)
            os.write(fd, str(os.getpid()).encode())
        except OSError:
            self.path.unlink()
            os.close(fd)
            raise
        return fd

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False


def _explanation(path: Path, error: sqlite3.Error | OSError, way_out: str) -> str:
    name = str(getattr(error, "sqlite_errorname", ""))
    if getattr(error, "errno", None) in _NO_SPACE or name in _WRITE_FAILURES:
        return (
            f"{path} cannot grow ({error}): {_free_bytes(path)} bytes are free on its disk; a file size limit or quota "
            f"may also stand in the way. Everything committed so far is kept and readable. {way_out}"
        )
    if isinstance(error, FileExistsError):
        return f"{path} exists already, and a ledger is never overwritten. Set run.dir to a new directory."
    if isinstance(error, sqlite3.IntegrityError):
        return (
            f"{path} refused a row ({error}). A row is written once, after the rows that it refers to: "
            "prompts, then completions, then verdicts, then the update."
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"{path} is held by another program ({error}). Close other programs that write to it."
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"{path} is damaged or no SQLite file ({error}). Use a copy; `sqlite3 FILE .recover` saves what it can."
    return f"{path} cannot be used ({error}). Check that the path exists and that you may read and write it."


def _free_bytes(path: Path) -> int | str:
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return "an unknown number of"
