"""Plain data as bytes: the only language a candidate program can answer in.

A value is one tag byte and its content. Exact builtin types only: a subclass, or any other object, is refused by the
encoder and has no encoding. The decoder takes every byte for hostile: it bounds depth, never reserves memory by a
count that it has not seen, and refuses hash keys chosen to collide.
"""

import struct
from collections.abc import Callable, Hashable
from typing import cast

MAX_DEPTH = 100
"""Containers inside each other; deeper values are no data that a test compares."""
MAX_EQUAL_HASHES = 64
"""Different keys of one set or dict with one and the same hash. Honest data has two (-1 and -2); more than this is an
attack that makes building the set quadratic."""

_INT64 = range(-(2**63), 2**63)
_pack_int = struct.Struct("<q").pack
_pack_float = struct.Struct("<d").pack
_pack_count = struct.Struct("<I").pack
_unpack_int = struct.Struct("<q").unpack_from
_unpack_float = struct.Struct("<d").unpack_from
_unpack_count = struct.Struct("<I").unpack_from


class NotPlain(ValueError):
    """The value is not plain data, or nested too deeply."""


class TooLarge(ValueError):
    """The encoding would be longer than allowed."""


class BadBytes(ValueError):
    """The bytes are no encoding of plain data."""


class TooMany(ValueError):
    """The values would take much more memory than their encoding."""


class Budget:
    """How much may be decoded: a scalar costs 1, a container 8, as roughly their memory does beside a byte."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> None:
        """Take from what is left."""
        self.left -= cost
        if self.left < 0:
            raise TooMany("too many values")


def encode(value: object, *, max_bytes: int = 1 << 30) -> bytes:
    """Return the encoding of plain data.

    Args:
        value: None, or exactly bool, int, float, str, bytes, list, tuple, set, frozenset, dict; recursively.
        max_bytes: Longest encoding allowed.

    Raises:
        NotPlain: The value holds another type, or is nested deeper than `MAX_DEPTH`.
        TooLarge: The encoding is longer than `max_bytes`.
    """
    out = bytearray()
    _encode(value, out, MAX_DEPTH, max_bytes)
    return bytes(out)


def _encode(value: object, out: bytearray, depth: int, max_bytes: int) -> None:
    kind = type(value)
    if kind is int:
        out += _encode_int(cast(int, value))
    elif kind is str:
        data = cast(str, value).encode("utf-8", "surrogatepass")
        out += b"s" + _pack_count(len(data)) + data
    elif kind in _CONTAINERS:
        _encode_container(value, out, depth, max_bytes)
    elif kind in _SCALARS:
        out += _SCALARS[kind](value)
    else:
        raise NotPlain(f"a value of type {kind.__name__[:80]}")
    if len(out) > max_bytes:
        raise TooLarge


def _encode_container(value: object, out: bytearray, depth: int, max_bytes: int) -> None:
    if depth == 0:
        raise NotPlain(f"more than {MAX_DEPTH} containers inside each other")
    if type(value) is dict:
        pairs = cast("dict[object, object]", value)
        out += b"d" + _pack_count(len(pairs))
        for key, item in pairs.items():
            _encode(key, out, depth - 1, max_bytes)
            _encode(item, out, depth - 1, max_bytes)
        return
    items = cast("list[object]", value)
    out += _CONTAINERS[type(value)] + _pack_count(len(items))
    for item in items:
        _encode(item, out, depth - 1, max_bytes)


def _encode_int(value: int) -> bytes:
    if value in _INT64:
        return b"i" + _pack_int(value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"I" + _pack_count(len(data)) + data


def _encode_bytes(value: object) -> bytes:
    data = cast(bytes, value)
    return b"b" + _pack_count(len(data)) + data


_SCALARS: dict[type, Callable[[object], bytes]] = {
    type(None): lambda _: b"N",
    bool: lambda value: b"T" if value else b"F",
    float: lambda value: b"f" + _pack_float(cast(float, value)),
    bytes: _encode_bytes,
}
_CONTAINERS: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z", dict: b"d"}


def decode(data: bytes, budget: Budget | None = None) -> object:
    """Return the value that these bytes encode.

    Args:
        data: The encoding.
        budget: Shared by the values of one program; None for our own data.

    Raises:
        TooMany: The budget is used up.
        BadBytes: The bytes are no encoding: unknown tag, too short, bytes left over, nested too deeply, keys that cannot
            be hashed, that repeat, or that were chosen to collide.
    """
    reader = _Reader(data, budget)
    try:
        value = reader.value(MAX_DEPTH)
    except (struct.error, IndexError, UnicodeDecodeError, TypeError) as error:
        raise BadBytes(f"{type(error).__name__} at byte {reader.at} of {len(data)}") from error
    if reader.at != len(data):
        raise BadBytes(f"{len(data) - reader.at} bytes left over")
    return value


class _Reader:
    def __init__(self, data: bytes, budget: Budget | None) -> None:
        self.data = data
        self.at = 0
        self.budget = budget

    def value(self, depth: int) -> object:
        tag = self.data[self.at]
        self.at += 1
        if tag == 0x69:  # i
            (number,) = _unpack_int(self.data, self.at)
            self.at += 8
            return number
        read = _READERS.get(tag)
        if read is None:
            raise BadBytes(f"unknown tag {tag}")
        return read(self, depth)

    def count(self) -> int:
        """Read a count; each thing counted takes at least one byte, so a larger count than bytes left is a lie."""
        (count,) = _unpack_count(self.data, self.at)
        self.at += 4
        if count > len(self.data) - self.at:
            raise BadBytes(f"{count} announced, {len(self.data) - self.at} bytes left")
        return count

    def raw(self) -> bytes:
        count = self.count()
        self.at += count
        return self.data[self.at - count : self.at]

    def float(self) -> float:
        (number,) = _unpack_float(self.data, self.at)
        self.at += 8
        return number

    def items(self, depth: int) -> list[object]:
        return [self.value(depth - 1) for _ in range(self.members(depth))]

    def members(self, depth: int) -> int:
        """Read how many members a container has, and pay for them."""
        if depth == 0:
            raise BadBytes(f"more than {MAX_DEPTH} containers inside each other")
        count = self.count()
        if self.budget is not None:
            self.budget.spend(8 + count)
        return count

    def keys(self, depth: int) -> frozenset[Hashable]:
        return _distinct(self.items(depth))

    def pairs(self, depth: int) -> dict[Hashable, object]:
        rows = [(self.value(depth - 1), self.value(depth - 1)) for _ in range(self.members(depth))]
        _distinct([key for key, _ in rows])
        return {cast(Hashable, key): item for key, item in rows}


def _distinct(keys: list[object]) -> frozenset[Hashable]:
    """Return the keys as a set, after a look at their hashes."""
    hashable = cast("list[Hashable]", keys)
    hashes = sorted(map(hash, hashable))
    if any(hashes[i] == hashes[i + MAX_EQUAL_HASHES] for i in range(len(hashes) - MAX_EQUAL_HASHES)):
        raise BadBytes("keys chosen to collide")
    distinct = frozenset(hashable)
    if len(distinct) != len(keys):
        raise BadBytes("a key occurs twice")
    return distinct


_READERS: dict[int, Callable[[_Reader, int], object]] = {
    ord("N"): lambda _reader, _depth: None,
    ord("T"): lambda _reader, _depth: True,
    ord("F"): lambda _reader, _depth: False,
    ord("I"): lambda reader, _depth: int.from_bytes(reader.raw(), "little", signed=True),
    ord("f"): lambda reader, _depth: reader.float(),
    ord("s"): lambda reader, _depth: reader.raw().decode("utf-8", "surrogatepass"),
    ord("b"): lambda reader, _depth: reader.raw(),
    ord("l"): lambda reader, depth: reader.items(depth),
    ord("t"): lambda reader, depth: tuple(reader.items(depth)),
    ord("S"): lambda reader, depth: set(reader.keys(depth)),
    ord("Z"): lambda reader, depth: reader.keys(depth),
    ord("d"): lambda reader, depth: reader.pairs(depth),
}
