"""Every error that Steelyard raises on purpose, in one tree.

SteelyardError                 exit code
├── RequestError               2  the request was wrong; nothing was started
│   ├── ConfigError            2  a recipe or an override
│   ├── ModelError             2  a model that is missing or unusable
│   ├── TaskError              2  a data file, a suite, a reference that fails its own suite
│   ├── SandboxUnavailable     2  a wall that this machine cannot raise
│   └── RunDirectoryError      2  the run directory is taken, missing or unreadable
└── RunError                   1  the run was started and failed
    ├── RewardError            1  a reward function raised or returned something that is no reward
    ├── VerificationError      1  our verifier failed, not the program it judged
    ├── UpdateError            1  an update that cannot be computed
    ├── NoSignalError          1  no group of mixed outcome was found within the bound that the recipe sets
    └── LedgerError            1  the ledger cannot be written (disk full) or read

A message says what is wrong, which value it was, and the way out. The command line prints it
without a traceback and leaves with the exit code above. Failure of a candidate program is never
an exception: it is a `Verdict` (see `steelyard.types`).
"""


class SteelyardError(Exception):
    """Base of every error that Steelyard raises on purpose."""

    exit_code = 1


class RequestError(SteelyardError):
    """The request was wrong; nothing was started."""

    exit_code = 2


class ConfigError(RequestError):
    """A recipe or an override that cannot be used."""


class ModelError(RequestError):
    """A model source that is missing or cannot be used."""


class TaskError(RequestError):
    """A data file, a suite or a reference solution that cannot be used."""


class SandboxUnavailable(RequestError):
    """A wall of the sandbox that this machine cannot raise."""


class RunDirectoryError(RequestError):
    """A run directory that is taken, missing or unreadable."""


class RunError(SteelyardError):
    """The run was started and failed."""


class RewardError(RunError):
    """A reward function raised, or returned something that is no reward."""


class VerificationError(RunError):
    """Our verifier failed, not the program that it judged."""


class UpdateError(RunError):
    """An update that cannot be computed."""


class NoSignalError(RunError):
    """Dynamic sampling met too many groups that teach nothing."""


class LedgerError(RunError):
    """The ledger cannot be written or read."""
