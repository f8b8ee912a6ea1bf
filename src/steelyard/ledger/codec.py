"""Between Python values and what SQLite holds, and the hash of a row.

TEXT cannot hold every Python string: a lone surrogate has no UTF-8 form, and a NUL cuts the string in SQL
functions and in the sqlite3 shell. Such a text is stored as a BLOB of its bytes (UTF-8, surrogates passed
through) in the same column, and read back unchanged.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from steelyard.errors import LedgerError
from steelyard.ledger.schema import KINDS, Kind
from steelyard.types import Status

SqlValue = None | int | float | str | bytes

DTYPES: Mapping[Kind, str] = {"int32s": "<i4", "int64s": "<i8", "float32s": "<f4", "float64s": "<f8"}
"""Element types of the array columns."""

LETTERS: Mapping[Status, str] = {
    Status.PASSED: "P",
    Status.FAILED: "F",
    Status.CRASHED: "C",
    Status.OUTPUT_LIMIT: "O",
    Status.MEMORY_LIMIT: "M",
    Status.TIMEOUT: "T",
    Status.NO_ANSWER: "N",
    Status.FORBIDDEN: "X",
    Status.CHECKER_FAILED: "?",
}
"""One letter per test in `verdicts.tests`."""
NO_STATUS = "."
"""Stands where a test has no status."""
_STATUSES = {letter: status for status, letter in LETTERS.items()}


def encode(table: str, values: Mapping[str, object]) -> dict[str, SqlValue]:
    """Return the values as SQLite holds them.

    Raises:
        LedgerError: If a number is not finite, too large for its column or of the wrong type.
    """
    kinds = KINDS[table]
    return {name: _encode(f"{table}.{name}", kinds[name], value) for name, value in values.items()}


def decode(table: str, row: Mapping[str, SqlValue]) -> dict[str, Any]:
    """Return the Python values of a stored row; columns of `KINDS[table]` only."""
    return {name: decode_value(KINDS[table][name], value) for name, value in row.items()}


def decode_value(kind: Kind, value: SqlValue) -> object:
    """Return the Python value of one stored value: texts, plain documents, tuples of numbers."""
    if value is None:
        return None
    if kind in DTYPES and isinstance(value, bytes):
        return tuple(np.frombuffer(value, dtype=DTYPES[kind]).tolist())
    if kind == "text" and isinstance(value, bytes):
        return value.decode("utf-8", "surrogatepass")
    if kind == "json" and isinstance(value, str):
        return json.loads(value)
    return bool(value) if kind == "bool" else value


def row_hash(values: Mapping[str, SqlValue]) -> str:
    """SHA-256 over names and stored values, in name order; NULLs are left out.

    Leaving them out keeps the hash of a row unchanged when a later version adds a nullable column. Keys that
    depend on the order of arrival are replaced by the caller with the row hashes that they point to.
    """
    digest = hashlib.sha256()
    for name in sorted(values):
        value = values[name]
        if value is not None:
            tag, payload = _payload(value)
            digest.update(f"{name}:{tag}:{len(payload)}:".encode())
            digest.update(payload)
    return digest.hexdigest()


def plain(value: object) -> object:
    """Return `value` as JSON can hold it; what it cannot hold becomes {"$repr": "..."}."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$repr": repr(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("Sequence[object]", value)]
    return {"$repr": repr(value)}


def to_json(value: object) -> str:
    """Return compact JSON, readable where UTF-8 can hold it and escaped where not."""
    text = json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text if _is_utf8(text) else json.dumps(plain(value), separators=(",", ":"), allow_nan=False)


def encode_tests(tests: Mapping[str, Status], order: Sequence[str] | None) -> str:
    """Return one letter per test in suite order; JSON by test id where the order does not cover the tests."""
    if order is not None and set(tests) <= set(order):
        return "".join(LETTERS[tests[name]] if name in tests else NO_STATUS for name in order)
    return to_json({name: status.value for name, status in tests.items()}) if tests else ""


def decode_tests(text: str, order: Sequence[str]) -> dict[str, Status]:
    """Return the status by test id of what `encode_tests` wrote."""
    if text.startswith("{"):
        return {name: Status(value) for name, value in json.loads(text).items()}
    pairs = zip(order, text, strict=True) if text else ()
    return {name: _STATUSES[letter] for name, letter in pairs if letter != NO_STATUS}


# ------------------------------------------------------------------ details


def _encode(where: str, kind: Kind, value: object) -> SqlValue:
    if value is None:
        return None
    match kind:
        case "int":
            return _integer(where, value)
        case "bool":
            return int(bool(value))
        case "real":
            return _real(where, value)
        case "text":
            return _text(where, value)
        case "json":
            return to_json(value)
        case _:
            return _array(where, kind, value)


def _integer(where: str, value: object) -> int:
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise LedgerError(f"{where} = {value!r} is not a 64-bit integer; pass an int.")
    return int(value)


def _real(where: str, value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise LedgerError(
            f"{where} = {value!r} is not a finite number, and SQLite would store nan as NULL. Pass None where the "
            "number does not apply; record an update that is not finite as skipped, with the value in skip_reason."
        )
    return float(value) + 0.0  # SQLite stores -0.0 as 0.0; adding 0.0 makes the hash agree with the file


def _text(where: str, value: object) -> str | bytes:
    if not isinstance(value, str):
        raise LedgerError(f"{where} = {value!r} is not text; pass a str.")
    if "\0" not in value and _is_utf8(value):
        return str(value)
    return value.encode("utf-8", "surrogatepass")


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _array(where: str, kind: Kind, value: object) -> bytes:
    array = np.asarray(value, dtype=None if value else DTYPES[kind])
    dtype = np.dtype(DTYPES[kind])
    allowed = "iu" if dtype.kind == "i" else "iuf"
    if array.ndim != 1 or array.dtype.kind not in allowed or not _fits(array, dtype):
        raise LedgerError(f"{where} cannot be stored as {dtype.name} numbers: {str(value)[:80]}")
    return array.astype(dtype).tobytes()


def _fits(array: "np.ndarray[Any, np.dtype[Any]]", dtype: "np.dtype[Any]") -> bool:
    if dtype.kind == "f":
        limit = float(np.finfo(dtype).max)
        return bool((~np.isfinite(array) | (np.abs(array) <= limit)).all())
    limits = np.iinfo(dtype)
    return array.size == 0 or (limits.min <= int(array.min()) and int(array.max()) <= limits.max)


def _payload(value: int | float | str | bytes) -> tuple[str, bytes]:
    if isinstance(value, str):
        return "text", value.encode()
    if isinstance(value, bytes):
        return "blob", value
    if isinstance(value, float):
        return "real", value.hex().encode()
    return "int", str(value).encode()
