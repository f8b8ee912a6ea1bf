"""Answers scored by a trained reward model: mean of its members, less a penalty where they disagree."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from steelyard.errors import ConfigError, RewardError
from steelyard.evals.judges import Judge, Judgement
from steelyard.numerics.preference import ensemble_reward
from steelyard.types import Completion, Prompt, Status, Verdict
from steelyard.update.batching import TrainRow
from steelyard.update.reward_model import load_reward_model, score

RECORD = "reward_model.json"
"""What a reward model was and which members it has, beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model of an ensemble."""

    directory: str
    """Where it lies, in the directory of the ensemble."""
    mean: float
    """Mean of its rewards over the answers it was trained on."""
    std: float
    """Their standard deviation, divisor N. (reward − mean)/std is the scale that members share."""
    parameter_hash: str
    """SHA-256 of its weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardEnsemble:
    """What a directory says of its members."""

    directory: Path
    """The directory of the stage that trained them."""
    members: tuple[Member, ...]
    """At least one."""
    tokenizer_hash: str
    """Whose token ids they read."""


def read_ensemble(directory: Path) -> RewardEnsemble:
    """Read which members a reward model has, without loading them.

    Raises:
        ConfigError: If the directory is no reward model.
    """
    path = directory / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        members = tuple(Member(**member) for member in record["members"])
        return RewardEnsemble(directory=directory, members=members, tokenizer_hash=record["tokenizer_hash"])
    except FileNotFoundError:
        raise ConfigError(
            f"reward.model = {str(directory)!r} is no reward model: it has no {RECORD}. Name the directory that "
            "`steelyard reward-model` printed."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"reward.model: {path} cannot be read: {error}. Train the reward model again.") from None


def check_tokenizer(ensemble: RewardEnsemble, policy_hash: str) -> None:
    """Refuse a reward model that would read the policy's ids as other text.

    Raises:
        ConfigError: If the tokenizers differ.
    """
    if policy_hash != ensemble.tokenizer_hash:
        raise ConfigError(
            f"reward.model = {str(ensemble.directory)!r} was trained with another tokenizer than the policy has: the "
            "sampled ids mean other text to it. Train it with model.source = the policy, or one with its tokenizer."
        )


class ModelJudge:
    """Scores the sampled ids themselves; nothing is decoded and encoded again."""

    resolution = float(np.finfo(np.float32).eps)

    def __init__(
        self, ensemble: RewardEnsemble, *, penalty: float, token_budget: int, beside: Judge | None = None
    ) -> None:
        """Load the members.

        Args:
            ensemble: The reward model.
            penalty: λ of mean − λ · deviation over members.
            token_budget: Padded tokens per micro-batch.
            beside: Judges the same answers and pays nothing, so that both verdicts stand in the ledger.

        Raises:
            ConfigError: If there is a penalty and nobody to disagree, or a member is missing.
            ModelError: If a member cannot be loaded.
        """
        if penalty > 0.0 and len(ensemble.members) == 1:
            raise ConfigError(
                f"reward.disagreement_penalty = {penalty}, but reward.model = {str(ensemble.directory)!r} has one member, which "
                "never disagrees. Remove the penalty, or train an ensemble with reward_model.members."
            )
        self.name = f"reward:model:{ensemble.directory}"
        self.ensemble = ensemble
        self.penalty = penalty
        self.beside = beside
        self.token_budget = token_budget
        self.models = [_load(ensemble, member) for member in ensemble.members]

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Score each completion at its last token.

        A positive reward counts as passed: above the mean of what the reward model was trained on.

        Raises:
            RewardError: If a reward is not finite.
        """
        rows = [TrainRow(prompt_ids=c.prompt_ids, token_ids=c.token_ids, logprobs=()) for c in completions]
        scaled = [
            (score(model, rows, token_budget=self.token_budget) - member.mean) / member.std
            for model, member in zip(self.models, self.ensemble.members, strict=True)
        ]
        try:
            found = ensemble_reward(torch.stack(scaled), penalty=self.penalty)
        except ValueError as error:
            raise RewardError(f"reward model {self.ensemble.directory}: {error}.") from None
        verdicts = [
            _verdict(reward, disagreement, len(scaled))
            for reward, disagreement in zip(found.reward_B.tolist(), found.disagreement_B.tolist(), strict=True)
        ]
        if self.beside is None:
            return [Judgement(verdict=verdict) for verdict in verdicts]
        unpaid = self.beside.check(prompts, completions)
        return [
            replace(other, verdict=verdict, others={self.beside.name: other.verdict, **other.others})
            for verdict, other in zip(verdicts, unpaid, strict=True)
        ]


def _load(ensemble: RewardEnsemble, member: Member) -> PreTrainedModel:
    place = ensemble.directory / member.directory
    if not (place / "config.json").is_file():
        raise ConfigError(f"reward.model: {place} is missing or no model. Train the reward model again.")
    model, _ = load_reward_model(str(place))
    return model


def _verdict(reward: float, disagreement: float, members: int) -> Verdict:
    detail = f"{members} members, deviation {disagreement:.3g}" if members > 1 else ""
    return Verdict(status=Status.PASSED if reward > 0 else Status.FAILED, reward=reward, detail=detail)
