"""The run card."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from steelyard.ledger import Ledger, LedgerReader
from steelyard.ledger.card import card, card_text, write_card


def card_of(path: Path) -> dict:
    with LedgerReader(path) as reader:
        return card(reader)


def test_the_card_is_derived_from_the_ledger(written: Path, rows: SimpleNamespace) -> None:
    found = card_of(written)
    assert found["updates"] == {"done": 2, "planned": 3, "skipped": 0}
    assert (found["start_parameter_hash"], found["final_parameter_hash"]) == ("hash-0", "hash-2")
    assert found["objective"] == {
        "variant": "grpo",
        "choices": {"advantage": "group_standardised", "kl_coef": 0.0},
        "overridden": ["kl_coef"],
    }
    assert found["sampler"] == {"temperature": 1.0, "group_size": 4}
    assert found["eval"] == {
        "before": {"state": 0, **rows.measurement(1)},
        "after": {"state": 2, **rows.measurement(5)},
    }
    assert found["counts"] == {"prompts": 1, "updates": 2, "completions": 8, "verdicts": 8, "events": 3}
    assert found["times"]["seconds"] == {"other": 1.0, "rollout": 4.0, "train": 2.0, "verify": 1.0}
    assert found["reference"]["parameter_hash"] is None
    for name in ("name", "recipe", "recipe_hash", "seed", "steelyard", "model", "task", "machine", "sandbox"):
        assert found[name] == getattr(rows.run(), name)


def test_a_run_without_updates_ends_where_it_started(tmp_path: Path, rows: SimpleNamespace) -> None:
    Ledger.create(tmp_path / "new", rows.run()).close()
    found = card_of(tmp_path / "new")
    assert found["final_parameter_hash"] == found["start_parameter_hash"] == "hash-0"
    assert found["eval"] == {"before": None, "after": None}
    assert "n/a" in card_text(found)


@pytest.mark.parametrize(("state", "missing"), [(0, "after"), (2, "before")])
def test_a_state_that_was_not_measured_is_not_replaced_by_another(
    tmp_path: Path, rows: SimpleNamespace, state: int, missing: str
) -> None:
    with Ledger.create(tmp_path / "one", rows.run()) as ledger:
        ledger.event("eval", state, rows.measurement(1))
    measured = card_of(tmp_path / "one")["eval"]
    assert measured.pop(missing) is None
    assert [found["state"] for found in measured.values()] == [state]


def test_a_kl_penalty_names_its_reference(tmp_path: Path, rows: SimpleNamespace) -> None:
    Ledger.create(tmp_path / "kl", rows.run(objective={"variant": "grpo", "kl_coef": 0.04})).close()
    found = card_of(tmp_path / "kl")
    assert found["reference"] == {"policy": "the start of this run, frozen", "parameter_hash": "hash-0"}


def test_two_equal_runs_differ_in_times_only(tmp_path: Path, rows: SimpleNamespace) -> None:
    cards = []
    for name in ("a", "b"):
        with Ledger.create(tmp_path / name, rows.run()) as ledger:
            ledger.attempt("start", 0, {"seconds": {"rollout": 1.0 if name == "a" else 2.0}})
        cards.append(card_of(tmp_path / name))
    assert cards[0].pop("times") != cards[1].pop("times")
    assert cards[0] == cards[1]


def test_the_text_marks_what_was_written_over_the_variant(written: Path) -> None:
    lines = card_text(card_of(written)).splitlines()
    assert lines[0] == "Run card: booking"
    assert any(line.split() == ["*", "kl_coef", "0.0"] for line in lines)
    assert any(line.split() == ["advantage", "group_standardised"] for line in lines)
    assert any(line.split() == ["final_parameter_hash", "hash-2"] for line in lines)
    assert not any("temperature = 1.0" in line for line in lines)


def test_the_card_file_holds_the_same_and_replaces_an_older_one(written: Path) -> None:
    target = written.parent / "card.json"
    target.write_text("old")
    assert write_card(written.parent) == target
    assert json.loads(target.read_text()) == card_of(written)
    assert sorted(path.name for path in written.parent.iterdir() if "sqlite" not in path.name) == ["card.json"]
