import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import TaskError
from steelyard.rollout.draws import DrawKey
from steelyard.rollout.engine import GroupRequest, SamplingParams, TorchSampler, draw_tokens
from steelyard.rollout.prompts import decode_answer, render, stop_ids
from steelyard.types import Prompt

PARAMS = SamplingParams(temperature=1.3, max_new_tokens=24, stop_ids=(0, 7))


def request(samples=range(6), prompt_ids=(5, 9, 3), group_id="g"):
    key = DrawKey(seed=0, purpose="train", update=1, prompt_id="p")
    return GroupRequest(group_id=group_id, prompt_ids=prompt_ids, samples=samples, draws=key, policy_version=0)


def test_recorded_logprobs_are_those_of_the_sampled_ids_at_the_temperature(model, tokenizer):
    """Oracle: an uncached forward pass over prompt and completion."""
    for completion in TorchSampler(model, tokenizer, PARAMS).sample(request()):
        ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
        with torch.no_grad():
            logp = torch.log_softmax(model(input_ids=ids).logits[0].double() / 1.3, dim=-1)
        start = len(completion.prompt_ids)
        expected = [logp[start + t - 1, token].item() for t, token in enumerate(completion.token_ids)]
        np.testing.assert_allclose(completion.logprobs, expected, atol=2e-5)


def test_a_row_ends_at_its_first_stop_token_and_keeps_it(model, tokenizer):
    completions = TorchSampler(model, tokenizer, PARAMS).sample(request(range(40)))
    assert {c.finish for c in completions} == {"stop", "length"}
    for completion in completions:
        inner, last = completion.token_ids[:-1], completion.token_ids[-1]
        assert not set(inner) & {0, 7}
        assert (last in (0, 7)) == (completion.finish == "stop")
        assert completion.finish == "stop" or len(completion.token_ids) == 24
        assert len(completion.logprobs) == len(completion.token_ids)


def test_rows_do_not_influence_each_other(model64, tokenizer):
    """In float64 the engine noise of other row schedules cannot change a token."""
    often = SamplingParams(temperature=1.3, max_new_tokens=24, stop_ids=tuple(range(20)))
    sampler = TorchSampler(model64, tokenizer, often)
    together = sampler.sample(request(range(6)))
    assert len({len(completion.token_ids) for completion in together}) > 2, "rows must leave the batch at several steps"
    alone = [sampler.sample(request([sample]))[0] for sample in range(6)]
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]


def test_the_same_group_twice_is_equal_to_the_bit(model, tokenizer):
    sampler = TorchSampler(model, tokenizer, PARAMS)
    assert sampler.sample(request()) == sampler.sample(request())


def test_groups_larger_than_the_row_limit_are_cut_without_changing_draws(model64, tokenizer):
    whole = TorchSampler(model64, tokenizer, PARAMS).sample(request(range(7)))
    cut = TorchSampler(model64, tokenizer, PARAMS, row_limit=3).sample(request(range(7)))
    assert [c.token_ids for c in whole] == [c.token_ids for c in cut]


def test_sampling_follows_the_softmax():
    """Frequencies over an even grid of uniforms are the probabilities."""
    logits = torch.tensor([[2.0, 0.0, -1.0, float("-inf")]])
    grid = (np.arange(4000) + 0.5) / 4000
    tokens, logprobs = draw_tokens(logits.expand(4000, -1), grid, temperature=0.5)
    expected = torch.softmax(logits[0].double() / 0.5, dim=-1).numpy()
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / 4000, expected, atol=3e-4)
    np.testing.assert_allclose(logprobs, np.log(expected[tokens]), atol=1e-6)


def test_c72_logprob_is_at_the_sampling_temperature():
    _, logprobs = draw_tokens(torch.tensor([[2.0, 0.0]]), np.array([0.5]), temperature=0.5)
    assert logprobs[0] == pytest.approx(-0.01815, abs=1e-5)
    _, logprobs = draw_tokens(torch.tensor([[2.0, 0.0]]), np.array([0.5]), temperature=1.0)
    assert logprobs[0] == pytest.approx(-0.12693, abs=1e-5)


@given(
    st.lists(st.floats(-30, 30) | st.just(-math.inf), min_size=1, max_size=6),
    st.floats(0, 1, exclude_max=True),
)
def test_a_token_of_probability_zero_is_never_drawn(logits, uniform):
    if max(logits) == -math.inf:
        logits[0] = 0.0
    for u in (uniform, math.nextafter(1.0, 0.0), 0.0):
        tokens, logprobs = draw_tokens(torch.tensor([logits]), np.array([u]), temperature=1.0)
        assert logits[tokens[0]] > -math.inf
        assert math.isfinite(logprobs[0])


def test_c75_ids_are_kept_as_sampled(model, tokenizer):
    """Decoding and encoding again would give other ids; the completion keeps the sampled ones."""
    for completion in TorchSampler(model, tokenizer, PARAMS).sample(request(range(20))):
        assert all(isinstance(token, int) for token in completion.token_ids)
        assert len(completion.token_ids) == len(completion.logprobs)
        assert completion.text == decode_answer(tokenizer, completion.token_ids, PARAMS.stop_ids)


def test_c13_only_the_stop_token_is_cut_from_the_text(tokenizer):
    x, y = tokenizer.convert_tokens_to_ids(["x", "y"])
    assert decode_answer(tokenizer, [x, y, 0], [0]) == "xy"
    assert decode_answer(tokenizer, [x, y, 7], [0, 7]) == "xy"
    assert decode_answer(tokenizer, [x, y], [0]) == "xy"


def test_plain_text_becomes_a_user_message_where_there_is_a_template(tokenizer):
    prompt = Prompt(id="p", content="hi")
    as_chat = tokenizer.decode(render(tokenizer, prompt, chat="auto"))
    assert as_chat == "<|user|>hi<|assistant|>"
    assert tokenizer.decode(render(tokenizer, prompt, chat="never")) == "hi"
    messages = Prompt(id="p", content=({"role": "system", "content": "s"}, {"role": "user", "content": "hi"}))
    assert tokenizer.decode(render(tokenizer, messages, chat="auto")) == "<|system|>s<|user|>hi<|assistant|>"


def test_an_empty_prompt_is_refused(tokenizer):
    with pytest.raises(TaskError, match="'p' renders to no token"):
        render(tokenizer, Prompt(id="p", content=""), chat="never")


def test_stop_ids_join_generation_config_and_tokenizer(model, tokenizer):
    model.generation_config.eos_token_id = [7, 9]
    assert stop_ids(model, tokenizer) == (0, 7, 9)
    model.generation_config.eos_token_id = 7
    assert stop_ids(model, tokenizer) == (0, 7)
