"""The tables: what they hold, that they only grow, and that the documents and records agree with them."""

import hashlib
import re
import sqlite3
from dataclasses import fields
from pathlib import Path

import pytest

from steelyard.errors import LedgerError
from steelyard.ledger import (
    AttemptRow,
    EventRow,
    Ledger,
    LedgerReader,
    PromptRow,
    RunRow,
    StoredCompletion,
    UpdateRow,
    VerdictRow,
)
from steelyard.ledger.files import migrate
from steelyard.ledger.schema import KINDS, METRICS, MIGRATIONS
from steelyard.types import Completion, Verdict

DOCS = Path(__file__).parents[3] / "docs" / "ledger.md"
RELEASED = {1: "c4927fcf"}
"""First digits of the SHA-256 of each released migration."""


def names(record: type, *left_out: str) -> set[str]:
    return {field.name for field in fields(record)} - set(left_out)


OWN = {"row_hash"}
RECORD_COLUMNS = {
    "run": names(RunRow) | {"id", "format"},
    "prompts": names(PromptRow) | OWN | {"content_hash"},
    "updates": names(UpdateRow) | OWN,
    "completions": names(StoredCompletion, "completion") | names(Completion, "prompt_ids"),
    "verdicts": names(VerdictRow, "verdict") | names(Verdict, "seconds") | OWN | {"id", "passed"},
    "attempts": names(AttemptRow),
    "events": names(EventRow) | OWN,
}


def columns(path: Path, table: str) -> dict[str, str]:
    with sqlite3.connect(path) as db:
        found = {row[1]: row[2] for row in db.execute(f"PRAGMA table_info({table})")}
    db.close()
    return found


@pytest.mark.parametrize("table", KINDS)
def test_columns_are_those_of_the_records(written: Path, table: str) -> None:
    assert set(columns(written, table)) == set(KINDS[table]) == RECORD_COLUMNS[table]


def test_the_view_has_the_columns_it_promises(written: Path) -> None:
    assert list(columns(written, "metrics")) == list(METRICS)


@pytest.mark.parametrize("table", KINDS)
def test_the_guide_explains_every_column_with_its_type(written: Path, table: str) -> None:
    section = DOCS.read_text(encoding="utf-8").split(f"## `{table}`\n")[1].split("\n## ")[0]
    explained = dict(re.findall(r"^\| `(\w+)` \| (\w+) \| .{8,} \|$", section, flags=re.MULTILINE))
    assert explained == columns(written, table)


def test_the_guide_explains_what_the_view_adds() -> None:
    section = DOCS.read_text(encoding="utf-8").split("## `metrics` (view)")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` ", section, flags=re.MULTILINE)) == set(METRICS) - set(KINDS["updates"])


@pytest.mark.parametrize("table", KINDS)
def test_no_connection_can_change_or_remove_a_row(written: Path, table: str) -> None:
    key = next(iter(KINDS[table]))
    db = sqlite3.connect(written)
    before = db.execute(f"SELECT * FROM {table}").fetchall()
    assert before
    for attack in (
        f"UPDATE {table} SET {key} = {key}",
        f"DELETE FROM {table}",
        f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=f"append-only: {table}"):
            db.execute(attack)
    assert db.execute(f"SELECT * FROM {table}").fetchall() == before
    db.close()


def test_a_natural_key_cannot_be_replaced_under_a_new_id(written: Path) -> None:
    db = sqlite3.connect(written)
    for table in ("completions", "verdicts"):
        others = ", ".join(name for name in KINDS[table] if name != "id")
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(f"INSERT OR REPLACE INTO {table} (id, {others}) SELECT id + 1000, {others} FROM {table}")
    db.close()


def test_a_released_migration_never_changes() -> None:
    found = {number: hashlib.sha256(sql.encode()).hexdigest()[:8] for number, sql in enumerate(MIGRATIONS, start=1)}
    assert found == RELEASED


def test_migrations_are_applied_once_and_keep_rows(written: Path) -> None:
    db = sqlite3.connect(written, isolation_level=None)
    later = (*MIGRATIONS, "ALTER TABLE updates ADD COLUMN extra REAL;")
    migrate(db, later)
    migrate(db, later)
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    assert db.execute("SELECT update_no, extra FROM updates").fetchall() == [(1, None), (2, None)]
    db.close()


def test_a_failing_migration_changes_nothing(written: Path) -> None:
    db = sqlite3.connect(written, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, (*MIGRATIONS, "CREATE TABLE half (id); ALTER TABLE nothing ADD COLUMN extra REAL;"))
    db.close()
    db = sqlite3.connect(written)
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize("opener", [LedgerReader, Ledger.open])
def test_a_file_of_a_newer_steelyard_is_refused(written: Path, opener: type) -> None:
    db = sqlite3.connect(written)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(LedgerError, match=r"format 99, this Steelyard reads up to 1.*newer"):
        opener(written)


@pytest.mark.parametrize("opener", [LedgerReader, Ledger.open])
@pytest.mark.parametrize("kind", ["missing", "text", "other database", "directory", "empty"])
def test_what_is_no_ledger_is_refused_by_name(tmp_path: Path, opener: type, kind: str) -> None:
    path = tmp_path / "ledger.sqlite"
    if kind == "text":
        path.write_text("not a database at all, but long enough to be looked at" * 20)
    elif kind == "other database":
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE run (id)")
        db.close()
    elif kind == "directory":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    with pytest.raises(LedgerError, match=re.escape(str(path))):
        opener(path)
    assert not path.with_name("ledger.sqlite.lock").exists()
