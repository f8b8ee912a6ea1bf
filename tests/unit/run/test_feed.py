"""Which prompts an update draws, and how their answers form groups."""

import collections
import itertools

from steelyard.evals.judges import Judgement
from steelyard.run.feed import Feed
from steelyard.run.history import History
from steelyard.types import Prompt, Status, Verdict


def feed(n_prompts: int, *, per_update: int, seed: int = 0) -> Feed:
    prompts = [(Prompt(id=f"p{n}", content="x"), (n,)) for n in range(n_prompts)]
    return Feed(prompts=prompts, prompts_per_update=per_update, group_size=3, seed=seed)


def ids(made: Feed, update: int) -> list[str]:
    return [prompt.id for prompt, _ in drawn(made, update)]


def drawn(made: Feed, update: int):
    return made.groups(update, History(groups_drawn=(update - 1) * made.prompts_per_update))


def test_every_prompt_comes_once_per_epoch_in_an_order_of_its_own():
    made = feed(6, per_update=2)
    epochs = [[name for update in range(3 * e + 1, 3 * e + 4) for name in ids(made, update)] for e in range(4)]
    assert all(sorted(epoch) == [f"p{n}" for n in range(6)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_c65_an_update_draws_the_same_prompts_whenever_it_is_asked_for():
    made, again = feed(5, per_update=2), feed(5, per_update=2)
    straight = [drawn(made, update) for update in range(1, 12)]
    assert [drawn(again, update) for update in reversed(range(1, 12))] == straight[::-1]
    assert any(ids(feed(5, per_update=2, seed=1), update) != ids(made, update) for update in range(1, 4))


def test_a_prompt_twice_in_one_update_is_two_groups_with_draws_of_their_own():
    (_, first), (_, second) = drawn(feed(1, per_update=2), 4)
    assert first.group_id != second.group_id
    assert not set(first.samples) & set(second.samples)
    assert first.draws == second.draws


def test_groups_beyond_the_first_p_go_on_in_the_same_order():
    """Dynamic sampling takes more groups than P, and the next update goes on where it stopped."""
    made, past = feed(6, per_update=2), History()
    seen = [prompt.id for prompt, _ in itertools.islice(made.stream(1, past), 5)]
    past.groups_drawn = 5
    seen += [prompt.id for prompt, _ in itertools.islice(made.stream(2, past), 1)]
    assert sorted(seen) == [f"p{n}" for n in range(6)]


# ------------------------------------------------------------------ the edge of ability


def judged(passed: int, failed: int, unscored: int = 0) -> list[Judgement]:
    verdicts = [Verdict(status=Status.PASSED, reward=1.0)] * passed
    verdicts += [Verdict(status=Status.FAILED, reward=0.0)] * failed
    verdicts += [Verdict(status=Status.CHECKER_FAILED, reward=None)] * unscored
    return [Judgement(verdict=verdict) for verdict in verdicts]


def test_pass_rates_forget_what_the_policy_was_long_ago():
    past = History()
    assert past.pass_rate("p") == 0.5
    past.add("p", judged(0, 8, unscored=3))
    assert past.pass_rate("p") == 1 / 10
    past.add("p", judged(8, 0))
    assert past.pass_rate("p") == (8 + 1) / (8 + 4 + 2)
    assert past.groups_drawn == 2


def edge(n_prompts: int, *, per_update: int, seed: int = 0) -> Feed:
    prompts = [(Prompt(id=f"p{n}", content="x"), (n,)) for n in range(n_prompts)]
    return Feed(prompts=prompts, prompts_per_update=per_update, group_size=3, seed=seed, at_edge=True)


def test_the_curriculum_draws_by_the_variance_of_the_outcome():
    past = History(outcomes={"p0": (14.0, 14.0), "p1": (7.0, 14.0), "p2": (0.0, 14.0)})
    made = edge(3, per_update=1)
    counts = collections.Counter(made.groups(update, past)[0][0].id for update in range(1, 2001))
    weights = [15 / 16 * 1 / 16, 8 / 16 * 8 / 16, 1 / 16 * 15 / 16]
    for name, weight in zip(("p0", "p1", "p2"), weights, strict=True):
        assert abs(counts[name] / 2000 - weight / sum(weights)) < 0.04


def test_the_curriculum_takes_every_prompt_once_before_it_takes_one_twice():
    made = edge(4, per_update=8)
    past = History(outcomes={"p0": (0.0, 1000.0)})
    names = [prompt.id for prompt, _ in made.groups(3, past)]
    assert sorted(names[:4]) == sorted(names[4:]) == ["p0", "p1", "p2", "p3"]


def test_c65_the_curriculum_depends_on_seed_update_and_history_alone():
    past = History(outcomes={"p1": (3.0, 4.0)})
    one, again, other = (edge(5, per_update=3, seed=seed) for seed in (0, 0, 1))
    assert one.groups(7, past) == again.groups(7, past)
    assert any(one.groups(u, past) != other.groups(u, past) for u in range(1, 5))
