"""What a report on a suite needs of a task beside its suites: inputs without end, and wrong programs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from steelyard.types import Plain

Args = tuple[Plain, ...]
"""Arguments of one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A task's own generator of inputs, and its authored wrong programs."""

    inputs: Callable[[int, int], list[Args]]
    """(seed, count) → as many inputs of the domain, small ones among them; equal for equal arguments."""
    valid: Callable[[Args], bool]
    """Whether an input lies in the domain that the prompt states. Called with anything; never raises."""
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Wrong programs by name, as source."""
    references: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further right programs by name, beside those of the task; they are changed too."""


def probe_of(task: str) -> Probe | None:
    """Return the probe of a built-in task, or None where it has none."""
    if task == "booking":
        from steelyard.tasks.booking.probe import PROBE

        return PROBE
    from steelyard.tasks.blind_spots import PROBES

    return PROBES.get(task)
