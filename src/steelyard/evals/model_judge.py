"""Answers scored by a trained reward model: mean of its members, less a penalty where they disagree."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from steelyard.errors import ConfigError, RewardError, TaskError
from steelyard.evals.judges import Judge, Judgement
from steelyard.numerics.preference import ensemble_reward
from steelyard.types import Completion, Prompt, Status, Verdict
from steelyard.update.batching import TrainRow
from steelyard.update.hashing import parameter_hash
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
    """What one or several directories say of their members."""

    directories: tuple[Path, ...]
    """The directories of the stages that trained them."""
    members: tuple[Member, ...]
    """At least one; here with the whole path of each. All weigh the same, whichever directory they are from."""
    tokenizer_hash: str
    """Whose token ids they read."""
    unfinished: tuple[Path, ...]
    """Directories whose training was stopped before its end."""

    @property
    def name(self) -> str:
        """The directories, as they stand in the ledger."""
        return ",".join(map(str, self.directories))


def read_ensemble(*directories: Path) -> RewardEnsemble:
    """Read which members a reward model has, without loading them; several directories are one ensemble.

    Raises:
        ConfigError: If a directory is no reward model or is named twice, or their tokenizers differ.
    """
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise ConfigError("reward.model names a directory twice; its members would count double. Name each once.")
    parts = [_read(directory) for directory in directories]
    for part in parts[1:]:
        if part.tokenizer_hash != parts[0].tokenizer_hash:
            raise ConfigError(
                f"reward.model: {parts[0].name} and {part.name} were trained with different tokenizers, so no policy can be "
                "scored by both. Train them from models that share one."
            )
    return RewardEnsemble(
        directories=directories,
        members=tuple(member for part in parts for member in part.members),
        tokenizer_hash=parts[0].tokenizer_hash,
        unfinished=tuple(directory for part in parts for directory in part.unfinished),
    )


def _read(directory: Path) -> RewardEnsemble:
    path = directory / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        members = [Member(**member) for member in record["members"]]
        if not members or not all(math.isfinite(m.mean) and 0.0 < m.std < math.inf for m in members):
            raise ValueError("it needs a member, and of each a finite mean and a deviation above 0")
        return RewardEnsemble(
            directories=(directory,),
            members=tuple(replace(member, directory=str(directory / member.directory)) for member in members),
            tokenizer_hash=record["tokenizer_hash"],
            unfinished=() if record["finished"] else (directory,),
        )
    except FileNotFoundError:
        raise ConfigError(
            f"reward.model = {str(directory)!r} is no reward model: it has no {RECORD}. Name the directory that "
            "`steelyard reward-model` printed."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"reward.model: {path} cannot be read: {why}. Train the reward model again.") from None


def check_tokenizer(ensemble: RewardEnsemble, policy_hash: str) -> None:
    """Refuse a reward model that would read the policy's ids as other text.

    Raises:
        ConfigError: If the tokenizers differ.
    """
    if policy_hash != ensemble.tokenizer_hash:
        raise ConfigError(
            f"reward.model = {ensemble.name!r} was trained with another tokenizer than the policy has: the "
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
            ConfigError: If there is a penalty and nobody to disagree, or a member is missing or not the recorded one.
            ModelError: If a member cannot be loaded.
        """
        if penalty > 0.0 and len(ensemble.members) == 1:
            raise ConfigError(
                f"reward.disagreement_penalty = {penalty}, but reward.model = {ensemble.name!r} has one member, which "
                "never disagrees. Remove the penalty, or train an ensemble with reward_model.members or name several."
            )
        self.name = f"reward:model:{ensemble.name}"
        self.ensemble = ensemble
        self.penalty = penalty
        self.beside = beside
        self.token_budget = token_budget
        self.models = [_load(member) for member in ensemble.members]

    @property
    def context(self) -> int | None:
        """Longest sequence in tokens that every member was built for, where their configurations say so."""
        contexts = [getattr(model.config, "max_position_embeddings", None) for model in self.models]
        return min((context for context in contexts if context is not None), default=None)

    def check_length(self, longest: int) -> None:
        """Refuse answers that a member was not built to read to the end.

        Raises:
            TaskError: If prompt and answer can have more tokens than the context.
        """
        if self.context is not None and longest > self.context:
            raise TaskError(
                f"prompt and answer can have {longest} tokens, more than the {self.context} that the reward model "
                f"{self.ensemble.name} was built for. Lower rollout.max_new_tokens by {longest - self.context}."
            )

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
            raise RewardError(f"reward model {self.ensemble.name}: {error}.") from None
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


def _load(member: Member) -> PreTrainedModel:
    if not (Path(member.directory) / "config.json").is_file():
        raise ConfigError(f"reward.model: {member.directory} is missing or no model. Train the reward model again.")
    model, _ = load_reward_model(member.directory)
    if parameter_hash(model).digest != member.parameter_hash:
        raise ConfigError(
            f"reward.model: the weights in {member.directory} are not those that {RECORD} has the hash of. Train "
            "the reward model again."
        )
    return model


def _verdict(reward: float, disagreement: float, members: int) -> Verdict:
    detail = f"{members} members, deviation {disagreement:.3g}" if members > 1 else ""
    return Verdict(status=Status.PASSED if reward > 0 else Status.FAILED, reward=reward, detail=detail)
