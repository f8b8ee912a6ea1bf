"""From what happened to the rows of the ledger."""

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from steelyard.config import dump, recipe_hash
from steelyard.content import content_hash
from steelyard.evals.judges import Judge, Judgement
from steelyard.ledger.records import RunRow, UpdateRow, VerdictRow
from steelyard.run.own_suites import own_suites_row
from steelyard.run.recipe import Recipe
from steelyard.run.step import StepOutcome
from steelyard.types import Status, Task, Verdict
from steelyard.update.hashing import ParameterHash, tokenizer_hash
from steelyard.update.learner import StepStats
from steelyard.update.models import Policy


def run_row(
    recipe: Recipe, *, name: str, task: Task, policy: Policy, start: ParameterHash, sandbox: dict[str, object]
) -> RunRow:
    """Return the single row that says what was started."""
    objective, overridden = recipe.objective.resolve()
    return RunRow(
        name=name,
        recipe=dump(recipe),
        recipe_hash=recipe_hash(recipe),
        seed=recipe.run.seed,
        steelyard=_version("steelyard"),
        objective={**asdict(objective), **_practice(recipe), "overridden": sorted(overridden)},
        model={
            "source": recipe.model.source,
            "parameters": policy.parameter_count,
            "parameter_hash": start.digest,
            "aliases": start.aliases,
            "tokenizer_hash": tokenizer_hash(policy.tokenizer),
        },
        task={
            "name": task.name,
            "prompts": len(task.train_prompts),
            "held_out_prompts": len(task.eval_prompts),
            "eval_suite": task.eval_suite,
            "suites": {
                suite.name: {"hash": suite.hash, "version": suite.version, "cases": len(suite.cases)}
                for suite in task.suites.values()
            }
            | own_suites_row(task),
        },
        machine=_machine(recipe.run.threads),
        sandbox=sandbox,
        tests={f"{task.name}:{suite.name}": tuple(case.id for case in suite.cases) for suite in task.suites.values()},
    )


def _practice(recipe: Recipe) -> dict[str, object]:
    """What stands beside the formula: sampling, shaping and masking."""
    return {
        "dynamic_sampling": recipe.dynamic_sampling,
        "curriculum": recipe.rollout.curriculum,
        "overlong_buffer": recipe.overlong_buffer,
        "overlong_penalty": recipe.reward.overlong_penalty if recipe.overlong_buffer else None,
        "truncated": recipe.update.truncated,
        "reward_parts": _parts(recipe),
    }


def _parts(recipe: Recipe) -> dict[str, object] | None:
    """The terms of a composed reward with their weights, the primary one first."""
    if not recipe.reward.parts:
        return None
    further = {
        part.name: {"source": part.function or part.verifier, "weight": part.weight} for part in recipe.reward.parts
    }
    return {"primary": {"weight": recipe.reward.weight}, **further}


def _machine(threads: int) -> dict[str, object]:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        models = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = models[0] if models else cpu
    packages = {name: _version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
    return {
        "cpu": cpu,
        "threads": threads,
        "platform": platform.platform(),
        "python": platform.python_version(),
        **packages,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def verdict_rows(ids: Sequence[int], judge: Judge, judgements: Sequence[Judgement]) -> list[VerdictRow]:
    """Return every judge's verdict on every completion, the primary one first."""
    rows: list[VerdictRow] = []
    for completion_id, judgement in zip(ids, judgements, strict=True):
        source = None if judgement.program is None else content_hash(judgement.program)
        verdicts = {judge.name: judgement.verdict, **judgement.others}
        verdicts |= {f"signature:{name}": Verdict(status=Status.PASSED, reward=None) for name in judgement.signatures}
        rows += [
            VerdictRow(
                completion_id=completion_id,
                judge=name,
                is_primary=name == judge.name,
                verdict=verdict,
                source_hash=source,
            )
            for name, verdict in verdicts.items()
        ]
    return rows


def update_row(
    update: int, outcome: StepOutcome, ids: Sequence[int], *, hash_before: str, hash_after: str
) -> UpdateRow:
    """Return the row that closes an update."""
    first, steps = outcome.stats.steps[0], outcome.stats.steps
    taken = [step for step in steps if step.skipped is None]
    scored = [
        (index, judgement.verdict.reward)
        for index, judgement in enumerate(outcome.judgements)
        if judgement.verdict.reward is not None
    ]
    members = [index for index, enters in enumerate(outcome.in_loss) if enters]
    rewards = np.array([reward for _, reward in scored], dtype=np.float64)
    lengths = [len(completion.token_ids) for completion in outcome.completions]
    right = [i for i, _ in scored if outcome.judgements[i].verdict.status is Status.PASSED]
    wrong = [i for i, _ in scored if outcome.judgements[i].verdict.status is not Status.PASSED]
    skipped = [step.skipped for step in steps if step.skipped is not None]
    return UpdateRow(
        update_no=update,
        policy_version=update - 1,
        members=tuple(ids[index] for index in members),
        advantages=tuple(outcome.advantages),
        loss=_finite(first.loss) if members else None,
        loss_surrogate=_finite(-first.surrogate) if members else None,
        loss_kl=_finite(first.loss_kl),
        grad_norm=_finite(first.grad_norm),
        grad_norm_clipped=_finite(first.grad_norm_clipped),
        clipped=None if first.grad_norm_clipped is None else first.grad_norm_clipped != first.grad_norm,
        lr=steps[-1].lr,
        optimizer_steps=len(taken),
        steps=tuple(asdict(step) for step in steps),
        n_sequences=len(members),
        n_tokens=sum(lengths[index] for index in members),
        groups=outcome.signal.n_groups,
        groups_informative=outcome.signal.n_informative,
        groups_constant=outcome.signal.n_constant,
        groups_short=outcome.signal.n_short,
        unscored=len(outcome.judgements) - len(scored),
        reward_mean=float(rewards.mean()) if scored else None,
        reward_std=float(rewards.std()) if scored else None,
        ratio_min=_over(steps, "ratio_min", min),
        ratio_mean=_over(steps, "ratio_mean", _mean),
        ratio_max=_over(steps, "ratio_max", max),
        clip_share_low=_over(steps, "clip_share_low", _mean),
        clip_share_high=_over(steps, "clip_share_high", _mean),
        entropy=_finite(first.entropy),
        kl_ref=_finite(first.kl),
        sampler_gap=_finite(first.sampler_gap),
        length_mean=_mean([float(length) for length in lengths]),
        length_mean_right=_mean([float(lengths[index]) for index in right]),
        length_mean_wrong=_mean([float(lengths[index]) for index in wrong]),
        truncated_share=_mean([float(completion.finish == "length") for completion in outcome.completions]),
        param_change_norm=outcome.stats.param_change_norm,
        parameter_hash_before=hash_before,
        parameter_hash_after=hash_after,
        skipped=not taken,
        skip_reason="; ".join(dict.fromkeys(skipped)) or None,
    )


def _over(steps: Sequence[StepStats], name: str, reduce: Callable[[list[float]], float | None]) -> float | None:
    values = [value for step in steps if (value := _finite(getattr(step, name))) is not None]
    return reduce(values) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
