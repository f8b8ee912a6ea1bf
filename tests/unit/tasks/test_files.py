"""Tasks from your own rows: what is read, what is refused and with which words, ids, the held-out split."""

import datetime
import json
import logging
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steelyard.errors import TaskError
from steelyard.tasks import load_task
from steelyard.tasks.files import read_prompts, split
from steelyard.types import Prompt

CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello?"}]


def write_lines(path: Path, rows: list) -> str:
    """Rows that are text are written as they stand, all others as JSON."""
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


def numbered(count: int) -> list[Prompt]:
    return [Prompt(id=f"p{i}", content=f"question {i}") for i in range(count)]


# ------------------------------------------------------------------ what is read


def test_a_row_becomes_a_prompt_and_its_other_columns_travel_with_it(tmp_path):
    rows = [{"prompt": f"q{i}", "id": f"r{i}", "answer": i, "tags": ["x", {"y": None}]} for i in range(3)]
    prompts = read_prompts(write_lines(tmp_path / "my.jsonl", rows))
    assert [(prompt.id, prompt.content) for prompt in prompts] == [("r0", "q0"), ("r1", "q1"), ("r2", "q2")]
    assert prompts[2].columns == {"answer": 2, "tags": ["x", {"y": None}]}


def test_chat_messages_are_kept_as_messages(tmp_path):
    (prompt,) = read_prompts(write_lines(tmp_path / "my.jsonl", [{"prompt": CHAT}]))
    assert prompt.content == tuple(CHAT)


def test_jsonl_and_parquet_of_the_same_rows_give_the_same_prompts(tmp_path):
    rows = [{"prompt": CHAT, "answer": i, "note": None if i else "a\u2028b", "w": i / 3} for i in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "my.parquet")
    assert read_prompts(str(tmp_path / "my.parquet")) == read_prompts(write_lines(tmp_path / "my.jsonl", rows))


def test_blank_lines_windows_ends_byte_order_mark_and_unicode_separators_are_read(tmp_path):
    path = tmp_path / "my.ndjson"
    path.write_bytes('\ufeff{"prompt": "a\u2028b\u0085c"}\r\n\r\n   \n{"prompt": "d"}'.encode())
    assert [prompt.content for prompt in read_prompts(str(path))] == ["a\u2028b\u0085c", "d"]


def test_ids_come_from_the_row_content_and_equal_rows_are_numbered(tmp_path):
    rows = [{"prompt": "a", "n": 1}, {"prompt": "b", "n": 1}, {"n": 1, "prompt": "a"}, {"prompt": "a", "n": 1}]
    ids = [prompt.id for prompt in read_prompts(write_lines(tmp_path / "my.jsonl", rows))]
    assert ids == [ids[0], ids[1], f"{ids[0]}-2", f"{ids[0]}-3"]
    assert ids[0] != ids[1]
    more = read_prompts(write_lines(tmp_path / "more.jsonl", [{"prompt": "new", "n": 0}, *rows]))
    assert [prompt.id for prompt in more[1:]] == ids


def test_whole_number_ids_become_text(tmp_path):
    rows = [{"prompt": "a", "id": 7}, {"prompt": "a", "id": -1}]
    assert [prompt.id for prompt in read_prompts(write_lines(tmp_path / "my.jsonl", rows))] == ["7", "-1"]


# ------------------------------------------------------------------ what is refused

ROWS_REFUSED = {
    "bad json": (['{"prompt": "a"}', '{"prompt": "a",}'], r"my\.jsonl, line 2: not valid JSON \(.*column 1\d\).*'\{"),
    "a list": (["[1, 2]"], r"line 1: \[1, 2\] is no JSON object; write"),
    "a key twice": (['{"prompt": "a", "n": 1, "n": 2}'], r"line 1: .*'n' is given twice"),
    "a number too long": ([f'{{"prompt": {"9" * 5000}}}'], r"line 1: cannot be read"),
    "endless nesting": (["[" * 100_000], r"line 1: cannot be read"),
    "deep column": ([{"prompt": "a", "x": json.loads("[" * 60 + "]" * 60)}], r"'x' is nested more than 50 levels"),
    "typo": ([{"promt": "a", "n": 1}], r"line 1: no column `prompt`; did you mean 'promt'\?.*Columns here: promt, n"),
    "synonym": ([{"Question": "a"}], r"did you mean 'Question'\? Rename it to prompt"),
    "no prompt at all": ([{"zzz": "a"}], r"no column `prompt`\. Columns here: zzz\.$"),
    "number": ([{"prompt": 3}], r"line 1: prompt is 3, a number; write text, or a list of messages"),
    "null": ([{"prompt": None}], r"prompt is None, null;"),
    "object": ([{"prompt": CHAT[0]}], r"prompt is \{'role'.*, an object;"),
    "empty text": ([{"prompt": "a"}, {"prompt": ""}], r"line 2: the prompt is empty"),
    "no message": ([{"prompt": []}], r"the prompt is empty"),
    "list of text": ([{"prompt": ["a"]}], r"message 1 of the prompt is 'a'; write exactly"),
    "message without role": ([{"prompt": [CHAT[0], {"content": "a"}]}], r"message 2 of the prompt is \{'content'"),
    "message content": ([{"prompt": [{"role": "user", "content": 1}]}], r"has content = 1, a number; it must be text"),
    "id twice": (
        [{"prompt": "a", "id": 1}, {"prompt": "b", "id": "1"}],
        r"line 2: id '1' was given before, in .*line 1",
    ),
    "id of wrong type": ([{"prompt": "a", "id": True}], r"id is True; it must be text or a whole number"),
    "empty id": ([{"prompt": "a", "id": ""}], r"id is ''; it must be"),
    "a column missing": (
        [{"prompt": "a", "n": 1}, {"prompt": "b"}],
        r"line 2: this row has no 'n', which .*line 1 has",
    ),
    "a column more": ([{"prompt": "a"}, {"prompt": "b", "n": 1}], r"line 2: this row has 'n', unlike .*line 1"),
    "an id more": ([{"prompt": "a"}, {"prompt": "b", "id": 1}], r"line 2: this row has 'id', unlike"),
    "reserved": ([{"prompt": "a", "completions": 1}], r"cannot be called 'completions'.*rename"),
    "half a character": (['{"prompt": "a\\ud800"}'], r"column 'prompt' holds half a character"),
    "half a character in a key": (['{"prompt": "a", "x": {"\\ud800": 1}}'], r"column 'x' holds half a character"),
    "empty file": ([], r"my\.jsonl has no rows; give it at least one with a `prompt`"),
    "blank file": (["", "  "], r"has no rows"),
}


@pytest.mark.parametrize("name", ROWS_REFUSED)
def test_rows_that_cannot_be_used_are_refused_with_place_value_and_way_out(name, tmp_path):
    rows, message = ROWS_REFUSED[name]
    with pytest.raises(TaskError, match=message) as caught:
        load_task(data=write_lines(tmp_path / "my.jsonl", rows))
    assert "my.jsonl" in str(caught.value)
    assert len(str(caught.value)) < 500
    assert caught.value.exit_code == 2


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "my.jsonl").write_bytes(b'{"prompt": "a"}\n{"prompt": "\xff"}\n')
    with pytest.raises(TaskError, match=r"line 2: not UTF-8 .*byte 12.*save the file as UTF-8"):
        load_task(data=str(tmp_path / "my.jsonl"))


def test_a_missing_file_gets_a_near_name(tmp_path):
    write_lines(tmp_path / "train.jsonl", [{"prompt": "a"}])
    with pytest.raises(TaskError, match=r"no file at .*trian\.jsonl; did you mean .*train\.jsonl\?"):
        load_task(data=str(tmp_path / "trian.jsonl"))
    with pytest.raises(TaskError, match=r"no file at .*; relative paths start at "):
        load_task(data=str(tmp_path / "quite-another.parquet"))
    with pytest.raises(TaskError, match=r"there is no directory .*nowhere either"):
        load_task(data=str(tmp_path / "nowhere" / "train.jsonl"))


def test_a_directory_is_refused(tmp_path):
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(TaskError, match=r"rows\.jsonl is a directory; name one file in it"):
        load_task(data=str(tmp_path / "rows.jsonl"))
    with pytest.raises(TaskError, match=r"is neither a \.jsonl or \.parquet file nor a hub data set"):
        load_task(data=str(tmp_path))


@pytest.mark.parametrize("data", ["./rows", "../rows", "/rows", "~/rows", "a/b/c/d", "rows", ""])
def test_paths_without_a_known_suffix_are_no_hub_names(data):
    with pytest.raises(TaskError, match=r"is neither a \.jsonl or \.parquet file nor a hub data set"):
        load_task(data=data)


def test_an_existing_path_is_never_taken_for_a_hub_name(tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError, match=r"'owner/name' is neither a \.jsonl"):
        load_task(data="owner/name")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".txt", ".CSV"])
def test_other_formats_are_refused_with_a_way_to_convert(suffix, tmp_path):
    path = tmp_path / f"my{suffix}"
    path.write_text("prompt,answer\na,1\n")
    with pytest.raises(TaskError, match=rf"{suffix.lower()} files are not read; .*jsonl"):
        load_task(data=str(path))


def test_parquet_that_is_none_has_a_column_twice_or_holds_dates_is_refused(tmp_path):
    path = tmp_path / "my.parquet"
    path.write_bytes(b"PAR1 and then nothing PAR1")
    with pytest.raises(TaskError, match=r"my\.parquet: not a Parquet file that can be read \(.+\)\. Write it again"):
        load_task(data=str(path))
    pq.write_table(pa.table([["a"], ["b"]], names=["prompt", "prompt"]), path)
    with pytest.raises(TaskError, match=r"the column 'prompt' is there twice"):
        load_task(data=str(path))
    pq.write_table(pa.table({"prompt": ["a"], "when": [datetime.date(2026, 1, 2)]}), path)
    with pytest.raises(TaskError, match=r"my\.parquet, row 1: column 'when' holds .*, a date; .*Convert it"):
        load_task(data=str(path))
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), path)
    with pytest.raises(TaskError, match=r"my\.parquet has no rows"):
        load_task(data=str(path))


# ------------------------------------------------------------------ hub data sets


def test_a_hub_data_set_without_the_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # what import sees when the package is not installed
    with pytest.raises(TaskError, match=r"pip install 'steelyard\[data\]'"):
        load_task(data="owner/name")


def test_a_name_too_long_for_any_file_may_still_be_a_hub_name(tmp_path, monkeypatch):
    (tmp_path / "owner").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TaskError, match="there is no such file, and a hub data set needs"):
        load_task(data=f"owner/{'b' * 300}")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in for the optional package: one data set, the signature and the error classes of the real one."""
    package = tmp_path / "site" / "datasets"
    package.mkdir(parents=True)
    (package / "exceptions.py").write_text("class DatasetsError(Exception):\n    pass\n")
    (package / "__init__.py").write_text(
        "from datasets.exceptions import DatasetsError\n"
        "def load_dataset(path, name=None, *, split=None):\n"
        "    if path == 'owner/rows':\n"
        "        return [{'prompt': f'q{i}', 'seen': [path, name, split]} for i in range(6)]\n"
        "    if path == 'owner/offline':\n"
        "        raise ConnectionError('no network\\nsecond line')\n"
        "    raise DatasetsError('')\n"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "datasets"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(package.parent))
    yield
    for name in ("datasets", "datasets.exceptions"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        ("owner/rows", ["owner/rows", None, "train"]),
        ("owner/rows:test", ["owner/rows", None, "test"]),
        ("owner/rows/main:train[:50%]", ["owner/rows", "main", "train[:50%]"]),
    ],
)
def test_hub_names_carry_config_and_split(hub, data, seen):
    task = load_task(data=data, held_out=0)
    assert task.name == data
    assert [prompt.content for prompt in task.train_prompts] == [f"q{i}" for i in range(6)]
    assert task.train_prompts[0].columns == {"seen": seen}


def test_hub_failures_are_task_errors_with_their_first_line(hub):
    with pytest.raises(TaskError, match=r"cannot be loaded \(no network\)\. Check owner/name/config:train"):
        load_task(data="owner/offline")
    with pytest.raises(TaskError, match=r"cannot be loaded \(DatasetsError\)"):
        load_task(data="owner/none")


# ------------------------------------------------------------------ the held-out split


def test_about_the_share_is_held_out_and_every_prompt_is_on_one_side():
    prompts = numbered(2000)
    train, held = split(prompts, held_out=0.2)
    assert 340 <= len(held) <= 460
    assert sorted(p.id for p in (*train, *held)) == sorted(p.id for p in prompts)
    kept = {prompt.id for prompt in held}
    assert held == tuple(prompt for prompt in prompts if prompt.id in kept), "in the order of the file"


def test_rows_added_or_moved_leave_the_others_where_they_were():
    small, large = numbered(100), list(reversed(numbered(300)))
    held_small = {prompt.id for prompt in split(small, held_out=0.2)[1]}
    held_large = {prompt.id for prompt in split(large, held_out=0.2)[1]}
    assert held_small == {name for name in held_large if int(name[1:]) < 100}


def test_a_larger_share_keeps_what_a_smaller_one_held_out():
    held = [{prompt.id for prompt in split(numbered(200), held_out=share)[1]} for share in (0.1, 0.3, 0.6)]
    assert held[0] < held[1] < held[2]


@pytest.mark.parametrize("count", range(5, 12))
@pytest.mark.parametrize("share", [1e-9, 0.2, 0.999999])
def test_from_five_prompts_on_both_sides_have_one(count, share):
    train, held = split(numbered(count), held_out=share)
    assert len(train) >= 1 and len(held) >= 1 and len(train) + len(held) == count


def test_equal_prompts_stay_on_one_side():
    prompts = [Prompt(id=f"c{i}", content=f"question {i % 20}") for i in range(200)]
    train, held = split(prompts, held_out=0.5)
    assert len(train) + len(held) == 200 and held
    assert {p.content for p in train}.isdisjoint(p.content for p in held)


def test_with_fewer_than_five_prompts_nothing_is_held_out_and_a_note_says_so(tmp_path, caplog):
    rows = [{"prompt": f"q{i}"} for i in (0, 1, 2, 3, 3, 3)]
    with caplog.at_level(logging.WARNING):
        task = load_task(data=write_lines(tmp_path / "my.jsonl", rows))
    assert (len(task.train_prompts), task.eval_prompts) == (6, ())
    (note,) = caplog.messages
    assert "my.jsonl: no prompts are held out" in note and "fewer than 5" in note and "task.eval_data" in note


def test_a_share_of_zero_holds_nothing_out_without_a_note(tmp_path, caplog):
    task = load_task(data=write_lines(tmp_path / "my.jsonl", [{"prompt": f"q{i}"} for i in range(9)]), held_out=0)
    assert (len(task.train_prompts), task.eval_prompts, caplog.messages) == (9, (), [])


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, float("nan")])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(TaskError, match=r"task\.held_out must be at least 0 and below 1, got"):
        split(numbered(9), held_out=share)


def test_rows_to_measure_on_replace_the_split_and_an_overlap_is_noted(tmp_path, caplog):
    data = write_lines(tmp_path / "my.jsonl", [{"prompt": f"q{i}", "n": i} for i in range(9)])
    clean = write_lines(tmp_path / "clean.jsonl", [{"prompt": "new", "m": 1}])
    task = load_task(data=data, eval_data=clean)
    assert (len(task.train_prompts), [prompt.content for prompt in task.eval_prompts]) == (9, ["new"])
    assert (task.name, caplog.messages) == ("my", [])
    mixed = write_lines(tmp_path / "mixed.jsonl", [{"prompt": "q1"}, {"prompt": "q8"}, {"prompt": "new"}])
    load_task(data=data, eval_data=mixed)
    assert caplog.messages[0].startswith("2 of the 3 prompts in") and "are also trained on" in caplog.messages[0]


# ------------------------------------------------------------------ the registry


def test_built_in_tasks_by_name():
    assert load_task("booking").name == "booking"
    assert load_task("arithmetic").name == "arithmetic"


def test_wrong_names_and_combinations_are_refused():
    with pytest.raises(TaskError, match=r"no built-in task 'boking'; did you mean booking\? Built in: booking, arith"):
        load_task("boking")
    for name, data in ((None, None), ("booking", "my.jsonl")):
        with pytest.raises(TaskError, match=r"exactly one of task\.name"):
            load_task(name, data)
    with pytest.raises(TaskError, match=r"task\.eval_data = 'x\.jsonl' goes with task\.data"):
        load_task("booking", eval_data="x.jsonl")


def test_arithmetic_problems_are_right_distinct_spread_and_always_the_same():
    task = load_task("arithmetic")
    assert (len(task.train_prompts), len(task.eval_prompts)) == (1000, 200)
    for prompt in (*task.train_prompts, *task.eval_prompts):
        a, b, answer = (prompt.columns[name] for name in ("a", "b", "answer"))
        assert isinstance(a, int) and isinstance(b, int) and a + b == answer
        assert prompt.content == f"What is {a} + {b}?"
    assert len({prompt.id for prompt in (*task.train_prompts, *task.eval_prompts)}) == 1200
    assert {prompt.columns["a"] for prompt in task.train_prompts} == set(range(100))
    assert {prompt.columns["b"] for prompt in task.train_prompts} == set(range(100))
    assert [prompt.id for prompt in task.eval_prompts[:3]] == FIRST_HELD_OUT


FIRST_HELD_OUT = ["arithmetic-35+67", "arithmetic-31+12", "arithmetic-6+94"]
