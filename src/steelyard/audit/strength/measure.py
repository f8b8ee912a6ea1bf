"""How strong a suite is: which wrong programs it pays in full, and what else its rewards are worth."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steelyard.audit.strength.mutants import Mutant, make_mutants
from steelyard.audit.strength.pool import Pool, make_pool
from steelyard.audit.strength.programs import Bench, Progress, no_progress
from steelyard.audit.strength.records import Identity, Report, Score, Scored, Share, Stability
from steelyard.audit.strength.saved import judge_saved
from steelyard.audit.strength.shares import partial_credit, redundancy, share
from steelyard.audit.strength.subject import Subject
from steelyard.audit.strength.survivors import Paid, describe, kills, run_on_pool
from steelyard.content import content_hash
from steelyard.types import Case, Plain, Status, Suite
from steelyard.verify.programs import ProgramCheck, check_references
from steelyard.verify.sandbox import Limits, Sandbox

POOL = 1200
"""Fresh inputs of the pool."""
GROUP = 16
"""Group size for the table of constant groups."""
_YARDSTICK = 200
"""Inputs of the pool that stand in where the task has no suite that measures."""
_TWICE = 24
"""Mutants that are judged twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Every mutant of a subject, judged: the ground on which reports and repairs stand."""

    subject: Subject
    """What was tried."""
    pool: Pool
    mutants: Sequence[Mutant]
    checks: Mapping[str, ProgramCheck]
    """By mutant id, by the suite in question."""
    paid: Sequence[Paid]
    """Mutants that the suite pays in full, with what they return on the pool."""
    right: Sequence[ProgramCheck]
    """Of the right programs."""

    @property
    def caught(self) -> dict[str, frozenset[str]]:
        """Ids of the tests that catch each mutant that the suite catches."""
        found: dict[str, frozenset[str]] = {}
        for mutant in self.mutants:
            check = self.checks[mutant.id]
            if check.verdict.status not in (Status.PASSED, Status.CHECKER_FAILED):
                passed = {id_: status is Status.PASSED for id_, status in check.verdict.tests.items()}
                found[mutant.id] = kills(self.subject.suite, dict(check.outcomes), passed)
        return found

    @property
    def survivors(self) -> list[Paid]:
        """Paid in full and wrong somewhere on the pool."""
        return [each for each in self.paid if each.failed]


def try_suite(subject: Subject, bench: Bench, *, seed: int, pool_size: int) -> Trial:
    """Judge every mutant of every right program by the suite, and those that it pays in full on the pool.

    Raises:
        TaskError: A right program fails the suite, or two disagree on the pool.
    """
    check_references(bench.sandbox, subject.suite, subject.references)
    right = bench.judge(subject.suite, list(subject.references.values()), "right programs")
    pool = make_pool(subject, bench, seed=seed, count=pool_size)
    faults = subject.probe.faults if subject.probe else {}
    mutants = make_mutants(subject.references, faults, given=subject.suite.preamble)
    checks = bench.judge(subject.suite, [mutant.source for mutant in mutants], "mutants on the suite")
    by_id = {mutant.id: check for mutant, check in zip(mutants, checks, strict=True)}
    paid = [mutant for mutant in mutants if by_id[mutant.id].verdict.status is Status.PASSED]
    ran = run_on_pool(paid, pool, bench, subject.suite)
    return Trial(subject=subject, pool=pool, mutants=mutants, checks=by_id, paid=ran, right=right)


def measure_strength(
    subject: Subject,
    sandbox: Sandbox,
    *,
    seed: int = 0,
    pool_size: int = POOL,
    group_size: int = GROUP,
    run: Path | None = None,
    progress: Progress = no_progress,
) -> Report:
    """Return the report on a suite.

    Args:
        subject: The suite, as `find_subject` found it.
        sandbox: Where programs run; it stays the caller's to close.
        seed: Of the fresh inputs of the pool.
        pool_size: How many fresh inputs.
        group_size: G, for the share of constant groups.
        run: A run directory whose completions are judged too.
        progress: Told how far it is.

    Raises:
        TaskError: A right program fails the suite, or two disagree on the pool.
        RequestError: The run is of another task.
    """
    bench = Bench(sandbox, progress)
    trial = try_suite(subject, bench, seed=seed, pool_size=pool_size)
    return report_on(trial, bench, group_size=group_size, run=run)


def report_on(trial: Trial, bench: Bench, *, group_size: int = GROUP, run: Path | None = None) -> Report:
    """Return the report that a trial gives; arguments and errors as of `measure_strength`."""
    subject, pool = trial.subject, trial.pool
    yardstick = subject.yardstick or _pool_suite(subject, pool)
    marks = bench.judge(yardstick, [mutant.source for mutant in trial.mutants], f"mutants on {yardstick.name}")
    scored = [
        (check.verdict.reward, mark.verdict.reward)
        for check, mark in zip(trial.checks.values(), marks, strict=True)
        if check.verdict.reward is not None and mark.verdict.reward is not None
    ]
    return Report(
        identity=_identity(trial, bench.sandbox, yardstick=yardstick.name),
        sanity=tuple(_sanity(trial, bench)),
        survivors=describe(trial.paid, subject, pool, bench),
        score=_score(trial),
        saved=None if run is None else judge_saved(run, subject, yardstick, bench),
        partial_credit=partial_credit([a for a, _ in scored], [b for _, b in scored], group_size=group_size),
        redundancy=redundancy(subject.suite, trial.caught),
        stability=_stability(trial, bench),
        notes=tuple(_notes(trial)),
    )


def _pool_suite(subject: Subject, pool: Pool) -> Suite:
    """The first inputs of the pool as a suite; without any, the suite itself."""
    cases = tuple(
        Case(id=f"pool-{i}", family="pool", args=args, expected=pool.expected[key])
        for i, (key, args) in enumerate(list(pool.inputs.items())[:_YARDSTICK])
    )
    return replace(subject.suite, name="pool", version=1, form="calls", cases=cases) if cases else subject.suite


def _identity(trial: Trial, sandbox: Sandbox, *, yardstick: str) -> Identity:
    suite, pool, limits = trial.subject.suite, trial.pool, sandbox.limits
    return Identity(
        suite=trial.subject.name,
        version=suite.version,
        hash=suite.hash,
        tests=len(suite.cases),
        form=suite.form,
        references={name: content_hash(source) for name, source in trial.subject.references.items()},
        pool=len(pool.inputs),
        pool_hash=pool.hash,
        pool_origin=pool.origin,
        left_out=pool.left_out,
        seed=pool.seed,
        yardstick=yardstick,
        level=sandbox.level,
        walls=tuple(wall.name for wall in sandbox.walls if wall.stands),
        unconfined=sandbox.unconfined,
        limits={name: getattr(limits, name) for name in limits.__slots__},
        mutants=len(trial.mutants),
    )


def _sanity(trial: Trial, bench: Bench) -> list[Scored]:
    """Right programs, twice, and programs that do nothing of the task."""
    subject, suite = trial.subject, trial.subject.suite
    again = bench.judge(suite, list(subject.references.values()), "right programs again")
    rows = [
        _scored(name, first, again=first.verdict.tests == second.verdict.tests)
        for name, first, second in zip(subject.references, trial.right, again, strict=True)
    ]
    bodies = {
        f"constant {_commonest(trial)}": f"return {_commonest(trial)}",
        "echo": "return args[0] if args else None",
        "empty": "pass",
        "raising": "raise RuntimeError",
        "hanging": "while True: pass",
        "len(argument)": "return len(args[0])",
    }
    sources = [f"def {suite.entry_point}(*args):\n    {body}\n" for body in bodies.values()]
    checks = bench.judge(suite, sources, "programs that do nothing")
    return rows + [_scored(name, check) for name, check in zip(bodies, checks, strict=True)]


def _scored(name: str, check: ProgramCheck, *, again: bool | None = None) -> Scored:
    verdict = check.verdict
    return Scored(
        name=name,
        passed=verdict.passed,
        tests=verdict.expected,
        status=str(verdict.status),
        reward=verdict.reward,
        again=again,
    )


def _commonest(trial: Trial) -> str:
    """The constant that pays best: the most frequent answer, as source."""
    suite = trial.subject.suite
    answers: list[Plain] = [case.expected for case in suite.cases]
    if suite.form != "calls":
        answers = list(trial.pool.expected.values())
    counted = Counter(map(repr, answers)).most_common(1)
    return counted[0][0] if counted else "None"


def _score(trial: Trial) -> Score:
    survived = {each.mutant.id for each in trial.survivors}
    caught = set(trial.caught)
    counted = [mutant for mutant in trial.mutants if mutant.id in survived | caught]

    def by(name: str) -> tuple[Share, ...]:
        groups = dict.fromkeys(getattr(mutant, name) for mutant in counted)
        members = {group: [m.id for m in counted if getattr(m, name) == group] for group in groups}
        return tuple(share(group, len(caught.intersection(ids)), len(ids)) for group, ids in members.items())

    unjudged = [m.id for m in trial.mutants if trial.checks[m.id].verdict.status is Status.CHECKER_FAILED]
    own = [each for each in by("reference") if each.name in trial.subject.references]
    return Score(
        total=share("all", len(caught), len(counted)),
        by_operator=by("operator"),
        by_reference=tuple(own),
        alike=sum(not each.failed for each in trial.paid),
        unjudged=tuple(unjudged),
    )


def _stability(trial: Trial, bench: Bench) -> Stability:
    """Judge right programs and a sample of mutants again; endless ones are left out, for time."""
    quick = [m for m in trial.mutants if trial.checks[m.id].verdict.status is not Status.TIMEOUT]
    sample = quick[:: max(1, len(quick) // _TWICE)]
    again = bench.judge(trial.subject.suite, [mutant.source for mutant in sample], "verdicts again")
    changed = [
        mutant.id
        for mutant, check in zip(sample, again, strict=True)
        if check.verdict.tests != trial.checks[mutant.id].verdict.tests
    ]
    seconds = {name: check.verdict.seconds for name, check in zip(trial.subject.references, trial.right, strict=True)}
    slowest = max(seconds, key=seconds.__getitem__)
    return Stability(
        programs=len(sample) + len(seconds),
        changed=tuple(changed),
        slowest=slowest,
        slowest_seconds=seconds[slowest],
        limit_seconds=Limits().program_seconds,
    )


def _notes(trial: Trial) -> list[str]:
    notes: list[str] = []
    subject, pool = trial.subject, trial.pool
    if len(subject.references) == 1:
        notes.append(
            "one right program only: a mistake that comes naturally in another algorithm is not among the mutants, and a "
            "mistake in this program would count as right."
        )
    if subject.probe is None:
        notes.append(
            f"the task has no generator: inputs are changed copies of those in the tests, {pool.left_out} left out because "
            "the right program returned nothing for them. Ask of each witness whether the prompt allows it."
        )
    if not pool.inputs:
        notes.append(
            "no call with plain values was found in the tests, so the pool is empty and no survivor can be shown."
        )
    return notes
