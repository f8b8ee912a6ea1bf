"""A reward model as a stage: pairs, one or several members, Bradley-Terry steps, an ensemble on disk."""

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from torch import Tensor

from steelyard.errors import UpdateError
from steelyard.evals.model_judge import RECORD, Member
from steelyard.numerics.preference import EnsembleReward, ensemble_reward
from steelyard.rollout.draws import DrawKey, generator
from steelyard.run import pair_stage
from steelyard.run.directory import PLOT
from steelyard.run.model_source import check_model, resolve_model
from steelyard.run.pair_stage import Ranking, ranking
from steelyard.run.pairs import PairSet, load_pairs
from steelyard.run.reporter import Reporter, Silent
from steelyard.run.reward_model_recipe import RewardModelRecipe
from steelyard.update.hashing import parameter_hash, tokenizer_hash
from steelyard.update.models import Policy, load_policy, save_policy
from steelyard.update.pairs import PreferencePair
from steelyard.update.reward_model import PairRewards, RewardLearner, new_reward_model

PANELS = (
    {"loss": "loss, nats"},
    {"margin": "margin", "ranked_rightly": "share ranked rightly"},
    {"grad_norm": "gradient norm"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthCheck:
    """Whether the reward is length in disguise, on the held-out pairs."""

    chosen_longer: float
    """Share of pairs whose chosen answer is the longer one: what ranking by length alone would reach (ties count half)."""
    correlation: float | None
    """Pearson correlation of reward and length over all their answers; None where one of them does not vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginSpread:
    """How far apart the held-out answers of a pair are scored, in the members' common scale; below 0 is ranked wrongly."""

    low: float
    """A tenth of the margins lie below."""
    median: float
    """Half of them do."""
    high: float
    """Nine tenths do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelResult:
    """How the stage ended."""

    directory: Path
    """Its directory; it is what `reward.model` of a training recipe names."""
    finished: bool
    """Whether all steps of all members were taken; False after a request to stop."""
    steps: int
    """Optimizer steps taken, all members together."""
    pairs: PairSet
    """The pairs, and what made none."""
    before: Ranking | None
    """The first member with its fresh head, on the held-out pairs; None when none is held out."""
    members: tuple[Ranking, ...]
    """Each member at the end; empty when nothing is held out."""
    after: Ranking | None
    """The mean of the members."""
    spread: MarginSpread | None
    """Its margins, not only their mean; None when nothing is held out."""
    disagreement: float | None
    """Mean deviation between members over the held-out answers, in the members' common scale; None for one member."""
    length: LengthCheck | None
    """Reward against length; None when nothing is held out."""


def reward_model(
    recipe: RewardModelRecipe,
    *,
    name: str = "reward-model",
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
) -> RewardModelResult:
    """Train a reward model, or an ensemble, on preference pairs.

    Args:
        recipe: The whole configuration.
        name: Name of the stage; the directory is recipe.run.dir, else runs/<name>-s<seed>.
        reporter: Told what happens; silent by default.
        stop: When set, the stage ends after the step under way; members that were begun are kept as they are.

    Raises:
        RequestError: If the recipe cannot be run; nothing was started.
        RunError: If a step cannot be computed, or a result cannot be written.
    """
    reporter, stop = reporter or Silent(), stop or threading.Event()
    torch.set_num_threads(recipe.run.threads)
    check_model(recipe.model.source)
    source = resolve_model(recipe.model.source, reporter=reporter)
    reporter.stage(f"loading {recipe.model.source}")
    policy = load_policy(source)
    pairs = load_pairs(recipe.pairs, policy, chat=recipe.model.chat)
    new_reward_model(
        source, generator=torch.Generator()
    )  # refuses a network without a linear head before anything is written
    for note in pair_stage.notes(pairs):
        reporter.note(note)
    directory = pair_stage.open_directory(recipe.run.dir, name=name, seed=recipe.run.seed, recipe=recipe)
    reporter.started(directory, updates=None)
    return _Stage(recipe, source, policy, pairs, directory, reporter).go(stop)


class _Stage:
    """One attempt at the steps of a recipe."""

    def __init__(
        self,
        recipe: RewardModelRecipe,
        source: str,
        policy: Policy,
        pairs: PairSet,
        directory: Path,
        reporter: Reporter,
    ) -> None:
        settings = recipe.reward_model
        self.recipe, self.source, self.policy, self.pairs = recipe, source, policy, pairs
        self.directory, self.reporter = directory, reporter
        self.each = pair_stage.steps_of(len(pairs.train), epochs=settings.epochs, batch_pairs=settings.batch_pairs)
        self.taken = 0
        self.before: Ranking | None = None

    def go(self, stop: threading.Event) -> RewardModelResult:
        """Train one member after another; measure and save what there is, whether they end or are stopped."""
        held_out: list[PairRewards] = []
        members: list[Member] = []
        with (self.directory / pair_stage.STEPS).open("w", encoding="utf-8") as file:
            for number in range(self.recipe.reward_model.members):
                if stop.is_set() and members:
                    break
                learner = self._learner(number)
                if number == 0:
                    self.before = self._ranking(learner.rewards(self.pairs.held_out))
                self._steps(learner, number, file, stop)
                member, scores = self._finish(learner, number)
                members.append(member)
                held_out.append(scores)
        return self._close(members, held_out)

    def _learner(self, number: int) -> RewardLearner:
        key = DrawKey(seed=self.recipe.run.seed, purpose="reward-head", update=number, prompt_id="")
        seed = int(generator(key, sample=0).integers(2**63))
        model = new_reward_model(self.source, generator=torch.Generator().manual_seed(seed))
        return RewardLearner(
            model,
            optimizer=self.recipe.optimizer,
            total_steps=self.each,
            token_budget=self.recipe.reward_model.token_budget,
        )

    def _steps(self, learner: RewardLearner, number: int, file: TextIO, stop: threading.Event) -> None:
        settings = self.recipe.reward_model
        order = pair_stage.batches(
            len(self.pairs.train),
            epochs=settings.epochs,
            batch_pairs=settings.batch_pairs,
            seed=self.recipe.run.seed,
            purpose=f"reward-model-{number}",
        )
        for members in order:
            if stop.is_set():
                return
            stats = learner.step([self.pairs.train[index] for index in members])
            self.taken += 1
            pair_stage.write_line(file, self.taken, {"member": number, **asdict(stats), "pairs": members})
            text = f"member {number}, loss {stats.loss:.3f}"
            self.reporter.progress(text, done=self.taken, total=self.each * settings.members)

    def _finish(self, learner: RewardLearner, number: int) -> tuple[Member, PairRewards]:
        """Put the member on the common scale and save it; return it, and what it says of the held-out pairs."""
        train = learner.rewards(self.pairs.train)
        rewards_N = torch.cat([train.chosen_N, train.rejected_N])
        mean, std = rewards_N.mean().item(), rewards_N.std(correction=0).item()
        if not std > 0.0:
            raise UpdateError(f"member {number} gives every answer the reward {mean}, or none that is finite.")
        self.reporter.stage(f"saving member {number}")
        place = f"member-{number}"
        save_policy(Policy(model=learner.model, tokenizer=self.policy.tokenizer), self.directory / place)
        digest = parameter_hash(learner.model).digest
        member = Member(directory=place, mean=mean, std=std, parameter_hash=digest)
        return member, learner.rewards(self.pairs.held_out)

    def _close(self, members: Sequence[Member], held_out: Sequence[PairRewards]) -> RewardModelResult:
        settings = self.recipe.reward_model
        rewards_KN = torch.stack(
            [_scaled(m, torch.cat([s.chosen_N, s.rejected_N])) for m, s in zip(members, held_out, strict=True)]
        )
        ensemble = ensemble_reward(rewards_KN, penalty=0.0)
        measured = bool(self.pairs.held_out)
        result = RewardModelResult(
            directory=self.directory,
            finished=self.taken == self.each * settings.members,
            steps=self.taken,
            pairs=self.pairs,
            before=self.before,
            members=tuple(found for scores in held_out if (found := self._ranking(scores)) is not None),
            after=self._ranking(_halves(ensemble.reward_B)),
            disagreement=ensemble.disagreement_B.mean().item() if measured and len(members) > 1 else None,
            spread=_spread(_halves(ensemble.reward_B)) if measured else None,
            length=_length_check(self.pairs.held_out, ensemble) if measured else None,
        )
        facts = {
            "finished": result.finished,
            "steps": result.steps,
            "steps_planned": self.each * settings.members,
            "tokenizer_hash": tokenizer_hash(self.policy.tokenizer),
            "members": list(members),
            "before": result.before,
            "after_each": list(result.members),
            "after": result.after,
            "margin_spread": result.spread,
            "disagreement": result.disagreement,
            "length": result.length,
        }
        pair_stage.write_record(self.directory / RECORD, self.recipe, self.pairs, facts)
        title = f"Reward model, {len(members)} member(s), {len(self.pairs.train)} pairs, {self.taken} steps"
        pair_stage.plot_steps(self.directory, self.directory / PLOT, title=title, panels=PANELS)
        return result

    def _ranking(self, scores: PairRewards) -> Ranking | None:
        if not self.pairs.held_out:
            return None
        return ranking(self.pairs.held_out, (scores.chosen_N - scores.rejected_N).tolist())


def _scaled(member: Member, rewards_N: Tensor) -> Tensor:
    return (rewards_N - member.mean) / member.std


def _halves(rewards_2N: Tensor) -> PairRewards:
    chosen_N, rejected_N = rewards_2N.chunk(2)
    return PairRewards(chosen_N=chosen_N, rejected_N=rejected_N)


def _spread(scores: PairRewards) -> MarginSpread:
    low, median, high = np.quantile((scores.chosen_N - scores.rejected_N).numpy(), (0.1, 0.5, 0.9)).tolist()
    return MarginSpread(low=low, median=median, high=high)


def _length_check(pairs: Sequence[PreferencePair], ensemble: EnsembleReward) -> LengthCheck:
    lengths = np.array(
        [[len(pair.chosen_ids) for pair in pairs], [len(pair.rejected_ids) for pair in pairs]], dtype=float
    )
    rewards = ensemble.reward_B.numpy()
    varies = np.ptp(lengths) > 0 and np.ptp(rewards) > 0
    return LengthCheck(
        chosen_longer=float(((np.sign(lengths[0] - lengths[1]) + 1) / 2).mean()),
        correlation=float(np.corrcoef(lengths.ravel(), rewards)[0, 1]) if varies else None,
    )
