"""Training and measuring on prompts that bring tests of their own, through the command line."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from problem_rows import LAST, write
from steelyard.ledger.reader import LedgerReader

pytestmark = pytest.mark.sandbox

ANSWERED = {
    "task_id": "Own/one",
    "prompt": "def one():\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
OTHERS = [
    ANSWERED | {"task_id": f"Own/{name}", "prompt": f"def {name}():\n", "entry_point": name}
    for name in ("two", "three")
]


@pytest.fixture
def recipe(workdir, model_directory):
    write(workdir / "train.jsonl", [ANSWERED, *OTHERS])
    write(workdir / "measure.jsonl.gz", [LAST])
    path = workdir / "own.toml"
    path.write_text(
        f"""
[run]
updates = 1
threads = 1
[model]
source = "{model_directory}"
[task]
data = "train.jsonl"
eval_data = "measure.jsonl.gz"
[rollout]
prompts_per_update = 2
group_size = 2
max_new_tokens = 8
[objective]
kl.coef = 0.0
[eval]
samples = 2
every = 1
"""
    )
    return path


def test_each_answer_is_judged_by_its_prompts_tests_and_the_card_names_them_once(cli, recipe):
    result = cli("train", recipe)
    assert result.code == 0, result.err
    run = Path(result.last_line)
    card = json.loads(cli("card", run, "--json").out)
    (suite,) = card["task"]["suites"].items()
    assert suite[0] == "tests"
    assert suite[1]["prompts"] == suite[1]["cases"] == 4
    assert len(suite[1]["hash"]) == 64
    assert card["eval"]["after"]["judge"] == "train:tests"
    with LedgerReader(run / "ledger.sqlite") as reader:
        rows = reader.completions("train", 1) + reader.completions("eval", 0)
        judged = {row.completion.prompt_id for row in rows}
        verdicts = reader.verdicts("train", 1)
        assert {(row.judge, row.is_primary, row.verdict.expected) for row in verdicts} == {("train:tests", True, 1)}
        assert all(set(row.verdict.tests) == {"check"} for row in verdicts)
        assert reader.damaged() == []
    assert cli("why", run, "--update", 1).code == 0
    assert len(judged) == 3
    assert "Own/last" in judged


def test_the_hash_on_the_card_follows_from_the_tests_alone(cli, recipe, workdir):
    def suites():
        run = cli("train", recipe).last_line
        return json.loads(cli("card", run, "--json").out)["task"]["suites"]["tests"]["hash"]

    first = suites()
    write(workdir / "train.jsonl", [*OTHERS[::-1], ANSWERED])
    assert suites() == first
    write(workdir / "train.jsonl", [ANSWERED | {"test": ANSWERED["test"] + "\n"}, OTHERS[0], OTHERS[1] | {"test": OTHERS[1]["test"].replace("1", "1.0")}])  # fmt: skip
    assert suites() != first


def test_a_problem_that_cannot_be_judged_is_left_out_and_said(cli, recipe, workdir):
    many = [ANSWERED | {"task_id": f"Own/{n}", "prompt": f"def f{n}():\n", "entry_point": f"f{n}"} for n in range(11)]
    broken = many[3] | {"test": "def check(candidate):\n    assert candidate() == 2\n"}
    write(workdir / "train.jsonl", [*many[:3], broken, *many[4:]])
    result = cli("train", recipe)
    assert result.code == 0, result.err
    said = "1 of 12 problems of task train cannot be judged: Own/3. Own/3: its own solution is failed"
    assert said in " ".join(result.err.split())
    card = json.loads(cli("card", Path(result.last_line), "--json").out)
    assert (card["task"]["prompts"], card["task"]["suites"]["tests"]["prompts"]) == (10, 11)
    with LedgerReader(Path(result.last_line) / "ledger.sqlite") as reader:
        assert any(said in str(event.data["text"]) for event in reader.events("note"))


def test_too_many_of_them_are_no_data(cli, recipe, workdir):
    broken = {"test": "def check(candidate):\n    candidate\n"}
    write(workdir / "train.jsonl", [ANSWERED | broken, *OTHERS])
    result = cli("train", recipe)
    assert result.code == 2
    said = " ".join(result.err.split())
    assert "1 of 4 problems of task train cannot be judged: Own/one. Own/one: a program that only raises an exception passes a test. Correct or remove these rows." in said  # fmt: skip


def test_a_repaired_suite_trains_in_its_prompts_place_and_the_card_names_it(cli, recipe, workdir):
    strange = ANSWERED | {
        "task_id": "Own/size",
        "prompt": "def size(x):\n",
        "entry_point": "size",
        "canonical_solution": "    return 0 if len(x) == 0 else max(x)\n",
        "test": "def check(candidate):\n    assert candidate([3]) == 3\n    assert candidate([1, 2]) == 2\n",
    }
    write(workdir / "train.jsonl", [ANSWERED, strange])
    repair = cli("suite", "repair", "train.jsonl:Own/size", "--to", "size.json", "--pool", 60)
    assert repair.code == 0, repair.err
    assert "the new inputs are changed copies of old ones: see that the prompt allows each" in repair.err
    made = json.loads((workdir / "size.json").read_text())
    assert (made["prompt"], made["version"], made["form"]) == ("Own/size", 2, "asserts")
    again = cli("suite", "strength", "train.jsonl:size.json", "--pool", 60, "--fail-on", "survivor")
    assert again.code == 0, again.out
    trained = cli("train", recipe, "task.suite=size.json")
    assert trained.code == 0, trained.err
    row = json.loads(cli("card", trained.last_line, "--json").out)["task"]["suites"]["tests"]
    assert row["changed"] == {"Own/size": {"version": 2, "hash": made["hash"], "cases": len(made["cases"])}}
    assert row["cases"] == 2 + len(made["cases"])


def test_a_suite_cannot_be_chosen(cli, recipe):
    result = cli("train", recipe, "task.suite=weak")
    assert result.code == 2
    assert "each prompt of task train has its own" in " ".join(result.err.split())


def test_rows_with_tests_may_be_judged_by_a_reward_function(cli, recipe, workdir):
    (workdir / "reward.py").write_text(
        "def score(prompts, completions, test, entry_point, **columns):\n"
        "    return [float(name in code and len(text) % 2) for name, code, text in zip(entry_point, test, completions)]\n"
    )
    result = cli("train", recipe, "reward.function=reward.py:score")
    assert result.code == 0, result.err
    assert json.loads(cli("card", Path(result.last_line), "--json").out)["sandbox"] == {}


def test_rows_without_tests_need_a_reward(cli, recipe, workdir):
    for name in ("train.jsonl", "measure.jsonl.gz"):
        write(workdir / name, [{"prompt": "What is 1 + 1?", "answer": 2}])
    result = cli("train", recipe)
    assert result.code == 2
    assert "task train has no test suite: give reward.function" in " ".join(result.err.split())
