"""The tables as SQL, migration by migration, and what the bytes in each column mean.

`PRAGMA user_version` counts the migrations that a file has seen. A released migration never changes; a new
column is nullable and comes with a new one, so that the row hashes of older rows stay what they were.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

APPLICATION_ID = 0x53_54_4C_59
"""Marks the file as a ledger ("STLY"), so that another SQLite database is not mistaken for one."""

Kind = Literal["int", "bool", "real", "text", "json", "int32s", "int64s", "float32s", "float64s"]

KINDS: Mapping[str, Mapping[str, Kind]] = {
    "run": {
        "id": "int",
        "format": "int",
        "name": "text",
        "recipe": "text",
        "recipe_hash": "text",
        "seed": "int",
        "steelyard": "text",
        "objective": "json",
        "model": "json",
        "task": "json",
        "machine": "json",
        "sandbox": "json",
        "tests": "json",
    },
    "prompts": {
        "id": "text",
        "content": "json",
        "token_ids": "int32s",
        "columns": "json",
        "content_hash": "text",
        "row_hash": "text",
    },
    "updates": {
        "update_no": "int",
        "policy_version": "int",
        "members": "int64s",
        "advantages": "float64s",
        "loss": "real",
        "loss_surrogate": "real",
        "loss_kl": "real",
        "grad_norm": "real",
        "grad_norm_clipped": "real",
        "clipped": "bool",
        "lr": "real",
        "optimizer_steps": "int",
        "steps": "json",
        "n_sequences": "int",
        "n_tokens": "int",
        "groups": "int",
        "groups_informative": "int",
        "groups_constant": "int",
        "groups_short": "int",
        "unscored": "int",
        "reward_mean": "real",
        "reward_std": "real",
        "ratio_min": "real",
        "ratio_mean": "real",
        "ratio_max": "real",
        "clip_share_low": "real",
        "clip_share_high": "real",
        "entropy": "real",
        "kl_ref": "real",
        "sampler_gap": "real",
        "length_mean": "real",
        "length_mean_right": "real",
        "length_mean_wrong": "real",
        "truncated_share": "real",
        "param_change_norm": "real",
        "parameter_hash_before": "text",
        "parameter_hash_after": "text",
        "skipped": "bool",
        "skip_reason": "text",
        "row_hash": "text",
    },
    "completions": {
        "id": "int",
        "purpose": "text",
        "update_no": "int",
        "group_id": "text",
        "prompt_id": "text",
        "sample": "int",
        "policy_version": "int",
        "token_ids": "int32s",
        "logprobs": "float32s",
        "text": "text",
        "finish": "text",
        "row_hash": "text",
    },
    "verdicts": {
        "id": "int",
        "completion_id": "int",
        "judge": "text",
        "is_primary": "bool",
        "status": "text",
        "reward": "real",
        "passed": "int",
        "expected": "int",
        "executed": "int",
        "tests": "text",
        "detail": "text",
        "source_hash": "text",
        "row_hash": "text",
    },
    "attempts": {
        "id": "int",
        "attempt": "int",
        "kind": "text",
        "update_no": "int",
        "utc": "text",
        "data": "json",
    },
    "events": {
        "id": "int",
        "kind": "text",
        "update_no": "int",
        "data": "json",
        "row_hash": "text",
    },
}
"""What each column holds. REAL and INTEGER as they are; blobs are little endian arrays."""

NOT_IN_METRICS = ("members", "advantages", "steps", "row_hash")
METRICS: Mapping[str, Kind] = {
    **{name: kind for name, kind in KINDS["updates"].items() if name not in NOT_IN_METRICS},
    "seconds_rollout": "real",
    "seconds_verify": "real",
    "seconds_train": "real",
    "seconds": "real",
    "eval_judge": "text",
    "eval_answers": "int",
    "eval_passed": "int",
    "eval_value": "real",
    "eval_low": "real",
    "eval_high": "real",
    "eval_distinct_passing": "int",
}
"""Columns of the view `metrics`."""

_TABLES = """
CREATE TABLE run (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  format INTEGER NOT NULL,
  name TEXT NOT NULL,
  recipe TEXT NOT NULL,
  recipe_hash TEXT NOT NULL,
  seed INTEGER NOT NULL,
  steelyard TEXT NOT NULL,
  objective TEXT NOT NULL,
  model TEXT NOT NULL,
  task TEXT NOT NULL,
  machine TEXT NOT NULL,
  sandbox TEXT NOT NULL,
  tests TEXT NOT NULL
);
CREATE TABLE prompts (
  id TEXT PRIMARY KEY NOT NULL,
  content TEXT NOT NULL,
  token_ids BLOB NOT NULL,
  columns TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  row_hash TEXT NOT NULL
);
CREATE TABLE updates (
  update_no INTEGER PRIMARY KEY,
  policy_version INTEGER NOT NULL,
  members BLOB NOT NULL,
  advantages BLOB NOT NULL,
  loss REAL,
  loss_surrogate REAL,
  loss_kl REAL,
  grad_norm REAL,
  grad_norm_clipped REAL,
  clipped INTEGER,
  lr REAL NOT NULL,
  optimizer_steps INTEGER NOT NULL,
  steps TEXT NOT NULL,
  n_sequences INTEGER NOT NULL,
  n_tokens INTEGER NOT NULL,
  groups INTEGER NOT NULL,
  groups_informative INTEGER NOT NULL,
  groups_constant INTEGER NOT NULL,
  groups_short INTEGER NOT NULL,
  unscored INTEGER NOT NULL,
  reward_mean REAL,
  reward_std REAL,
  ratio_min REAL,
  ratio_mean REAL,
  ratio_max REAL,
  clip_share_low REAL,
  clip_share_high REAL,
  entropy REAL,
  kl_ref REAL,
  sampler_gap REAL,
  length_mean REAL,
  length_mean_right REAL,
  length_mean_wrong REAL,
  truncated_share REAL,
  param_change_norm REAL,
  parameter_hash_before TEXT NOT NULL,
  parameter_hash_after TEXT NOT NULL,
  skipped INTEGER NOT NULL,
  skip_reason TEXT,
  row_hash TEXT NOT NULL
);
CREATE TABLE completions (
  id INTEGER PRIMARY KEY,
  purpose TEXT NOT NULL,
  update_no INTEGER NOT NULL,
  group_id TEXT NOT NULL,
  prompt_id TEXT NOT NULL REFERENCES prompts (id),
  sample INTEGER NOT NULL,
  policy_version INTEGER NOT NULL,
  token_ids BLOB NOT NULL,
  logprobs BLOB NOT NULL,
  text TEXT NOT NULL,
  finish TEXT NOT NULL,
  row_hash TEXT NOT NULL,
  UNIQUE (purpose, update_no, group_id, sample)
);
CREATE TABLE verdicts (
  id INTEGER PRIMARY KEY,
  completion_id INTEGER NOT NULL REFERENCES completions (id),
  judge TEXT NOT NULL,
  is_primary INTEGER NOT NULL,
  status TEXT NOT NULL,
  reward REAL,
  passed INTEGER NOT NULL,
  expected INTEGER NOT NULL,
  executed INTEGER NOT NULL,
  tests TEXT NOT NULL,
  detail TEXT NOT NULL,
  source_hash TEXT,
  row_hash TEXT NOT NULL,
  UNIQUE (completion_id, judge)
);
CREATE TABLE attempts (
  id INTEGER PRIMARY KEY,
  attempt INTEGER NOT NULL,
  kind TEXT NOT NULL,
  update_no INTEGER NOT NULL,
  utc TEXT NOT NULL,
  data TEXT NOT NULL
);
CREATE INDEX attempts_by_kind ON attempts (kind, update_no);
CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  update_no INTEGER NOT NULL,
  data TEXT NOT NULL,
  row_hash TEXT NOT NULL
);
CREATE INDEX events_by_kind ON events (kind, update_no);
"""

_METRICS_VIEW = f"""
CREATE VIEW metrics AS
WITH timed AS (SELECT update_no, max(id) AS id FROM attempts WHERE kind = 'update' GROUP BY update_no),
  measured AS (SELECT update_no, max(id) AS id FROM events WHERE kind = 'eval' GROUP BY update_no)
SELECT {", ".join("u." + name for name in METRICS if name in KINDS["updates"])},
  json_extract(a.data, '$.seconds.rollout') AS seconds_rollout,
  json_extract(a.data, '$.seconds.verify') AS seconds_verify,
  json_extract(a.data, '$.seconds.train') AS seconds_train,
  (SELECT sum(value) FROM json_each(a.data, '$.seconds')) AS seconds,
  json_extract(e.data, '$.judge') AS eval_judge,
  json_extract(e.data, '$.answers') AS eval_answers,
  json_extract(e.data, '$.passed') AS eval_passed,
  json_extract(e.data, '$.score.value') AS eval_value,
  json_extract(e.data, '$.score.low') AS eval_low,
  json_extract(e.data, '$.score.high') AS eval_high,
  json_extract(e.data, '$.distinct_passing') AS eval_distinct_passing
FROM updates u
LEFT JOIN timed ON timed.update_no = u.update_no LEFT JOIN attempts a ON a.id = timed.id
LEFT JOIN measured ON measured.update_no = u.update_no LEFT JOIN events e ON e.id = measured.id
ORDER BY u.update_no;
"""


def _append_only(table: str, *keys: Sequence[str]) -> str:
    """Triggers that refuse every change of a written row.

    The third one is for INSERT OR REPLACE, which deletes the old row without firing the delete trigger.
    """
    same = " OR ".join("(" + " AND ".join(f"{name} = NEW.{name}" for name in key) + ")" for key in keys)
    refuse = f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: {table}'); END;"
    return f"""
CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}
CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {refuse}
CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table}
  WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) {refuse}
"""


MIGRATIONS: tuple[str, ...] = (
    _TABLES
    + _METRICS_VIEW
    + _append_only("run", ["id"])
    + _append_only("prompts", ["id"])
    + _append_only("updates", ["update_no"])
    + _append_only("completions", ["id"], ["purpose", "update_no", "group_id", "sample"])
    + _append_only("verdicts", ["id"], ["completion_id", "judge"])
    + _append_only("attempts", ["id"])
    + _append_only("events", ["id"]),
)
"""Migration N brings a file from version N-1 to version N."""

FORMAT = len(MIGRATIONS)
"""The version that this code writes."""
