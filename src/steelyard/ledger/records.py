"""The rows of a ledger, one record per table; field names are column names, explained here once.

Documents (`Mapping[str, object]`) are stored as JSON: tuples come back as lists, and a value that JSON
cannot hold (nan, bytes, a date) is kept as {"$repr": "..."}. None means "does not apply" and is stored as
NULL; it is never replaced by 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from steelyard.types import Completion, Verdict

Purpose = Literal["train", "eval"]
AttemptKind = Literal["start", "update", "end", "interrupted"]
EventKind = Literal["eval", "verdicts", "warning", "note", "early_stop", "saved", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """What was started: the single row of table `run`."""

    name: str
    """Name of the run, for people."""
    recipe: str
    """The whole recipe as TOML, defaults included."""
    recipe_hash: str
    """SHA-256 over every value of the recipe."""
    seed: int
    """Training seed; it keys every random draw."""
    steelyard: str
    """Version of Steelyard that started the run."""
    objective: Mapping[str, object]
    """The resolved objective by choice (variant, advantage, ddof, ...), and `overridden`: the choices that the
    recipe wrote over the variant's."""
    model: Mapping[str, object]
    """source, parameters (count), parameter_hash (at the start), aliases (tied names), tokenizer_hash."""
    task: Mapping[str, object]
    """name, prompts (count), eval_suite, suites: {name: {hash, version, cases}}; with `prompts` (count) where each
    prompt has a suite of its own, and the hash is that of them all."""
    machine: Mapping[str, object]
    """cpu, threads, platform, and the versions of python, torch, transformers, numpy."""
    sandbox: Mapping[str, object]
    """walls that stand, unconfined (whether programs ran without them); empty where no program is run."""
    tests: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Test ids in suite order by judge; the letters of `verdicts.tests` follow this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """One question as the model saw it; written before any completion."""

    id: str
    """Stable name; it keys the draws and joins the completions."""
    content: str | tuple[Mapping[str, str], ...]
    """Plain text, or chat messages. Stored as JSON, so that text and messages stay apart."""
    token_ids: tuple[int, ...]
    """Token ids of the rendered prompt; int32."""
    columns: Mapping[str, object] = field(default_factory=dict[str, object])
    """The other columns of the data row, handed to reward functions by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCompletion:
    """One sampled answer with its place in the run."""

    id: int
    """Integer key; verdicts and update members refer to it."""
    purpose: Purpose
    """Sampled to train, or to measure."""
    update_no: int
    """train: the update that it feeds; eval: the state that it measures."""
    completion: Completion
    """The answer; its tokens are the stored ids, never re-tokenised text."""
    row_hash: str
    """SHA-256 over the content of the row, key and times excepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """What one judge says of one completion."""

    completion_id: int
    """The judged completion."""
    judge: str
    """Who judged: booking:reference, signature:inclusive_endpoint, reward:my.py:score."""
    is_primary: bool
    """Whether this reward trains (purpose train) or is the measured number (purpose eval)."""
    verdict: Verdict
    """The verdict; its `seconds` are not stored in this row and read 0 (times live in `attempts`)."""
    source_hash: str | None = None
    """SHA-256 of the extracted program; None where no program was found or none is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRow:
    """One update, from state `update_no - 1` to state `update_no`; the last row that an update writes.

    A number that is not finite cannot stand here: such an update takes no step, and is recorded with the
    number None, `skipped` true and the value in `skip_reason`.
    """

    update_no: int
    """1, 2, ...; state 0 is the start."""
    policy_version: int
    """State of the weights that sampled the batch; `update_no - 1` when on-policy."""
    members: tuple[int, ...]
    """Ids of the completions that entered the loss, in loss order; int64."""
    advantages: tuple[float, ...]
    """One advantage per member; float64. With one per token (gae), the mean over the member's tokens."""
    loss: float | None
    """The number that was minimised, of the first optimizer step: loss_surrogate + loss_kl, and what `steps` shows of
    entropy bonus and shared value loss."""
    loss_surrogate: float | None
    """Minus the surrogate objective."""
    loss_kl: float | None
    """β times the KL estimate where it is a term of the loss; None elsewhere."""
    grad_norm: float | None
    """Euclidean norm over all parameters before clipping; of the first optimizer step."""
    grad_norm_clipped: float | None
    """The norm that the optimizer saw."""
    clipped: bool | None
    """Whether the gradient was scaled down."""
    lr: float
    """Learning rate of the last optimizer step."""
    optimizer_steps: int
    """Steps taken on this batch; 0 when skipped."""
    n_sequences: int
    """N_seq: completions in the denominator of the loss."""
    n_tokens: int
    """Completion tokens of those sequences."""
    groups: int
    """Groups sampled."""
    groups_informative: int
    """Groups whose rewards differ."""
    groups_constant: int
    """Groups of two or more equal rewards: no signal from a group-relative advantage."""
    groups_short: int
    """Groups with fewer than two scored members."""
    unscored: int
    """Completions that could not be judged; in no mean below."""
    reward_mean: float | None
    """Mean primary reward over the scored completions."""
    reward_std: float | None
    """Their standard deviation over the whole batch, divisor N."""
    ratio_min: float | None
    """Smallest ratio π_θ/π_old over the trained tokens, all optimizer steps."""
    ratio_mean: float | None
    """Mean ratio."""
    ratio_max: float | None
    """Largest ratio."""
    clip_share_low: float | None
    """Share of trained tokens held by the lower clip."""
    clip_share_high: float | None
    """Share of trained tokens held by the upper clip."""
    entropy: float | None
    """Mean entropy over the trained tokens, nats, at the sampling temperature."""
    kl_ref: float | None
    """KL estimate to the reference, before β; None without a reference."""
    sampler_gap: float | None
    """Largest |log π_θ - log μ| over the trained tokens, nats; engine noise on a fresh batch."""
    length_mean: float | None
    """Mean completion length, tokens."""
    length_mean_right: float | None
    """Mean length of the completions that passed; None when none did."""
    length_mean_wrong: float | None
    """Mean length of the scored completions that did not pass; None when all did."""
    truncated_share: float | None
    """Share of completions cut at the token limit."""
    param_change_norm: float | None
    """Euclidean norm of the parameter change over the update."""
    parameter_hash_before: str
    """Hash of the weights at state `update_no - 1`."""
    parameter_hash_after: str
    """Hash of the weights at state `update_no`."""
    skipped: bool = False
    """Whether no step was taken."""
    skip_reason: str | None = None
    """Why; names the value that was not finite."""
    steps: tuple[Mapping[str, object], ...] = ()
    """What each optimizer step saw, in order; the columns above sum it up for plots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """Something that happened between updates."""

    id: int
    """Integer key, in order of writing."""
    kind: EventKind
    """eval (a measurement), verdicts (of an update: how many of each status), warning, note, early_stop (of the steps on one batch), saved (weights on disk), stop."""
    update_no: int
    """State at which it happened."""
    data: Mapping[str, object]
    """What happened; holds no times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One moment of one attempt to run: the only place where times are kept."""

    id: int
    """Integer key, in order of writing."""
    attempt: int
    """1 for the first start of the run, one more for every reopening."""
    kind: AttemptKind
    """start, update (an update was completed), end, interrupted."""
    update_no: int
    """State at that moment."""
    utc: str
    """Wall clock, ISO 8601, UTC."""
    data: Mapping[str, object]
    """seconds: {stage: seconds}, disjoint stages; slowest_verdict; whatever else depends on the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One completion of an update's batch with all that became of it."""

    stored: StoredCompletion
    """The completion."""
    advantage: float | None
    """Its weight in the loss; None when it did not enter the loss."""
    verdicts: tuple[VerdictRow, ...]
    """All verdicts, the primary one first."""
