"""What a run tells whoever watches it. The loop speaks to a `Reporter`; it never prints."""

from pathlib import Path
from typing import Protocol

from steelyard.evals.measure import Measurement
from steelyard.ledger.records import UpdateRow


class Reporter(Protocol):
    """Listens to a run."""

    def stage(self, text: str) -> None:
        """Something that takes a while has begun (loading, warming up, measuring)."""
        ...

    def progress(self, text: str, *, done: int, total: int) -> None:
        """A long stage has come this far."""
        ...

    def started(self, directory: Path, *, updates: int | None) -> None:
        """The run directory exists and updates will follow; None: a stage that tells its own progress."""
        ...

    def measured(self, measurement: Measurement) -> None:
        """A state of the policy was measured on held-out prompts."""
        ...

    def updated(self, row: UpdateRow, *, seconds: float) -> None:
        """An update is in the ledger."""
        ...

    def note(self, text: str) -> None:
        """Something a person should know, once."""
        ...


class Silent:
    """A reporter that says nothing; the default of the Python API."""

    def stage(self, text: str) -> None:
        """Say nothing."""

    def progress(self, text: str, *, done: int, total: int) -> None:
        """Say nothing."""

    def started(self, directory: Path, *, updates: int | None) -> None:
        """Say nothing."""

    def measured(self, measurement: Measurement) -> None:
        """Say nothing."""

    def updated(self, row: UpdateRow, *, seconds: float) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""
