"""Wrong programs that a suite pays in full: found on the pool, gathered by what they return, each with a smallest witness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steelyard.audit.strength.mutants import AUTHORED, Mutant
from steelyard.audit.strength.pool import Pool, agreed
from steelyard.audit.strength.programs import Bench, input_key, is_right
from steelyard.audit.strength.records import Survivor
from steelyard.audit.strength.shrink import shrink, size
from steelyard.audit.strength.subject import Subject
from steelyard.content import content_hash, plain_json
from steelyard.tasks.probes import Args
from steelyard.types import Form, Suite
from steelyard.verify.judge import matches
from steelyard.verify.sandbox import InputOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """A mutant that passes the whole suite, with what it returns on the pool."""

    mutant: Mutant
    outcomes: tuple[InputOutcome, ...]
    """One per input of the pool, in its order."""
    failed: tuple[str, ...]
    """Keys of the inputs that it gets wrong; empty: it could not be told from a right program."""


def run_on_pool(paid: Sequence[Mutant], pool: Pool, bench: Bench, suite: Suite) -> list[Paid]:
    """Return what each mutant that the suite pays in full returns on the pool."""
    rows = bench.outcomes(
        suite.entry_point, list(pool.inputs.values()), [m.source for m in paid], "survivors on the pool"
    )
    return [
        Paid(mutant=mutant, outcomes=row, failed=_failed(row, pool, suite.form))
        for mutant, row in zip(paid, rows, strict=True)
    ]


def _failed(outcomes: Sequence[InputOutcome], pool: Pool, form: Form) -> tuple[str, ...]:
    """Keys of the inputs that ran and came out wrong; inputs that were not run any more do not count."""
    pairs = zip(pool.inputs, outcomes, strict=True)
    return tuple(key for key, outcome in pairs if outcome.ran and not is_right(pool.expected[key], outcome, form))


def describe(paid: Sequence[Paid], subject: Subject, pool: Pool, bench: Bench) -> tuple[Survivor, ...]:
    """Return the survivors, those with equal outputs as one, ranked by the share of the pool that they fail."""
    classes: dict[str, list[Paid]] = {}
    for each in paid:
        if each.failed:
            classes.setdefault(_behaviour(each.outcomes), []).append(each)
    found: list[Survivor] = []
    for done, members in enumerate(classes.values()):
        bench.progress("smallest witnesses", done, len(classes))
        found.append(_survivor(members, subject, pool, bench))
    bench.progress("smallest witnesses", len(classes), len(classes))
    return tuple(sorted(found, key=lambda each: (-each.failed / each.of, each.id)))


def _behaviour(outcomes: Sequence[InputOutcome]) -> str:
    return content_hash([str(each.fault) if each.fault else [plain_json(each.value)] for each in outcomes])


def _survivor(members: Sequence[Paid], subject: Subject, pool: Pool, bench: Bench) -> Survivor:
    shown = min(members, key=lambda each: (each.mutant.operator == AUTHORED, len(each.mutant.diff), each.mutant.id))
    start = min((pool.inputs[key] for key in shown.failed), key=size)
    valid = subject.probe.valid if subject.probe is not None else lambda _args: True
    witness = shrink(start, _differs(subject, shown.mutant.source, bench), valid)
    *right, wrong = _on(subject, [*subject.references.values(), shown.mutant.source], [witness], bench)
    expected = right[0][0].value
    call = f"{subject.suite.entry_point}({', '.join(map(repr, witness))})"
    return Survivor(
        id=shown.mutant.id,
        operator=shown.mutant.operator,
        reference=shown.mutant.reference,
        same=tuple(each.mutant.id for each in members if each is not shown),
        failed=len(shown.failed),
        of=sum(outcome.ran for outcome in shown.outcomes),
        diff=shown.mutant.diff,
        mechanisms=_mechanisms(subject, shown, pool),
        key=input_key(witness),
        witness=witness,
        expected=expected,
        observed=repr(wrong[0].value) if wrong[0].returned else str(wrong[0].fault),
        test=f"assert {call} == {expected!r}",
    )


def _mechanisms(subject: Subject, paid: Paid, pool: Pool) -> tuple[str, ...]:
    """Names of the known wrong programs whose outputs these are, on every input of their signature."""
    outcomes = dict(zip(pool.inputs, paid.outcomes, strict=True))
    signatures = subject.signatures or {}
    return tuple(name for name, outputs in signatures.items() if matches(outputs, outcomes))


def _differs(subject: Subject, source: str, bench: Bench) -> Callable[[Sequence[Args]], list[bool]]:
    """Return the check for `shrink`: the right programs agree on an input, and the wrong one returns something else."""
    form = subject.suite.form

    def check(inputs: Sequence[Args]) -> list[bool]:
        *right, wrong = _on(subject, [*subject.references.values(), source], inputs, bench)
        columns = list(zip(*right, strict=True))
        return [
            agreed(column, form) and outcome.ran and not is_right(column[0].value, outcome, form)
            for column, outcome in zip(columns, wrong, strict=True)
        ]

    return check


def _on(
    subject: Subject, sources: Sequence[str], inputs: Sequence[Args], bench: Bench
) -> list[tuple[InputOutcome, ...]]:
    return Bench(bench.sandbox).outcomes(subject.suite.entry_point, inputs, sources, "")


def kills(suite: Suite, outcomes: dict[str, InputOutcome], tests: dict[str, bool]) -> frozenset[str]:
    """Return the ids of the tests that caught a program: those that ran and were not passed.

    Args:
        suite: The suite.
        outcomes: The program's outcomes by input key.
        tests: Whether each test was passed, by id.
    """
    ran = {case.id: outcomes[case.key].ran if case.key in outcomes else True for case in suite.cases}
    return frozenset(id_ for id_, passed in tests.items() if not passed and ran[id_])
