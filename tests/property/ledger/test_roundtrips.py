"""Whatever is written comes back, whatever it is."""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.ledger import Ledger, LedgerReader, PromptRow, RunRow, VerdictRow, codec
from steelyard.types import Completion, Status, Verdict

TEXT = st.text(st.characters(), max_size=40)
"""Any Python text, lone surrogates and NULs included."""
ANY_TEXT = TEXT | st.sampled_from(["\0", "a\0b", "\ud83d", "\ud83d\ude00", "\udc00 \0", '{"$repr": "x"}', ""])
JSON_TEXT = ANY_TEXT.map(lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))
"""JSON spells a character beyond U+FFFF as two escapes, so two halves written side by side come back as one."""
TOKENS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=50)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=8,
)
TESTS = st.dictionaries(st.sampled_from(["t1", "t2", "t3", "stranger"]) | JSON_TEXT, st.sampled_from(list(Status)))
RUN = RunRow(
    name="x",
    recipe="",
    recipe_hash="",
    seed=0,
    steelyard="",
    objective={},
    model={},
    task={},
    machine={},
    sandbox={},
    tests={"suite": ("t1", "t2", "t3")},
)


def float32s(size: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(width=32), min_size=size, max_size=size)


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    tokens = draw(TOKENS)
    return Completion(
        prompt_id=draw(ANY_TEXT),
        group_id=draw(ANY_TEXT),
        sample=draw(st.integers(0, 2**40)),
        policy_version=draw(st.integers(0, 2**40)),
        prompt_ids=tuple(draw(TOKENS)),
        token_ids=tuple(tokens),
        logprobs=tuple(draw(float32s(len(tokens)))),
        text=draw(ANY_TEXT),
        finish=draw(st.sampled_from(["stop", "length"])),
    )


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    return Verdict(
        status=draw(st.sampled_from(list(Status))),
        reward=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        tests=draw(TESTS),
        expected=draw(st.integers(0, 300)),
        executed=draw(st.integers(0, 300)),
        detail=draw(ANY_TEXT),
    )


@settings(max_examples=15)
@given(
    completion=completions(),
    verdict=verdicts(),
    content=JSON_TEXT,
    columns=st.dictionaries(JSON_TEXT, JSON, max_size=3),
)
def test_prompts_completions_and_verdicts_come_back(
    completion: Completion, verdict: Verdict, content: str, columns: dict[str, Any]
) -> None:
    prompt = PromptRow(id=completion.prompt_id, content=content, token_ids=completion.prompt_ids, columns=columns)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger.sqlite"
        with Ledger.create(path, RUN) as ledger:
            ledger.prompts([prompt])
            (key,) = ledger.completions("train", 1, [completion])
            row = VerdictRow(completion_id=key, judge="suite", is_primary=True, verdict=verdict)
            ledger.verdicts([row])
        with LedgerReader(path) as reader:
            stored = reader.completions()[0].completion
            assert repr(stored) == repr(completion)  # nan is equal to nan here, and -0.0 is not 0.0
            assert reader.prompts() == [prompt]
            assert reader.verdicts() == [row]
            assert reader.damaged() == []


@given(value=JSON)
def test_documents_come_back_as_utf8(value: object) -> None:
    text = codec.to_json(value)
    text.encode("utf-8")
    assert "\0" not in text
    assert codec.decode_value("json", text) == value


@given(value=st.recursive(st.floats() | st.binary() | st.none(), lambda inner: st.lists(inner) | st.tuples(inner)))
def test_documents_with_what_json_cannot_hold_are_still_json(value: object) -> None:
    assert codec.decode_value("json", codec.to_json(value)) == codec.plain(value)


@given(values=st.lists(st.floats(width=64)))
def test_float64_arrays_keep_every_bit(values: list[float]) -> None:
    stored = codec.encode("updates", {"advantages": tuple(values)})
    back = codec.decode("updates", stored)["advantages"]
    assert np.asarray(back, dtype="<f8").tobytes() == np.asarray(values, dtype="<f8").tobytes()


@given(
    values=st.dictionaries(st.sampled_from("abcd"), st.none() | st.integers(0, 3) | st.sampled_from(["", "1", b"1"]))
)
def test_the_row_hash_ignores_order_and_nulls_and_nothing_else(values: dict[str, Any]) -> None:
    shuffled = dict(reversed(list(values.items())))
    assert codec.row_hash(values) == codec.row_hash(shuffled)
    assert codec.row_hash(values) == codec.row_hash({name: v for name, v in values.items() if v is not None})
    for name in values:
        assert codec.row_hash(values) != codec.row_hash({**values, name: "another"})


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_real_hashes_alike_before_and_after_the_file(value: float) -> None:
    encoded = codec.encode("updates", {"loss": value})
    assert math.copysign(1.0, encoded["loss"] or 1.0) == math.copysign(1.0, value or 1.0)  # pyright: ignore[reportArgumentType]
    assert codec.encode("updates", codec.decode("updates", encoded)) == encoded
