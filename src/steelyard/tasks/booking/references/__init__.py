"""Four independent right programs for the booking task.

Each module is one program: its file is the source that goes into the sandbox, its `required_capacity`
is the same code in our process. They share no code, so that one mistake cannot sit in all of them.
"""

from collections.abc import Callable, Mapping
from importlib import resources

from steelyard.tasks.booking.references import difference_map, event_sort, heap, two_pointers

Program = Callable[[list[list[int]]], int]
"""`required_capacity`, or something that claims to be it."""

FUNCTIONS: Mapping[str, Program] = {
    "difference_map": difference_map.required_capacity,
    "heap": heap.required_capacity,
    "event_sort": event_sort.required_capacity,
    "two_pointers": two_pointers.required_capacity,
}
"""By name, for calls in our process."""

REFERENCES: Mapping[str, str] = {
    name: resources.files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8") for name in FUNCTIONS
}
"""By name, as self-contained source that defines `required_capacity`."""
