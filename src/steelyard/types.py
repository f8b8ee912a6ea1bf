"""The records that cross folders: frozen, each field explained once, under the field.

Data moves one way: Prompt → Completion → Verdict → UpdateRecord. Stages never import each other;
they exchange these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from steelyard.content import content_hash, plain_json

Plain = object
"""Plain data: None, bool, int, float, str, bytes, and list, tuple, dict, set, frozenset of plain data."""

Form = Literal["calls", "stdin", "asserts"]
"""What a test of a suite does. `calls`: call the entry point with the arguments. `stdin`: run the program with a text on
its standard input. `asserts`: run test code that calls the entry point, in a process of its own."""


# ------------------------------------------------------------------ questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question."""

    id: str
    """Stable name; it keys every random draw made for this prompt."""
    content: str | tuple[Mapping[str, str], ...]
    """Plain text, or chat messages ({"role", "content"})."""
    columns: Mapping[str, object] = field(default_factory=dict[str, object])
    """The other columns of the data row, handed to reward functions by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test of a suite: an input, and the value a right program returns for it."""

    id: str
    """Unique within its suite, stable across versions."""
    family: str
    """Which kind of input this is (reports count by family)."""
    args: tuple[Plain, ...]
    """Positional arguments of the call; plain data. `stdin`: the one text to read. `asserts`: source to run first, and
    the test's own source; both go to the judge's process, never to the program's."""
    expected: Plain
    """The value to return, or the text to print. Never sent into the sandbox. `asserts`: True."""

    _key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """Name of the input alone: equal inputs have equal keys, in whatever suite they stand."""
        if not self._key:  # every judging asks for it, and inputs can be long
            object.__setattr__(self, "_key", content_hash([plain_json(value) for value in self.args])[:16])
        return self._key


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A named, versioned test suite for one function."""

    task: str
    """The task it belongs to; `task:name` names a suite on the command line."""
    name: str
    """Name within the task."""
    version: int
    """Raised by every change of its cases."""
    entry_point: str
    """The function that a program must define; empty for `stdin`, where the whole program runs."""
    cases: tuple[Case, ...]
    """At least one; an empty suite is refused at load."""
    form: Form = "calls"
    """What each test does."""
    preamble: str = ""
    """Source that is put before every program: imports and helpers that its task gives it."""
    stem: str = ""
    """Source that an answer may continue (a prompt of HumanEval): an answer that is only the rest of the function is
    joined to it."""

    @property
    def hash(self) -> str:
        """SHA-256 over entry point, cases (ids, families, inputs, expected values), form, preamble and stem."""
        rows = [[c.id, c.family, [plain_json(value) for value in c.args], plain_json(c.expected)] for c in self.cases]
        kind = [] if self.form == "calls" else [self.form]
        given = [self.preamble, self.stem] if self.preamble or self.stem else []
        return content_hash([*kind, self.entry_point, rows, *given])


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Questions and, where programs answer them, the suites that judge the programs."""

    name: str
    """Name in recipes and on the card."""
    train_prompts: tuple[Prompt, ...]
    """Prompts that updates draw from."""
    eval_prompts: tuple[Prompt, ...]
    """Held-out prompts; for a one-prompt task the same prompt, judged by a suite that is never a reward."""
    suites: Mapping[str, Suite] = field(default_factory=dict[str, Suite])
    """By name; empty for tasks judged by a reward function."""
    own_suites: Mapping[str, Suite] = field(default_factory=dict[str, Suite])
    """By prompt id, for tasks whose prompts have a suite each (HumanEval, MBPP); then `suites` is empty."""
    eval_suite: str | None = None
    """The suite that measures; never a training reward."""
    references: Mapping[str, str] = field(default_factory=dict[str, str])
    """Independent right programs by name, as source; each must pass every suite at load. With `own_suites` by prompt id:
    one for each suite."""
    packages: tuple[str, ...] = ()
    """Installed packages that programs and test code may import in the sandbox."""
    signatures: Mapping[str, Mapping[str, Plain]] = field(default_factory=dict[str, Mapping[str, Plain]])
    """Outputs of known faulty programs: fault name → input key → value. A program shows the
    signature when its outputs equal these on all inputs."""


# ------------------------------------------------------------------ answers

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled answer, kept as token ids and never re-tokenised."""

    prompt_id: str
    """The prompt it answers."""
    group_id: str
    """The group it is weighed against; groups are formed by this id, never by position."""
    sample: int
    """Index among the answers to this prompt in this update; it keys the random draws."""
    policy_version: int
    """Updates behind the weights that sampled it (state number)."""
    prompt_ids: tuple[int, ...]
    """Token ids of the rendered prompt."""
    token_ids: tuple[int, ...]
    """Sampled ids, the stop token included where one was sampled."""
    logprobs: tuple[float, ...]
    """Behaviour log-probs log μ of `token_ids`, nats, at the sampling temperature."""
    text: str
    """Decoded answer without the stop token; for verifiers and people only."""
    finish: FinishReason
    """Ended by a stop token, or cut at the limit."""


# ------------------------------------------------------------------ verdicts


class Status(StrEnum):
    """What happened to a test or a program, best first; a program has the worst of its tests."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    OUTPUT_LIMIT = "output_limit"
    MEMORY_LIMIT = "memory_limit"
    TIMEOUT = "timeout"
    NO_ANSWER = "no_answer"
    FORBIDDEN = "forbidden"
    CHECKER_FAILED = "checker_failed"


SEVERITY: Mapping[Status, int] = {status: rank for rank, status in enumerate(Status)}
"""The written order: a program's status is the status of its test with the highest rank."""


def worst(statuses: Sequence[Status]) -> Status:
    """Return the status of a program whose tests had these statuses (at least one)."""
    return max(statuses, key=SEVERITY.__getitem__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the judge says of one completion."""

    status: Status
    """Worst status of the tests, or of the answer as a whole."""
    reward: float | None
    """Finite, or None: "could not judge" is never 0."""
    tests: Mapping[str, Status] = field(default_factory=dict[str, Status])
    """Status by test id; empty for reward functions."""
    expected: int = 0
    """Tests that had to run."""
    executed: int = 0
    """Tests that reported an outcome of their own."""
    seconds: float = 0.0
    """Wall time of the check; kept outside equality of runs."""
    detail: str = ""
    """For people, capped."""

    @property
    def passed(self) -> int:
        """Number of tests passed."""
        return sum(status is Status.PASSED for status in self.tests.values())

    @property
    def scored(self) -> bool:
        """Whether the verdict carries a reward."""
        return self.reward is not None
