"""`steelyard explain --from`: the objective that another trainer's configuration really optimises, in our terms."""

from collections.abc import Callable, Mapping
from pathlib import Path

from steelyard.errors import ConfigError
from steelyard.run.explain.from_trl import from_trl
from steelyard.run.explain.from_verl import from_verl
from steelyard.run.explain.peer_config import Settings, read_settings
from steelyard.run.explain.story import told
from steelyard.run.explain.translation import Translation, as_toml

READERS: Mapping[str, Callable[[Settings, Path], Translation]] = {"trl": from_trl, "verl": from_verl}


def explain_peer(peer: str, path: Path) -> str:
    """Return what a configuration of `peer` optimises, how each key was read, and what a recipe cannot say.

    Args:
        peer: trl or verl.
        path: YAML, JSON, or the shell script that starts the training.

    Raises:
        ConfigError: If the peer is unknown, the file cannot be read, or its objective has no counterpart; says why.
    """
    if peer not in READERS:
        raise ConfigError(f"--from {peer!r} is not read; choose {' or '.join(READERS)}.")
    translation = READERS[peer](read_settings(path), path)
    recipe = translation.as_recipe()
    parts = [
        f"{path}, as {translation.peer} reads it:",
        told(recipe),
        _reads(translation),
        _listed("What differs, and no recipe can say:", translation.differs or ["nothing that touches the objective"]),
        _listed("Worth knowing of this file:", translation.traps),
        f"As a recipe (fill in model, data and reward):\n\n{as_toml(recipe, translation).rstrip()}",
    ]
    return "\n\n".join(part for part in parts if part)


def _reads(translation: Translation) -> str:
    width = max(len(read.key) + len(str(read.value)) for read in translation.reads) + 3
    lines = [f"How it was read (* {translation.peer}'s default, not in the file):"]
    for read in translation.reads:
        lines.append(f"  {f'{read.key} = {read.value}':<{width}} {' ' if read.given else '*'} {read.ours}")
    if translation.irrelevant:
        lines.append(f"  {translation.irrelevant} further keys do not touch the objective")
    return "\n".join(lines)


def _listed(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)]) if lines else ""
