"""Everything that a recipe names, checked from cheap to dear and then loaded.

Requests that cannot work are refused before a model is loaded: task, reward function, sandbox walls and
model source first; then the weights; then the prompts against the model's context.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from steelyard.errors import ConfigError, TaskError
from steelyard.evals.judges import Judge, OwnSuiteJudge, SuiteJudge, measuring_suites
from steelyard.evals.model_judge import ModelJudge, RewardEnsemble, check_tokenizer, read_ensemble
from steelyard.numerics.variants import Objective
from steelyard.rollout.engine import SamplingParams, TorchSampler
from steelyard.rollout.prompts import render, stop_ids
from steelyard.run.batch import Shaping
from steelyard.run.feed import Feed, RenderedPrompt
from steelyard.run.gather import Gatherer
from steelyard.run.history import History
from steelyard.run.model_source import check_model, resolve_model
from steelyard.run.own_suites import judgeable
from steelyard.run.recipe import Recipe
from steelyard.run.reporter import Reporter
from steelyard.run.reward_judges import answer_judge, with_parts
from steelyard.run.step import Parts
from steelyard.tasks import load_task
from steelyard.tasks.problems import SUITE
from steelyard.tasks.suite_files import with_suite_file
from steelyard.types import Prompt, Suite, Task
from steelyard.update.critic import Critic
from steelyard.update.hashing import tokenizer_hash
from steelyard.update.learner import Learner
from steelyard.update.models import Policy, frozen_copy, load_policy
from steelyard.verify.programs import check_references
from steelyard.verify.sandbox import Limits, Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The parts of one run."""

    task: Task
    policy: Policy
    parts: Parts
    eval_judge: Judge
    eval_prompts: Sequence[RenderedPrompt]
    all_prompts: Sequence[RenderedPrompt]
    """Training and held-out prompts, each once."""
    sandbox_facts: dict[str, object]
    """For the card; empty where no program is run."""
    notes: Sequence[str]
    """Things a person should know, for ledger and display."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judges:
    task: Task
    """Without the prompts that cannot be judged."""
    train: Judge
    measure: Judge
    sandbox_facts: dict[str, object]
    reward_model: ModelJudge | None = None
    """The training judge, where it is a reward model."""
    notes: Sequence[str] = ()
    """Things a person should know."""


@contextmanager
def assemble(recipe: Recipe, *, reporter: Reporter, unconfined: bool) -> Iterator[Assembly]:
    """Load what the recipe names; the sandbox lives as long as the context.

    Raises:
        RequestError: If anything that the recipe names cannot be used.
    """
    torch.set_num_threads(recipe.run.threads)
    reporter.stage("reading the task")
    task = load_task(recipe.task.name, recipe.task.data, held_out=recipe.task.held_out, eval_data=recipe.task.eval_data)
    task, suite_name = with_suite_file(task, recipe.task.suite)
    check_model(recipe.model.source)
    with ExitStack() as stack:
        judges = stack.enter_context(_judges(recipe, task, suite_name, reporter=reporter, unconfined=unconfined))
        judges = _composed(recipe, judges, stack)
        directory = resolve_model(recipe.model.source, reporter=reporter)
        reporter.stage(f"loading {recipe.model.source}")
        policy = load_policy(directory)
        yield _put_together(recipe, judges.task, policy, judges)


def _put_together(recipe: Recipe, task: Task, policy: Policy, judges: _Judges) -> Assembly:
    objective, _ = recipe.objective.resolve()
    if judges.reward_model is not None:
        check_tokenizer(judges.reward_model.ensemble, tokenizer_hash(policy.tokenizer))
    train_prompts = [_rendered(recipe, policy, prompt) for prompt in task.train_prompts]
    eval_prompts = [_rendered(recipe, policy, prompt) for prompt in task.eval_prompts]
    if judges.reward_model is not None:
        longest = max(len(ids) for _, ids in [*train_prompts, *eval_prompts])
        judges.reward_model.check_length(longest + recipe.rollout.max_new_tokens)
    params = SamplingParams(
        temperature=recipe.rollout.temperature,
        max_new_tokens=recipe.rollout.max_new_tokens,
        stop_ids=stop_ids(policy.model, policy.tokenizer),
    )
    feed = Feed(
        prompts=train_prompts,
        prompts_per_update=recipe.rollout.prompts_per_update,
        group_size=recipe.rollout.group_size,
        seed=recipe.run.seed,
        at_edge=recipe.rollout.curriculum == "edge",
    )
    gatherer = Gatherer(
        feed=feed,
        sampler=TorchSampler(policy.model, policy.tokenizer, params),
        judge=judges.train,
        shaping=_shaping(recipe),
        history=History(),
        max_dead_groups=recipe.rollout.max_dead_groups if recipe.dynamic_sampling else None,
    )
    learner = _learner(recipe, objective, policy)
    parts = Parts(gatherer=gatherer, objective=objective, learner=learner, seed=recipe.run.seed)
    everything = {prompt.id: (prompt, ids) for prompt, ids in [*train_prompts, *eval_prompts]}
    return Assembly(
        task=task,
        policy=policy,
        parts=parts,
        eval_judge=judges.measure,
        eval_prompts=eval_prompts,
        all_prompts=list(everything.values()),
        sandbox_facts=judges.sandbox_facts,
        notes=[*judges.notes, *_notes(recipe, task, params, judges.reward_model)],
    )


def _shaping(recipe: Recipe) -> Shaping:
    return Shaping(
        max_length=recipe.rollout.max_new_tokens,
        overlong_buffer=recipe.overlong_buffer,
        overlong_penalty=recipe.reward.overlong_penalty,
        truncated=recipe.update.truncated,
    )


def _learner(recipe: Recipe, objective: Objective, policy: Policy) -> Learner:
    steps = recipe.run.updates * recipe.update.passes * recipe.update.minibatches
    critic = (
        Critic(policy.model, recipe.critic, recipe.optimizer, total_steps=steps) if objective.needs_critic else None
    )
    return Learner(
        policy.model,
        objective=objective,
        optimizer=recipe.optimizer,
        update=recipe.update,
        total_updates=recipe.run.updates,
        temperature=recipe.rollout.temperature,
        max_length=recipe.rollout.max_new_tokens,
        reference=frozen_copy(policy) if objective.kl_coef > 0 else None,
        critic=critic,
    )


def _notes(recipe: Recipe, task: Task, params: SamplingParams, reward_model: ModelJudge | None) -> list[str]:
    notes: list[str] = []
    if reward_model is not None:
        ensemble = reward_model.ensemble
        weights = ", ".join(member.parameter_hash for member in ensemble.members)
        notes.append(f"the reward is that of a model, {ensemble.name}; weights {weights}.")
        notes += [f"the training of reward model {each} was stopped before its end." for each in ensemble.unfinished]
    if not task.eval_prompts and recipe.eval.samples:
        notes.append("no prompt is held out (fewer than five rows), so nothing is measured while it trains.")
    if not params.stop_ids:
        notes.append("the model names no stop token: every answer runs to rollout.max_new_tokens.")
    if recipe.rollout.curriculum == "edge" and len(task.train_prompts) == 1:
        notes.append("rollout.curriculum = edge has nothing to choose from: the task has one training prompt.")
    return notes


def _rendered(recipe: Recipe, policy: Policy, prompt: Prompt) -> RenderedPrompt:
    ids = render(policy.tokenizer, prompt, chat=recipe.model.chat)
    need = len(ids) + recipe.rollout.max_new_tokens
    if policy.context is not None and need > policy.context:
        raise TaskError(
            f"prompt {prompt.id!r} has {len(ids)} tokens; with rollout.max_new_tokens = {recipe.rollout.max_new_tokens} "
            f"that is {need}, more than the model's context of {policy.context}. Shorten the prompt, or set "
            f"rollout.max_new_tokens to at most {max(0, policy.context - len(ids))}."
        )
    return prompt, ids


@contextmanager
def _judges(
    recipe: Recipe, task: Task, suite_name: str | None, *, reporter: Reporter, unconfined: bool
) -> Iterator[_Judges]:
    """Yield the judges of training and of measuring."""
    with ExitStack() as stack:
        if recipe.reward.function is not None or recipe.reward.verifier is not None:
            reporter.stage("starting what judges the answers")
        judge = answer_judge(recipe, task, stack)
        if judge is not None:
            yield _Judges(task=task, train=judge, measure=judge, sandbox_facts={})
            return
    ensemble = _ensemble(recipe)
    if ensemble is not None and not (task.suites or task.own_suites):
        model = _model_judge(recipe, ensemble, reporter, beside=None)
        yield _Judges(task=task, train=model, measure=model, sandbox_facts={}, reward_model=model)
        return
    if task.own_suites:
        with _own_suite_judges(recipe, task, suite_name, ensemble, reporter=reporter, unconfined=unconfined) as judges:
            yield judges
        return
    suite = _training_suite(task, suite_name)
    reporter.stage("raising the sandbox and checking the reference solutions")
    with Sandbox(workers=recipe.run.threads, limits=Limits(), unconfined=unconfined) as sandbox:
        for each in task.suites.values():
            check_references(sandbox, each, task.references)
        measuring, others = measuring_suites(task)
        by_suite = SuiteJudge(sandbox, suite, recheck=recipe.task.recheck)
        model = None if ensemble is None else _model_judge(recipe, ensemble, reporter, beside=by_suite)
        yield _Judges(
            task=task,
            train=model or by_suite,
            measure=SuiteJudge(sandbox, measuring, others=others, signatures=task.signatures),
            sandbox_facts=_facts(sandbox),
            reward_model=model,
        )


@contextmanager
def _own_suite_judges(
    recipe: Recipe,
    task: Task,
    suite_name: str | None,
    ensemble: RewardEnsemble | None,
    *,
    reporter: Reporter,
    unconfined: bool,
) -> Iterator[_Judges]:
    """Yield the judges of a task whose prompts have a suite each; one judge trains and measures."""
    if suite_name not in (None, SUITE):
        raise ConfigError(
            f"task.suite = {suite_name!r}: each prompt of task {task.name} has its own; remove the key, or name a file that "
            "`steelyard suite repair` wrote, or a folder of them with a / at its end."
        )
    reporter.stage(f"raising the sandbox and checking {len(task.own_suites)} reference solutions")
    with Sandbox(workers=recipe.run.threads, limits=Limits(), unconfined=unconfined, packages=task.packages) as sandbox:
        kept, notes = judgeable(sandbox, task)
        judge = OwnSuiteJudge(sandbox, kept.own_suites)
        model = None if ensemble is None else _model_judge(recipe, ensemble, reporter, beside=judge)
        yield _Judges(
            task=kept,
            train=model or judge,
            measure=judge,
            sandbox_facts={**_facts(sandbox), "packages": list(sandbox.packages)},
            reward_model=model,
            notes=notes,
        )


def _facts(sandbox: Sandbox) -> dict[str, object]:
    walls = [wall.name for wall in sandbox.walls if wall.stands]
    return {"unconfined": sandbox.unconfined, "level": sandbox.level, "walls": walls}


def _composed(recipe: Recipe, judges: _Judges, stack: ExitStack) -> _Judges:
    """Add the further parts of the reward; measuring keeps to the primary judge unless it is the same."""
    train = with_parts(recipe, judges.task, judges.train, stack)
    return replace(judges, train=train, measure=train if judges.measure is judges.train else judges.measure)


def _ensemble(recipe: Recipe) -> RewardEnsemble | None:
    directories = [Path(each).expanduser() for each in recipe.reward.models]
    return read_ensemble(*directories) if directories else None


def _model_judge(recipe: Recipe, ensemble: RewardEnsemble, reporter: Reporter, *, beside: Judge | None) -> ModelJudge:
    reporter.stage(f"loading the reward model, {len(ensemble.members)} member(s)")
    penalty, budget = recipe.reward.disagreement_penalty, recipe.update.token_budget
    return ModelJudge(ensemble, penalty=penalty, token_budget=budget, beside=beside)


def _training_suite(task: Task, name: str | None) -> Suite:
    trainable = [name for name in task.suites if name != task.eval_suite]
    if not trainable:
        raise ConfigError(
            f"task {task.name} has no test suite: give reward.function = 'file.py:name' or reward.verifier."
        )
    name = name or trainable[0]
    if name == task.eval_suite:
        raise ConfigError(
            f"task.suite = {name!r} is the yardstick of task {task.name} and never a training reward; "
            f"choose one of {', '.join(trainable)}."
        )
    if name not in task.suites:
        raise ConfigError(
            f"task.suite = {name!r} is unknown in task {task.name}; choose one of {', '.join(trainable)}."
        )
    return task.suites[name]
