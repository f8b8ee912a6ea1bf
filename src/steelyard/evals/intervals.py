"""Intervals at 95 %, and the name of the method that made each of them.

One prompt: its draws are independent, so a proportion gets Wilson's interval. Several prompts: the prompt is
the unit, since draws of one prompt say little about another; 20 or more are resampled by bootstrap, fewer get
a t interval over prompt means. An interval never has zero width strictly between 0 and 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

BOOTSTRAP_PROMPTS = 20
"""From this many prompts on, the interval is a bootstrap by prompt."""
BOOTSTRAP_RESAMPLES = 9_999
EQUAL = 8 * float(np.finfo(np.float64).eps)
"""Relative spread up to which values are equal but for rounding."""
NOTHING_SCORED = "nothing was scored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float | None
    """The estimate; None when nothing could be scored."""
    low: float | None
    """Lower bound; None when the data cannot give one."""
    high: float | None
    """Upper bound."""
    method: str
    """How the interval was made, over which unit."""


def proportion(passed: int, n: int) -> Interval:
    """Return passed/n with Wilson's interval over independent draws.

    >>> proportion(8, 10).low, proportion(8, 10).high  # doctest: +ELLIPSIS
    (0.4901..., 0.9433...)
    """
    if not 0 <= passed <= n or n == 0:
        raise ValueError(f"passed = {passed} of n = {n} is no proportion")
    bounds = stats.binomtest(passed, n).proportion_ci(method="wilson")
    return Interval(value=passed / n, low=float(bounds.low), high=float(bounds.high), method=f"Wilson, {n} draws")


def by_prompt(values_per_prompt: Sequence[Sequence[float]]) -> Interval:
    """Return the mean over prompts of the mean over draws, clustered by prompt.

    A single prompt whose values are all 0 or 1 gets Wilson's interval; any other single prompt a t interval
    over its draws. Prompts without a scored draw must be left out by the caller, who reports them.
    """
    if not values_per_prompt or any(len(values) == 0 for values in values_per_prompt):
        raise ValueError("every prompt needs at least one value; leave the others out and report them")
    if len(values_per_prompt) == 1:
        draws = np.asarray(values_per_prompt[0], dtype=np.float64)
        if np.isin(draws, (0.0, 1.0)).all():
            return proportion(int(draws.sum()), len(draws))
        return _t_interval(draws, unit="draws of one prompt")
    means = np.asarray([np.mean(values) for values in values_per_prompt], dtype=np.float64)
    if len(means) < BOOTSTRAP_PROMPTS or np.ptp(means) <= EQUAL * np.abs(means).max():
        return _t_interval(means, unit="prompt means")
    result = stats.bootstrap(
        (means,), np.mean, n_resamples=BOOTSTRAP_RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    )
    bounds = result.confidence_interval
    method = f"bootstrap by prompt, {len(means)} prompts"
    return Interval(value=float(means.mean()), low=float(bounds.low), high=float(bounds.high), method=method)


def _t_interval(values: "np.ndarray[tuple[int], np.dtype[np.float64]]", *, unit: str) -> Interval:
    """Return a t interval over `values`; without spread or with a single value there is none to give."""
    mean, n = float(values.mean()), len(values)
    method = f"t over {n} {unit}"
    if n < 2:
        return Interval(value=mean, low=None, high=None, method=f"{method}: one value has no spread")
    if np.ptp(values) <= EQUAL * np.abs(values).max():
        return Interval(value=mean, low=None, high=None, method=f"{method}: all equal, no interval")
    half = float(stats.t.ppf(0.975, n - 1)) * float(values.std(ddof=1)) / math.sqrt(n)
    return Interval(value=mean, low=mean - half, high=mean + half, method=method)
