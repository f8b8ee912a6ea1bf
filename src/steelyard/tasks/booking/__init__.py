"""The booking-capacity task: how many bookings are active at once, judged by suites of known strength."""

from steelyard.tasks.booking.prompt import ENTRY_POINT, PROMPT
from steelyard.tasks.booking.references import REFERENCES
from steelyard.tasks.booking.task import booking_task, committed_hashes

__all__ = ["ENTRY_POINT", "PROMPT", "REFERENCES", "booking_task", "committed_hashes"]
