"""The value network of advantage = gae: what reward the policy may expect from here on, token by token."""

import copy
import math
from pathlib import Path

import torch
from safetensors.torch import save_model
from torch import Tensor, nn
from transformers import PreTrainedModel

from steelyard.update.batching import MicroBatch
from steelyard.update.config import CriticSection, OptimizerSection
from steelyard.update.optimizer import AdamW


class Critic:
    """A linear head on hidden states: of a backbone of its own, or of the policy's.

    The head starts at 0, so every value does: the first advantages are discounted sums of rewards.
    """

    def __init__(
        self, policy: PreTrainedModel, settings: CriticSection, optimizer: OptimizerSection, *, total_steps: int
    ) -> None:
        """Build it for `policy`; an own backbone starts as a copy of the policy's and has its own optimizer."""
        self.settings = settings
        self.head = nn.Linear(policy.config.get_text_config().hidden_size, 1).to(policy.device, policy.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.backbone: nn.Module | None = None
        self.optimizer: AdamW | None = None
        if settings.backbone == "own":
            self.backbone = copy.deepcopy(policy.base_model).eval().requires_grad_(requires_grad=True)
            lr = optimizer.lr if settings.lr is None else settings.lr
            mine = optimizer.model_copy(update={"lr": lr})
            parameters = [*self.backbone.parameters(), *self.head.parameters()]
            self.optimizer = AdamW(parameters, mine, total_steps=total_steps)

    def values(self, batch: MicroBatch, hidden_BTH: Tensor | None) -> Tensor:
        """Return the value of the state before each completion token, (B, T), at least float32.

        Args:
            batch: The rows.
            hidden_BTH: The policy's last hidden states at those places; None for an own backbone.
        """
        if hidden_BTH is None:
            if self.backbone is None:
                raise ValueError("a shared backbone needs the policy's hidden states")
            inputs = batch.input_BS[:, :-1].to(self.head.weight.device)
            hidden_BSH: Tensor = self.backbone(input_ids=inputs, use_cache=False).last_hidden_state
            hidden_BTH = hidden_BSH[:, -batch.token_BT.shape[1] :]
        values_BT = self.head(hidden_BTH).squeeze(-1)
        return values_BT.float() if values_BT.dtype in (torch.float16, torch.bfloat16) else values_BT

    def zero_grad(self) -> None:
        """Forget the gradient of an own optimizer."""
        if self.optimizer is not None:
            self.optimizer.zero_grad()

    def clip(self) -> float | None:
        """Scale the gradient of an own backbone down to the configured norm; return the norm before."""
        return None if self.optimizer is None else self.optimizer.clip()[0]

    def step(self, norm: float | None) -> None:
        """Take the step of an own backbone; a gradient that is not finite takes none."""
        if self.optimizer is not None and norm is not None and math.isfinite(norm):
            self.optimizer.step()

    def seek(self, step: int) -> None:
        """Place the schedule of an own optimizer."""
        if self.optimizer is not None:
            self.optimizer.seek(step)

    def save(self, path: Path) -> None:
        """Write head and own backbone as safetensors."""
        parts = {"head": self.head} | ({} if self.backbone is None else {"backbone": self.backbone})
        save_model(nn.ModuleDict(parts), str(path))
