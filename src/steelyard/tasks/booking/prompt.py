"""The question. It always states the right rule, whatever suite rewards the answer."""

from steelyard.types import Prompt

ENTRY_POINT = "required_capacity"
"""The function that a program must define."""

TEXT = """\
Write a Python function required_capacity(bookings: list[list[int]]) -> int.
Return the largest number of bookings active at once.
A booking [start, end] is active at its start but no longer at its end.
Input: 0 to 200 bookings in any order. Identical ones count separately.
0 <= start < end <= 10000.
[[1, 5], [2, 6], [7, 9]] gives 2. [[1, 5], [5, 9]] gives 1.
Answer with Python code only.
"""
"""The prompt text."""

PROMPT = Prompt(id="booking", content=TEXT)
"""The one prompt of the task, for training and for measuring."""
