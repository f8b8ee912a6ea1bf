"""Tasks whose prompts have a suite each: which of them can be judged here, and what the card says of them."""

from dataclasses import replace

from steelyard.content import content_hash
from steelyard.errors import TaskError
from steelyard.types import Task
from steelyard.verify.programs import check_own_references
from steelyard.verify.sandbox import Sandbox

MOST_LEFT_OUT = 0.1
"""Share of the prompts that may be left out because their suite judges wrong here; MBPP has a few whose values are no
plain data. Above it, it is the data that is wrong."""
_SHOWN = 10


def judgeable(sandbox: Sandbox, task: Task) -> tuple[Task, list[str]]:
    """Return the task without the prompts whose suite judges wrong here, and what to say about them.

    Every prompt's own right program must pass its suite, and a program that only raises must pass none of its tests.

    Raises:
        TaskError: More than a tenth of the prompts would be left out, or all that are trained on.
        VerificationError: The sandbox could not judge one.
    """
    troubles = check_own_references(sandbox, task.own_suites, task.references)
    if not troubles:
        return task, []
    first, why = next(iter(troubles.items()))
    names = ", ".join(list(troubles)[:_SHOWN]) + (
        f" and {len(troubles) - _SHOWN} more" if len(troubles) > _SHOWN else ""
    )
    said = f"{len(troubles)} of {len(task.own_suites)} problems of task {task.name} cannot be judged: {names}. {first}: {why}."
    kept = replace(
        task,
        train_prompts=tuple(prompt for prompt in task.train_prompts if prompt.id not in troubles),
        eval_prompts=tuple(prompt for prompt in task.eval_prompts if prompt.id not in troubles),
        own_suites={name: suite for name, suite in task.own_suites.items() if name not in troubles},
        references={name: source for name, source in task.references.items() if name not in troubles},
    )
    if len(troubles) > MOST_LEFT_OUT * len(task.own_suites) or not kept.train_prompts:
        raise TaskError(f"{said} Correct or remove these rows.")
    return kept, [f"{said} They are left out."]


def own_suites_row(task: Task) -> dict[str, object]:
    """Return one entry for all suites of single prompts, by their common name: hash over prompt ids and suite hashes.

    Suites that are no first version, as `steelyard suite repair` makes them, are named one by one.
    """
    if not task.own_suites:
        return {}
    suites = task.own_suites
    return {
        next(iter(suites.values())).name: {
            "hash": content_hash(sorted([name, suite.hash] for name, suite in suites.items())),
            "version": 1,
            "cases": sum(len(suite.cases) for suite in suites.values()),
            "prompts": len(suites),
            "changed": {
                name: {"version": suite.version, "hash": suite.hash, "cases": len(suite.cases)}
                for name, suite in suites.items()
                if suite.version != 1
            },
        }
    }
