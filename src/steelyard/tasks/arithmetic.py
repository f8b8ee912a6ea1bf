"""The arithmetic task: sums of two numbers, judged by a reward function that compares with `answer`."""

import hashlib
from functools import cache

from steelyard.types import Prompt, Task

LARGEST = 99
"""Summands lie in 0..LARGEST: 10,000 problems in all."""
SEED = b"arithmetic-1"
"""Fixes which problems are chosen, and their order."""
HELD_OUT = 200
"""Held-out problems."""
TRAINED = 1_000
"""Training problems."""


@cache
def arithmetic_task() -> Task:
    """Return the arithmetic task: 1,000 training and 200 held-out problems, none in both.

    Each prompt is "What is a + b?" with the columns a, b and answer, all integers. There is no suite:
    give the recipe a reward function.
    """
    problems = [_problem(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]
    problems.sort(key=lambda problem: hashlib.blake2b(problem.id.encode(), digest_size=8, key=SEED).digest())
    return Task(
        name="arithmetic",
        train_prompts=tuple(problems[HELD_OUT : HELD_OUT + TRAINED]),
        eval_prompts=tuple(problems[:HELD_OUT]),
    )


def _problem(a: int, b: int) -> Prompt:
    return Prompt(id=f"arithmetic-{a}+{b}", content=f"What is {a} + {b}?", columns={"a": a, "b": b, "answer": a + b})
