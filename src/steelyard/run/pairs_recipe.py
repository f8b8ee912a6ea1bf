"""Recipe sections that the stages on preference pairs share. Reading them imports neither torch nor transformers."""

from typing import Self

from pydantic import Field, model_validator

from steelyard.config import Section


class StageRunSection(Section):
    """Which run this is."""

    seed: int = Field(default=0, ge=0)
    """Keys the order of the pairs and every new weight."""
    dir: str | None = None
    """Where the result goes; default runs/<recipe>-s<seed>. A directory that holds something is never written to."""
    threads: int = Field(default=2, ge=1)
    """CPU threads of torch. Sums depend on it in the last bit, so it belongs to the recipe."""


class PairsSection(Section):
    """Where the preference pairs come from."""

    data: str | None = None
    """Your own rows, JSONL, Parquet or a hub data set: `prompt`, `chosen`, `rejected`, each text or chat messages."""
    ledger: str | None = None
    """A run directory: the best answer of each group against its worst, with the ids that were sampled."""
    held_out: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Share kept back for measuring, by a hash: whole prompts from five different ones on, single pairs below."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.data is None) == (self.ledger is None):
            raise ValueError(
                "give exactly one of pairs.data (your own rows) and pairs.ledger (a run directory); `pairs.ledger=` on the "
                "command line takes one out"
            )
        return self
