"""A suite as a file: it comes back as it was, a changed one is refused, and a task takes it in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.content import plain_json
from steelyard.errors import TaskError
from steelyard.tasks.booking import booking_task
from steelyard.tasks.suite_files import plain_value, read_suite, with_suite_file, write_suite
from steelyard.types import Case, Suite, Task

atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.integers(2**5000)
)
keys = st.integers() | st.text() | st.tuples(st.integers())
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.sets(keys, max_size=3)
        | st.frozensets(keys, max_size=3)
        | st.dictionaries(st.sampled_from(["$tuple", "$set", "$x"]), inner, max_size=1)
    ),
    max_leaves=8,
)


@given(values)
def test_plain_values_come_back_through_json(value):
    back = plain_value(json.loads(json.dumps(plain_json(value))))
    assert repr(plain_json(back)) == repr(plain_json(value))
    assert type(back) is type(value)


def suite(**changes) -> Suite:
    cases = (
        Case(id="a", family="x", args=([1, (2, b"z")], {3: "k"}), expected=(1.5, None)),
        Case(id="b", family="y", args=([], {}), expected={1, 2}),
    )
    return Suite(**{"task": "booking", "name": "weak", "version": 2, "entry_point": "f", "cases": cases} | changes)


@pytest.mark.parametrize("changes", [{}, {"form": "asserts", "preamble": "import math\n", "stem": "def f():\n"}])
def test_a_suite_comes_back_as_it_was(tmp_path, changes):
    made = suite(**changes)
    write_suite(made, tmp_path / "s.json", made={"from": "here"})
    assert read_suite(tmp_path / "s.json") == made
    assert read_suite(tmp_path / "s.json").hash == made.hash


def test_a_file_is_never_overwritten(tmp_path):
    write_suite(suite(), tmp_path / "s.json")
    with pytest.raises(TaskError, match="never overwritten"):
        write_suite(suite(version=3), tmp_path / "s.json")
    with pytest.raises(TaskError, match="cannot be written"):
        write_suite(suite(), tmp_path / "no" / "s.json")


def test_a_suite_changed_by_hand_is_refused(tmp_path):
    path = tmp_path / "s.json"
    write_suite(suite(), path)
    data = json.loads(path.read_text())
    data["cases"][0]["expected"] = 7
    path.write_text(json.dumps(data))
    with pytest.raises(TaskError, match="changed by hand"):
        read_suite(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "no suite file"),
        ("{", "no suite file"),
        ("{}", "no suite file"),
        ('{"format": 9}', "suite format 9"),
    ],
)
def test_what_is_no_suite_is_refused(tmp_path, text, words):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(TaskError, match=words):
        read_suite(tmp_path / "s.json")
    with pytest.raises(TaskError, match="cannot be read"):
        read_suite(tmp_path / "missing.json")


def test_an_empty_suite_in_a_file_is_refused(tmp_path):
    write_suite(suite(cases=()), tmp_path / "s.json")
    with pytest.raises(TaskError, match="no tests"):
        read_suite(tmp_path / "s.json")


def test_a_task_takes_the_suite_of_a_file_in_the_place_of_its_name(tmp_path):
    task = booking_task()
    weak = task.suites["weak"]
    second = Suite(task="booking", name="weak", version=2, entry_point=weak.entry_point, cases=weak.cases[:5])
    write_suite(second, tmp_path / "weak-2.json")
    changed, name = with_suite_file(task, str(tmp_path / "weak-2.json"))
    assert name == "weak" and changed.suites["weak"] == second
    assert {k: v for k, v in changed.suites.items() if k != "weak"} == {
        k: v for k, v in task.suites.items() if k != "weak"
    }
    assert with_suite_file(task, "repaired") == (task, "repaired")
    assert with_suite_file(task, None) == (task, None)


@pytest.mark.parametrize("changes", [{"task": "other"}, {"entry_point": "g"}])
def test_a_suite_of_another_task_or_function_is_refused(tmp_path, changes):
    write_suite(suite(**{"entry_point": "required_capacity"} | changes), tmp_path / "s.json")
    with pytest.raises(TaskError, match="task booking asks for required_capacity"):
        with_suite_file(booking_task(), str(tmp_path / "s.json"))


@pytest.fixture
def own_task():
    suites = {name: suite(task="own", name="tests", version=1, entry_point=name[-1]) for name in ("Own/f", "Own/g")}
    return Task(name="own", train_prompts=(), eval_prompts=(), own_suites=suites)


def test_a_file_takes_the_place_of_its_prompts_suite(tmp_path, own_task):
    newer = suite(task="own", name="tests", version=2, entry_point="f", cases=suite().cases[:1])
    write_suite(newer, tmp_path / "f.json", prompt_id="Own/f")
    for name in (f"{tmp_path}/f.json", f"{tmp_path}/"):
        changed, chosen = with_suite_file(own_task, name)
        assert chosen is None
        assert changed.own_suites == {"Own/f": newer, "Own/g": own_task.own_suites["Own/g"]}


@pytest.mark.parametrize(
    ("prompt_id", "changes", "said"),
    [
        (None, {"task": "own", "entry_point": "f"}, "is the suite of no prompt; task own has Own/f, Own/g"),
        ("Own/h", {"task": "own", "entry_point": "f"}, "is the suite of prompt 'Own/h'; task own has Own/f, Own/g"),
        ("Own/g", {"task": "own", "entry_point": "f"}, "holds a suite of task own for 'f'; task own asks for g"),
        ("Own/g", {"task": "other", "entry_point": "g"}, "holds a suite of task other for 'g'"),
    ],
)
def test_a_file_of_another_prompt_is_refused(tmp_path, own_task, prompt_id, changes, said):
    write_suite(suite(**changes), tmp_path / "s.json", prompt_id=prompt_id)
    with pytest.raises(TaskError, match=said):
        with_suite_file(own_task, str(tmp_path / "s.json"))


def test_an_empty_folder_is_refused(tmp_path, own_task):
    with pytest.raises(TaskError, match=r"has no \.json file"):
        with_suite_file(own_task, f"{tmp_path}/")
