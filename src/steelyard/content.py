"""One name for equal content, wherever content is compared or recorded."""

import hashlib
import json
from typing import cast

_LONG_INT_BITS = 4096
"""Python refuses to print much longer ints in decimal."""


def content_hash(value: object) -> str:
    """SHA-256 of the canonical JSON of plain JSON data, as 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def plain_json(value: object) -> object:
    """Return plain Python data as JSON data in which different values stay different.

    JSON data come back as they are; a tuple, set, bytes, a long int or a dict whose keys are no plain text is written as
    an object with one key that starts with `$`.

    >>> plain_json([1, (2, b"x")])
    [1, {'$tuple': [2, {'$bytes': '78'}]}]
    """
    if isinstance(value, list):
        return [plain_json(item) for item in cast("list[object]", value)]
    if isinstance(value, tuple):
        return {"$tuple": [plain_json(item) for item in cast("tuple[object, ...]", value)]}
    if isinstance(value, dict):
        return _dict(cast("dict[object, object]", value))
    if isinstance(value, (set, frozenset)):
        members = [plain_json(item) for item in cast("frozenset[object]", value)]
        return {f"${type(cast(object, value)).__name__}": sorted(members, key=content_hash)}
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, int) and value.bit_length() > _LONG_INT_BITS:
        return {"$int": hex(value)}
    return value


def _dict(pairs: dict[object, object]) -> object:
    if all(isinstance(key, str) and not key.startswith("$") for key in pairs):
        return {key: plain_json(item) for key, item in pairs.items()}
    rows = [[plain_json(key), plain_json(item)] for key, item in pairs.items()]
    return {"$dict": sorted(rows, key=content_hash)}
