"""Parquet and CSV: every table, read back with other people's readers."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steelyard.errors import LedgerError
from steelyard.ledger import Ledger, LedgerReader
from steelyard.ledger import export as export_module
from steelyard.ledger.export import export
from steelyard.ledger.schema import KINDS

TABLES = [*KINDS, "metrics"]


def test_parquet_holds_every_table_with_its_types(written: Path, tmp_path: Path) -> None:
    files = export(written, tmp_path / "out")
    assert sorted(path.name for path in files) == sorted(f"{table}.parquet" for table in TABLES)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in files)
    completions = pq.read_table(tmp_path / "out" / "completions.parquet")
    assert completions.schema.field("token_ids").type == pa.list_(pa.int32())
    assert completions.schema.field("logprobs").type == pa.list_(pa.float32())
    with LedgerReader(written) as reader:
        stored = reader.completions()
        updates = reader.updates()
        metrics = reader.metrics()
    assert completions["token_ids"].to_pylist() == [list(row.completion.token_ids) for row in stored]
    assert completions["logprobs"].to_pylist() == [list(row.completion.logprobs) for row in stored]
    exported = pq.read_table(tmp_path / "out" / "updates.parquet")
    assert exported["members"].to_pylist() == [list(row.members) for row in updates]
    assert exported["advantages"].to_pylist() == [list(row.advantages) for row in updates]
    assert exported["kl_ref"].to_pylist() == [None, None]
    assert exported["clipped"].to_pylist() == [True, True]
    assert pq.read_table(tmp_path / "out" / "metrics.parquet").to_pylist() == metrics
    assert pq.read_table(tmp_path / "out" / "verdicts.parquet")["reward"].to_pylist()[-1] is None


def test_csv_holds_every_table_with_arrays_as_json(written: Path, tmp_path: Path, rows: SimpleNamespace) -> None:
    awkward = 'a,"b"\r\nc\nd\re'
    with Ledger.open(written) as ledger:
        ledger.completions("eval", 3, [rows.completion(0, text=awkward)])
    export(written, tmp_path / "out", "csv")
    tables = {}
    for table in TABLES:
        with (tmp_path / "out" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
            tables[table] = list(csv.DictReader(file))
    with LedgerReader(written) as reader:
        assert {table: len(tables[table]) for table in KINDS} == {table: reader.count(table) for table in KINDS}
        stored = reader.completions()
    for row, kept in zip(tables["completions"], stored, strict=True):
        assert json.loads(row["token_ids"]) == list(kept.completion.token_ids)
        assert json.loads(row["logprobs"]) == list(kept.completion.logprobs)
    assert tables["completions"][-1]["text"] == awkward
    assert (tables["updates"][0]["grad_norm"], tables["updates"][0]["kl_ref"]) == ("4.7", "")


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_texts_that_no_file_can_hold_are_escaped(
    fresh: Ledger, tmp_path: Path, rows: SimpleNamespace, format: export_module.Format
) -> None:
    fresh.completions("train", 1, [rows.completion(0, text="half \ud83d and \0")])
    target = export(fresh.path, tmp_path / "out", format)[list(KINDS).index("completions")]
    if format == "parquet":
        assert pq.read_table(target)["text"].to_pylist() == ["half \\ud83d and \0"]
    else:
        assert "half \\ud83d and \0" in target.read_text(encoding="utf-8")


def test_long_tables_are_written_in_chunks(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "CHUNK_ROWS", 3)
    export(written, tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "completions.parquet")["id"].to_pylist() == list(range(1, 9))


def test_a_directory_in_use_is_left_alone_unless_told_otherwise(written: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    with pytest.raises(LedgerError, match="not an empty directory"):
        export(written, target)
    with pytest.raises(LedgerError, match="not an empty directory"):
        export(written, target / "mine.txt")
    assert [path.name for path in target.iterdir()] == ["mine.txt"]
    export(written, target, overwrite=True)
    export(written, target, overwrite=True)
    assert (target / "mine.txt").read_text() == "mine"
    assert len(list(target.iterdir())) == len(TABLES) + 1


def test_an_export_that_fails_leaves_no_half_written_file(written: Path, tmp_path: Path) -> None:
    in_the_way = tmp_path / "out" / "updates.parquet"
    in_the_way.mkdir(parents=True)
    with pytest.raises(LedgerError, match="out cannot be used"):
        export(written, tmp_path / "out", overwrite=True)
    assert sorted(path.name for path in in_the_way.parent.iterdir()) == [
        "prompts.parquet",
        "run.parquet",
        "updates.parquet",
    ]


def test_an_unknown_format_and_a_missing_ledger_are_refused_before_anything_is_made(
    written: Path, tmp_path: Path
) -> None:
    with pytest.raises(LedgerError, match="'xlsx' is unknown; choose parquet or csv"):
        export(written, tmp_path / "out", "xlsx")  # pyright: ignore[reportArgumentType]
    with pytest.raises(LedgerError, match="there is no ledger at"):
        export(tmp_path / "nothing.sqlite", tmp_path / "out")
    assert not (tmp_path / "out").exists()
