"""Reading a ledger: while it is being written, after a crash, and when it is finished."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from steelyard.errors import LedgerError
from steelyard.ledger import codec
from steelyard.ledger.codec import SqlValue
from steelyard.ledger.files import check_is_ledger, explained
from steelyard.ledger.records import (
    AttemptRow,
    EventKind,
    EventRow,
    Member,
    PromptRow,
    Purpose,
    RunRow,
    StoredCompletion,
    UpdateRow,
    VerdictRow,
)
from steelyard.ledger.schema import KINDS, METRICS
from steelyard.types import Completion, Status, Verdict

_COMPLETIONS = (
    "SELECT c.*, p.token_ids AS prompt_ids FROM completions c JOIN prompts p ON p.id = c.prompt_id "
    "WHERE (:purpose IS NULL OR c.purpose = :purpose) AND (:update_no IS NULL OR c.update_no = :update_no) ORDER BY c.id"
)
_VERDICTS = (
    "SELECT v.* FROM verdicts v JOIN completions c ON c.id = v.completion_id "
    "WHERE (:purpose IS NULL OR c.purpose = :purpose) AND (:update_no IS NULL OR c.update_no = :update_no) ORDER BY v.id"
)
_NO_SIDE_FILES = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR_SHM")


class LedgerReader:
    """Read-only view of a ledger; each call sees what is committed at that moment.

    Use it as a context manager, in the thread that opened it.
    """

    def __init__(self, path: Path) -> None:
        """Open the ledger at `path`.

        Raises:
            LedgerError: If there is no such file, it is no ledger, or a newer Steelyard wrote it.
        """
        self.path = path
        if not path.is_file():
            raise LedgerError(f"there is no ledger at {path}. Name the ledger.sqlite of a run directory.")
        with explained(path):
            self._connection = _connect(path)
            self._connection.row_factory = sqlite3.Row
        try:
            with explained(path):
                check_is_ledger(self._connection, path)
        except LedgerError:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self) -> RunRow:
        """Return what was started."""
        values = codec.decode("run", self._one("SELECT * FROM run"))
        values["tests"] = {judge: tuple(ids) for judge, ids in values["tests"].items()}
        return RunRow(**{field.name: values[field.name] for field in fields(RunRow)})

    def format(self) -> int:
        """Return the ledger format in which the run was started."""
        return int(self._one("SELECT format FROM run")["format"])

    def prompts(self) -> list[PromptRow]:
        """Return the prompts in the order of writing."""
        return [_prompt(row) for row in self.rows("SELECT * FROM prompts ORDER BY rowid")]

    def updates(self) -> list[UpdateRow]:
        """Return every update, in order."""
        return [_update(row) for row in self.rows("SELECT * FROM updates ORDER BY update_no")]

    def update(self, update_no: int) -> UpdateRow:
        """Return one update.

        Raises:
            LedgerError: If the ledger holds no such update; says which it holds.
        """
        for row in self.rows("SELECT * FROM updates WHERE update_no = ?", (update_no,)):
            return _update(row)
        last = self._one("SELECT max(update_no) AS last FROM updates")["last"]
        held = "no update yet" if last is None else f"updates 1 to {last}"
        raise LedgerError(f"{self.path} has no update {update_no}; it holds {held}.")

    def members(self, update_no: int) -> list[Member]:
        """Return the batch of an update: the members in loss order, then the completions outside the loss."""
        update = self.update(update_no)
        advantages = dict(zip(update.members, update.advantages, strict=True))
        place = {member: index for index, member in enumerate(update.members)}
        verdicts: dict[int, list[VerdictRow]] = {}
        for row in self.verdicts("train", update_no):
            verdicts.setdefault(row.completion_id, []).append(row)
        batch = sorted(self.completions("train", update_no), key=lambda stored: place.get(stored.id, len(place)))
        return [
            Member(
                stored=stored,
                advantage=advantages.get(stored.id),
                verdicts=tuple(sorted(verdicts.get(stored.id, []), key=lambda row: not row.is_primary)),
            )
            for stored in batch
        ]

    def completions(self, purpose: Purpose | None = None, update_no: int | None = None) -> list[StoredCompletion]:
        """Return completions, of one purpose and one update (train) or state (eval) where given."""
        scope = {"purpose": purpose, "update_no": update_no}
        return [_completion(row) for row in self.rows(_COMPLETIONS, scope)]

    def verdicts(self, purpose: Purpose | None = None, update_no: int | None = None) -> list[VerdictRow]:
        """Return the verdicts of `completions(purpose, update_no)`, in the order of writing."""
        order = self.run().tests
        scope = {"purpose": purpose, "update_no": update_no}
        return [_verdict(row, order.get(str(row["judge"]), ())) for row in self.rows(_VERDICTS, scope)]

    def events(self, kind: EventKind | None = None) -> list[EventRow]:
        """Return the events, of one kind where given."""
        found = self.rows("SELECT * FROM events WHERE :kind IS NULL OR kind = :kind ORDER BY id", {"kind": kind})
        return [EventRow(**_record("events", row, EventRow)) for row in found]

    def evals(self) -> list[EventRow]:
        """Return the measurements by state; of a state measured again, by another judge say, all of them."""
        return sorted(self.events("eval"), key=lambda event: event.update_no)

    def attempts(self) -> list[AttemptRow]:
        """Return the moments of all attempts; the only place with times."""
        found = self.rows("SELECT * FROM attempts ORDER BY id")
        return [AttemptRow(**_record("attempts", row, AttemptRow)) for row in found]

    def metrics(self) -> list[dict[str, Any]]:
        """Return the view `metrics`: one flat dict per update, None where a value does not apply."""
        return [
            {name: codec.decode_value(METRICS[name], value) for name, value in row.items()}
            for row in self.rows("SELECT * FROM metrics")
        ]

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        if table not in KINDS:
            raise LedgerError(f"{table!r} is no table of a ledger; the tables are {', '.join(KINDS)}.")
        return int(self._one(f"SELECT count(*) AS n FROM {table}")["n"])

    def damaged(self) -> list[str]:
        """Recompute every row hash and let SQLite check the file; return what does not agree."""
        hashes = {int(row["id"]): str(row["row_hash"]) for row in self.rows("SELECT id, row_hash FROM completions")}
        found = [str(row["integrity_check"]) for row in self.rows("PRAGMA integrity_check")]
        found = [problem for problem in found if problem != "ok"]
        for table, columns in KINDS.items():
            if "row_hash" in columns:
                found += self._changed_rows(table, hashes)
        return found

    def rows(self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()) -> Iterator[dict[str, Any]]:
        """Run a SELECT and yield its rows as stored (blobs and JSON undecoded)."""
        with explained(self.path):
            for row in self._connection.execute(sql, cast("Any", parameters)):
                yield dict(row)

    def _changed_rows(self, table: str, completion_hashes: dict[int, str]) -> Iterator[str]:
        key = "update_no" if table == "updates" else "id"
        for row in self.rows(f"SELECT * FROM {table}"):
            stored = row.pop("row_hash")
            if codec.row_hash(_hashed(table, row, completion_hashes)) != stored:
                yield f"{table} {row[key]}: the row is not what was written (row_hash differs)"

    def _one(self, sql: str) -> dict[str, Any]:
        for row in self.rows(sql):
            return row
        raise LedgerError(f"{self.path} has no answer to {sql!r}: its run was stopped while it was being created.")


def _connect(path: Path) -> sqlite3.Connection:
    """Open read-only; where SQLite cannot make its side files (disk full or read-only), a finished ledger needs none."""
    uri = path.resolve().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if not error.sqlite_errorname.startswith(_NO_SIDE_FILES) or path.with_name(path.name + "-wal").exists():
            raise
        return sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
    return connection


def _hashed(table: str, row: dict[str, Any], completion_hashes: dict[int, str]) -> dict[str, SqlValue]:
    """The values that the writer hashed: references by content, and no key that depends on order of arrival."""
    if table == "updates":
        members: Sequence[int] = codec.decode("updates", {"members": row["members"]})["members"]
        return {**row, "members": "".join(completion_hashes.get(member, "?") for member in members)}
    kept = {name: value for name, value in row.items() if name != "id" or table == "prompts"}
    if table == "verdicts":
        kept["completion_id"] = completion_hashes.get(row["completion_id"], "?")
    return kept


def _record(table: str, row: dict[str, Any], record: type[Any]) -> dict[str, Any]:
    values = codec.decode(table, row)
    return {field.name: values[field.name] for field in fields(record)}


def _prompt(row: dict[str, Any]) -> PromptRow:
    values = _record("prompts", row, PromptRow)
    content = values.pop("content")
    return PromptRow(content=content if isinstance(content, str) else tuple(content), **values)


def _update(row: dict[str, Any]) -> UpdateRow:
    values = _record("updates", row, UpdateRow)
    return UpdateRow(steps=tuple(values.pop("steps")), **values)


def _completion(row: dict[str, Any]) -> StoredCompletion:
    prompt_ids: Any = codec.decode_value("int32s", row.pop("prompt_ids"))
    values = codec.decode("completions", row)
    own = {name: values.pop(name) for name in ("id", "purpose", "update_no", "row_hash")}
    return StoredCompletion(**own, completion=Completion(prompt_ids=prompt_ids, **values))


def _verdict(row: dict[str, Any], order: Sequence[str]) -> VerdictRow:
    values = codec.decode("verdicts", row)
    verdict = Verdict(
        status=Status(values["status"]),
        reward=values["reward"],
        tests=codec.decode_tests(values["tests"], order),
        expected=values["expected"],
        executed=values["executed"],
        detail=values["detail"],
    )
    own = {name: values[name] for name in ("completion_id", "judge", "is_primary", "source_hash")}
    return VerdictRow(**own, verdict=verdict)
