"""Questions and their checkable answers: built-in tasks, and your own rows from files and hubs."""

from steelyard.tasks.registry import load_task

__all__ = ["load_task"]
