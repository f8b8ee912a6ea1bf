"""The end of a run: before and after, with intervals, and where everything lies."""

from rich.table import Table

from steelyard.evals.measure import Measurement
from steelyard.run.directory import CARD, LEDGER, MODEL, PLOT
from steelyard.run.display import interval_text, score_text
from steelyard.run.dpo import DpoResult, DpoState
from steelyard.run.loop import RunResult
from steelyard.run.pair_stage import Ranking
from steelyard.run.reward_model import RewardModelResult

FILES = (("ledger", LEDGER), ("plot", PLOT), ("card", CARD), ("policy", MODEL))


def where_to_look(result: RunResult) -> list[str]:
    """Return one line per file of the run, and the commands that read it."""
    files = [f"{label:<7} {result.directory / name}" for label, name in FILES]
    commands = [f"steelyard why {result.directory}", f"steelyard card {result.directory}"]
    return [*files, f"look:   {'   '.join(commands)}"]


def closing_table(result: RunResult) -> Table:
    """Return what a person wants to know when a run ends."""
    table = Table(title="What happened" if result.finished else "Stopped on request; everything so far is kept")
    table.add_column("held out")
    table.add_column("before")
    table.add_column("after")
    if result.first is not None and result.last is not None:
        for label, before, after in _lines(result.first, result.last):
            table.add_row(label, before, after)
    else:
        table.add_row("nothing was measured (eval.samples = 0, or no prompt held out)", "", "")
    if result.unscored:
        table.add_row("in training, could not be judged", "", f"{result.unscored} of {result.answers}")
    return table


def _lines(first: Measurement, last: Measurement) -> list[tuple[str, str, str]]:
    lines = [
        (f"state ({first.judge})", f"{first.state}", f"{last.state}"),
        (first.headline, score_text(first), score_text(last)),
    ]
    if first.judge.startswith("reward:"):
        lines.append(("answers", str(first.answers), str(last.answers)))
    else:
        lines.append(("passed", f"{first.passed} of {first.answers}", f"{last.passed} of {last.answers}"))
        lines.append(("distinct passing programs", str(first.distinct_passing), str(last.distinct_passing)))
        lines.append(("no program", str(first.no_answer), str(last.no_answer)))
    for name in sorted({*first.signatures, *last.signatures}):
        lines.append((f"fault: {name}", str(first.signatures.get(name, 0)), str(last.signatures.get(name, 0))))
    lines.append(("mean tokens", f"{first.mean_tokens:.0f}", f"{last.mean_tokens:.0f}"))
    if first.unscored or last.unscored:
        lines.append(("could not be judged", str(first.unscored), str(last.unscored)))
    return lines


def dpo_table(result: DpoResult) -> Table:
    """Return what a person wants to know when direct preference optimisation ends."""
    kept = f"{len(result.pairs.train)} pairs, {result.steps} steps"
    table = Table(title=kept if result.finished else f"{kept}; stopped on request, everything so far is kept")
    for column in ("held out", "before", "after"):
        table.add_column(column)
    if result.before is None or result.after is None:
        table.add_row("nothing was measured (no pair is held out)", "", "")
        return table
    for label, before, after in zip(_DPO_LINES, _dpo_column(result.before), _dpo_column(result.after), strict=True):
        table.add_row(label, before, after)
    return table


_DPO_LINES = (
    "ranked rightly by reward",
    "chosen likelier",
    "mean margin",
    "log-prob of chosen",
    "log-prob of rejected",
)


def _dpo_column(state: DpoState) -> list[str]:
    rewarded = state.by_reward
    ranked = interval_text(rewarded.ranked_rightly, percent=True)
    return [
        "– (policy = reference)" if rewarded.ties == rewarded.pairs else ranked,
        interval_text(state.by_likelihood.ranked_rightly, percent=True),
        f"{rewarded.margin:+.3f}",
        f"{state.chosen_logp:.2f}",
        f"{state.rejected_logp:.2f}",
    ]


def reward_model_table(result: RewardModelResult) -> Table:
    """Return what a person wants to know when a reward model is trained."""
    kept = f"{len(result.pairs.train)} pairs, {result.steps} steps"
    table = Table(title=kept if result.finished else f"{kept}; stopped on request, everything so far is kept")
    for column in ("held out", "ranked rightly", "mean margin"):
        table.add_column(column)
    if result.before is None or result.after is None or result.spread is None or result.length is None:
        table.add_row("nothing was measured (no pair is held out)", "", "")
        return table
    table.add_row("before", *_ranked(result.before))
    for number, member in enumerate(result.members):
        table.add_row(f"member {number}", *_ranked(member))
    if result.disagreement is not None:
        table.add_row("mean of members, each scaled to deviation 1", *_ranked(result.after))
        table.add_row("deviation between members", f"{result.disagreement:.3f}", "")
    spread = result.spread
    table.add_row(
        "a tenth, half, nine tenths of margins", "", f"{spread.low:+.2f} {spread.median:+.2f} {spread.high:+.2f}"
    )
    table.add_row("by length alone", f"{100 * result.length.chosen_longer:.1f} %", "")
    correlation = result.length.correlation
    table.add_row("correlation with length", "–" if correlation is None else f"{correlation:+.2f}", "")
    return table


def _ranked(found: Ranking) -> tuple[str, str]:
    return interval_text(found.ranked_rightly, percent=True), f"{found.margin:+.3f}"
