"""Whatever stands in a file, loading gives a task or a TaskError."""

import contextlib
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import TaskError
from steelyard.tasks import load_task
from steelyard.types import Task

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
messages = st.lists(st.dictionaries(st.sampled_from(["role", "content", "name"]), scalars, max_size=3), max_size=3)
keys = st.sampled_from(["prompt", "prompt ", "id", "answer", "prompts", ""])
rows = st.dictionaries(keys, values | messages, max_size=4)
good_rows = st.fixed_dictionaries({"prompt": st.text("ab?é", min_size=1, max_size=2), "answer": scalars})


def load_bytes(content: bytes, suffix: str) -> Task | None:
    """The task, or None for a TaskError; any other exception fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"my{suffix}"
        path.write_bytes(content)
        with contextlib.suppress(TaskError):
            return load_task(data=str(path))
    return None


@given(content=st.binary(max_size=200))
def test_any_bytes_as_jsonl(content):
    load_bytes(content, ".jsonl")


@given(lines=st.lists(rows.map(json.dumps) | st.text(max_size=20), max_size=5))
def test_any_objects_as_jsonl(lines):
    load_bytes("\n".join(lines).encode("utf-8", "surrogatepass"), ".jsonl")


@given(content=st.binary(max_size=200), framed=st.booleans())
def test_any_bytes_as_parquet(content, framed):
    load_bytes(b"PAR1" + content + b"PAR1" if framed else content, ".parquet")


@given(column=st.lists(st.text(max_size=5), min_size=1, max_size=4), place=st.floats(0, 1), byte=st.integers(0, 255))
def test_parquet_with_one_byte_changed(column, place, byte):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "good.parquet"
        pq.write_table(pa.table({"prompt": pa.array(column, pa.string())}), path)
        content = bytearray(path.read_bytes())
    content[min(int(place * len(content)), len(content) - 1)] = byte
    load_bytes(bytes(content), ".parquet")


@pytest.mark.parametrize("suffix", ["", ".jsonl", ".parquet"])
@given(name=st.text(max_size=30) | st.text("ab/.:\x00", max_size=12) | st.just("a/" + "b" * 300) | st.just("x" * 5000))
def test_any_name(suffix, name):
    with contextlib.suppress(TaskError):
        load_task(data=f"no-such-folder/deeper/still/{name}{suffix}")
    if "/" not in name or suffix:
        with contextlib.suppress(TaskError):
            load_task(data=f"{name}{suffix}")


@given(table=st.lists(good_rows, min_size=1, max_size=12))
def test_good_rows_load_with_unique_ids_and_nothing_is_lost(table):
    content = "\n".join(json.dumps(row) for row in table).encode()
    task = load_bytes(content, ".jsonl")
    assert task is not None
    prompts = [*task.train_prompts, *task.eval_prompts]
    assert len({prompt.id for prompt in prompts}) == len(prompts) == len(table)
    assert sorted(str(prompt.content) for prompt in prompts) == sorted(row["prompt"] for row in table)
    assert bool(task.eval_prompts) == (len({row["prompt"] for row in table}) >= 5)
    assert task.train_prompts
    assert {p.content for p in task.train_prompts}.isdisjoint(p.content for p in task.eval_prompts)
    assert load_bytes(content, ".jsonl").__repr__() == repr(task)
