"""The run directory: exactly one run, never overwritten."""

from pathlib import Path

from steelyard.errors import RunDirectoryError
from steelyard.ledger.reader import LedgerReader

LEDGER = "ledger.sqlite"
RECIPE = "recipe.toml"
MODEL = "model"
CRITIC = "critic.safetensors"
PLOT = "plot.png"
CARD = "card.json"


def vacant(directory: Path) -> Path:
    """Return the directory for a new run of that name, without creating it.

    A finished run of that name keeps it; the new one gets a numeric suffix (-2, -3, ...).

    Raises:
        RunDirectoryError: If an unfinished run, or something that is no run, stands there.
    """
    candidate, number = directory, 1
    while candidate.exists():
        if not candidate.is_dir():
            raise RunDirectoryError(f"run.dir = {candidate} is a file; name a directory that does not exist yet.")
        if not any(candidate.iterdir()):
            break
        if not (candidate / LEDGER).is_file():
            raise RunDirectoryError(
                f"run.dir = {candidate} holds something that is no run (no {LEDGER}); name another directory."
            )
        if not is_finished(candidate):
            raise RunDirectoryError(
                f"{candidate} holds an unfinished run. It cannot be continued yet (`steelyard resume` is not built): "
                f"look at it with `steelyard card {candidate}`, then remove it, or start under another run.dir."
            )
        number += 1
        candidate = directory.with_name(f"{directory.name}-{number}")
    return candidate


def create(directory: Path) -> None:
    """Create the directory of a new run.

    Raises:
        RunDirectoryError: If the system does not let us.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(
            f"cannot create run.dir = {directory}: {error.strerror}. Name a directory that you may write to."
        ) from None


def is_finished(directory: Path) -> bool:
    """Return whether the run in this directory took all its updates."""
    with LedgerReader(directory / LEDGER) as reader:
        return any(event.data.get("reason") == "finished" for event in reader.events("stop"))


def ledger_of(directory: Path) -> Path:
    """Return the ledger of a run directory (or the ledger file itself).

    Raises:
        RunDirectoryError: If there is none.
    """
    path = directory if directory.is_file() else directory / LEDGER
    if not path.is_file():
        raise RunDirectoryError(
            f"{directory} is no run directory: it has no {LEDGER}. Runs are under runs/ by default."
        )
    return path
