"""From answers and judgements to the tensors and rows of one update."""

from collections.abc import Sequence

import torch

from steelyard.evals.judges import Judgement
from steelyard.types import Completion
from steelyard.update.batching import TrainRow


def reward_tensors(
    completions: Sequence[Completion], judgements: Sequence[Judgement]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rewards (nan where unscored), group numbers and the scored mask; groups go by id."""
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(completion.group_id, len(numbers)) for completion in completions]
    rewards = [judgement.verdict.reward for judgement in judgements]
    rewards_B = torch.tensor([float("nan") if reward is None else reward for reward in rewards], dtype=torch.float64)
    return rewards_B, torch.tensor(groups), torch.tensor([reward is not None for reward in rewards])


def train_rows(
    completions: Sequence[Completion], judgements: Sequence[Judgement], advantages_B: Sequence[float]
) -> list[TrainRow]:
    """Return the scored completions as rows of the loss, zero advantages included."""
    return [
        TrainRow(
            prompt_ids=completion.prompt_ids,
            token_ids=completion.token_ids,
            logprobs=completion.logprobs,
            advantage=advantage,
        )
        for completion, judgement, advantage in zip(completions, judgements, advantages_B, strict=True)
        if judgement.verdict.scored
    ]
