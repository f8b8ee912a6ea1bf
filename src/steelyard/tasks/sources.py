"""Rows from JSONL, Parquet and hub data sets, each with the place it came from."""

import difflib
import gzip
import importlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steelyard.errors import TaskError

JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
PARQUET = (".parquet", ".pq")
OTHER_FORMATS: Mapping[str, str] = {
    ".csv": "a CSV cell has no type and no list; convert it: pandas.read_csv(PATH).to_json('rows.jsonl', "
    "orient='records', lines=True)",
    ".tsv": "a TSV cell has no type and no list; convert it: pandas.read_csv(PATH, sep='\\t').to_json('rows.jsonl', "
    "orient='records', lines=True)",
    ".json": "write one JSON object per line to a .jsonl file; for a JSON array: jq -c '.[]' PATH > rows.jsonl",
    ".txt": "write one JSON object per line to a .jsonl file, each with a `prompt`",
}
"""Formats that we know and do not read, with the way out."""
DEEPEST = 50
"""Levels of nesting in a column; far below what the JSON encoder can follow."""
HUB = re.compile(r"(?P<path>\w[\w.-]*/\w[\w.-]*)(?:/(?P<config>[\w.-]+))?(?::(?P<split>[\w.\[\]%:+-]+))?")
"""owner/name, owner/name/config, either with :split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row as read."""

    where: str
    """File and line, for messages."""
    values: Mapping[str, object]
    """Its columns."""


def is_file_name(data: str) -> bool:
    """Whether `data` names a file of a format that we read, as against a hub data set."""
    return data.lower().endswith(JSON_LINES + PARQUET)


def task_name(data: str) -> str:
    """Return the name of the task that is made of `data`: a file's name without its ending, or the hub's name."""
    if not is_file_name(data):
        return data
    path = Path(data)
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def read_rows(data: str) -> list[Row]:
    """Return the rows of a file or a hub data set, at least one.

    Args:
        data: A .jsonl, .jsonl.gz or .parquet file, or `owner/name[/config][:split]` on the hub (split: train).

    Raises:
        TaskError: If there is nothing to read, or something that cannot be read.
    """
    path = Path(data)
    suffix = path.suffix.lower()
    if suffix in OTHER_FORMATS:
        hint = OTHER_FORMATS[suffix].replace("PATH", repr(data))
        raise TaskError(f"{data}: {suffix} files are not read; {hint}.")
    if data.lower().endswith(JSON_LINES):
        rows = _json_lines(path)
    elif suffix in PARQUET:
        rows = _parquet(path)
    else:
        rows = _hub(data)
    if not rows:
        raise TaskError(f"{data} has no rows; give it at least one with a `prompt`.")
    return rows


def check_plain(value: object, column: str, where: str, depth: int = 0) -> None:
    """Refuse what the run could not write down: dates, bytes, decimals, broken text, endless nesting."""
    if depth > DEEPEST:
        raise TaskError(f"{where}: column {column!r} is nested more than {DEEPEST} levels deep; flatten it.")
    if value is None or isinstance(value, bool | int | float):
        return
    if isinstance(value, str):
        _check_text(value, column, where)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_plain(key, column, where, depth + 1)
            check_plain(item, column, where, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_plain(item, column, where, depth + 1)
    else:
        raise TaskError(
            f"{where}: column {column!r} holds {short(value)}, a {type(value).__name__}; only text, numbers, booleans, "
            "null, lists and objects are read. Convert it, for example to text."
        )


def _check_text(value: str, column: str, where: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise TaskError(
            f"{where}: column {column!r} holds half a character: {short(value)}. Correct the text."
        ) from None


def short(value: object) -> str:
    """Return a value for a message: its repr, cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ------------------------------------------------------------------ files


def _json_lines(path: Path) -> list[Row]:
    """Lines end at a newline byte only: JSON strings may hold other line separators."""
    content = _read_bytes(path)
    if path.suffix.lower() == ".gz":
        content = _unpacked(content, path)
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [
        Row(where=f"{path}, line {number}", values=_json_row(line, f"{path}, line {number}"))
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _json_row(line: bytes, where: str) -> dict[str, object]:
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError as error:
        raise TaskError(f"{where}: not UTF-8 ({error.reason} at byte {error.start}); save the file as UTF-8.") from None
    except json.JSONDecodeError as error:
        message = f"{error.msg} at column {error.colno}"
        raise TaskError(f"{where}: not valid JSON ({message}): {_cut(line)}. Write one object per line.") from None
    except (ValueError, RecursionError) as error:  # a key twice, a number of thousands of digits, deep nesting
        raise TaskError(f"{where}: cannot be read ({error}): {_cut(line)}. Correct or remove the line.") from None
    if not isinstance(value, dict):
        raise TaskError(f'{where}: {short(value)} is no JSON object; write {{"prompt": ...}} on each line.')
    return value


def _without_duplicates(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return result


def _cut(line: bytes) -> str:
    return short(line.decode("utf-8", "replace").strip())


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TaskError(f"no file at {path}{_nearby(path)}") from None
    except IsADirectoryError:
        raise TaskError(f"{path} is a directory; name one file in it.") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise TaskError(f"cannot read {path}: {error}. It must be a readable file.") from None


def _unpacked(content: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{path}: not a gzip file that can be read ({error}). Write or download it again.") from None


def _nearby(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if is_file_name(entry.name)]
    except (OSError, ValueError):
        return f"; there is no directory {path.parent} either (relative paths start at {Path.cwd()})."
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / near[0]}?" if near else f"; relative paths start at {Path.cwd()}."


def _parquet(path: Path) -> list[Row]:
    # Imported here: pyarrow costs a tenth of a second that most commands never use.
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = _read_bytes(path)
    try:
        table = pq.ParquetFile(pa.BufferReader(content)).read()
        names = table.column_names
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TaskError(f"{path}: not a Parquet file that can be read ({reason}). Write it again.") from None
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TaskError(f"{path}: the column {twice[0]!r} is there twice; rename or drop one.")
    return [Row(where=f"{path}, row {number}", values=values) for number, values in enumerate(rows, start=1)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


# ------------------------------------------------------------------ hub


def _hub(data: str) -> list[Row]:
    found = HUB.fullmatch(data)
    if found is None or _exists(Path(data)):
        raise TaskError(
            f"{data!r} is neither a .jsonl or .parquet file nor a hub data set (owner/name, owner/name/config, "
            f"owner/name:split){_nearby(Path(data))}"
        )
    try:
        library = importlib.import_module("datasets")
        base_error = importlib.import_module("datasets.exceptions").DatasetsError
    except ImportError:
        raise TaskError(
            f"{data}: there is no such file, and a hub data set needs the optional package datasets: "
            "pip install 'steelyard[data]'"
        ) from None
    split = found["split"] or "train"
    try:
        loaded = library.load_dataset(found["path"], found["config"], split=split)
        return [Row(where=f"{data}, row {number}", values=dict(row)) for number, row in enumerate(loaded, start=1)]
    except (base_error, OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TaskError(
            f"{data}: the hub data set cannot be loaded ({reason}). Check owner/name/config:{split} and the network, "
            "or save the rows as .jsonl."
        ) from None
