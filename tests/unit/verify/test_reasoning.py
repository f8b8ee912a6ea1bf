"""Problems of reasoning-gym scored by their own rules, some of which evaluate the answer."""

import pytest

from steelyard.errors import TaskError
from steelyard.tasks import load_task
from steelyard.types import Status
from steelyard.verify.reasoning import COLUMN, ReasoningVerifier

pytest.importorskip("reasoning_gym")


@pytest.fixture(scope="module")
def verifier():
    verifier = ReasoningVerifier(workers=1, seconds=5.0)
    yield verifier
    verifier.close()


@pytest.mark.parametrize("name", ["chain_sum", "countdown", "spiral_matrix", "simple_integration", "leg_counting"])
def test_the_right_answer_passes_and_another_does_not(verifier, name):
    task = load_task(data=f"reasoning-gym:{name}?size=3&seed=1", held_out=0.0)
    pairs = [
        (prompt.columns[COLUMN], f"so <answer>{prompt.columns['answer']}</answer>") for prompt in task.train_prompts
    ]
    assert [verdict.reward for verdict in verifier.check(pairs)] == [1.0] * 3
    wrong, none = verifier.check([(pairs[0][0], "<answer>-12345</answer>"), (pairs[0][0], "<answer>5")])
    assert wrong.status is Status.FAILED
    assert wrong.reward < 0.1
    assert (none.status, none.reward) == (Status.NO_ANSWER, 0.0)


def test_the_same_text_makes_the_same_problems_and_settings_reach_the_data_set():
    first, again = (load_task(data="reasoning-gym:chain_sum?size=6&seed=4", held_out=0.0) for _ in range(2))
    assert first == again
    assert len(first.train_prompts) == 6
    other = load_task(data="reasoning-gym:chain_sum?size=6&seed=5&min_terms=4&max_terms=4", held_out=0.0)
    assert other.train_prompts[0].content.count("+") + other.train_prompts[0].content.count(" - ") == 3
    assert {"answer", "metadata", COLUMN} == set(first.train_prompts[0].columns)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("reasoning-gym:chain_sun", "did you mean chain_sum"),
        ("reasoning-gym:chain_sum?sise=3", "Settings of chain_sum: .*size"),
        ("reasoning-gym:chain_sum?min_terms=-3", "chain_sum"),
        ("reasoning-gym:composite", "Settings of composite"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_way_out(data, says):
    with pytest.raises(TaskError, match=says):
        load_task(data=data)


def test_an_answer_that_is_code_cannot_write_or_start_anything_or_hang(verifier, tmp_path):
    """The rule of spiral_matrix evaluates text that begins with a bracket."""
    task = load_task(data="reasoning-gym:spiral_matrix?size=1&seed=1", held_out=0.0)
    problem, target = task.train_prompts[0].columns[COLUMN], tmp_path / "mark"
    attacks = [
        f"[open({str(target)!r}, 'w').write('x')]",
        f"[__import__('os').system('touch {target}')]",
        f"[__import__('os').mkdir({str(target)!r})]",
        "[__import__('os')._exit(0)]",
    ]
    verdicts = verifier.check([(problem, f"<answer>{attack}</answer>") for attack in attacks])
    assert not target.exists()
    assert [verdict.reward in (0.0, 0.01, None) for verdict in verdicts] == [True] * 4
    quick = ReasoningVerifier(workers=1, seconds=1.0)
    assert quick.check([(problem, "<answer>[sum(range(10**12))]</answer>")])[0].status is Status.TIMEOUT
    assert quick.check([(problem, f"<answer>{task.train_prompts[0].columns['answer']}</answer>")])[0].reward == 1.0
    quick.close()


def test_an_answer_that_the_rule_cannot_read_is_wrong_and_no_failure_of_ours(verifier):
    task = load_task(data="reasoning-gym:prime_factorization?size=1&seed=1", held_out=0.0)
    found = verifier.check([(task.train_prompts[0].columns[COLUMN], "<answer>nonsense</answer>")])[0]
    assert (found.status, found.reward) == (Status.FAILED, 0.0)


def test_rows_from_elsewhere_are_refused(verifier):
    with pytest.raises(TaskError, match="row 1: the column 'reasoning_gym' does not say which problem"):
        verifier.check_golds([("row 1", "7")])
