"""The pool: many inputs on which the right programs agree, to tell a wrong program from one that is only written differently."""

from dataclasses import dataclass

from steelyard.audit.strength.grow import arguments_of, grown
from steelyard.audit.strength.programs import Bench, by_key, is_right
from steelyard.audit.strength.subject import Subject
from steelyard.content import content_hash, plain_json
from steelyard.errors import TaskError
from steelyard.tasks.probes import Args
from steelyard.types import Form, Plain
from steelyard.verify.sandbox import InputOutcome

_ROUNDS = 8
"""Among grown inputs some take the right program too long; those after them get another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Inputs with the values that right programs return for them."""

    inputs: dict[str, Args]
    """By key."""
    expected: dict[str, Plain]
    """By key."""
    left_out: int
    """Grown inputs for which the right program returned no value: taken as outside its domain."""
    seed: int
    """Of the fresh inputs."""
    origin: str
    """Where the inputs come from, for people."""

    @property
    def hash(self) -> str:
        """SHA-256 over inputs and expected values."""
        return content_hash([[key, plain_json(self.expected[key])] for key in self.inputs])


def make_pool(subject: Subject, bench: Bench, *, seed: int, count: int) -> Pool:
    """Return the inputs of every suite of the task and `count` fresh ones.

    Raises:
        TaskError: Two right programs disagree on an input, or one returns nothing for an input of the task's generator.
    """
    known = [args for suite in (subject.suite, *subject.known) for args in arguments_of(suite)]
    if subject.probe is not None:
        fresh, origin = subject.probe.inputs(seed, count), "the suites of the task and its generator of inputs"
    else:
        fresh, origin = grown(known, seed, count), "the arguments in the tests, and changed copies of them"
    inputs = dict(by_key([*known, *fresh]))
    sources = list(subject.references.values())
    rows = bench.outcomes(
        subject.suite.entry_point,
        list(inputs.values()),
        sources,
        "right programs on the pool",
        rounds=1 if subject.probe is not None else _ROUNDS,
    )
    answers = {key: tuple(row[i] for row in rows) for i, key in enumerate(inputs)}
    if subject.probe is None:
        kept = {key: args for key, args in inputs.items() if all(outcome.returned for outcome in answers[key])}
    else:
        kept = inputs
    expected = {key: _agreed(subject, args, answers[key]) for key, args in kept.items()}
    return Pool(inputs=kept, expected=expected, left_out=len(inputs) - len(kept), seed=seed, origin=origin)


def agreed(outcomes: tuple[InputOutcome, ...], form: Form) -> bool:
    """Whether right programs all returned one value."""
    return all(outcome.returned and is_right(outcomes[0].value, outcome, form) for outcome in outcomes)


def _agreed(subject: Subject, args: Args, outcomes: tuple[InputOutcome, ...]) -> Plain:
    if not agreed(outcomes, subject.suite.form):
        said = {name: _said(outcome) for name, outcome in zip(subject.references, outcomes, strict=True)}
        shown = ", ".join(map(repr, args))
        raise TaskError(
            f"the right programs of {subject.task} disagree on {subject.suite.entry_point}({shown[:200]}): {said}. "
            "Correct the program or the generator; until then nothing can be said about the suite."
        )
    return outcomes[0].value


def _said(outcome: InputOutcome) -> str:
    return repr(outcome.value)[:80] if outcome.fault is None else str(outcome.fault)
