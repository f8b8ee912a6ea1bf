"""Direct preference optimisation as a stage: pairs, one reference, optimizer steps, a policy on disk."""

import json
import os
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from steelyard.content import content_hash
from steelyard.errors import RunError
from steelyard.run import pair_stage
from steelyard.run.directory import MODEL, PLOT
from steelyard.run.dpo_recipe import DpoRecipe
from steelyard.run.model_source import check_model, resolve_model
from steelyard.run.pair_stage import Ranking, ranking
from steelyard.run.pairs import PairSet, load_pairs
from steelyard.run.reporter import Reporter, Silent
from steelyard.run.sft import cache_root
from steelyard.update.dpo import DpoLearner, PairLogprobs
from steelyard.update.hashing import parameter_hash
from steelyard.update.models import Policy, load_policy, save_policy
from steelyard.update.pairs import PreferencePair

RECORD = "dpo.json"
"""What the stage was, beside the weights."""
PANELS = (
    {"loss": "loss, nats"},
    {"margin": "margin, nats", "ranked_rightly": "share ranked rightly"},
    {"chosen_logp": "log-prob of chosen", "rejected_logp": "log-prob of rejected"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoState:
    """The policy, measured on the held-out pairs."""

    by_reward: Ranking
    """Ranked by the implicit reward β (logp − ref). Before the first step every margin is 0."""
    by_likelihood: Ranking
    """Ranked by log-prob alone: says what the policy itself finds likelier, reference aside."""
    chosen_logp: float
    """Mean log-prob of the chosen answers, nats."""
    rejected_logp: float
    """Mean log-prob of the rejected answers, nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoResult:
    """How the stage ended."""

    directory: Path
    """Its directory; the policy is in model/."""
    finished: bool
    """Whether all steps were taken; False after a request to stop."""
    steps: int
    """Optimizer steps taken."""
    reference_cached: bool
    """Whether the log-probs of the reference were found in the cache."""
    pairs: PairSet
    """The pairs, and what made none."""
    before: DpoState | None
    """The start on the held-out pairs; None when none is held out."""
    after: DpoState | None
    """The end."""
    parameter_hash: str
    """SHA-256 of the weights at the end."""


def dpo(
    recipe: DpoRecipe,
    *,
    name: str = "dpo",
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
) -> DpoResult:
    """Train a policy on preference pairs.

    Args:
        recipe: The whole configuration.
        name: Name of the stage; the directory is recipe.run.dir, else runs/<name>-s<seed>.
        reporter: Told what happens; silent by default.
        stop: When set, the stage ends after the step under way, and keeps what it has.

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
    for note in pair_stage.notes(pairs):
        reporter.note(note)
    directory = pair_stage.open_directory(recipe.run.dir, name=name, seed=recipe.run.seed, recipe=recipe)
    reporter.started(directory, updates=None)
    return _Stage(recipe, policy, pairs, directory, reporter).go(stop)


class _Stage:
    """One attempt at the steps of a recipe."""

    def __init__(self, recipe: DpoRecipe, policy: Policy, pairs: PairSet, directory: Path, reporter: Reporter) -> None:
        settings = recipe.dpo
        self.recipe, self.policy, self.pairs = recipe, policy, pairs
        self.directory, self.reporter = directory, reporter
        self.total = pair_stage.steps_of(len(pairs.train), epochs=settings.epochs, batch_pairs=settings.batch_pairs)
        self.learner = DpoLearner(
            policy.model,
            beta=settings.beta,
            optimizer=recipe.optimizer,
            total_steps=self.total,
            token_budget=settings.token_budget,
        )

    def go(self, stop: threading.Event) -> DpoResult:
        """Take the steps; measure and save what there is, whether they end or are stopped."""
        start = parameter_hash(self.policy.model).digest
        everything = (*self.pairs.train, *self.pairs.held_out)
        reference, cached = self._reference(everything, start)
        n = len(self.pairs.train)
        train, held_out = reference.at(range(n)), reference.at(range(n, len(everything)))
        before = self._measure(self.pairs.held_out, held_out)
        steps = self._steps(train, stop)
        after = self._measure(self.pairs.held_out, held_out)
        result = DpoResult(
            directory=self.directory,
            finished=steps == self.total,
            steps=steps,
            reference_cached=cached,
            pairs=self.pairs,
            before=before,
            after=after,
            parameter_hash=parameter_hash(self.policy.model).digest,
        )
        self._write(result, start)
        return result

    def _steps(self, reference: PairLogprobs, stop: threading.Event) -> int:
        settings, taken = self.recipe.dpo, 0
        order = pair_stage.batches(
            len(self.pairs.train),
            epochs=settings.epochs,
            batch_pairs=settings.batch_pairs,
            seed=self.recipe.run.seed,
            purpose="dpo",
        )
        with (self.directory / pair_stage.STEPS).open("w", encoding="utf-8") as file:
            for members in order:
                if stop.is_set():
                    break
                stats = self.learner.step([self.pairs.train[index] for index in members], reference.at(members))
                taken += 1
                pair_stage.write_line(file, taken, {**asdict(stats), "pairs": members})
                self.reporter.progress(f"DPO, loss {stats.loss:.3f}", done=taken, total=self.total)
        return taken

    def _reference(self, pairs: tuple[PreferencePair, ...], start: str) -> tuple[PairLogprobs, bool]:
        """Return log π_ref of both answers of every pair: computed once per model and pairs, and kept."""
        key = {
            "parameters": start,
            "pairs": self.pairs.hash,
            "threads": self.recipe.run.threads,
            "token_budget": self.recipe.dpo.token_budget,
            "libraries": pair_stage.libraries(),
        }
        path = cache_root().with_name("reference") / f"{content_hash(key)[:24]}.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            chosen, rejected = (torch.tensor(kept[side], dtype=torch.float64) for side in ("chosen", "rejected"))
            return PairLogprobs(chosen_N=chosen, rejected_N=rejected), True
        self.reporter.stage(f"scoring {len(pairs)} pairs with the reference")
        scores = self.learner.logprobs(pairs)
        _keep(path, {"chosen": scores.chosen_N.tolist(), "rejected": scores.rejected_N.tolist()})
        return scores, False

    def _measure(self, pairs: tuple[PreferencePair, ...], reference: PairLogprobs) -> DpoState | None:
        if not pairs:
            return None
        self.reporter.stage(f"measuring on {len(pairs)} held-out pairs")
        scores = self.learner.logprobs(pairs)
        margins = self.learner.terms(scores, reference).margin_B
        return DpoState(
            by_reward=ranking(pairs, margins.tolist()),
            by_likelihood=ranking(pairs, (scores.chosen_N - scores.rejected_N).tolist()),
            chosen_logp=scores.chosen_N.mean().item(),
            rejected_logp=scores.rejected_N.mean().item(),
        )

    def _write(self, result: DpoResult, start: str) -> None:
        self.reporter.stage("saving the policy")
        save_policy(self.policy, self.directory / MODEL)
        facts = {
            "finished": result.finished,
            "steps": result.steps,
            "steps_planned": self.total,
            "parameter_hash_before": start,
            "parameter_hash_after": result.parameter_hash,
            "before": result.before,
            "after": result.after,
        }
        pair_stage.write_record(self.directory / RECORD, self.recipe, self.pairs, facts)
        title = f"DPO, beta {self.recipe.dpo.beta}, {len(self.pairs.train)} pairs, {result.steps} steps"
        pair_stage.plot_steps(self.directory, self.directory / PLOT, title=title, panels=PANELS)


def _keep(path: Path, scores: dict[str, list[float]]) -> None:
    """Write under a temporary name and rename: a file of that name is always whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(scores, file)
        Path(temporary).replace(path)
    except OSError as error:
        raise RunError(
            f"the log-probs of the reference cannot be written to {path}: {error}. "
            "Free some space, or set STEELYARD_CACHE to another directory."
        ) from None
