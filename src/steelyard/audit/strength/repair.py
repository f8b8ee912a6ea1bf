"""A stronger suite of the same size: tests that add nothing make room for inputs of the pool that catch survivors."""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from steelyard.audit.strength.measure import POOL, Trial, try_suite
from steelyard.audit.strength.programs import Bench, Progress, no_progress
from steelyard.audit.strength.shares import cover
from steelyard.audit.strength.shrink import size
from steelyard.audit.strength.subject import Subject
from steelyard.content import plain_json
from steelyard.errors import RequestError, TaskError
from steelyard.types import Case, Plain, Status, Suite
from steelyard.verify.programs import check_references
from steelyard.verify.sandbox import Sandbox

DEPTH = 3
"""Each survivor is to be caught by so many new tests, where there is room: one alone would know one input of it."""
ADDED = 8
"""Tests that may be added to a suite of assertions, whose old tests are often one and are kept."""
TOLERANT = """
import math
def same(a, b):
    if isinstance(b, float):
        return isinstance(a, (int, float)) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b
"""
"""Runs before a new assertion whose right answer holds a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A new version of a suite, and what it is worth."""

    suite: Suite
    """The new version."""
    added: tuple[str, ...]
    """Ids of new tests."""
    removed: tuple[str, ...]
    """Ids of tests that were given up."""
    before: tuple[str, ...]
    """Mutants that the old version paid in full."""
    after: tuple[str, ...]
    """Mutants that the new version pays in full although they are wrong; judged in the sandbox."""
    lost: tuple[str, ...]
    """Mutants that only the old version catches."""


def repair_suite(
    subject: Subject,
    sandbox: Sandbox,
    *,
    tests: int | None = None,
    seed: int = 0,
    pool_size: int = POOL,
    progress: Progress = no_progress,
) -> Repair:
    """Return a version of the suite that catches its survivors.

    Inputs of the suite that measures are never taken: what trains must not hold what measures.

    Args:
        subject: The suite.
        sandbox: Where programs run.
        tests: How many tests the new version has; default: as many as the old one.
        seed: Of the fresh inputs of the pool.
        pool_size: How many fresh inputs.
        progress: Told how far it is.

    Raises:
        RequestError: The suite cannot be changed, or `tests` is too small.
        TaskError: A right program fails the old or the new suite, or two disagree on the pool.
    """
    _check_request(subject, tests)
    bench = Bench(sandbox, progress)
    return repaired(try_suite(subject, bench, seed=seed, pool_size=pool_size), bench, tests=tests)


def repaired(trial: Trial, bench: Bench, *, tests: int | None = None) -> Repair:
    """Return the repair that a trial calls for; arguments and errors as of `repair_suite`."""
    subject = trial.subject
    survivors = {each.mutant.id: frozenset(each.failed) for each in trial.survivors}
    candidates = _candidates(trial)
    old = len(subject.suite.cases)
    room = old + (ADDED if subject.suite.form == "asserts" else 0) if tests is None else tests
    needed = cover(trial.caught)
    if not survivors and room >= old:
        raise RequestError(f"no survivor of {subject.name} was found, so there is nothing to repair.")
    most = max(room - len(needed), 0)
    new = choose(survivors, candidates, sizes={key: size(trial.pool.inputs[key]) for key in candidates}, most=most)
    kept = _kept(trial, needed, room - len(new))
    suite = _assembled(trial, kept, new)
    return _checked(trial, bench, suite)


def _check_request(subject: Subject, tests: int | None) -> None:
    if subject.yardstick is None and subject.known:
        raise RequestError(f"{subject.name} is the suite that measures; change its task instead.")
    if tests is not None and tests < 1:
        raise RequestError(f"--tests must be at least 1, got {tests}.")


def choose(
    survivors: Mapping[str, frozenset[str]], candidates: Sequence[str], *, sizes: Mapping[str, object], most: int
) -> list[str]:
    """Return input keys, greedily: each time the one that catches most survivors not yet caught `DEPTH` times.

    Survivors that nothing caught so far come before those that lack a second or third test; of equals the smallest input.

    Args:
        survivors: For each survivor, the keys of the inputs that catch it.
        candidates: Keys that may be taken.
        sizes: Size of each candidate, comparable.
        most: How many may be taken.
    """
    caught: Counter[str] = Counter(dict.fromkeys(survivors, 0))
    left = set(candidates)
    chosen: list[str] = []
    while left and len(chosen) < most:
        worth = {key: _worth(key, survivors, caught) for key in left}
        best = min(left, key=lambda key: (-worth[key], sizes[key], key))
        if worth[best] == 0:
            break
        chosen.append(best)
        left.remove(best)
        caught.update(name for name, keys in survivors.items() if best in keys)
    return chosen


def _worth(key: str, survivors: Mapping[str, frozenset[str]], caught: Mapping[str, int]) -> int:
    """A first test for a survivor is worth more than any number of second ones."""
    return sum(
        (len(survivors) + 1) ** (DEPTH - 1 - caught[name])
        for name, keys in survivors.items()
        if key in keys and caught[name] < DEPTH
    )


def _candidates(trial: Trial) -> list[str]:
    """Keys of the pool that no suite of the task that measures has, nor this one; as source where tests are source."""
    taken = {case.key for case in trial.subject.suite.cases}
    if trial.subject.yardstick is not None:
        taken |= {case.key for case in trial.subject.yardstick.cases}
    keys = [key for key in trial.pool.inputs if key not in taken]
    if trial.subject.suite.form == "calls":
        return keys
    pool = trial.pool
    return [key for key in keys if _is_source([list(pool.inputs[key]), pool.expected[key]])]


def _is_source(value: Plain) -> bool:
    """Whether a value can be written as a literal: nan, infinities and a few others cannot."""
    try:
        return plain_json(ast.literal_eval(repr(value))) == plain_json(value)
    except (ValueError, SyntaxError):
        return False


def _kept(trial: Trial, needed: frozenset[str], room: int) -> set[str]:
    """Ids of the tests that stay: those that are needed, then those that catch most."""
    counts = Counter(id_ for ids in trial.caught.values() for id_ in ids)
    ids = [case.id for case in trial.subject.suite.cases]
    order = sorted(ids, key=lambda id_: (id_ not in needed, -counts[id_], ids.index(id_)))
    return set(order[:room])


def _assembled(trial: Trial, kept: set[str], new: Sequence[str]) -> Suite:
    old, pool = trial.subject.suite, trial.pool
    cases = tuple(case for case in old.cases if case.id in kept)
    write = _assertion if old.form == "asserts" else _call
    added = tuple(write(f"repair-{key}", pool.inputs[key], pool.expected[key]) for key in new)
    return replace(old, version=old.version + 1, cases=cases + added)


def _call(id_: str, args: tuple[Plain, ...], expected: Plain) -> Case:
    return Case(id=id_, family="repair", args=args, expected=expected)


def _assertion(id_: str, args: tuple[Plain, ...], expected: Plain) -> Case:
    call = f"candidate({', '.join(map(repr, args))})"
    if _holds_float(expected):
        return Case(id=id_, family="repair", args=(TOLERANT, f"assert same({call}, {expected!r})"), expected=True)
    return Case(id=id_, family="repair", args=("", f"assert {call} == {expected!r}"), expected=True)


def _holds_float(value: Plain) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_float, cast("list[Plain]", value)))
    return isinstance(value, float)


def _checked(trial: Trial, bench: Bench, suite: Suite) -> Repair:
    """Judge everything again by the new version."""
    if not suite.cases:
        raise TaskError("no test is left; give more with --tests.")
    check_references(bench.sandbox, suite, trial.subject.references)
    checks = bench.judge(suite, [mutant.source for mutant in trial.mutants], "mutants on the new version")
    paid = {
        mutant.id for mutant, check in zip(trial.mutants, checks, strict=True) if check.verdict.status is Status.PASSED
    }
    alike = {each.mutant.id for each in trial.paid if not each.failed}
    old = {case.id for case in trial.subject.suite.cases}
    now = {case.id for case in suite.cases}
    before = tuple(each.mutant.id for each in trial.survivors)
    return Repair(
        suite=suite,
        added=tuple(case.id for case in suite.cases if case.id not in old),
        removed=tuple(case.id for case in trial.subject.suite.cases if case.id not in now),
        before=before,
        after=tuple(mutant.id for mutant in trial.mutants if mutant.id in paid - alike),
        lost=tuple(mutant.id for mutant in trial.mutants if mutant.id in paid - alike - set(before)),
    )
