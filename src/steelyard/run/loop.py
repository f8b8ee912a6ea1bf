"""A whole training run: assemble, measure, update, measure, save; everything that happens goes to the ledger."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from steelyard.config import dump
from steelyard.errors import SteelyardError
from steelyard.evals.judges import Judge, Judgement
from steelyard.evals.measure import Measurement, measure
from steelyard.ledger.card import write_card
from steelyard.ledger.records import PromptRow, Purpose
from steelyard.ledger.writer import Ledger
from steelyard.run import directory as run_directory
from steelyard.run.assemble import Assembly, assemble
from steelyard.run.plot import plot_run
from steelyard.run.recipe import Recipe
from steelyard.run.reporter import Reporter, Silent
from steelyard.run.rows import run_row, update_row, verdict_rows
from steelyard.run.step import train_step
from steelyard.run.stopwatch import Stopwatch
from steelyard.run.unscored import UnscoredTally, statuses
from steelyard.types import Completion, Prompt
from steelyard.update.hashing import parameter_hash
from steelyard.update.models import save_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended."""

    directory: Path
    """The run directory."""
    finished: bool
    """Whether all updates were taken; False after a request to stop."""
    first: Measurement | None
    """The measured start; None when measuring is off."""
    last: Measurement | None
    """The measured end."""
    answers: int = 0
    """Answers sampled to train."""
    unscored: int = 0
    """Of them, those that could not be judged."""


def train(
    recipe: Recipe,
    *,
    name: str = "run",
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
    unconfined: bool = False,
) -> RunResult:
    """Train a policy as the recipe says, and write down everything.

    Args:
        recipe: The whole configuration.
        name: Name of the run; the directory is recipe.run.dir, else runs/<name>-s<seed>.
        reporter: Told what happens; silent by default.
        stop: When set, the run ends after the update under way, saved and marked as interrupted.
        unconfined: Run programs without a sandbox where its walls cannot be raised; recorded on the card.

    Raises:
        RequestError: If the recipe cannot be run; nothing was started.
        RunError: If the run failed; the ledger holds everything up to the update under way.
    """
    reporter = reporter or Silent()
    stop = stop or threading.Event()
    wanted = Path(recipe.run.dir).expanduser() if recipe.run.dir else Path("runs") / f"{name}-s{recipe.run.seed}"
    target = run_directory.vacant(wanted)
    with ExitStack() as stack:
        assembly = stack.enter_context(assemble(recipe, reporter=reporter, unconfined=unconfined))
        run_directory.create(target)
        (target / run_directory.RECIPE).write_text(dump(recipe), encoding="utf-8")
        start = parameter_hash(assembly.policy.model)
        row = run_row(
            recipe, name=name, task=assembly.task, policy=assembly.policy, start=start, sandbox=assembly.sandbox_facts
        )
        ledger = stack.enter_context(Ledger.create(target / run_directory.LEDGER, row))
        run = Run(recipe, assembly, ledger, reporter, target)
        return run.go(stop)


class Run:
    """One attempt at the updates of a recipe."""

    def __init__(self, recipe: Recipe, assembly: Assembly, ledger: Ledger, reporter: Reporter, directory: Path) -> None:
        self.recipe = recipe
        self.assembly = assembly
        self.ledger = ledger
        self.reporter = reporter
        self.directory = directory
        self.hash = parameter_hash(assembly.policy.model).digest
        self.done = 0
        self.unscored = UnscoredTally(limit=recipe.reward.max_unscored)
        self.first: Measurement | None = None
        self.last: Measurement | None = None

    def go(self, stop: threading.Event) -> RunResult:
        """Take the updates; save what there is whether they end, are stopped, or fail."""
        self.ledger.prompts([_prompt_row(prompt, ids) for prompt, ids in self.assembly.all_prompts])
        for text in self.assembly.notes:
            self.ledger.event("note", 0, {"text": text})
            self.reporter.note(text)
        self.reporter.started(self.directory, updates=self.recipe.run.updates)
        try:
            self._take_updates(stop)
        except BaseException as error:
            with suppress(SteelyardError, OSError):  # the first failure is the one to report
                self._close("failed", {"error": f"{type(error).__name__}: {error}"})
            raise
        finished = self.done == self.recipe.run.updates
        self._close("finished" if finished else "interrupted", {})
        return RunResult(
            directory=self.directory,
            finished=finished,
            first=self.first,
            last=self.last,
            answers=self.unscored.answers,
            unscored=self.unscored.unscored,
        )

    def _take_updates(self, stop: threading.Event) -> None:
        self.first = self.last = self._measure(0)
        for update in range(1, self.recipe.run.updates + 1):
            if stop.is_set():
                return
            self._update(update)
            if update % self.recipe.eval.every == 0 or update == self.recipe.run.updates:
                self.last = self._measure(update)

    def _update(self, update: int) -> None:
        watch = Stopwatch()
        ids: list[int] = []

        def record(completions: Sequence[Completion], judgements: Sequence[Judgement]) -> None:
            with watch("ledger"):
                ids.extend(self._keep("train", update, self.assembly.parts.gatherer.judge, completions, judgements))

        outcome = train_step(update, self.assembly.parts, record=record, watch=watch)
        with watch("hash"):
            hash_after = parameter_hash(self.assembly.policy.model).digest
        row = update_row(update, outcome, ids, hash_before=self.hash, hash_after=hash_after)
        with watch("ledger"):
            self.ledger.update(row)
        slowest = max(range(len(ids)), key=lambda index: outcome.judgements[index].verdict.seconds)
        self.ledger.attempt(
            "update",
            update,
            {
                "seconds": watch.seconds,
                "slowest_verdict": {
                    "completion_id": ids[slowest],
                    "prompt_id": outcome.completions[slowest].prompt_id,
                    "status": outcome.judgements[slowest].verdict.status.value,
                    "seconds": outcome.judgements[slowest].verdict.seconds,
                },
            },
        )
        self.ledger.event("verdicts", update, {"statuses": statuses(outcome.judgements), "unscored": row.unscored})
        if outcome.stats.stopped is not None:
            self.ledger.event("early_stop", update, {"text": outcome.stats.stopped, "steps": row.optimizer_steps})
        for text in sorted({text for judgement in outcome.judgements for text in judgement.notes}):
            self.ledger.event("note", update, {"text": text})
            self.reporter.note(f"update {update}: {text}")
        self.hash = hash_after
        self.reporter.updated(row, seconds=sum(watch.seconds.values()))
        self.done = update
        self.unscored.add(update, outcome.judgements)

    def _measure(self, state: int) -> Measurement | None:
        samples, prompts = self.recipe.eval.samples, self.assembly.eval_prompts
        if not samples or not prompts:
            return None
        self.reporter.stage(f"measuring state {state} on {len(prompts)} held-out prompt(s), {samples} answers each")

        def keep(completions: Sequence[Completion], judgements: Sequence[Judgement]) -> None:
            self._keep("eval", state, self.assembly.eval_judge, completions, judgements)

        found = measure(
            self.assembly.parts.gatherer.sampler,
            self.assembly.eval_judge,
            prompts,
            samples=samples,
            seed=self.recipe.run.seed,
            state=state,
            on_group=keep,
        )
        self.ledger.event("eval", state, found.as_json())
        self.reporter.measured(found)
        return found

    def _keep(
        self,
        purpose: Purpose,
        number: int,
        judge: Judge,
        completions: Sequence[Completion],
        judgements: Sequence[Judgement],
    ) -> list[int]:
        ids = self.ledger.completions(purpose, number, completions)
        self.ledger.verdicts(verdict_rows(ids, judge, judgements))
        return ids

    def _close(self, reason: str, data: dict[str, object]) -> None:
        """Save the last policy, then say in the ledger how it ended, then derive card and plot from the ledger."""
        save_policy(self.assembly.policy, self.directory / run_directory.MODEL)
        critic = self.assembly.parts.learner.critic
        if critic is not None:
            critic.save(self.directory / run_directory.CRITIC)
        saved = parameter_hash(self.assembly.policy.model).digest
        self.ledger.event("saved", self.done, {"directory": run_directory.MODEL, "parameter_hash": saved})
        self.ledger.event("stop", self.done, {"reason": reason, "planned": self.recipe.run.updates, **data})
        self.ledger.attempt("end" if reason == "finished" else "interrupted", self.done, {})
        write_card(self.directory)
        plot_run(self.directory / run_directory.LEDGER, self.directory / run_directory.PLOT)


def _prompt_row(prompt: Prompt, ids: tuple[int, ...]) -> PromptRow:
    return PromptRow(id=prompt.id, content=prompt.content, token_ids=ids, columns=prompt.columns)
