"""What model-written programs try, as a table that the doctor and the tests run; see docs/verification.md."""

from steelyard.verify.sandbox.attacks.attack import Attack, Finding, run_attacks
from steelyard.verify.sandbox.attacks.channel import CHANNEL, VALUES
from steelyard.verify.sandbox.attacks.machine import COVERT, EXECUTION, KERNEL, NETWORK, PROCESSES, READING, WRITING
from steelyard.verify.sandbox.attacks.resources import ACROSS, LEAVING, MEMORY_AND_OUTPUT, SIGNALS, TIME

ATTACKS: tuple[Attack, ...] = (
    *READING, *WRITING, *NETWORK, *PROCESSES, *EXECUTION, *KERNEL, *COVERT, *SIGNALS, *TIME, *MEMORY_AND_OUTPUT,
    *LEAVING, *VALUES, *CHANNEL, *ACROSS,
)  # fmt: skip
"""The whole table."""

__all__ = ["ATTACKS", "Attack", "Finding", "run_attacks"]
