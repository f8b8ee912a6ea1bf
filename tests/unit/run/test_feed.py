"""Which prompts an update draws, and how their answers form groups."""

from steelyard.evals.judges import Judgement
from steelyard.run.batch import reward_tensors, train_rows
from steelyard.run.feed import Feed
from steelyard.types import Completion, Prompt, Status, Verdict


def feed(n_prompts: int, *, per_update: int, seed: int = 0) -> Feed:
    prompts = [(Prompt(id=f"p{n}", content="x"), (n,)) for n in range(n_prompts)]
    return Feed(prompts=prompts, prompts_per_update=per_update, group_size=3, seed=seed)


def ids(made: Feed, update: int) -> list[str]:
    return [prompt.id for prompt, _ in made.groups(update)]


def test_every_prompt_comes_once_per_epoch_in_an_order_of_its_own():
    made = feed(6, per_update=2)
    epochs = [[name for update in range(3 * e + 1, 3 * e + 4) for name in ids(made, update)] for e in range(4)]
    assert all(sorted(epoch) == [f"p{n}" for n in range(6)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_c65_an_update_draws_the_same_prompts_whenever_it_is_asked_for():
    made, again = feed(5, per_update=2), feed(5, per_update=2)
    straight = [made.groups(update) for update in range(1, 12)]
    assert [again.groups(update) for update in reversed(range(1, 12))] == straight[::-1]
    assert any(ids(feed(5, per_update=2, seed=1), update) != ids(made, update) for update in range(1, 4))


def test_a_prompt_twice_in_one_update_is_two_groups_with_draws_of_their_own():
    (_, first), (_, second) = feed(1, per_update=2).groups(4)
    assert first.group_id != second.group_id
    assert not set(first.samples) & set(second.samples)
    assert first.draws == second.draws


def answer(group_id: str, reward: float | None) -> tuple[Completion, Judgement]:
    completion = Completion(
        prompt_id="p",
        group_id=group_id,
        sample=0,
        policy_version=0,
        prompt_ids=(1,),
        token_ids=(2,),
        logprobs=(-1.0,),
        text="",
        finish="stop",
    )
    return completion, Judgement(verdict=Verdict(status=Status.PASSED, reward=reward))


def test_c18_groups_go_by_group_id_even_for_one_prompt_and_interleaved():
    pairs = [answer("a", 1.0), answer("b", 0.0), answer("a", None), answer("b", 0.5)]
    completions, judgements = zip(*pairs, strict=True)
    rewards_B, groups_B, scored_B = reward_tensors(completions, judgements)
    assert groups_B.tolist() == [0, 1, 0, 1]
    assert scored_B.tolist() == [True, True, False, True]
    assert rewards_B.tolist()[:2] == [1.0, 0.0]
    rows = train_rows(completions, judgements, [0.1, 0.2, 0.0, 0.4])
    assert [row.advantage for row in rows] == [0.1, 0.2, 0.4]
