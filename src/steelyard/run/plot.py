"""The picture of a run, drawn from its ledger alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.ledger.reader import LedgerReader

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
SIZE_INCHES = (11.0, 6.5)
DOTS_PER_INCH = 130


def plot_run(ledger: Path, target: Path) -> None:
    """Draw held-out score, training reward, gradient and loss, and length and entropy over updates."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with LedgerReader(ledger) as reader:
        run, rows = reader.run(), [dict(row) for row in reader.metrics()]
        evals = [dict(event.data) for event in reader.events("eval")]
    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots(2, 2)
    figure.suptitle(f"{run.name}: {run.objective['variant']}, seed {run.seed}, {len(rows)} updates")
    _held_out(axes[0, 0], evals)
    _line(axes[0, 1], rows, "reward_mean", label="mean reward", title="Training reward of each batch")
    _gradient(axes[1, 0], rows)
    _lengths(axes[1, 1], rows)
    for axis in axes.flat:
        axis.set_xlabel("update")
        axis.set_xlim(-0.5, len(rows) + 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.25)
    figure.savefig(target)


def _held_out(axis: "Axes", evals: Sequence[Row]) -> None:
    points = [(e["state"], e["score"]) for e in evals]
    known = [(state, score) for state, score in points if isinstance(score, dict) and score["value"] is not None]
    headline = str(evals[0]["headline"]) if evals else "nothing was measured"
    axis.set_title(f"Held out: {headline} with 95 % intervals")
    if not known:
        return
    states = [state for state, _ in known]
    values = [score["value"] for _, score in known]
    axis.plot(states, values, marker="o", color="tab:blue")
    ranged = [(state, score) for state, score in known if score["low"] is not None]
    axis.vlines(
        [state for state, _ in ranged],
        [score["low"] for _, score in ranged],
        [score["high"] for _, score in ranged],
        color="tab:blue",
        alpha=0.5,
    )
    if headline == "pass rate":
        axis.set_ylim(-0.02, 1.02)


def _gradient(axis: "Axes", rows: Sequence[Row]) -> None:
    _line(axis, rows, "grad_norm", label="gradient norm, before clipping", title="Loss and gradient are two things")
    _line(axis, rows, "loss", label="loss", color="tab:red")
    axis.legend(loc="best", fontsize="small")


def _lengths(axis: "Axes", rows: Sequence[Row]) -> None:
    _line(axis, rows, "length_mean_right", label="right", title="Tokens per answer, and entropy", color="tab:green")
    _line(axis, rows, "length_mean_wrong", label="wrong", color="tab:red")
    axis.set_ylabel("tokens")
    other = axis.twinx()
    _line(other, rows, "entropy", label="entropy, nats", color="tab:purple")
    other.set_ylabel("nats")
    lines = [*axis.get_lines(), *other.get_lines()]
    axis.legend(lines, [str(line.get_label()) for line in lines], loc="best", fontsize="small")


def _line(
    axis: "Axes", rows: Sequence[Row], name: str, *, label: str, title: str | None = None, color: str = "tab:blue"
) -> None:
    points = [(row["update_no"], row[name]) for row in rows if row[name] is not None]
    axis.plot([x for x, _ in points], [y for _, y in points], label=label, color=color, marker=".", linewidth=1)
    if title:
        axis.set_title(title)
