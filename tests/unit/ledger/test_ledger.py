"""Writing and reading: what goes in comes out, and what cannot be kept is refused."""

import sqlite3
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from steelyard.errors import LedgerError
from steelyard.ledger import Ledger, LedgerReader, PromptRow, UpdateRow
from steelyard.ledger.codec import LETTERS, NO_STATUS
from steelyard.types import Status, Verdict


def test_the_run_row_comes_back(written: Path, rows: SimpleNamespace) -> None:
    with LedgerReader(written) as reader:
        assert reader.run() == rows.run()


def test_text_and_chat_prompts_come_back(fresh: Ledger) -> None:
    chat = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "17 × 24?"})
    prompts = [
        PromptRow(id="chat", content=chat, token_ids=(1,), columns={"answer": 408}),
        PromptRow(id="looks like chat", content='[{"role": "user"}]', token_ids=()),
    ]
    fresh.prompts(prompts)
    with LedgerReader(fresh.path) as reader:
        assert reader.prompts()[1:] == prompts


def test_updates_come_back(written: Path, rows: SimpleNamespace) -> None:
    with LedgerReader(written) as reader:
        assert reader.updates() == [rows.update(1, [3, 1, 2]), rows.update(2, [7, 5, 6])]
        assert reader.update(2) == rows.update(2, [7, 5, 6])
        with pytest.raises(LedgerError, match=r"no update 3; it holds updates 1 to 2"):
            reader.update(3)


def test_members_stand_in_loss_order_and_the_unscored_after_them(written: Path) -> None:
    with LedgerReader(written) as reader:
        members = reader.members(2)
    assert [member.stored.id for member in members] == [7, 5, 6, 8]
    assert [member.advantage for member in members] == [0.0, 0.1, 0.2, None]
    assert [member.verdicts[0].verdict.reward for member in members] == [0.0, 2 / 3, 2 / 3, None]
    assert members[0].stored.completion.group_id == "2/0:p"


def test_the_primary_verdict_comes_first(fresh: Ledger, rows: SimpleNamespace) -> None:
    ids = fresh.completions("train", 1, [rows.completion(0)])
    second = rows.verdict(ids[0], judge="booking:audit", is_primary=False)
    fresh.verdicts([second, rows.verdict(ids[0])])
    fresh.update(rows.update(1, ids))
    with LedgerReader(fresh.path) as reader:
        (member,) = reader.members(1)
    assert [row.judge for row in member.verdicts] == ["booking:weak", "booking:audit"]


def test_completions_are_found_by_purpose_and_update(fresh: Ledger, rows: SimpleNamespace) -> None:
    train = fresh.completions("train", 1, [rows.completion(0), rows.completion(1)])
    measured = fresh.completions("eval", 1, [rows.completion(0)])
    fresh.completions("train", 2, [rows.completion(0)])
    with LedgerReader(fresh.path) as reader:
        assert [stored.id for stored in reader.completions("train", 1)] == train
        assert [stored.id for stored in reader.completions("eval", 1)] == measured
        assert len(reader.completions()) == reader.count("completions") == 4
        assert reader.completions("train", 1)[0].completion == rows.completion(0)


def test_c75_sampled_ids_are_kept_though_their_text_encodes_differently(fresh: Ledger, rows: SimpleNamespace) -> None:
    he_llo = rows.completion(0, token_ids=(3, 4), logprobs=(-1.0, -2.0), text="hello")  # the text alone encodes to (5,)
    fresh.completions("train", 1, [he_llo])
    with LedgerReader(fresh.path) as reader:
        kept = reader.completions()[0].completion
    assert (kept.token_ids, kept.logprobs, kept.text) == ((3, 4), (-1.0, -2.0), "hello")


def test_tokens_are_little_endian_int32_and_logprobs_float32(fresh: Ledger, rows: SimpleNamespace) -> None:
    fresh.completions("train", 1, [rows.completion(0, token_ids=(1, 258), logprobs=(-0.5, -2.0))])
    db = sqlite3.connect(fresh.path)
    stored = db.execute("SELECT token_ids, logprobs FROM completions").fetchone()
    db.close()
    assert stored == (bytes([1, 0, 0, 0, 2, 1, 0, 0]), bytes([0, 0, 0, 0xBF, 0, 0, 0, 0xC0]))


def test_a_verdict_keeps_one_letter_per_test_in_suite_order(fresh: Ledger, rows: SimpleNamespace) -> None:
    ids = fresh.completions("train", 1, [rows.completion(0), rows.completion(1)])
    partial = Verdict(status=Status.TIMEOUT, reward=0.0, tests={"three": Status.TIMEOUT}, expected=3, executed=1)
    elsewhere = rows.verdict(ids[1], judge="other:suite")
    fresh.verdicts([rows.verdict(ids[0], verdict=partial), elsewhere])
    db = sqlite3.connect(fresh.path)
    letters = [row[0] for row in db.execute("SELECT tests FROM verdicts ORDER BY id")]
    db.close()
    assert letters == ["..T", '{"one":"passed","two":"passed","three":"timeout"}']
    with LedgerReader(fresh.path) as reader:
        assert [row.verdict for row in reader.verdicts()] == [partial, elsewhere.verdict]


def test_every_status_has_a_letter_of_its_own() -> None:
    assert set(LETTERS) == set(Status)
    assert len({*LETTERS.values(), NO_STATUS}) == len(Status) + 1


def test_seconds_of_a_verdict_are_no_part_of_its_row(fresh: Ledger, rows: SimpleNamespace) -> None:
    ids = fresh.completions("train", 1, [rows.completion(0)])
    row = rows.verdict(ids[0])
    fresh.verdicts([replace(row, verdict=replace(row.verdict, seconds=3.0))])
    with LedgerReader(fresh.path) as reader:
        assert reader.verdicts() == [row]


def test_the_view_joins_seconds_and_the_measurement_of_the_state(written: Path) -> None:
    with LedgerReader(written) as reader:
        first, second = reader.metrics()
    assert (first["loss"], first["grad_norm"], first["clipped"]) == (0.0, 4.7, True)
    assert (first["seconds_rollout"], first["seconds"]) == (2.0, 4.0)
    assert first["eval_value"] is first["kl_ref"] is None
    measured = {name: second[name] for name in second if name.startswith("eval_")}
    assert measured == {
        "eval_judge": "booking:audit",
        "eval_answers": 10,
        "eval_passed": 5,
        "eval_value": 0.5,
        "eval_low": 0.05,
        "eval_high": 0.9,
        "eval_distinct_passing": 1,
    }


def test_the_view_has_one_row_per_update_however_often_it_was_timed(written: Path, rows: SimpleNamespace) -> None:
    with Ledger.open(written) as ledger:
        ledger.attempt("update", 2, {"seconds": {"rollout": 9.0}})
        ledger.event("eval", 2, rows.measurement(6))
        ledger.update(rows.update(3, []))
    with LedgerReader(written) as reader:
        metrics = reader.metrics()
    assert [row["update_no"] for row in metrics] == [1, 2, 3]
    assert [row["seconds"] for row in metrics] == [4.0, 9.0, None]
    assert metrics[1]["eval_passed"] == 6


def test_events_attempts_and_evals(written: Path) -> None:
    with LedgerReader(written) as reader:
        assert [(row.kind, row.update_no) for row in reader.events()] == [("eval", 0), ("eval", 2), ("saved", 2)]
        assert [row.data["passed"] for row in reader.evals()] == [1, 5]
        assert [row.kind for row in reader.events("saved")] == ["saved"]
        assert [row.kind for row in reader.attempts()] == ["start", "update", "update", "end"]
        assert {row.attempt for row in reader.attempts()} == {1}


def test_reopening_is_another_attempt(written: Path) -> None:
    with Ledger.open(written) as ledger:
        ledger.attempt("start", 2, {})
        assert ledger.attempt_no == 2
    with LedgerReader(written) as reader:
        assert reader.attempts()[-1].attempt == 2


def test_equal_runs_have_equal_row_hashes_whenever_and_in_whatever_order_they_ran(
    tmp_path: Path, rows: SimpleNamespace
) -> None:
    hashes = []
    for name in ("a", "b"):
        with Ledger.create(tmp_path / name, rows.run()) as ledger:
            ledger.prompts([PromptRow(id="p", content="Write f.", token_ids=(5, 6))])
            if name == "b":  # another order of arrival: every integer key differs
                ledger.completions("eval", 0, [rows.completion(9)])
            rows.write_update(ledger, 1)
        with LedgerReader(tmp_path / name) as reader:
            hashes.append(
                [
                    [row["row_hash"] for row in reader.rows(f"SELECT row_hash FROM {table} {where} ORDER BY row_hash")]
                    for table, where in (("completions", "WHERE purpose = 'train'"), ("verdicts", ""), ("updates", ""))
                ]
            )
    assert hashes[0] == hashes[1]


def test_row_hashes_do_not_drift_between_versions(written: Path) -> None:
    with LedgerReader(written) as reader:
        found = {
            table: next(reader.rows(f"SELECT row_hash FROM {table}"))["row_hash"][:12]
            for table in ("prompts", "completions", "verdicts", "updates", "events")
        }
    assert found == {
        "prompts": "3578498f2c00",
        "completions": "67a0e53f85d5",
        "verdicts": "b5ecdcb22068",
        "updates": "befce6d25fab",
        "events": "361f3bc00491",
    }


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("completions", "logprobs = x'00'"),
        ("verdicts", "reward = 1.0"),
        ("updates", "grad_norm = 4.8"),
        ("updates", "grad_norm = NULL"),
        ("prompts", "content = '\"other\"'"),
        ("events", "data = '{}'"),
    ],
)
def test_a_row_changed_behind_the_triggers_is_reported(written: Path, table: str, change: str) -> None:
    with LedgerReader(written) as reader:
        assert reader.damaged() == []
    db = sqlite3.connect(written)
    db.execute(f"DROP TRIGGER {table}_no_update")
    db.execute(f"UPDATE {table} SET {change} WHERE rowid = 1")
    db.commit()
    db.close()
    with LedgerReader(written) as reader:
        assert any(problem.startswith(table) for problem in reader.damaged())


REALS = [field.name for field in fields(UpdateRow) if "float" in str(field.type) and "tuple" not in str(field.type)]


@pytest.mark.parametrize("name", REALS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_c24_a_number_that_is_not_finite_never_becomes_null(
    fresh: Ledger, rows: SimpleNamespace, name: str, value: float
) -> None:
    with pytest.raises(LedgerError, match=rf"updates\.{name} = (nan|inf) is not a finite number.*skip_reason"):
        fresh.update(rows.update(1, [], **{name: value}))
    skipped = rows.update(1, [], **({name: None} if name != "lr" else {}), skipped=True, skip_reason=f"{name} {value}")
    fresh.update(skipped)
    with LedgerReader(fresh.path) as reader:
        assert reader.updates() == [skipped]


def test_c24_an_unscored_verdict_is_null_and_a_nan_reward_is_refused(fresh: Ledger, rows: SimpleNamespace) -> None:
    ids = fresh.completions("train", 1, [rows.completion(0), rows.completion(1)])
    fresh.verdicts([rows.verdict(ids[0], None)])
    with pytest.raises(LedgerError, match=r"verdicts\.reward = nan"):
        fresh.verdicts([rows.verdict(ids[1], float("nan"))])
    with LedgerReader(fresh.path) as reader:
        assert [row.verdict.reward for row in reader.verdicts()] == [None]


def test_documents_keep_what_json_cannot_hold_visibly(fresh: Ledger) -> None:
    data = {"loss": float("nan"), "raw": b"\x00", "pair": (1, 2), 3: "key", "nested": [{"x": float("inf")}]}
    fresh.event("note", 0, data)  # pyright: ignore[reportArgumentType]
    with LedgerReader(fresh.path) as reader:
        assert reader.events()[0].data == {
            "loss": {"$repr": "nan"},
            "raw": {"$repr": "b'\\x00'"},
            "pair": [1, 2],
            "3": "key",
            "nested": [{"x": {"$repr": "inf"}}],
        }


@pytest.mark.parametrize(("text", "kept_as"), [("plain ü", "text"), ("a\0b", "blob"), ("\ud83d", "blob")])
def test_a_text_that_sql_would_cut_or_refuse_stands_as_a_blob(
    fresh: Ledger, rows: SimpleNamespace, text: str, kept_as: str
) -> None:
    fresh.completions("train", 1, [rows.completion(0, text=text)])
    with LedgerReader(fresh.path) as reader:
        found = list(reader.rows("SELECT typeof(text) AS kind, length(CAST(text AS BLOB)) AS bytes FROM completions"))
        assert reader.completions()[0].completion.text == text
    assert found == [{"kind": kept_as, "bytes": len(text.encode("utf-8", "surrogatepass"))}]


def test_a_negative_zero_hashes_as_the_file_holds_it(fresh: Ledger, rows: SimpleNamespace) -> None:
    fresh.update(rows.update(1, [], loss=-0.0))
    with LedgerReader(fresh.path) as reader:
        assert reader.damaged() == []


def test_rows_that_do_not_fit_together_are_refused(fresh: Ledger, rows: SimpleNamespace) -> None:
    ids = fresh.completions("train", 1, [rows.completion(0)])
    refused = [
        (lambda: fresh.completions("train", 1, [rows.completion(0)]), "append-only: completions"),
        (lambda: fresh.completions("train", 1, [rows.completion(1, prompt_id="q")]), "prompt 'q' is not in"),
        (lambda: fresh.completions("train", 1, [rows.completion(1, prompt_ids=(5,))]), "other token ids"),
        (lambda: fresh.completions("train", 1, [rows.completion(1, logprobs=(-1.0,))]), "3 tokens and 1 log-probs"),
        (lambda: fresh.completions("train", 1, [rows.completion(1, token_ids=(1, 2, 2**31))]), "int32"),
        (lambda: fresh.completions("train", 1, [rows.completion(1, token_ids=(1, 2, 1.5))]), "int32"),
        (lambda: fresh.completions("train", 1, [rows.completion(1, logprobs=(0, 0, -1e39))]), "float32"),
        (lambda: fresh.verdicts([rows.verdict(77)]), "completion 77 is not in"),
        (lambda: fresh.update(rows.update(1, [77])), "completion 77 is not in"),
        (lambda: fresh.update(rows.update(1, ids, advantages=())), "1 members and 0 advantages"),
        (lambda: fresh.update(rows.update(2**63, ids)), r"updates\.update_no = \d+ is not a 64-bit integer"),
        (lambda: fresh.event(None, 0, {}), "NOT NULL"),  # pyright: ignore[reportArgumentType]
        (lambda: fresh.event(1, 0, {}), "events.kind = 1 is not text"),  # pyright: ignore[reportArgumentType]
    ]
    for action, message in refused:
        with pytest.raises(LedgerError, match=message):
            action()
    with LedgerReader(fresh.path) as reader:
        assert (reader.count("completions"), reader.count("verdicts"), reader.count("updates")) == (1, 0, 0)


def test_a_refused_row_takes_its_whole_group_back(fresh: Ledger, rows: SimpleNamespace) -> None:
    with pytest.raises(LedgerError):
        fresh.completions("train", 1, [rows.completion(0), rows.completion(0)])
    assert fresh.completions("train", 1, [rows.completion(0)]) == [1]


def test_an_unknown_table_is_refused_by_name(written: Path) -> None:
    with LedgerReader(written) as reader, pytest.raises(LedgerError, match=r"'rewards' is no table.*prompts, updates"):
        reader.count("rewards")


def test_reading_needs_and_takes_no_right_to_write(written: Path, rows: SimpleNamespace) -> None:
    before = written.read_bytes()
    with LedgerReader(written) as reader, pytest.raises(LedgerError, match="readonly"):
        list(reader.rows("INSERT INTO attempts VALUES (9, 9, 'x', 0, '', '{}')"))
    assert written.read_bytes() == before


def test_a_ledger_is_never_overwritten(written: Path, rows: SimpleNamespace) -> None:
    before = written.read_bytes()
    with pytest.raises(LedgerError, match=r"exists already.*run\.dir"):
        Ledger.create(written, rows.run())
    assert written.read_bytes() == before


def test_closing_twice_is_harmless_and_leaves_one_file(written: Path, tmp_path: Path) -> None:
    ledger = Ledger.open(written)
    ledger.close()
    ledger.close()
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]
