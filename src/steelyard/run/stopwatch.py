"""Seconds per stage."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up wall time by stage name: `with watch("rollout"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time one stretch of a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start
