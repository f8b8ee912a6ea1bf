"""What goes into the sandbox and what comes out."""

import math
from dataclasses import dataclass

from steelyard.errors import ConfigError
from steelyard.types import Form, Plain, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use."""

    input_seconds: float = 2.0
    """Wall time for loading the source, and for each input."""
    program_seconds: float = 10.0
    """Wall time for all inputs together; the inputs that are left then count as timeouts."""
    timeouts: int = 2
    """Inputs that may end by time or by a flood of output; after as many, the inputs that are left get the same status
    without being run, so that an endless loop costs seconds whatever the length of the suite."""
    memory_mb: int = 256
    """MiB of address space on top of what the interpreter with its library has mapped."""
    output_bytes: int = 1 << 20
    """Printed bytes, stdout and stderr together, in one process."""
    value_bytes: int = 1 << 18
    """Encoded size of one returned value."""
    values_bytes: int = 1 << 22
    """Encoded size of all values that a program returns; decoded they take several times as much of our memory."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"sandbox limit {name} must be a positive number, got {value!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramJob:
    """One program and the inputs to call it with. There is no room for expected values."""

    id: str
    """Name of the answer, given back with the run."""
    source: str
    """Python source."""
    entry_point: str
    """Function to call; empty for `stdin`."""
    inputs: tuple[tuple[Plain, ...], ...]
    """Positional arguments of each call, plain data; for other forms as in `steelyard.types.Case`."""
    form: Form = "calls"
    """What each input is."""
    strict: bool = False
    """`calls`: a fresh process for every input, so that nothing is carried from one to the next. The other forms have
    that always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOutcome:
    """What came back for one input: a value, or the reason why there is none. Whether the value is right, the judge says."""

    value: Plain = None
    """The returned value; None as well where nothing came back, so ask `returned`."""
    fault: Status | None = None
    """Why no value came back; None where one did. Never `passed`: the sandbox cannot know."""
    ran: bool = True
    """False where the program had ended for good before this input's turn."""

    @property
    def returned(self) -> bool:
        """Whether the program returned a value."""
        return self.fault is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """One program on all its inputs."""

    id: str
    """The job's."""
    outcomes: tuple[InputOutcome, ...]
    """One per input, in order."""
    seconds: float
    """Wall time in the sandbox."""
    value_bytes: int = 0
    """Encoded size of the returned values."""
    detail: str = ""
    """The first trouble, for people; text from the program, capped and printable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """One wall of the sandbox on this machine."""

    name: str
    """As in the documentation."""
    stands: bool
    """Whether it was raised and held when tried."""
    required: bool = True
    """Whether the sandbox refuses to run without it."""
    why: str = ""
    """What the machine said where it does not stand."""
    fix: str = ""
    """What to change."""
