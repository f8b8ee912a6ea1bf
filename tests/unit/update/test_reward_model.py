"""A reward model: where its number is read, what it depends on, and the step that trains it."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from steelyard.errors import ModelError, UpdateError
from steelyard.update.batching import TrainRow, cut
from steelyard.update.config import OptimizerSection
from steelyard.update.hashing import parameter_hash
from steelyard.update.pairs import PreferencePair
from steelyard.update.reward_model import (
    RewardLearner,
    answer_rewards,
    load_reward_model,
    new_reward_model,
    score,
)


def ids(n: int, seed: int) -> tuple[int, ...]:
    return tuple(torch.randint(2, 258, (n,), generator=torch.Generator().manual_seed(seed)).tolist())


def row(prompt: int, answer: int, seed: int) -> TrainRow:
    return TrainRow(prompt_ids=ids(prompt, seed), token_ids=ids(answer, seed + 1000), logprobs=())


ROWS = [row(4, 3, 1), row(4, 40, 2), row(2, 1, 3), row(4, 31, 4), row(3, 64, 5), row(4, 5, 6)]
PAIRS = [
    PreferencePair(prompt_ids=ids(p, s), chosen_ids=ids(w, s + 1), rejected_ids=ids(x, s + 2))
    for s, (p, w, x) in enumerate([(4, 3, 7), (4, 40, 2), (4, 5, 33), (2, 1, 1), (4, 2, 9)])
]


def fresh(directory, seed: int = 0):
    return new_reward_model(str(directory), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def reward_model(model_directory):
    return fresh(model_directory)


def learner(model, *, budget: int = 4096, **optimizer) -> RewardLearner:
    settings = OptimizerSection(**{"lr": 1e-2, **optimizer})
    return RewardLearner(model, optimizer=settings, total_steps=20, token_budget=budget)


# ------------------------------------------------------------------ the number


def test_the_reward_is_read_at_the_last_token_of_the_answer(reward_model):
    rewards = score(reward_model, ROWS, token_budget=4096)
    for place, each in enumerate(ROWS):
        inputs = torch.tensor([[*each.prompt_ids, *each.token_ids]])
        hidden = reward_model.base_model(input_ids=inputs).last_hidden_state[0, -1].double()
        wanted = (hidden * reward_model.score.weight[0].double()).sum()
        assert rewards[place].item() == pytest.approx(wanted.item(), rel=1e-5)


def test_it_is_what_transformers_computes_where_no_id_of_a_row_is_padding(reward_model):
    for each in ROWS:
        inputs = torch.tensor([[*each.prompt_ids, *each.token_ids]])
        stock = reward_model(input_ids=inputs).logits[0, 0].item()
        assert score(reward_model, [each], token_budget=4096).item() == pytest.approx(stock, rel=1e-4)


def test_an_answer_that_ends_with_the_padding_id_is_read_at_that_token(reward_model):
    """The stock forward pass reads the token before it: its padding is told from ids."""
    pad = reward_model.config.pad_token_id
    ended = TrainRow(prompt_ids=(5, 6), token_ids=(7, 8, pad), logprobs=())
    cut_short = TrainRow(prompt_ids=(5, 6), token_ids=(7, 8), logprobs=())
    mine = score(reward_model, [ended, cut_short], token_budget=4096).tolist()
    stock = reward_model(input_ids=torch.tensor([[5, 6, 7, 8, pad]])).logits[0, 0].item()
    assert stock == pytest.approx(mine[1], rel=1e-4)
    assert mine[0] != pytest.approx(mine[1], rel=1e-3)


@given(st.permutations(range(len(ROWS))), st.sampled_from([1, 50, 100, 4096]))
def test_a_reward_does_not_depend_on_company_order_or_cut(reward_model, order, budget):
    alone = [score(reward_model, [each], token_budget=1).item() for each in ROWS]
    together = score(reward_model, [ROWS[place] for place in order], token_budget=budget).tolist()
    assert together == [alone[place] for place in order]  # to the last bit


def test_what_stands_in_the_padding_changes_nothing(reward_model):
    (batch,) = cut([ROWS[0], ROWS[5]], token_budget=4096, pad_id=0)
    (other,) = cut([ROWS[0], ROWS[5]], token_budget=4096, pad_id=200)
    assert not torch.equal(batch.input_BS, other.input_BS)
    assert torch.equal(answer_rewards(reward_model, batch), answer_rewards(reward_model, other))


# ------------------------------------------------------------------ the head


def test_equal_generators_give_equal_models_and_others_another_head(model_directory):
    hashes = [parameter_hash(fresh(model_directory, seed)).digest for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_new_head_moves_no_global_generator(model_directory):
    before = torch.get_rng_state()
    fresh(model_directory)
    assert torch.equal(before, torch.get_rng_state())


def test_the_network_is_the_models_own_and_the_head_of_order_one(model, reward_model):
    assert torch.equal(reward_model.base_model.embed_tokens.weight, model.base_model.embed_tokens.weight)
    assert reward_model.score.weight.std().item() == pytest.approx(1 / math.sqrt(33), rel=0.4)
    assert isinstance(reward_model.score, nn.Linear)


def test_a_network_without_a_linear_head_is_refused(tmp_path, tokenizer):
    config = BertConfig(
        vocab_size=258, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no linear head"):
        fresh(tmp_path)


def test_a_saved_model_gives_the_same_rewards(tmp_path, reward_model, tokenizer):
    reward_model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, _ = load_reward_model(str(tmp_path))
    assert torch.equal(score(loaded, ROWS, token_budget=64), score(reward_model, ROWS, token_budget=64))
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


# ------------------------------------------------------------------ the step


def test_the_gradient_is_that_of_the_formula_written_out(reward_model):
    model = copy.deepcopy(reward_model)
    loss = torch.zeros((), dtype=torch.float64)
    for pair in PAIRS:
        both = [
            answer_rewards(
                model,
                cut([TrainRow(prompt_ids=pair.prompt_ids, token_ids=answer, logprobs=())], token_budget=1, pad_id=0)[0],
            )[0]
            for answer in (pair.chosen_ids, pair.rejected_ids)
        ]
        loss = loss + torch.log1p(torch.exp(both[1] - both[0])) / len(PAIRS)
    wanted = torch.autograd.grad(loss, list(model.parameters()))
    norm = math.sqrt(sum(gradient.double().square().sum().item() for gradient in wanted))
    stats = learner(model, lr=0.0).step(PAIRS)
    assert stats.loss == pytest.approx(loss.item(), rel=1e-5)
    assert stats.grad_norm == pytest.approx(norm, rel=1e-4)


def test_of_the_head_it_is_the_difference_of_hidden_states_by_hand(reward_model):
    """d/dw −log σ(w·(h_w − h_l)) = −σ(−margin) (h_w − h_l), averaged over the pairs."""
    model = copy.deepcopy(reward_model)
    wanted = [0.0] * model.score.in_features
    for pair in PAIRS:
        hidden = [
            model.base_model(input_ids=torch.tensor([[*pair.prompt_ids, *answer]])).last_hidden_state[0, -1].tolist()
            for answer in (pair.chosen_ids, pair.rejected_ids)
        ]
        difference = [w - x for w, x in zip(*hidden, strict=True)]
        margin = sum(a * b for a, b in zip(model.score.weight[0].tolist(), difference, strict=True))
        pull = 1.0 / (1.0 + math.exp(margin))
        wanted = [total - pull * each / len(PAIRS) for total, each in zip(wanted, difference, strict=True)]
    model.base_model.requires_grad_(requires_grad=False)
    stats = learner(model, lr=0.0).step(PAIRS)
    assert stats.grad_norm == pytest.approx(math.sqrt(sum(each**2 for each in wanted)), rel=1e-4)


@pytest.mark.parametrize("budget", [1, 60, 200])
def test_c05_the_step_does_not_depend_on_where_the_pairs_are_cut(reward_model, budget):
    found = []
    for each in (4096, budget):
        stats = learner(copy.deepcopy(reward_model).double(), budget=each, max_grad_norm=math.inf).step(PAIRS)
        found.append((stats.loss, stats.margin, stats.ranked_rightly, stats.grad_norm))
    assert found[0] == pytest.approx(found[1], rel=1e-10)


def test_steps_rank_the_pairs_and_equal_steps_give_equal_weights(reward_model):
    digests = []
    for _ in range(2):
        model = copy.deepcopy(reward_model)
        job = learner(model)
        *_, last = [job.step(PAIRS) for _ in range(12)]
        assert last.ranked_rightly == 1.0
        rewards = job.rewards(PAIRS)
        assert (rewards.chosen_N > rewards.rejected_N).all()
        digests.append(parameter_hash(model).digest)
    assert digests[0] == digests[1]


def test_a_model_that_diverged_is_said_and_takes_no_step(reward_model):
    model = copy.deepcopy(reward_model)
    with torch.no_grad():
        model.score.weight.fill_(math.nan)
    before = parameter_hash(model).digest
    with pytest.raises(UpdateError, match="diverged"):
        learner(model).step(PAIRS)
    assert parameter_hash(model).digest == before
