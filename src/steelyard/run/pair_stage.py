"""What the stages on preference pairs share: directory, order of reading, what is written down, measuring.

A stage writes `recipe.toml` and, while it runs, `steps.jsonl` with one line per optimizer step; when it ends, the model,
a plot, and `<stage>.json` with what it was. None of them holds a time: equal recipes write equal files.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import torch

from steelyard.config import Section, dump, recipe_hash
from steelyard.errors import RunDirectoryError
from steelyard.evals.intervals import Interval, by_prompt
from steelyard.rollout.draws import DrawKey, generator
from steelyard.run.directory import RECIPE, create
from steelyard.run.pairs import PairSet
from steelyard.update.pairs import PreferencePair

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = "steps.jsonl"
SIZE_INCHES = (11.0, 3.6)
DOTS_PER_INCH = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How well scores rank pairs that were not learnt from."""

    pairs: int
    """Pairs measured."""
    ranked_rightly: Interval
    """Share of pairs with the chosen answer above the rejected one; equal scores are not ranked rightly."""
    ties: int
    """Pairs with equal scores."""
    margin: float
    """Mean of chosen less rejected."""


def ranking(pairs: Sequence[PreferencePair], margins: Sequence[float]) -> Ranking:
    """Measure how the pairs are ranked; the interval takes the prompt as the unit, where there are several."""
    per_prompt: dict[tuple[int, ...], list[float]] = {}
    for pair, margin in zip(pairs, margins, strict=True):
        per_prompt.setdefault(pair.prompt_ids, []).append(float(margin > 0))
    return Ranking(
        pairs=len(pairs),
        ranked_rightly=by_prompt(list(per_prompt.values())),
        ties=sum(margin == 0 for margin in margins),
        margin=math.fsum(margins) / len(margins),
    )


# ------------------------------------------------------------------ directory


def open_directory(wanted: str | None, *, name: str, seed: int, recipe: Section) -> Path:
    """Create the directory of a stage with its recipe in it: the wanted one, or the first free -2, -3, ...

    Raises:
        RunDirectoryError: If it is a file, or cannot be made.
    """
    first = Path(wanted).expanduser() if wanted else Path("runs") / f"{name}-s{seed}"
    directory, number = first, 1
    while directory.exists():
        if not directory.is_dir():
            raise RunDirectoryError(f"run.dir = {directory} is a file; name a directory that does not exist yet.")
        if not any(directory.iterdir()):
            break
        number += 1
        directory = first.with_name(f"{first.name}-{number}")
    create(directory)
    (directory / RECIPE).write_text(dump(recipe), encoding="utf-8")
    return directory


def write_line(file: TextIO, step: int, values: Mapping[str, object]) -> None:
    """Add what one step saw; on disk at once, so that a stop loses nothing."""
    file.write(json.dumps({"step": step, **values}) + "\n")
    file.flush()


def read_steps(directory: Path) -> list[dict[str, float]]:
    """Return what every step saw."""
    return [json.loads(line) for line in (directory / STEPS).read_text(encoding="utf-8").splitlines()]


def write_record(path: Path, recipe: Section, pairs: PairSet, facts: Mapping[str, object]) -> None:
    """Write what the stage was: recipe, pairs, libraries, and the facts of its kind."""
    record = {
        "recipe_hash": recipe_hash(recipe),
        "pairs": {
            "train": len(pairs.train),
            "held_out": len(pairs.held_out),
            "unit": pairs.unit,
            "left_out": dict(pairs.left_out),
            "hash": pairs.hash,
        },
        "libraries": libraries(),
        **facts,
    }
    path.write_text(json.dumps(record, indent=2, default=asdict) + "\n", encoding="utf-8")


def libraries() -> dict[str, str]:
    """Return what the numbers of a model depend on beside the model: versions, and the instruction set."""
    versions = {name: version(name) for name in ("steelyard", "torch", "transformers", "numpy")}
    return {**versions, "instructions": torch.backends.cpu.get_cpu_capability()}


def notes(pairs: PairSet) -> list[str]:
    """Return what a person should know of the pairs before training starts."""
    told = [f"left out: {count} {reason}" for reason, count in pairs.left_out.items()]
    if not pairs.held_out:
        told.append("no pair is held out (pairs.held_out = 0, or fewer than five), so nothing is measured.")
    return told


# ------------------------------------------------------------------ order


def steps_of(n: int, *, epochs: int, batch_pairs: int) -> int:
    """Return the optimizer steps over n pairs."""
    return epochs * math.ceil(n / batch_pairs)


def batches(n: int, *, epochs: int, batch_pairs: int, seed: int, purpose: str) -> Iterator[list[int]]:
    """Yield the pairs of each step: all of them once per epoch, in an order keyed by seed, purpose and epoch."""
    for epoch in range(1, epochs + 1):
        order = generator(DrawKey(seed=seed, purpose=purpose, update=epoch, prompt_id=""), sample=0).permutation(n)
        for first in range(0, n, batch_pairs):
            yield [int(index) for index in order[first : first + batch_pairs]]


# ------------------------------------------------------------------ plot


def plot_steps(directory: Path, target: Path, *, title: str, panels: Sequence[Mapping[str, str]]) -> None:
    """Draw what every step saw: one panel per mapping from a column of steps.jsonl to its label."""
    from matplotlib.figure import Figure

    rows = read_steps(directory)
    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    figure.suptitle(title)
    axes: Sequence[Axes] = figure.subplots(1, len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        for column, label in panel.items():
            axis.plot(
                [row["step"] for row in rows], [row[column] for row in rows], marker=".", linewidth=1, label=label
            )
        axis.set_xlabel("step")
        axis.grid(alpha=0.25)
        axis.legend(loc="best", fontsize="small")
    figure.savefig(target)
