import math
import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.verify.compare import equal
from steelyard.verify.sandbox.inside import wire

quick = settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault of the values
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.binary(max_size=20),
)
keys = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.binary(max_size=5)),
    lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)),
    max_leaves=4,
)
plain = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
    ),
    max_leaves=20,
)


@quick
@given(plain)
def test_plain_data_survives_with_its_exact_types(value):
    assert equal(value, wire.decode(wire.encode(value)))


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63), 2**63 - 1, -(2**63) - 1, 1 << 4000, -(1 << 4000), 0, -1, -0.0, math.inf, "\ud800\0\U0001f600"],
)
def test_the_edges_survive(value):
    got = wire.decode(wire.encode(value))
    assert repr(got) == repr(value) if abs_is_small(value) else got == value
    assert type(got) is type(value)


def abs_is_small(value):
    return not isinstance(value, int) or value.bit_length() < 1000


def test_nan_survives():
    assert equal(math.nan, wire.decode(wire.encode(math.nan)))


class Integer(int):
    pass


class Text(str):
    __slots__ = ()


class Rows(list):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Integer(1),
        Text("a"),
        Rows(),
        1j,
        object(),
        range(3),
        [Integer(1)],
        {"a": Text("b")},
        {Text("a"): 1},
        bytearray(),
    ],
)
def test_anything_but_exact_builtin_types_has_no_encoding(value):
    with pytest.raises(wire.NotPlain):
        wire.encode(value)


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_depth_is_bounded_on_both_sides():
    data = wire.encode(nested(wire.MAX_DEPTH))
    assert wire.decode(data) == nested(wire.MAX_DEPTH)
    with pytest.raises(wire.NotPlain):
        wire.encode(nested(wire.MAX_DEPTH + 1))
    with pytest.raises(wire.BadBytes, match="inside each other"):
        wire.decode(b"l\1\0\0\0" + data)
    with pytest.raises(wire.BadBytes):
        wire.decode(b"d\1\0\0\0N" * 100_000)


def test_a_list_that_holds_itself_is_refused():
    value: list[object] = []
    value.append(value)
    with pytest.raises(wire.NotPlain):
        wire.encode(value)


def test_size_is_bounded_while_encoding():
    started = time.monotonic()
    with pytest.raises(wire.TooLarge):
        wire.encode([[0] * 1000] * 100_000, max_bytes=1000)
    assert time.monotonic() - started < 1
    assert len(wire.encode("x" * 995, max_bytes=1000)) == 1000
    with pytest.raises(wire.TooLarge):
        wire.encode("x" * 996, max_bytes=1000)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data):
    try:
        value = wire.decode(data)
    except wire.BadBytes:
        return
    wire.encode(value)


@quick
@given(plain, st.data())
def test_truncated_and_altered_encodings_decode_or_are_refused(value, data):
    encoded = bytearray(wire.encode(value))
    place = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(wire.BadBytes):
        wire.decode(bytes(encoded[:place]))
    encoded[place] ^= data.draw(st.integers(1, 255))
    try:
        wire.decode(bytes(encoded))
    except wire.BadBytes:
        return


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "IndexError"),
        (b"?", "unknown tag"),
        (b"NN", "left over"),
        (b"l\xff\xff\xff\xff", "announced"),
        (b"s\xff\xff\xff\x7fabc", "announced"),
        (b"i\0", "error at byte"),
        (b"s\1\0\0\0\xff", "UnicodeDecodeError"),
        (b"S\1\0\0\0l\0\0\0\0", "TypeError"),
        (b"d\1\0\0\0l\0\0\0\0N", "TypeError"),
        (b"S\2\0\0\0NN", "twice"),
        (b"d\2\0\0\0NNNN", "twice"),
        (b"S\2\0\0\0Ti\1\0\0\0\0\0\0\0", "twice"),
    ],
)
def test_bytes_that_are_no_value_are_refused(data, says):
    with pytest.raises(wire.BadBytes, match=says):
        wire.decode(data)


@pytest.mark.parametrize("tag", [b"S", b"Z", b"d"])
def test_keys_chosen_to_collide_are_refused_before_a_set_is_built(tag):
    count, prime = 10_000, 2**61 - 1
    items = [b"I" + struct.pack("<I", 12) + (prime * k).to_bytes(12, "little") for k in range(count)]
    started = time.monotonic()
    with pytest.raises(wire.BadBytes, match="collide"):
        wire.decode(tag + struct.pack("<I", count) + b"".join(item + b"N" * (tag == b"d") for item in items))
    assert time.monotonic() - started < 1
    assert wire.decode(wire.encode({-1, -2})) == {-1, -2}  # which share a hash
