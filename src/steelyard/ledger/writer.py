"""The writer of a ledger: one process, appending only, each group of rows in one transaction."""

import json
import os
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from steelyard.content import content_hash
from steelyard.errors import LedgerError
from steelyard.ledger import codec
from steelyard.ledger.codec import SqlValue
from steelyard.ledger.files import WriterLock, check_is_ledger, explained, migrate
from steelyard.ledger.records import AttemptKind, EventKind, PromptRow, Purpose, RunRow, UpdateRow, VerdictRow
from steelyard.ledger.schema import APPLICATION_ID, FORMAT
from steelyard.types import Completion


class Ledger:
    """An open ledger. Use it as a context manager: leaving it closes the file and frees the lock."""

    def __init__(self, path: Path, lock: WriterLock, connection: sqlite3.Connection) -> None:
        """Wrap an open file; callers use `create` or `open`."""
        self.path = path
        self._lock = lock
        self._connection = connection
        with explained(path):
            tests, attempt = connection.execute(
                "SELECT (SELECT tests FROM run), (SELECT coalesce(max(attempt), 0) + 1 FROM attempts)"
            ).fetchone()
        self._test_order: Mapping[str, Sequence[str]] = json.loads(tests)
        self.attempt_no = int(attempt)
        """Which attempt at the run this writer is: 1 for the first, one more for every reopening."""

    @classmethod
    def create(cls, path: Path, run: RunRow) -> Self:
        """Make a new ledger with its `run` row.

        Raises:
            LedgerError: If the file exists, or its directory does not, or another process writes there.
        """
        row = {field.name: getattr(run, field.name) for field in fields(RunRow)}
        values = codec.encode("run", {"id": 1, "format": FORMAT, **row})

        def begin(connection: sqlite3.Connection) -> None:
            migrate(connection)
            _insert(connection, "run", values)
            # Last, so that a file whose creation was interrupted is never taken for a ledger.
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")

        return cls._opened(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, begin)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing ledger to append to it, migrating an older file first.

        Raises:
            LedgerError: If there is no such ledger, a newer Steelyard wrote it, or another process writes to it.
        """

        def begin(connection: sqlite3.Connection) -> None:
            check_is_ledger(connection, path)
            migrate(connection)

        return cls._opened(path, os.O_RDWR, begin)

    @classmethod
    def _opened(cls, path: Path, flags: int, begin: Callable[[sqlite3.Connection], None]) -> Self:
        with explained(path):
            lock = WriterLock(path)
        connection: sqlite3.Connection | None = None
        try:
            with explained(path):
                os.close(os.open(path, flags | os.O_CLOEXEC, 0o644))
                connection = sqlite3.connect(path, isolation_level=None)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                begin(connection)
            return cls(path, lock, connection)
        except BaseException:
            if connection is not None:
                connection.close()
                if flags & os.O_EXCL:  # we made the file; a half-made one would block the next start
                    for suffix in ("", "-wal", "-shm"):
                        path.with_name(path.name + suffix).unlink(missing_ok=True)
            lock.release()
            raise

    def prompts(self, rows: Sequence[PromptRow]) -> None:
        """Write prompts; before any completion that answers them."""
        with self._transaction():
            for row in rows:
                content = codec.plain(row.content)
                values = codec.encode(
                    "prompts",
                    {
                        "id": row.id,
                        "content": row.content,
                        "token_ids": row.token_ids,
                        "columns": row.columns,
                        "content_hash": content_hash(content),
                    },
                )
                _insert(self._connection, "prompts", {**values, "row_hash": codec.row_hash(values)})

    def completions(self, purpose: Purpose, update_no: int, completions: Sequence[Completion]) -> list[int]:
        """Write the completions of one group as they arrive; one transaction.

        Args:
            purpose: Sampled to train or to measure.
            update_no: train: the update they feed; eval: the state they measure.
            completions: With the token ids as sampled.

        Returns:
            The integer ids of the new rows, in the order given.
        """
        with self._transaction():
            return [self._completion(purpose, update_no, completion) for completion in completions]

    def verdicts(self, rows: Sequence[VerdictRow]) -> None:
        """Write verdicts of stored completions; one transaction."""
        with self._transaction():
            for row in rows:
                self._verdict(row)

    def update(self, row: UpdateRow) -> None:
        """Write an update: its last row, after completions and verdicts.

        Raises:
            LedgerError: If members and advantages do not match, a member is unknown, or a number is not finite.
        """
        if len(row.members) != len(row.advantages):
            raise LedgerError(
                f"update {row.update_no} has {len(row.members)} members and {len(row.advantages)} advantages; "
                "there is one advantage per member."
            )
        values = codec.encode("updates", {field.name: getattr(row, field.name) for field in fields(UpdateRow)})
        with self._transaction():
            hashes = "".join(self._completion_hash(member) for member in row.members)
            hashed = {**values, "members": hashes}
            _insert(self._connection, "updates", {**values, "row_hash": codec.row_hash(hashed)})

    def attempt(self, kind: AttemptKind, update_no: int, data: Mapping[str, object]) -> None:
        """Write a moment of this attempt with the time of day; `data` may hold `seconds` by stage."""
        values = codec.encode(
            "attempts",
            {
                "attempt": self.attempt_no,
                "kind": kind,
                "update_no": update_no,
                "utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "data": data,
            },
        )
        with self._transaction():
            _insert(self._connection, "attempts", values)

    def event(self, kind: EventKind, update_no: int, data: Mapping[str, object]) -> None:
        """Write an event; `data` holds no times, so that two equal runs have equal events."""
        values = codec.encode("events", {"kind": kind, "update_no": update_no, "data": data})
        with self._transaction():
            _insert(self._connection, "events", {**values, "row_hash": codec.row_hash(values)})

    def close(self) -> None:
        """Close the file and free the lock; closing twice is harmless."""
        if self._lock.held:
            with explained(self.path):
                self._connection.close()
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        """All or nothing: an error leaves the file as it was before."""
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                # SQLite rolls back by itself on a full disk; then there is nothing left to undo.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _completion(self, purpose: Purpose, update_no: int, completion: Completion) -> int:
        values = codec.encode(
            "completions",
            {
                "purpose": purpose,
                "update_no": update_no,
                "group_id": completion.group_id,
                "prompt_id": completion.prompt_id,
                "sample": completion.sample,
                "policy_version": completion.policy_version,
                "token_ids": completion.token_ids,
                "logprobs": completion.logprobs,
                "text": completion.text,
                "finish": completion.finish,
            },
        )
        if len(completion.token_ids) != len(completion.logprobs):
            raise LedgerError(
                f"completion {completion.sample} of group {completion.group_id} has {len(completion.token_ids)} tokens "
                f"and {len(completion.logprobs)} log-probs; there is one log-prob per sampled token."
            )
        self._check_prompt(completion, values["prompt_id"])
        return _insert(self._connection, "completions", {**values, "row_hash": codec.row_hash(values)})

    def _check_prompt(self, completion: Completion, prompt_id: SqlValue) -> None:
        """The rendered prompt is stored once, so a completion must answer exactly that one."""
        found = self._connection.execute("SELECT token_ids FROM prompts WHERE id = ?", (prompt_id,)).fetchone()
        if found is None:
            raise LedgerError(f"prompt {completion.prompt_id!r} is not in {self.path}; write prompts first.")
        if codec.decode_value("int32s", found[0]) != completion.prompt_ids:
            raise LedgerError(
                f"a completion answers prompt {completion.prompt_id!r} with other token ids than the stored prompt; "
                "a prompt is rendered once per run."
            )

    def _verdict(self, row: VerdictRow) -> None:
        verdict = row.verdict
        values = codec.encode(
            "verdicts",
            {
                "completion_id": row.completion_id,
                "judge": row.judge,
                "is_primary": row.is_primary,
                "status": verdict.status,
                "reward": verdict.reward,
                "passed": verdict.passed,
                "expected": verdict.expected,
                "executed": verdict.executed,
                "tests": codec.encode_tests(verdict.tests, self._test_order.get(row.judge)),
                "detail": verdict.detail,
                "source_hash": row.source_hash,
            },
        )
        hashed = {**values, "completion_id": self._completion_hash(row.completion_id)}
        _insert(self._connection, "verdicts", {**values, "row_hash": codec.row_hash(hashed)})

    def _completion_hash(self, completion_id: int) -> str:
        found = self._connection.execute("SELECT row_hash FROM completions WHERE id = ?", (completion_id,)).fetchone()
        if found is None:
            raise LedgerError(
                f"completion {completion_id} is not in {self.path}; write completions before verdicts and updates, "
                "and refer to them by the ids that `completions` returned."
            )
        return str(found[0])


def _insert(connection: sqlite3.Connection, table: str, values: Mapping[str, SqlValue]) -> int:
    """Append one row and return its integer key (meaningless for tables keyed by text)."""
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    cursor = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
    return int(cursor.lastrowid or 0)
