"""The live display of a training run: a progress bar with time left, and a table that grows.

On a terminal the newest rows stay on screen under the bar; elsewhere (a file, a pipe) each row is one plain
line. Everything goes to stderr: the last line of stdout is the run directory alone.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from steelyard.evals.intervals import Interval
from steelyard.evals.measure import Measurement
from steelyard.ledger.records import UpdateRow
from steelyard.update.models import quiet

if TYPE_CHECKING:
    from steelyard.run.sft import SftProgress

ROWS_ON_SCREEN = 12
COLUMNS = ("update", "reward", "loss", "grad norm", "signal", "tokens", "entropy", "held out", "seconds")


class LiveDisplay:
    """A `Reporter` for people."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.rows: deque[tuple[str, ...]] = deque(maxlen=ROWS_ON_SCREEN)
        self.latest: Measurement | None = None
        self.is_running = False
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self.stage_task = self.bar.add_task("starting", total=None)
        self.update_task = self.bar.add_task("updates", total=None, visible=False)
        self.live = Live(self._picture(), console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        """Start drawing, on a terminal."""
        quiet()
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        if self.console.is_terminal:
            self.bar.update(self.stage_task, visible=False)
            self.live.update(self._picture(), refresh=True)
            self.live.stop()

    def stage(self, text: str) -> None:
        """Show what is going on."""
        self.bar.update(self.stage_task, description=text, total=None, completed=0, visible=True)
        self._plain(text)

    def progress(self, text: str, *, done: int, total: int) -> None:
        """Show how far a stage has come."""
        self.bar.update(self.stage_task, description=text, total=total, completed=done, visible=True)
        if done == total or done % max(1, total // 10) == 0:
            self._plain(f"{text} ({done} of {total})")

    def started(self, directory: Path, *, updates: int | None) -> None:
        """Show the bar of updates."""
        self.is_running = True
        self._plain(f"run directory {directory}")
        if updates is None:
            return
        self.bar.update(self.update_task, total=updates, visible=True)
        self._plain("  ".join(f"{name:>9}" for name in COLUMNS))

    def measured(self, measurement: Measurement) -> None:
        """Show the newest measurement."""
        self.latest = measurement
        self._plain(f"held out, state {measurement.state}: {measurement.headline} {score_text(measurement)}")

    def updated(self, row: UpdateRow, *, seconds: float) -> None:
        """Add one row."""
        self.rows.append(self._cells(row, seconds))
        self.bar.update(self.update_task, completed=row.update_no)
        self.bar.update(self.stage_task, visible=False)
        self._plain("  ".join(f"{cell:>9}" for cell in self.rows[-1]))
        self.live.update(self._picture())

    def note(self, text: str) -> None:
        """Say something once, above the display."""
        self.console.print(f"note: {text}", style="yellow", highlight=False, markup=False)

    def _plain(self, text: str) -> None:
        if not self.console.is_terminal:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _cells(self, row: UpdateRow, seconds: float) -> tuple[str, ...]:
        return (
            str(row.update_no),
            number(row.reward_mean),
            "–" if row.loss is None else f"{row.loss:+.1e}",
            number(row.grad_norm),
            f"{row.groups_informative}/{row.groups}",
            number(row.length_mean, digits=0),
            number(row.entropy),
            self._held_out(),
            f"{seconds:.1f}",
        )

    def _held_out(self) -> str:
        if self.latest is None or self.latest.score.value is None:
            return "–"
        value = self.latest.score.value
        return f"{value:.1%}" if self.latest.headline == "pass rate" else f"{value:.3f}"

    def _picture(self) -> Group:
        table = Table(*COLUMNS, box=None, header_style="bold", pad_edge=False)
        for cells in self.rows:
            table.add_row(*cells)
        return Group(self.bar, table) if self.rows else Group(self.bar)


def number(value: float | None, *, digits: int = 3) -> str:
    """Return a number for a table; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def score_text(measurement: Measurement) -> str:
    """Return the headline number of a measurement with its interval, rates in percent."""
    return interval_text(measurement.score, percent=measurement.headline == "pass rate")


def interval_text(interval: Interval, *, percent: bool) -> str:
    """Return an estimate with its interval, as people read it."""
    if interval.value is None:
        return interval.method

    def shown(value: float) -> str:
        return f"{100 * value:.1f} %" if percent else f"{value:.3f}"

    if interval.low is None or interval.high is None:
        return f"{shown(interval.value)} ({interval.method})"
    return f"{shown(interval.value)} [{shown(interval.low)}, {shown(interval.high)}] ({interval.method})"


@contextmanager
def sft_display(console: Console) -> Iterator[Callable[["SftProgress"], None]]:
    """Yield a callback that draws the progress of a warm-up with time left."""
    quiet()
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(TextColumn("warming up, loss {task.fields[loss]}"), *columns, console=console) as bar:
        task = bar.add_task("warming up", total=None, loss="–")

        def show(progress: "SftProgress") -> None:
            bar.update(task, total=progress.steps, completed=progress.step, loss=f"{progress.loss:.3f}")

        yield show
