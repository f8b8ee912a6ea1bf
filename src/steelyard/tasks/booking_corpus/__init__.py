"""A generated corpus of programs for the booking task, right ones and typically wrong ones."""

from steelyard.tasks.booking_corpus.generate import Program, programs

__all__ = ["Program", "programs"]
