"""A small run, written through the public API."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard.ledger import Ledger, PromptRow, RunRow, UpdateRow, VerdictRow
from steelyard.types import Completion, Status, Verdict

RECIPE = "[run]\nupdates = 3\nseed = 7\n[rollout]\ntemperature = 1.0\ngroup_size = 4\n[optimizer]\nlr = 1e-5\n"


def run_row(**changes: Any) -> RunRow:
    values: dict[str, Any] = {
        "name": "booking",
        "recipe": RECIPE,
        "recipe_hash": "r" * 64,
        "seed": 7,
        "steelyard": "0.1.0",
        "objective": {"variant": "grpo", "advantage": "group_standardised", "kl_coef": 0.0, "overridden": ["kl_coef"]},
        "model": {
            "source": "sft:x",
            "parameters": 10,
            "parameter_hash": "hash-0",
            "aliases": [],
            "tokenizer_hash": "t",
        },
        "task": {"name": "booking", "suites": {"weak": {"hash": "s", "version": 1, "cases": 3}}},
        "machine": {"threads": 2, "torch": "2.13"},
        "sandbox": {"walls": ["pid", "net"], "unconfined": False},
        "tests": {"booking:weak": ("one", "two", "three")},
    }
    return RunRow(**(values | changes))


def completion(sample: int, **changes: Any) -> Completion:
    values: dict[str, Any] = {
        "prompt_id": "p",
        "group_id": "1/0:p",
        "sample": sample,
        "policy_version": 0,
        "prompt_ids": (5, 6),
        "token_ids": (1, 2, 3 + sample),
        "logprobs": (-0.5, -0.25, -1.0),
        "text": f"answer {sample}",
        "finish": "stop",
    }
    return Completion(**(values | changes))


def update_row(update_no: int, members: Sequence[int], **changes: Any) -> UpdateRow:
    values: dict[str, Any] = dict.fromkeys(UpdateRow.__dataclass_fields__)
    values |= {
        "update_no": update_no,
        "policy_version": update_no - 1,
        "members": tuple(members),
        "advantages": tuple(0.1 * place for place in range(len(members))),
        "loss": 0.0,
        "loss_surrogate": 0.0,
        "grad_norm": 4.7,
        "grad_norm_clipped": 1.0,
        "clipped": True,
        "lr": 1e-5,
        "parameter_hash_before": f"hash-{update_no - 1}",
        "parameter_hash_after": f"hash-{update_no}",
        "skipped": False,
        "steps": ({"loss": 0.0, "lr": 1e-5},),
    }
    counts = ("optimizer_steps", "n_sequences", "n_tokens", "groups", "groups_informative", "groups_constant")
    values |= dict.fromkeys((*counts, "groups_short", "unscored"), 1)
    return UpdateRow(**(values | changes))


def verdict_row(completion_id: int, reward: float | None = 2 / 3, **changes: Any) -> VerdictRow:
    verdict = Verdict(
        status=Status.FAILED,
        reward=reward,
        tests={"one": Status.PASSED, "two": Status.PASSED, "three": Status.TIMEOUT},
        expected=3,
        executed=3,
        detail="three: timeout",
    )
    values: dict[str, Any] = {"judge": "booking:weak", "is_primary": True, "verdict": verdict, "source_hash": "h"}
    return VerdictRow(completion_id=completion_id, **(values | changes))


def measurement(passed: int) -> dict[str, object]:
    score = {"value": passed / 10, "low": 0.01 * passed, "high": 0.9, "method": "Wilson, 10 draws"}
    return {"judge": "booking:audit", "answers": 10, "passed": passed, "distinct_passing": 1, "score": score}


def write_update(ledger: Ledger, update_no: int) -> list[int]:
    """One group of four, judged, then the update row with three members (the last one is unscored)."""
    group = [completion(sample, group_id=f"{update_no}/0:p", policy_version=update_no - 1) for sample in range(4)]
    ids = ledger.completions("train", update_no, group)
    ledger.verdicts([verdict_row(ids[0]), verdict_row(ids[1]), verdict_row(ids[2], 0.0)])
    failed = Verdict(status=Status.CHECKER_FAILED, reward=None)
    ledger.verdicts([verdict_row(ids[3], verdict=failed, source_hash=None)])
    members = [ids[2], ids[0], ids[1]]
    ledger.update(update_row(update_no, members))
    return ids


@pytest.fixture(scope="session")
def written_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed ledger: two updates, measured at states 0 and 2."""
    path = tmp_path_factory.mktemp("written") / "ledger.sqlite"
    with Ledger.create(path, run_row()) as ledger:
        ledger.prompts([PromptRow(id="p", content="Write f.", token_ids=(5, 6), columns={"level": 2})])
        ledger.attempt("start", 0, {})
        ledger.event("eval", 0, measurement(1))
        for update_no in (1, 2):
            write_update(ledger, update_no)
            ledger.attempt(
                "update", update_no, {"seconds": {"rollout": 2.0, "verify": 0.5, "train": 1.0, "other": 0.5}}
            )
        ledger.event("eval", 2, measurement(5))
        ledger.event("saved", 2, {"path": "model"})
        ledger.attempt("end", 2, {})
    return path


@pytest.fixture
def written(written_once: Path, tmp_path: Path) -> Path:
    """A copy of that ledger, to read, extend or damage."""
    return Path(shutil.copy(written_once, tmp_path / "ledger.sqlite"))


@pytest.fixture
def rows() -> SimpleNamespace:
    """The builders of this file."""
    return SimpleNamespace(
        run=run_row,
        completion=completion,
        update=update_row,
        verdict=verdict_row,
        measurement=measurement,
        write_update=write_update,
    )


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Ledger]:
    """A new ledger with one prompt, open for writing."""
    with Ledger.create(tmp_path / "fresh.sqlite", run_row()) as ledger:
        ledger.prompts([PromptRow(id="p", content="Write f.", token_ids=(5, 6))])
        yield ledger
