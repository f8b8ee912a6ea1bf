"""The ledger as Parquet or CSV, for pandas, polars, DuckDB and spreadsheets."""

import csv
import importlib
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

from steelyard.errors import LedgerError
from steelyard.ledger.codec import DTYPES, SqlValue, decode_value
from steelyard.ledger.files import explained
from steelyard.ledger.reader import LedgerReader
from steelyard.ledger.schema import KINDS, METRICS, Kind

Format = Literal["parquet", "csv"]
Row = dict[str, Any]
Append = Callable[[list[Row]], None]

CHUNK_ROWS = 2_000
"""Rows held in memory at a time, and rows per Parquet row group."""


def export(path: Path, to: Path, format: Format = "parquet", *, overwrite: bool = False) -> list[Path]:
    """Write every table and the view `metrics`, one file each, and return the files.

    Token ids, log-probs, members and advantages become list columns in Parquet and JSON text in CSV; JSON
    documents stay JSON text; NULL stays null in Parquet and is an empty field in CSV. A lone surrogate, which
    neither format can hold, is written as its escape.

    Args:
        path: The ledger.
        to: The target directory; made if missing.
        format: parquet or csv.
        overwrite: Write into a directory that is not empty; files of other names stay.

    Raises:
        LedgerError: If the target is not empty, or the ledger cannot be read.
    """
    if format not in _OPENERS:
        raise LedgerError(f"export format {format!r} is unknown; choose parquet or csv.")
    if to.exists() and (not to.is_dir() or any(to.iterdir())) and not overwrite:
        raise LedgerError(f"{to} is not an empty directory; name a new one, or allow overwriting.")
    with LedgerReader(path) as reader, explained(to, way_out="Free some space, or export to another disk."):
        to.mkdir(parents=True, exist_ok=True)
        return [
            _write_table(reader, table, kinds, to / f"{table}.{format}", _OPENERS[format])
            for table, kinds in {**KINDS, "metrics": METRICS}.items()
        ]


# ------------------------------------------------------------------ details

Opener = Callable[[Path, Mapping[str, Kind]], AbstractContextManager[Append]]


def _write_table(reader: LedgerReader, table: str, kinds: Mapping[str, Kind], target: Path, opener: Opener) -> Path:
    """Write under a temporary name, so that a half-written file never looks finished."""
    unfinished = target.with_name(f".{target.name}.unfinished")
    order = "" if table == "metrics" else " ORDER BY rowid"
    chunk: list[Row] = []
    try:
        with opener(unfinished, kinds) as append:
            for row in reader.rows(f"SELECT {', '.join(kinds)} FROM {table}{order}"):
                chunk.append({name: _exported(kind, row[name]) for name, kind in kinds.items()})
                if len(chunk) == CHUNK_ROWS:
                    append(chunk)
                    chunk = []
            append(chunk)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _exported(kind: Kind, stored: SqlValue) -> object:
    if kind == "json":
        return stored
    value = decode_value(kind, stored)
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


@contextmanager
def _parquet(path: Path, kinds: Mapping[str, Kind]) -> Generator[Append, None, None]:
    # pyarrow takes a while to import and only this function needs it
    pa: Any = importlib.import_module("pyarrow")
    pq: Any = importlib.import_module("pyarrow.parquet")
    element = {"int32s": pa.int32(), "int64s": pa.int64(), "float32s": pa.float32(), "float64s": pa.float64()}
    scalar = {"int": pa.int64(), "bool": pa.bool_(), "real": pa.float64(), "text": pa.string(), "json": pa.string()}
    types = scalar | {kind: pa.list_(value) for kind, value in element.items()}
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()])
    with pq.ParquetWriter(path, schema) as writer:
        yield lambda rows: writer.write_table(pa.Table.from_pylist(rows, schema=schema))


@contextmanager
def _csv(path: Path, kinds: Mapping[str, Kind]) -> Generator[Append, None, None]:
    arrays = [name for name, kind in kinds.items() if kind in DTYPES]

    def flat(row: Row) -> Row:
        return {**row, **{name: None if row[name] is None else json.dumps(row[name]) for name in arrays}}

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(kinds))
        writer.writeheader()
        yield lambda rows: writer.writerows(flat(row) for row in rows)


_OPENERS: Mapping[str, Opener] = {"parquet": _parquet, "csv": _csv}
