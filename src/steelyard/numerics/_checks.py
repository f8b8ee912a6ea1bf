"""Ranges of the numbers of an objective, and the checks that refuse a value with the way out."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    low: float
    high: float = math.inf
    ends: str = "()"
    """Which end belongs to it, as intervals are written."""
    words: str

    def holds(self, value: object) -> bool:
        if not _is_number(value):
            return False
        above = value >= self.low if self.ends[0] == "[" else value > self.low
        return above and (value <= self.high if self.ends[1] == "]" else value < self.high)


_RANGES: Mapping[str, _Range] = {
    "gamma": _Range(low=0.0, high=1.0, ends="[]", words="a number in [0, 1], such as 1"),
    "lam": _Range(low=0.0, high=1.0, ends="[]", words="a number in [0, 1], such as 0.95"),
    "eps_low": _Range(low=0.0, high=1.0, words="a number in (0, 1), such as 0.2"),
    "eps_high": _Range(low=0.0, words="a number above 0, such as 0.2"),
    "dual_clip": _Range(low=1.0, words="a number above 1, such as 3"),
    "eps_max": _Range(
        low=1.0,
        ends="[)",
        words="a number of at least 1, such as 5: it is an absolute cap on the ratio, and one below 1 scales down every "
        "on-policy token (as TRL's default of 0.2 does)",
    ),
    "mismatch_cap": _Range(low=0.0, words="a number above 0, such as 2"),
    "kl_coef": _Range(low=0.0, ends="[)", words="a finite number, at least 0"),
    "entropy_coef": _Range(low=0.0, ends="[)", words="a finite number, at least 0"),
    "beta": _Range(low=0.0, high=1e6, ends="(]", words="a number in (0, 1e6], such as 0.1"),
    "penalty": _Range(low=0.0, high=1e6, ends="[]", words="a number in [0, 1e6], such as 0.5"),
}


def check_number(name: str, value: object, *, beside: str = "") -> None:
    """Raise ValueError unless the value lies in the range of the number of that name."""
    if name == "ddof":
        if isinstance(value, bool) or value not in (0, 1):
            raise ValueError(
                f"ddof must be 0 (population, GRPO's paper) or 1 (sample; TRL, verl){beside}, got {value!r}"
            )
    elif not _RANGES[name].holds(value):
        raise ValueError(f"{name} must be {_RANGES[name].words}{beside}; got {value!r}")


def check_name(what: str, name: object, allowed: tuple[str | None, ...]) -> None:
    """Raise ValueError, with the nearest name, unless the name is allowed."""
    if name not in allowed:
        known = [each for each in allowed if each is not None]
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.7)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown {what} {name!r}; {hint}choose one of {', '.join(known)}")


def as_float(value: object) -> object:
    """Return a written 0 as 0.0, so that equal objectives are printed alike."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
