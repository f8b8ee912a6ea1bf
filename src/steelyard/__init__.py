"""Steelyard post-trains language models with verifiable rewards and accounts for every update it makes.

The public API is `train`, `Recipe`, `load`, `sft`, `explain`, `LedgerReader` and `Sandbox`. Names are imported when they are first used, so that `import steelyard` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.config import load
    from steelyard.ledger.reader import LedgerReader
    from steelyard.run.explain import explain
    from steelyard.run.loop import RunResult, train
    from steelyard.run.recipe import Recipe
    from steelyard.run.sft import sft
    from steelyard.verify.sandbox import Sandbox

__all__ = ["LedgerReader", "Recipe", "RunResult", "Sandbox", "explain", "load", "sft", "train"]

_HOME = {
    "LedgerReader": "steelyard.ledger.reader",
    "Recipe": "steelyard.run.recipe",
    "RunResult": "steelyard.run.loop",
    "Sandbox": "steelyard.verify.sandbox",
    "explain": "steelyard.run.explain",
    "load": "steelyard.config",
    "sft": "steelyard.run.sft",
    "train": "steelyard.run.loop",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
