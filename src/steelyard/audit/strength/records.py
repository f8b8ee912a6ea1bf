"""What a report on a suite says: one record per part, in the order in which they are printed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from steelyard.tasks.probes import Args
from steelyard.types import Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What was measured, so that the report can be made again."""

    suite: str
    """TASK:SUITE."""
    version: int
    """Of the suite."""
    hash: str
    """SHA-256 of the suite."""
    tests: int
    """Cases of the suite."""
    form: str
    """calls or asserts."""
    references: Mapping[str, str]
    """SHA-256 of the source of each right program, by name."""
    pool: int
    """Inputs on which all right programs agree."""
    pool_hash: str
    """SHA-256 over inputs and answers of the pool."""
    pool_origin: str
    """Where the inputs come from."""
    left_out: int
    """Grown inputs for which the right program returned nothing."""
    seed: int
    """Of the fresh inputs."""
    yardstick: str
    """The suite that measures, or the pool."""
    level: str
    """Level of the sandbox, A to D."""
    walls: tuple[str, ...]
    """Walls of the sandbox that stood."""
    unconfined: bool
    """Whether programs ran without walls."""
    limits: Mapping[str, float]
    """Limits of one program."""
    mutants: int
    """Changed programs, all distinct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A program and what the suite pays for it."""

    name: str
    """What it does."""
    passed: int
    """Tests passed."""
    tests: int
    """Tests of the suite."""
    status: str
    """Worst status of its tests."""
    reward: float | None
    """What training would have paid."""
    again: bool | None = None
    """Right programs: whether a second run gave the same; None for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """Wrong programs that the suite pays in full and that return the same on the whole pool: one mechanism."""

    id: str
    """The one shown."""
    operator: str
    """What was changed in it."""
    reference: str
    """The right program that it comes from."""
    same: tuple[str, ...]
    """Further survivors with the same outputs."""
    failed: int
    """Inputs of the pool that it gets wrong."""
    of: int
    """Inputs of the pool on which it ran."""
    diff: str
    """Changed lines against its right program."""
    mechanisms: tuple[str, ...]
    """Known wrong programs of the task with the same outputs on every input of its suites."""
    key: str
    """Of the witness."""
    witness: Args
    """A smallest input that tells it from the right programs."""
    expected: Plain
    """What the right programs return for it."""
    observed: str
    """What it returns, or the status in place of a value."""
    test: str
    """The one test that would catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many, with Wilson's interval at 95 %."""

    name: str
    """Of what."""
    count: int
    of: int
    low: float | None
    """None where there is nothing to count."""
    high: float | None

    @property
    def value(self) -> float | None:
        """The share."""
        return self.count / self.of if self.of else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many wrong programs the suite catches. Survivors say more than this number."""

    total: Share
    """Over all mutants that differ from the right programs somewhere on the pool."""
    by_operator: tuple[Share, ...]
    by_reference: tuple[Share, ...]
    alike: int
    """Mutants that pass the suite and could not be told from the right programs on the pool; not counted."""
    unjudged: tuple[str, ...]
    """Mutants that our side could not judge; not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups of equal rewards, from which a group-relative advantage learns nothing."""

    update: int
    """The update that was looked at."""
    size: int
    """G, completions of its largest group."""
    expected: float
    """Share to expect at the pass rate of its draws: the sum of q^G over the rewards, q their shares; mean over prompts."""
    seen: float
    """Share in its draws, judged by the suite in question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The programs of a run, judged again by the suite and by the yardstick."""

    run: str
    """Directory of the run."""
    draws: int
    """Completions in its ledger for this suite's prompt that could be judged."""
    by_draw: tuple[Share, ...]
    """Over draws: false among accepted, accepted among wrong, agreement with the yardstick."""
    by_source: tuple[Share, ...]
    """The same over distinct programs."""
    recorded: Share | None
    """Verdicts in the ledger on this suite that came out the same again; None where it holds none."""
    rewards: int
    """Distinct rewards that the suite gives these draws."""
    groups: Groups | None
    """Of the last update; None where the ledger holds none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialCredit:
    """Whether partial credit orders wrong programs as the yardstick does."""

    pairs: int
    """Pairs of mutants that the yardstick tells apart."""
    opposite: int
    """Of those, pairs that the suite orders the other way round."""
    tied: int
    """Of those, pairs that the suite pays the same."""
    rewards: int
    """Distinct rewards over all mutants."""
    constant: Mapping[str, float]
    """Pass rate → share of groups of equal rewards, if every reward were 1 or one other number."""
    group_size: int
    """For `constant`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redundancy:
    """Tests that add nothing to what the others catch."""

    minimal: tuple[str, ...]
    """Ids of tests that together catch every mutant that the suite catches; found greedily, none can be left out."""
    duplicates: tuple[tuple[str, ...], ...]
    """Ids of tests with one and the same input, group by group; an id twice: one test asks it twice."""
    idle: tuple[str, ...]
    """Ids of tests that catch no mutant at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Whether verdicts depend on anything but the program."""

    programs: int
    """Programs judged twice, right and wrong ones."""
    changed: tuple[str, ...]
    """Ids of those whose verdicts differed."""
    slowest: str
    """The slowest right program."""
    slowest_seconds: float
    """Its wall time for the whole suite."""
    limit_seconds: float
    """What one program may take in training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything about one suite."""

    identity: Identity
    sanity: tuple[Scored, ...]
    survivors: tuple[Survivor, ...]
    """Ranked by the share of the pool that they fail."""
    score: Score
    saved: Saved | None
    """None without a run."""
    partial_credit: PartialCredit
    redundancy: Redundancy
    stability: Stability
    notes: tuple[str, ...] = field(default=())
    """What limits the meaning of the numbers."""
