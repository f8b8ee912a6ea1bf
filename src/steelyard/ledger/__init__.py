"""The ledger of a run: one append-only SQLite file that every number shown anywhere comes from.

`Ledger` writes, `LedgerReader` reads, `steelyard.ledger.records` says what each field means. The run card
is in `steelyard.ledger.card`, Parquet and CSV in `steelyard.ledger.export`.
"""

from steelyard.ledger.reader import LedgerReader
from steelyard.ledger.records import (
    AttemptRow,
    EventRow,
    Member,
    PromptRow,
    RunRow,
    StoredCompletion,
    UpdateRow,
    VerdictRow,
)
from steelyard.ledger.writer import Ledger

__all__ = [
    "AttemptRow",
    "EventRow",
    "Ledger",
    "LedgerReader",
    "Member",
    "PromptRow",
    "RunRow",
    "StoredCompletion",
    "UpdateRow",
    "VerdictRow",
]
