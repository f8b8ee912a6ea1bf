"""Any causal language model of transformers: sampled log-probs, and the trainer's, against a plain forward pass."""

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    MambaConfig,
    MixtralConfig,
    Qwen3Config,
)

from steelyard.numerics.variants import VARIANTS
from steelyard.rollout.draws import DrawKey
from steelyard.rollout.engine import GroupRequest, SamplingParams, TorchSampler
from steelyard.update.batching import TrainRow, cut
from steelyard.update.config import OptimizerSection, UpdateSection
from steelyard.update.learner import Learner

SIZE = {"vocab_size": 258, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
HEADS = {**SIZE, "intermediate_size": 48, "num_key_value_heads": 1, "head_dim": 16}
CONFIGS = {
    "gpt2": GPT2Config(vocab_size=258, n_embd=32, n_layer=2, n_head=2, n_positions=64),
    "qwen3": Qwen3Config(**HEADS),
    "gemma2: soft-capped logits, sliding window": Gemma2Config(**HEADS, sliding_window=8),
    "gemma3: sliding window": Gemma3TextConfig(**HEADS, sliding_window=8),
    "mixtral: experts": MixtralConfig(**HEADS, num_local_experts=2),
    "mamba: no attention": MambaConfig(vocab_size=258, hidden_size=32, num_hidden_layers=2, state_size=4),
    "lfm2: convolutions and attention": Lfm2Config(
        **SIZE, intermediate_size=48, num_key_value_heads=1, layer_types=["conv", "full_attention"]
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_sampler_and_trainer_agree_with_a_plain_forward_pass(name, tokenizer):
    with torch.random.fork_rng():
        model = AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32).eval()
    params = SamplingParams(temperature=0.7, max_new_tokens=20, stop_ids=tuple(range(40)))
    request = GroupRequest(
        group_id="g",
        prompt_ids=tuple(range(50, 62)),
        samples=range(5),
        draws=DrawKey(seed=0, purpose="train", update=1, prompt_id="p"),
        policy_version=0,
    )
    completions = TorchSampler(model, tokenizer, params).sample(request)
    assert len({len(completion.token_ids) for completion in completions}) > 1, "rows must leave the batch"
    rows = [
        TrainRow(prompt_ids=c.prompt_ids, token_ids=c.token_ids, logprobs=c.logprobs, advantage=1.0)
        for c in completions
    ]
    learner = Learner(
        model,
        objective=VARIANTS["dr_grpo"],
        optimizer=OptimizerSection(),
        update=UpdateSection(),
        total_updates=1,
        temperature=0.7,
        max_length=20,
        reference=None,
    )
    (batch,) = cut(rows, token_budget=10_000, pad_id=0)
    trainer_BT = learner.logprobs(batch)
    for line, index in enumerate(batch.rows):
        completion = completions[index]
        ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
        with torch.no_grad():
            logp = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0].double() / 0.7, dim=-1)
        start = len(completion.prompt_ids) - 1
        expected = [logp[start + t, token].item() for t, token in enumerate(completion.token_ids)]
        np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)
        np.testing.assert_allclose(trainer_BT[line][batch.mask_BT[line]].numpy(), expected, atol=1e-4)
