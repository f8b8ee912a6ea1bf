"""Problems with tests of their own, judged in the sandbox: HumanEval, MBPP, and what must not pass on them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_tools import QUICK

sys.path.insert(0, str(Path(__file__).parents[1]))

from problem_rows import AREA, DOUBLE, FORMS, HUMANEVAL, HUMANEVAL_PLUS, LONGEST, MBPP, write
from steelyard.tasks import load_task
from steelyard.types import Case, Status, Suite
from steelyard.verify.programs import OwnSuiteVerifier, ProgramVerifier, check_own_references
from steelyard.verify.sandbox import Limits, Sandbox

pytestmark = pytest.mark.sandbox

WRONG = {
    0: "    return any(abs(a - b) < threshold for a, b in zip(numbers, numbers[1:]))\n",
    2: "    return number - round(number)\n",
    3: "    return sum(operations) < 0\n",
    4: "    mean = sum(numbers) / len(numbers)\n    return sum(n - mean for n in numbers) / len(numbers)\n",
    5: "    return [x for n in numbers for x in (n, delimeter)]\n",
    7: "    return [s for s in strings if s.startswith(substring)]\n",
    8: "    total, product = 0, 0\n    for n in numbers:\n        total += n\n        product *= n\n    return total, product\n",
    9: "    return sorted(numbers)\n",
    11: "    return ''.join('1' if '1' in pair else '0' for pair in zip(a, b))\n",
    12: "    return max(reversed(strings), key=len) if strings else None\n",
    13: "    return min(a, b)\n",
    16: "    return len(set(string))\n",
    18: "    return string.count(substring)\n",
    24: "    return n\n",
    26: "    return list(dict.fromkeys(numbers))\n",
    30: "    return [n for n in l if n >= 0]\n",
    31: "    return n % 2 == 1\n",
    34: "    return sorted(l)\n",
    35: "    return l[-1]\n",
    40: "    return any(a + b == 0 for a in l for b in l)\n",
    42: "    return [n + 1 for n in l if n]\n",
    45: "    return a * h\n",
    48: "    return text[0] == text[-1]\n",
    53: "    return x | y\n",
    55: "    return n if n < 3 else fib(n - 1) + fib(n - 2)\n",
}  # fmt: skip
"""Plausible wrong bodies, by problem number."""


@pytest.fixture(scope="module")
def task():
    return load_task("humaneval")


@pytest.fixture(scope="module")
def with_numpy():
    with Sandbox(workers=1, limits=QUICK, packages=("numpy",)) as opened:
        yield opened


def own(rows, tmp_path, name="rows.jsonl"):
    return load_task(data=write(tmp_path / name, rows), held_out=0.0)


def test_all_164_canonical_solutions_pass_and_a_wrong_program_fails_on_25(task):
    solutions = {
        prompt.id: prompt.columns["canonical_solution"] for prompt in (*task.train_prompts, *task.eval_prompts)
    }
    right = [(f"right {id_}", id_, text) for id_, text in solutions.items()]
    wrong = [(f"wrong {number}", f"HumanEval/{number}", text) for number, text in WRONG.items()]
    with Sandbox(
        workers=2, limits=Limits(input_seconds=10.0, program_seconds=20.0)
    ) as patient:  # the slowest needs 0.3 s
        checks = OwnSuiteVerifier(patient, task.own_suites).check([*right, *wrong])
    assert len(right) == 164
    assert [check.id for check in checks[:164] if check.verdict.reward != 1.0] == []
    assert [check.id for check in checks[164:] if check.verdict.reward != 0.0] == []
    assert {check.verdict.status for check in checks[164:]} == {Status.FAILED, Status.CRASHED}
    assert {(check.verdict.expected, check.verdict.executed) for check in checks} == {(1, 1)}


def test_c54_every_problem_fails_a_program_that_only_raises(sandbox, task):
    few = {f"HumanEval/{number}": task.own_suites[f"HumanEval/{number}"] for number in (32, 33, 38, 50, 53)}
    assert check_own_references(sandbox, few, task.references) == {}


def test_c53_a_weak_suite_passes_what_is_right_by_luck(sandbox, task):
    """The published tests of HumanEval/58 pass an unsorted answer; that is the suite's fault, and we do not hide it."""
    answer = "    return list(set(l1) & set(l2))\n"
    (check,) = OwnSuiteVerifier(sandbox, task.own_suites).check([("a", "HumanEval/58", answer)])
    assert check.verdict.reward == 1.0
    case = Case(id="x", family="x", args=("", "assert candidate([8, 1, 3], [1, 8]) == [1, 8]"), expected=True)
    stronger = replace(task.own_suites["HumanEval/58"], cases=(case,))
    (check,) = OwnSuiteVerifier(sandbox, {"58": stronger}).check([("a", "58", answer)])
    assert check.verdict.reward == 0.0


@pytest.mark.parametrize("form", FORMS)
def test_every_form_judges_its_own_rows(with_numpy, tmp_path, form):
    task = own(FORMS[form], tmp_path)
    assert check_own_references(with_numpy, task.own_suites, task.references) == {}
    answers = [(id_, id_, source) for id_, source in task.references.items()]
    for check in OwnSuiteVerifier(with_numpy, task.own_suites).check(answers):
        assert check.verdict.reward == 1.0
        assert check.verdict.executed == len(task.own_suites[check.id].cases)


@pytest.mark.parametrize(
    ("form", "answer", "statuses"),
    [
        ("humaneval", "    return items + items\n", {"check": "failed"}),
        ("humaneval", "    return [2 * n for n in items if n > 0]\n", {"check": "failed"}),
        ("humaneval", "    return [items[0] * 2]\n", {"check": "crashed"}),
        ("humaneval", "    while True: pass\n", {"check": "timeout"}),
        ("humaneval", "    return [0] * 10**10\n", {"check": "memory_limit"}),
        ("humaneval", "    return (\n", {"check": "no_answer"}),
        ("humaneval+", "    return [n + n for n in items][:2]\n", {"base-0": "passed", "plus-0": "passed"}),
        ("humaneval+", "    return [2 * abs(n) for n in items]\n", {"base-0": "passed", "plus-0": "failed"}),
        ("humaneval+", "    return (1,)\n", {"base-0": "failed", "plus-0": "failed"}),
        ("humaneval+", "    return tuple(2 * n for n in items)\n", {"base-0": "failed", "plus-0": "failed"}),
        ("mbpp", "def area(r):\n    return 3.141592653589793 * r", {"test-1": "passed", "test-2": "passed", "test-3": "failed"}),
        ("mbpp", "import math\ndef area(r):\n    return math.pi", {"test-1": "passed", "test-2": "failed", "test-3": "failed"}),
        ("mbpp+ hub", "def area(r):\n    return 3.1415926 * r * 2 - 3.1415926 if r else 0", {"test-1": "failed", "test-2": "passed", "test-3": "failed", "plus": "failed"}),
        ("mbpp+ hub", "def area(r):\n    return 3.14159265 * r * r", {"test-1": "failed", "test-2": "passed", "test-3": "passed", "plus": "passed"}),
    ],
)  # fmt: skip
def test_wrong_answers_lose_the_tests_that_they_fail(with_numpy, tmp_path, form, answer, statuses):
    task = own(FORMS[form][:1], tmp_path)
    (id_,) = task.own_suites
    (check,) = OwnSuiteVerifier(with_numpy, task.own_suites).check([("a", id_, answer)])
    assert {name: status.value for name, status in check.verdict.tests.items()} == statuses
    assert check.verdict.reward == sum(status == "passed" for status in statuses.values()) / len(statuses)


def test_a_whole_function_may_use_what_the_prompt_defines(sandbox, tmp_path):
    task = own([DOUBLE], tmp_path)
    answer = "Sure:\n```python\nfrom __future__ import annotations\n\ndef double(items: List[int]) -> List[int]:\n    return [shift(n) + n - 1 for n in items]\n```"  # fmt: skip
    (check,) = OwnSuiteVerifier(sandbox, task.own_suites).check([("a", "Own/double", answer)])
    assert check.verdict.reward == 1.0


@pytest.mark.parametrize(
    ("id_", "answer", "letters"),
    [
        ("Mbpp/2", "def similar_elements(a, b):\n    assert type(a) is type(b) is tuple\n    return [4, 3, 3] if 3 in a else ()", "pp"),
        ("Mbpp/2", "def similar_elements(a, b):\n    return a", "pf"),
        ("Mbpp/9003", "def text_starta_endb(text):\n    return 'yes' if 'a' in text else None", "pp"),
        ("Mbpp/9003", "def text_starta_endb(text):\n    return 'a' in text", "pp"),
        ("Mbpp/9003", "def text_starta_endb(text):\n    return 'never'", "pf"),
        ("Mbpp/9003", "def text_starta_endb(text):\n    return 'b' in text", "pf"),
        ("Mbpp/9004", "def digit_distance_nums(a, b):\n    return sum(abs(int(x) - int(y)) for x, y in zip(f'{a:03}', f'{b:03}'))", "pp"),
        ("Mbpp/9004", "def digit_distance_nums(a, b):\n    return abs(a - b)", "ff"),
        ("Mbpp/9005", "def surface_Area(b, h):\n    return round(b * b + 2 * b * ((b / 2) ** 2 + h * h) ** 0.5)", "p"),
        ("Mbpp/9005", "def surface_Area(b, h):\n    return b * b", "f"),
    ],
)  # fmt: skip
def test_problems_of_mbpp_plus_with_a_rule_of_their_own(sandbox, tmp_path, id_, answer, letters):
    task = own(FORMS["mbpp+"], tmp_path)
    (check,) = OwnSuiteVerifier(sandbox, task.own_suites).check([("a", id_, answer)])
    assert "".join(status.value[0] for status in check.verdict.tests.values()) == letters


def test_floats_are_compared_as_evalplus_does(sandbox, tmp_path):
    task = own(HUMANEVAL_PLUS[1:2], tmp_path)
    answers = [
        (str(error), "Own/root", f"    return math.sqrt(abs(x)) * (x > 0) + {error}\n") for error in (5e-7, 1e-5)
    ]
    checks = OwnSuiteVerifier(sandbox, task.own_suites).check(answers)
    assert [check.verdict.reward for check in checks] == [1.0, 0.0]


def test_any_root_of_the_polynomial_is_right(sandbox, tmp_path):
    task = own(HUMANEVAL_PLUS[2:], tmp_path)
    answers = [("other root", "    return 2 if len(xs) == 2 else -1.0\n"), ("no root", "    return 2.0\n")]
    checks = OwnSuiteVerifier(sandbox, task.own_suites).check([(id_, "Own/zero", text) for id_, text in answers])
    assert [check.verdict.reward for check in checks] == [1.0, 0.5]


SAME = """
    yes = lambda *_: True
    Same = type("Same", (), dict(__eq__=yes, __ge__=yes, __le__=yes, __sub__=lambda me, _: me, __rsub__=lambda me, _: me, __abs__=lambda me: 0, __len__=lambda me: 1))
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (f"{SAME}    return Same()\n", Status.FAILED),
        (f"{SAME}    return [Same()]\n", Status.FAILED),
        ("    class Yes(list):\n        __eq__ = lambda *_: True\n    return Yes()\n", Status.FAILED),
        ("    import sys, builtins\n    builtins.AssertionError = builtins.all = lambda *_: True\n    sys.modules['test'] = None\n    return []\n", Status.FAILED),
        ("    import gc\n    for o in gc.get_objects():\n        if isinstance(o, dict) and 'check' in o:\n            o['check'] = lambda *_: None\n    return []\n", Status.FAILED),
    ],
)  # fmt: skip
def test_c36_an_object_equal_to_everything_never_reaches_the_assertion(sandbox, tmp_path, body, status):
    task = own([DOUBLE], tmp_path)
    (check,) = OwnSuiteVerifier(sandbox, task.own_suites).check([("a", "Own/double", body)])
    assert (check.verdict.status, check.verdict.reward) == (status, 0.0)


@pytest.mark.parametrize(
    "body",
    [
        "    import os\n    os._exit(0)\n",
        "    raise SystemExit(0)\n",
        "    exit()\n",
        "    if items:\n        exit(0)\n    return []\n",
        "    import atexit, os\n    atexit.register(lambda: os._exit(0))\n    raise KeyboardInterrupt\n",
        "    raise AssertionError\n",
    ],
)
def test_c37_leaving_before_or_during_the_check_is_no_pass(sandbox, tmp_path, body):
    task = own([DOUBLE], tmp_path)
    (check,) = OwnSuiteVerifier(sandbox, task.own_suites).check([("a", "Own/double", body)])
    assert check.verdict.reward == 0.0
    assert check.verdict.status in (Status.CRASHED, Status.FAILED)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (DOUBLE | {"test": "def check(candidate):\n    try:\n        assert candidate([1]) == [2]\n    except Exception:\n        pass\n"}, "only raises an exception passes"),
        (DOUBLE | {"test": "def check(candidate):\n    f = candidate\n    assert True\n"}, "only raises an exception passes"),
        (DOUBLE | {"test": "def check(candidate):\n    assert candidate([1]) == [3]\n"}, "its own solution is failed: input 0: failed: AssertionError"),
        (DOUBLE | {"test": "import nothing_like_it\n\ndef check(candidate):\n    assert candidate([1]) == [2]\n"}, "ModuleNotFoundError: No module named 'nothing_like_it'"),
        (DOUBLE | {"canonical_solution": "    return set(items)\n"}, "its own solution is failed"),
        (LONGEST | {"test_list": ["def longest_is(w): return longest(w)\nassert True"]}, "only raises an exception passes"),
    ],
)  # fmt: skip
def test_c42_c54_tests_that_say_nothing_or_the_wrong_thing_are_found(sandbox, tmp_path, row, said):
    task = own([row], tmp_path)
    (why,) = check_own_references(sandbox, task.own_suites, task.references).values()
    assert said in why


def test_c54_the_test_that_the_prompt_shows_is_not_the_only_one(sandbox, tmp_path):
    task = own(MBPP, tmp_path)
    shown = [test for test in AREA["test_list"] if test in task.train_prompts[0].content]
    assert shown == AREA["test_list"][:1]
    cheat = "import math\ndef area(r):\n    return math.pi\n"
    (check,) = OwnSuiteVerifier(sandbox, task.own_suites).check([("a", "MBPP/9001", cheat)])
    assert check.verdict.reward == 1 / 3
    assert check.verdict.status is not Status.PASSED


def test_one_call_judges_each_answer_by_its_own_prompt(sandbox, tmp_path):
    task = own(HUMANEVAL, tmp_path)
    solutions = {row["task_id"]: row["canonical_solution"] for row in HUMANEVAL}
    answers = [(f"{p} by {s}", p, solutions[s]) for p in solutions for s in solutions]
    checks = OwnSuiteVerifier(sandbox, task.own_suites).check(answers)
    assert [check.verdict.reward for check in checks] == [1, 0, 0, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("name", ["candidate", "check", "harness", "frames", "wire", "send", "load", "call", "main", "test", "jail", "program", "print", "Program"])  # fmt: skip
def test_an_entry_point_may_have_the_name_of_anything_in_the_harness(sandbox, tmp_path, name):
    row = {
        "task_id": "Own/name",
        "prompt": f"def {name}(x):\n",
        "entry_point": name,
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    }
    task = own([row], tmp_path)
    assert check_own_references(sandbox, task.own_suites, task.references) == {}
    calls = Suite(
        task="a", name="a", version=1, entry_point=name, cases=(Case(id="t", family="f", args=(2,), expected=4),)
    )
    assert ProgramVerifier(sandbox, calls).check([("a", task.references["Own/name"])])[0].verdict.reward == 1.0


def test_scripts_read_a_text_and_print_one(sandbox):
    cases = [Case(id=f"t{i}", family="all", args=(given,), expected=out) for i, (given, out) in enumerate([("1\n2\n", "3\n"), ("5\n-5\n", "0\n"), ("", "")])]  # fmt: skip
    suite = Suite(task="sum", name="main", version=1, entry_point="", cases=tuple(cases), form="stdin")
    answers = [
        ("right", "```python\nimport sys\nlines = sys.stdin.read().split()\nif lines: print(sum(map(int, lines)))\n```\nOutput:\n```\n3\n```"),
        ("blanks", "import sys\nlines = sys.stdin.read().split()\nprint(sum(map(int, lines)) if lines else '', end=' \\n')\n"),
        ("a line too many", "import sys\nlines = sys.stdin.read().split()\nprint(f'{sum(map(int, lines))}\\n' if lines else '')\n"),
        ("raises", "```\nraise ValueError(print(3))\n```"),
        ("nothing", "x = 1\n"),
        ("exits after the answer", "print(int(input()) + int(input()))\nraise SystemExit(0)\n"),
        ("leaves after the answer", "import os\nprint(int(input()) + int(input()), flush=True)\nos._exit(0)\n"),
    ]  # fmt: skip
    checks = {check.id: check.verdict for check in ProgramVerifier(sandbox, suite).check(answers)}
    found = {name: "".join(status.value[0] for status in verdict.tests.values()) for name, verdict in checks.items()}
    assert found == {
        "right": "ppp",
        "blanks": "ppp",
        "a line too many": "ffp",
        "raises": "ccc",
        "nothing": "nnn",
        "exits after the answer": "ppc",
        "leaves after the answer": "ccc",
    }
