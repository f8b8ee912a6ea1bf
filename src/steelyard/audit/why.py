"""What an update did and why, in words and numbers, from the ledger alone.

Three zeros are told apart: a zero advantage (nothing to learn from), a zero gradient (nothing pulls now) and
unchanged parameters (nothing moved). A zero loss is none of them.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from steelyard.errors import RequestError
from steelyard.ledger.reader import LedgerReader
from steelyard.ledger.records import Member, RunRow, UpdateRow
from steelyard.types import Status

LOSS_ZERO = 1e-6
"""A loss below this is zero to rounding: float32 means over a batch of rewards in [0, 1]."""


def why_update(reader: LedgerReader, update: int) -> str:
    """Explain one update.

    Args:
        reader: An open ledger.
        update: Number of the update, counted from 1.

    Raises:
        RequestError: If the ledger has no such update.
    """
    known = [row.update_no for row in reader.updates()]
    if update not in known:
        span = f"it has {known[0]} to {known[-1]}" if known else "it has none"
        raise RequestError(f"update {update} is not in this ledger; {span}.")
    run, row, members = reader.run(), reader.update(update), reader.members(update)
    title = f"Update {update} of {run.name} ({run.objective['variant']}): state {update - 1} → state {update}"
    momentum = any(earlier.grad_norm for earlier in reader.updates() if earlier.update_no < update)
    words = [*_words(run, row, momentum=momentum), *_about_members(row, members)]
    return "\n\n".join([title, _picture(members), _zeros(row), "\n".join(words)])


def why_run(reader: LedgerReader) -> str:
    """Explain a whole run: how many updates of each kind, and where to look."""
    run, rows = reader.run(), reader.updates()
    if not rows:
        return f"{run.name} ({run.objective['variant']}): no update is in the ledger yet."
    lines = [f"{run.name} ({run.objective['variant']}), seed {run.seed}: {len(rows)} updates"]
    for kind in KINDS:
        found = [row.update_no for row in rows if kind.holds(row)]
        lines.append(f"  {len(found):>4} of {len(rows)}  {kind.words}{_examples(found, len(rows))}")
    lines.append("`--update N` explains one of them.")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of update that people ask about."""

    words: str
    """How it is named."""
    holds: Callable[[UpdateRow], bool]
    """Whether an update is of this kind."""


KINDS: Sequence[Kind] = (
    Kind(words="had a loss that is zero to rounding", holds=lambda row: _loss_is_zero(row)),
    Kind(words="had a gradient that is not zero", holds=lambda row: bool(row.grad_norm)),
    Kind(words="had zero loss and a living gradient", holds=lambda row: _loss_is_zero(row) and bool(row.grad_norm)),
    Kind(words="had their gradient scaled down to the limit", holds=lambda row: bool(row.clipped)),
    Kind(words="had no informative group: all rewards equal", holds=lambda row: row.groups_informative == 0),
    Kind(
        words="moved parameters although the gradient was exactly zero",
        holds=lambda row: row.grad_norm == 0.0 and row.parameter_hash_after != row.parameter_hash_before,
    ),
    Kind(
        words="left the parameters unchanged", holds=lambda row: row.parameter_hash_after == row.parameter_hash_before
    ),
    Kind(words="took no step (skipped)", holds=lambda row: row.skipped),
)


def _loss_is_zero(row: UpdateRow) -> bool:
    return row.loss is not None and abs(row.loss) < LOSS_ZERO


def _examples(found: Sequence[int], total: int) -> str:
    if not found or len(found) > total / 2:
        return ""  # the rule, not the exception
    shown = ", ".join(str(number) for number in found[:6])
    return f"  (update {shown}{', …' if len(found) > 6 else ''})"


# ------------------------------------------------------------------ one update


def _picture(members: Sequence[Member]) -> str:
    """The group as a table: reward, advantage, and which way each answer is pushed."""
    lines: list[str] = []
    for group_id in dict.fromkeys(member.stored.completion.group_id for member in members):
        lines.append(f"group {group_id}")
        lines.append("  sample   reward  advantage  push  tokens  status")
        lines += [_member_line(member) for member in members if member.stored.completion.group_id == group_id]
    return "\n".join(lines)


def _member_line(member: Member) -> str:
    completion, verdict = member.stored.completion, member.verdicts[0].verdict
    reward = "–" if verdict.reward is None else f"{verdict.reward:.4f}"
    advantage = "–" if member.advantage is None else f"{member.advantage:+.4f}"
    push = "out" if member.advantage is None else "↑" if member.advantage > 0 else "↓" if member.advantage < 0 else "0"
    cut = " (cut at the limit)" if completion.finish == "length" else ""
    return (
        f"  {completion.sample:>6}  {reward:>7}  {advantage:>9}  {push:>4}  {len(completion.token_ids):>6}  "
        f"{verdict.status.value}{cut}"
    )


def _zeros(row: UpdateRow) -> str:
    """Loss, and the three zeros, side by side."""
    alive = sum(value != 0.0 for value in row.advantages)
    moved = row.parameter_hash_after != row.parameter_hash_before
    change = "" if row.param_change_norm is None else f", length of the change {row.param_change_norm:.3e}"
    scaled = f", scaled to {row.grad_norm_clipped:.4g}" if row.clipped and row.grad_norm_clipped is not None else ""
    lines = [
        f"  loss         {_number(row.loss)}   (surrogate {_number(row.loss_surrogate)}, KL {_number(row.loss_kl)})",
        f"  advantages   {alive} of {len(row.advantages)} are not zero",
        f"  gradient     norm {_number(row.grad_norm)}{scaled}",
        f"  parameters   {'changed' if moved else 'unchanged, bit for bit'}{change}",
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _words(run: RunRow, row: UpdateRow, *, momentum: bool) -> list[str]:
    """Sentences, the most important first."""
    if row.skipped:
        return [f"No step was taken: {row.skip_reason}."]
    beside = _beside(run, row)
    if not row.grad_norm:
        lines = _dead(run, row, momentum=momentum)
    elif not any(row.advantages):
        lines = [
            f"Every advantage is 0 ({row.groups_constant} of {row.groups} groups have equal rewards): the gradient, norm "
            f"{row.grad_norm:.4g}, is that of {' and '.join(beside) or 'no term that the ledger names'} alone."
        ]
    elif _loss_is_zero(row):
        lines = _alive_at_zero(run, row)
    else:
        lines = _not_zero(run, row)
    if row.clipped:
        lines.append(
            f"The gradient (norm {row.grad_norm:.4g}) was longer than the limit and was scaled to "
            f"{row.grad_norm_clipped:.4g}; its direction is unchanged."
        )
    stopped = [str(step["skipped"]) for step in row.steps if str(step.get("skipped") or "").startswith("stopped early")]
    lines += [f"The steps on this batch {reason}." for reason in stopped]
    if len(row.steps) > 1:
        lines.append(
            f"{row.optimizer_steps} optimizer steps were taken on this batch; loss and gradient above are those of the "
            f"first, on the fresh batch. Over all of them the ratio ran from {_number(row.ratio_min)} to "
            f"{_number(row.ratio_max)}."
        )
    if row.lr == 0.0:
        lines.append("The learning rate of this step is 0: nothing could move, whatever the gradient.")
    return lines


def _beside(run: RunRow, row: UpdateRow) -> list[str]:
    """Terms of the loss that pull whatever the advantages are."""
    terms = {
        "the KL penalty": row.loss_kl is not None,
        "the entropy bonus": bool(run.objective.get("entropy_coef")),
        "the value loss": row.steps[0].get("loss_value") is not None if row.steps else False,
    }
    return [name for name, there in terms.items() if there]


def _dead(run: RunRow, row: UpdateRow, *, momentum: bool) -> list[str]:
    groups = f"{row.groups_constant} of {row.groups} groups have equal rewards"
    short = f", {row.groups_short} fewer than two scored answers" if row.groups_short else ""
    lines = [
        f"No signal: {groups}{short}, so every advantage is exactly 0 and so is the gradient. "
        f"(Rewards over the batch: mean {_number(row.reward_mean)}, std {_number(row.reward_std)}; "
        "the std that counts is the one inside each group.)"
    ]
    if any(row.advantages):
        lines = ["The gradient is exactly 0 although advantages are not: no answer's log-probability has a slope."]
    if row.parameter_hash_after == row.parameter_hash_before:
        lines.append(
            "The parameters did not move either: the optimizer holds no momentum yet, or its learning rate is 0."
        )
        return lines
    causes = ["along AdamW's first moment, carried over from earlier updates"] if momentum else []
    causes += ["by weight decay"] if _weight_decay(run) else []
    lines.append(f"The parameters moved all the same, {' and '.join(causes)}.")
    return lines


def _weight_decay(run: RunRow) -> float:
    return float(tomllib.loads(run.recipe)["optimizer"]["weight_decay"])


def _alive_at_zero(run: RunRow, row: UpdateRow) -> list[str]:
    by_construction = (
        run.objective["aggregation"] == "sequence_mean"
        and run.objective["advantage"] not in ("raw", "gae")
        and run.objective.get("mismatch_weight", "none") == "none"
        and run.objective.get("truncated", "keep") != "mask_loss_only"
    )
    return [
        f"Loss {row.loss:.1e} and gradient {row.grad_norm:.4g} do not contradict each other. On a fresh batch every "
        f"ratio is 1 in value, so the loss is minus the weighted mean of the advantages, and with "
        f"{run.objective['advantage']} and {run.objective['aggregation']} they cancel to zero "
        f"{'by construction' if by_construction else 'here, by their lengths and values'}. "
        "Their slopes do not: each answer's log-probability is pushed in its own direction "
        f"({sum(a > 0 for a in row.advantages)} up, {sum(a < 0 for a in row.advantages)} down)."
    ]


def _not_zero(run: RunRow, row: UpdateRow) -> list[str]:
    first, objective = (row.steps[0] if row.steps else {}), run.objective
    logs_itself, by_value = objective["surrogate"] in ("policy_gradient", "cispo"), objective["advantage"] == "gae"
    by_length = objective["aggregation"] != "sequence_mean" and not (logs_itself or by_value)
    causes = {
        "the KL penalty adds its own value": bool(row.loss_kl),
        "the entropy bonus adds its own value": first.get("loss_entropy") is not None,
        "the value loss of the shared backbone is part of it": first.get("loss_value") is not None,
        "the surrogate is A · log π, whose value is not the advantage": logs_itself,
        "advantages differ from token to token; whitening makes them cancel under token_mean only": by_value,
        f"{objective['aggregation']} weighs answers by their length, so advantages do not cancel": by_length,
        "raw advantages have no baseline, so they do not sum to zero": objective["advantage"] == "raw",
        "the mismatch weight scales each token's term": objective.get("mismatch_weight", "none") != "none",
    }
    reasons = [words for words, applies in causes.items() if applies]
    because = f": {'; '.join(reasons)}" if reasons else ""
    return [f"The loss is {row.loss:.4g}{because}. The gradient norm is {row.grad_norm:.4g}."]


def _about_members(row: UpdateRow, members: Sequence[Member]) -> list[str]:
    lines: list[str] = []
    kept = {member.stored.completion.group_id for member in members if member.advantage is not None}
    if row.groups > len(kept) and any(member.advantage is not None for member in members):
        lines.append(
            f"{row.groups} groups were sampled and {len(kept)} entered the loss; dynamic sampling, masking or missing "
            "scores left out the others (marked `out` above)."
        )
    if row.unscored:
        reasons = [member.verdicts[0].verdict.detail for member in members if not member.verdicts[0].verdict.scored]
        first = f" The first: {reasons[0]}." if reasons and reasons[0] else ""
        lines.append(f"{row.unscored} answers could not be judged; they are in no baseline and not in the loss.{first}")
    lines += _about_parts(members)
    if row.truncated_share == 1.0:
        lines.append("Every answer was cut at the token limit; rollout.max_new_tokens may be too small.")
    if row.clip_share_low or row.clip_share_high:
        lines.append(
            f"Clipping held {row.clip_share_high or 0.0:.1%} of the tokens at the upper edge and "
            f"{row.clip_share_low or 0.0:.1%} at the lower: they gave no gradient."
        )
    answers = [member.stored.completion.token_ids for member in members]
    duplicates = len(answers) - len(set(answers))
    if duplicates:
        lines.append(f"{duplicates} of {len(answers)} answers repeat another one token for token.")
    full = sum(member.verdicts[0].verdict.status is Status.PASSED for member in members)
    lines.append(f"{full} of {len(members)} answers got full marks; mean reward {_number(row.reward_mean)}.")
    return lines


def _about_parts(members: Sequence[Member]) -> list[str]:
    """Name the terms of a composed reward; the rewards in the table are those of the primary one."""
    parts: dict[str, list[float]] = {}
    for member in members:
        for row in member.verdicts:
            if row.judge.startswith("reward:") and not row.is_primary and row.verdict.reward is not None:
                parts.setdefault(row.judge, []).append(row.verdict.reward)
    total = parts.pop("reward:total", None)
    if total is None:
        return []
    means = ", ".join(f"{name.removeprefix('reward:part:')} {fmean(values):+.4g}" for name, values in parts.items())
    return [
        f"The reward above is the primary part. A weighted sum trains, mean {fmean(total):.4g}; further parts: {means}."
    ]
