"""The run card: what is needed to reconstruct a run and what came of it, derived from the ledger alone."""

import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from steelyard.ledger.codec import plain
from steelyard.ledger.reader import LedgerReader
from steelyard.ledger.records import EventRow, RunRow
from steelyard.ledger.schema import KINDS

Card = dict[str, Any]
"""Plain JSON data."""

_LABEL_WIDTH = 24


def card(reader: LedgerReader) -> Card:
    """Return the card of a run, finished or not.

    Everything but `times` is equal for two runs of one recipe and seed on one machine.
    """
    run = reader.run()
    recipe = tomllib.loads(run.recipe)
    updates = reader.updates()
    final_hash = updates[-1].parameter_hash_after if updates else run.model.get("parameter_hash")
    data = {
        "name": run.name,
        "recipe_hash": run.recipe_hash,
        "seed": run.seed,
        "steelyard": run.steelyard,
        "ledger_format": reader.format(),
        "updates": {
            "done": len(updates),
            "planned": recipe.get("run", {}).get("updates"),
            "skipped": sum(update.skipped for update in updates),
        },
        "start_parameter_hash": run.model.get("parameter_hash"),
        "final_parameter_hash": final_hash,
        "objective": _objective(run),
        "reference": _reference(run),
        "sampler": recipe.get("rollout", {}),
        "optimizer": recipe.get("optimizer", {}),
        "update": recipe.get("update", {}),
        "model": run.model,
        "task": run.task,
        "machine": run.machine,
        "sandbox": run.sandbox,
        "judged": _judged(reader),
        "eval": _before_and_after(reader.evals()),
        "counts": {table: reader.count(table) for table in KINDS if table not in ("run", "attempts")},
        "times": _times(reader),
        "recipe": run.recipe,
    }
    return {name: plain(value) for name, value in data.items()}


def card_text(card: Card) -> str:
    """Return the card for people: one line per fact, the recipe left out."""
    shown = {name: value for name, value in card.items() if name not in ("name", "recipe", "objective")}
    lines = [f"Run card: {card['name']}", *_objective_lines(card["objective"])]
    for name, value in shown.items():
        lines += _lines(name, value, depth=0)
    return "\n".join(lines) + "\n"


def write_card(run_dir: Path) -> Path:
    """Write `card.json` beside the ledger of a run directory and return its path."""
    with LedgerReader(run_dir / "ledger.sqlite") as reader:
        text = json.dumps(card(reader), indent=2, ensure_ascii=True) + "\n"
    target = run_dir / "card.json"
    unfinished = run_dir / f".card.json.{os.getpid()}"
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(target)
    return target


# ------------------------------------------------------------------ details


def _objective(run: RunRow) -> Card:
    choices = {name: value for name, value in run.objective.items() if name not in ("variant", "overridden")}
    return {
        "variant": run.objective.get("variant"),
        "choices": choices,
        "overridden": run.objective.get("overridden", []),
    }


def _reference(run: RunRow) -> Card:
    """π_ref: the frozen start, kept only when the KL penalty is on."""
    if run.objective.get("kl_coef"):
        return {"policy": "the start of this run, frozen", "parameter_hash": run.model.get("parameter_hash")}
    return {"policy": "none: the KL penalty is off", "parameter_hash": None}


def _before_and_after(evals: Sequence[EventRow]) -> Card:
    """The measurement of state 0 and the last one of a later state, each with the state it measured."""
    before = [event for event in evals if event.update_no == 0]
    after = [event for event in evals if event.update_no > 0]
    return {
        "before": {"state": 0, **before[0].data} if before else None,
        "after": {"state": after[-1].update_no, **after[-1].data} if after else None,
    }


def _judged(reader: LedgerReader) -> Card:
    """Of the answers sampled to train: how many of each status, and the mean of every reward there is."""
    where = "FROM verdicts JOIN completions ON completions.id = completion_id WHERE purpose = 'train'"
    statuses = reader.rows(
        f"SELECT status, count(*) AS n {where} AND is_primary GROUP BY status ORDER BY n DESC, status"
    )
    rewards = reader.rows(
        f"SELECT judge, avg(reward) AS mean, count(reward) AS n {where} AND (is_primary OR judge LIKE 'reward:%') "
        "GROUP BY judge ORDER BY max(is_primary) DESC, judge"
    )
    return {
        "statuses": {row["status"]: row["n"] for row in statuses},
        "mean_reward": {row["judge"]: row["mean"] for row in rewards if row["n"]},
    }


def _times(reader: LedgerReader) -> Card:
    attempts = reader.attempts()
    stages = reader.rows(
        "SELECT s.key AS stage, sum(s.value) AS total FROM attempts, json_each(data, '$.seconds') AS s GROUP BY s.key"
    )
    return {
        "attempts": max((row.attempt for row in attempts), default=0),
        "first_utc": attempts[0].utc if attempts else None,
        "last_utc": attempts[-1].utc if attempts else None,
        "seconds": {row["stage"]: row["total"] for row in stages},
    }


def _objective_lines(objective: Card) -> Iterator[str]:
    overridden = objective["overridden"]
    note = "  (* written over the variant's own choice)" if overridden else ""
    yield f"{'objective':<{_LABEL_WIDTH}}{objective['variant']}{note}"
    for name, value in objective["choices"].items():
        mark = "* " if name in overridden else "  "
        yield f"{mark + name:<{_LABEL_WIDTH}}{_shown(value)}"


def _lines(name: str, value: object, *, depth: int) -> Iterator[str]:
    label = f"{'  ' * depth}{name}"
    if isinstance(value, dict) and value:
        yield label
        for key, item in cast("dict[str, object]", value).items():
            yield from _lines(key, item, depth=depth + 1)
    else:
        yield f"{label:<{_LABEL_WIDTH}}{_shown(cast('object', value))}"


def _shown(value: object) -> str:
    if value is None:
        return "n/a"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
