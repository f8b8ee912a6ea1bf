"""Programs for the booking task, drawn from templates: what a small model reads before it is trained by reward."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from steelyard.tasks.booking_corpus.templates import ALGORITHMS, INCLUSIVE, NAMES, PAIRS, RIGHT, Algorithm

CHOICE = re.compile(r"«([^«»]*)»")
SLOT = re.compile(r"@([a-z]+)")
VARIABLE = re.compile(r"\$([a-z]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One generated program."""

    source: str
    """Python source that defines `required_capacity`."""
    algorithm: str
    """Name of the template."""
    label: str
    """`right`, or the fault that it carries."""


def programs(*, count: int, seed: int, right_share: float, inclusive_share: float) -> Iterator[Program]:
    """Draw programs.

    Args:
        count: How many.
        seed: Keys every draw; equal arguments give equal programs.
        right_share: Probability of a program without fault.
        inclusive_share: Probability of the inclusive-endpoint fault; the other faults share the rest equally.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, count])))
    shares = label_shares(right_share=right_share, inclusive_share=inclusive_share)
    labels = rng.choice(list(shares), size=count, p=list(shares.values()))
    for label in map(str, labels):
        able = [name for name, algorithm in ALGORITHMS.items() if label in algorithm.labels]
        name = able[int(rng.integers(len(able)))]
        yield Program(source=write_program(ALGORITHMS[name], label=label, rng=rng), algorithm=name, label=label)


def label_shares(*, right_share: float, inclusive_share: float) -> dict[str, float]:
    """Return the probability of every label, in a fixed order.

    Raises:
        ValueError: If the two shares are negative or add up to more than 1.
    """
    rest = 1.0 - right_share - inclusive_share
    if min(right_share, inclusive_share) < 0.0 or rest < -1e-9:
        raise ValueError(f"right_share + inclusive_share must lie in [0, 1], got {right_share} + {inclusive_share}")
    others = sorted({label for algorithm in ALGORITHMS.values() for label in algorithm.labels} - {RIGHT, INCLUSIVE})
    return {RIGHT: right_share, INCLUSIVE: inclusive_share, **{label: max(0.0, rest) / len(others) for label in others}}


def write_program(algorithm: Algorithm, *, label: str, rng: np.random.Generator) -> str:
    """Fill the holes of a template: slots by label, then spellings, then variable names."""
    style = algorithm.styles[int(rng.integers(len(algorithm.styles)))]
    text = _fill(algorithm.text, {**style, **algorithm.slots, **algorithm.faults.get(label, {})})
    while match := CHOICE.search(text):
        options = match.group(1).split("|")
        text = text[: match.start()] + options[int(rng.integers(len(options)))] + text[match.end() :]
    names = _draw_names(sorted(set(VARIABLE.findall(text))), rng)
    lines = VARIABLE.sub(lambda match: names[match.group(1)], text).split("\n")
    return "\n".join(line for line in lines if line.strip() or not line).lstrip("\n")


def _fill(text: str, slots: Mapping[str, str]) -> str:
    while SLOT.search(text):
        text = SLOT.sub(lambda match: slots[match.group(1)], text)
    return text


def _draw_names(roles: list[str], rng: np.random.Generator) -> dict[str, str]:
    """Draw one name per role; no name stands in two lists, so all are different."""
    first, second = rng.permutation(len(PAIRS))[:2]
    names = dict(zip("sepq", (*PAIRS[first], *PAIRS[second]), strict=True))
    for role in roles:
        if role not in names:
            names[role] = NAMES[role][int(rng.integers(len(NAMES[role])))]
    return names
