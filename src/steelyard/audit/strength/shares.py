"""Counting: shares with intervals, what partial credit orders, and which tests are needed."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from steelyard.audit.strength.grow import literal_calls
from steelyard.audit.strength.programs import input_key
from steelyard.audit.strength.records import PartialCredit, Redundancy, Share
from steelyard.types import Suite

PASS_RATES = (0.02, 0.1, 0.5, 0.9)
"""Pass rates for which the share of constant groups is shown."""


def share(name: str, count: int, of: int) -> Share:
    """Return count/of with Wilson's interval at 95 %.

    >>> share("caught", 8, 10).low  # doctest: +ELLIPSIS
    0.4901...
    """
    if of == 0:
        return Share(name=name, count=count, of=of, low=None, high=None)
    bounds = stats.binomtest(count, of).proportion_ci(method="wilson")
    return Share(name=name, count=count, of=of, low=float(bounds.low), high=float(bounds.high))


def partial_credit(rewards: Sequence[float], marks: Sequence[float], *, group_size: int) -> PartialCredit:
    """Compare the order of programs by the suite's reward with their order by the yardstick's.

    Args:
        rewards: Reward of each program by the suite.
        marks: Its reward by the yardstick, same order.
        group_size: G of the table of constant groups.
    """
    by_suite, by_yardstick = np.asarray(rewards, dtype=np.float64), np.asarray(marks, dtype=np.float64)
    rows, columns = np.triu_indices(len(by_suite), k=1)
    suite = np.sign(by_suite[rows] - by_suite[columns])
    yardstick = np.sign(by_yardstick[rows] - by_yardstick[columns])
    told = yardstick != 0
    return PartialCredit(
        pairs=int(told.sum()),
        opposite=int((told & (suite == -yardstick)).sum()),
        tied=int((told & (suite == 0)).sum()),
        rewards=len(set(rewards)),
        constant={f"{p:g}": p**group_size + (1 - p) ** group_size for p in PASS_RATES},
        group_size=group_size,
    )


def redundancy(suite: Suite, caught_by: Mapping[str, frozenset[str]]) -> Redundancy:
    """Return which tests are needed to catch what the suite catches.

    Args:
        suite: The suite.
        caught_by: For each caught mutant, the ids of the tests that catch it; at least one each.
    """
    minimal = cover({name: ids for name, ids in caught_by.items() if ids})
    busy = frozenset().union(*caught_by.values())
    return Redundancy(
        minimal=tuple(case.id for case in suite.cases if case.id in minimal),
        duplicates=_duplicates(suite),
        idle=tuple(case.id for case in suite.cases if case.id not in busy),
    )


def cover(caught_by: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return a set of tests that catches every mutant and of which none can be left out, chosen greedily."""
    left = dict(caught_by)
    chosen: list[str] = []
    while left:
        counts: dict[str, int] = {}
        for ids in left.values():
            for id_ in ids:
                counts[id_] = counts.get(id_, 0) + 1
        best = min(counts, key=lambda id_: (-counts[id_], id_))
        chosen.append(best)
        left = {name: ids for name, ids in left.items() if best not in ids}
    for id_ in list(chosen):
        rest = frozenset(chosen) - {id_}
        if all(ids & rest for ids in caught_by.values()):
            chosen.remove(id_)
    return frozenset(chosen)


def _duplicates(suite: Suite) -> tuple[tuple[str, ...], ...]:
    """Return the ids of tests that ask for the same thing: equal inputs, or the same call with the same values."""
    asked: dict[str, list[str]] = {}
    for case in suite.cases:
        if suite.form == "calls":
            keys = [case.key]
        else:
            calls = literal_calls(str(case.args[-1]), frozenset({"candidate", suite.entry_point}))
            keys = [input_key(args) for args in calls] or [case.key]
        for key in keys:
            asked.setdefault(key, []).append(case.id)
    return tuple(tuple(ids) for ids in asked.values() if len(ids) > 1)
