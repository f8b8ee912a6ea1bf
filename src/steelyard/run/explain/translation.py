"""What another trainer's settings come to in our terms: a recipe, how each key was read, and what a recipe cannot say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w

from steelyard.config import build
from steelyard.errors import ConfigError
from steelyard.numerics.variants import CHOICES, VARIANTS, Objective, practice_of
from steelyard.run.explain.peer_config import Settings
from steelyard.run.recipe import Recipe

ELSEWHERE = (
    "answers come from another distribution than the one whose log-probs enter the loss. Refused here; the recipe samples "
    "from the policy itself."
)
"""What truncated sampling does."""
NESTED = {
    "kl_coef": "kl.coef",
    "kl_estimator": "kl.estimator",
    "kl_placement": "kl.placement",
    "mismatch_weight": "mismatch.weight",
    "mismatch_cap": "mismatch.cap",
}
"""Choices of an objective that stand in a section of their own in a recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One key of the other trainer that matters for what is optimised."""

    key: str
    """Its name there."""
    value: object
    """Its value."""
    given: bool
    """Written in the file; False: the other trainer's default."""
    ours: str
    """What it comes to here."""


@dataclass(slots=True, kw_only=True)
class Translation:
    """Filled by a reader, key by key."""

    peer: str
    """The trainer, with the version that was read."""
    path: Path
    """The file."""
    settings: Settings
    """As written."""
    defaults: Mapping[str, object]
    """The trainer's own, for the keys that matter here."""
    recipe: dict[str, object] = field(default_factory=dict[str, object])
    """Dotted keys of our recipe."""
    choices: dict[str, object] = field(default_factory=dict[str, object])
    """Choices of our objective."""
    reads: list[Read] = field(default_factory=list[Read])
    """In the order of reading."""
    differs: list[str] = field(default_factory=list[str])
    """What our recipe cannot say, one sentence each."""
    traps: list[str] = field(default_factory=list[str])
    """What a reader of the file might not expect."""
    irrelevant: int = 0
    """Keys of the file that do not touch the objective."""

    def raw(self, key: str) -> object:
        """Return the value of a key: as written, else the trainer's default."""
        return self.settings.get(key, self.defaults[key])

    def given(self, key: str) -> bool:
        """Whether the file writes the key."""
        return key in self.settings

    def note(self, key: str, ours: str) -> None:
        """Record what a key comes to."""
        self.reads.append(Read(key=key, value=self.raw(key), given=self.given(key), ours=ours))

    def number(self, key: str) -> float:
        """Return a key as a number."""
        value = self.raw(key)
        if isinstance(value, str):  # YAML reads 1e-6 as text
            value = self._parsed(value, float)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(key, "write a number")
        return float(value)

    def whole(self, key: str) -> int:
        """Return a key as a whole number."""
        value = self.number(key)
        if value != int(value):
            raise self.bad(key, "write a whole number")
        return int(value)

    def optional(self, key: str) -> float | None:
        """Return a key as a number, None where it is off."""
        return None if self.raw(key) in (None, "null", "None", "none") else self.number(key)

    def switch(self, key: str) -> bool:
        """Return a key as a boolean."""
        value = self.raw(key)
        named = {"true": True, "false": False, "yes": True, "no": False}
        found = named.get(str(value).lower()) if isinstance(value, str) else value
        if not isinstance(found, bool):
            raise self.bad(key, "write true or false")
        return found

    def name(self, key: str, allowed: Mapping[str, object] | tuple[str, ...]) -> str:
        """Return a key as one of several names."""
        value = str(self.raw(key))
        if value not in allowed:
            raise self.bad(key, f"{self.peer} knows {', '.join(allowed)}")
        return value

    def bad(self, key: str, way_out: str) -> ConfigError:
        """Return the error for a value that cannot be used."""
        whose = "" if self.given(key) else f" ({self.peer}'s default)"
        return ConfigError(f"{self.path}: {key} = {self.raw(key)!r}{whose}: {way_out}.")

    @staticmethod
    def _parsed(text: str, kind: Callable[[str], float]) -> object:
        try:
            return kind(text)
        except ValueError:
            return text

    # ---------------------------------------------------------------- the result

    def as_recipe(self) -> Recipe:
        """Return the recipe with the same objective, under the variant that needs the fewest other choices.

        Raises:
            ConfigError: If the choices have no meaning together; says why.
        """
        written = self.objective_keys()
        data: dict[str, object] = {"objective": written}
        for key, value in {**PLACEHOLDERS, **self.recipe}.items():
            section, _, name = key.partition(".")
            part = data.setdefault(section, {})
            if isinstance(part, dict):
                part[name] = value
        return build(data, Recipe, where=f"{self.path}, as a recipe")

    def objective_keys(self) -> dict[str, object]:
        """Return the section [objective] of the recipe: a variant, and the choices that differ from it."""
        candidates: list[tuple[int, int, dict[str, object]]] = []
        reasons: list[str] = []
        for place, (variant, base) in enumerate(VARIANTS.items()):
            try:
                whole = base.overridden(**self.choices)
            except ValueError as error:
                reasons.append(str(error))
                continue
            needed = [name for name in CHOICES if getattr(whole, name) != getattr(base, name)]
            brought = practice_of(variant)
            cost = len(needed) + brought.dynamic_sampling + bool(brought.overlong_share)
            candidates.append((cost, place, {"variant": variant, **self._minimal(base, whole, needed)}))
        if not candidates:
            raise ConfigError(f"{self.path}: these choices have no meaning together: {reasons[0]}")
        return _nested(min(candidates, key=lambda candidate: candidate[:2])[2])

    @staticmethod
    def _minimal(base: Objective, whole: Objective, needed: list[str]) -> dict[str, object]:
        """Leave out what comes along with another choice."""
        kept = {name: getattr(whole, name) for name in needed if getattr(whole, name) is not None}
        for name in list(kept):
            without = {key: value for key, value in kept.items() if key != name}
            try:
                if base.overridden(**without) == whole:
                    kept = without
            except ValueError:
                continue
        return kept

    def practice(self) -> None:
        """Write down sampling and overlong shaping, so that a variant's own never enters unseen."""
        self.recipe.setdefault("rollout.dynamic_sampling", False)
        self.recipe.setdefault("reward.overlong_buffer", 0)


PLACEHOLDERS: Mapping[str, object] = {
    "model.source": "YOUR-MODEL",
    "task.data": "your-prompts.jsonl",
    "reward.function": "your_reward.py:score",
}


def as_toml(recipe: Recipe, translation: Translation) -> str:
    """Return the recipe as TOML: the keys that the translation wrote, and none that has our default."""
    data: dict[str, dict[str, object]] = {}
    for key, value in {**PLACEHOLDERS, **translation.recipe}.items():
        section, _, name = key.partition(".")
        data.setdefault(section, {})[name] = value
    return tomli_w.dumps({**data, "objective": recipe.objective.model_dump(exclude_unset=True)})


def _nested(flat: Mapping[str, object]) -> dict[str, object]:
    nested: dict[str, object] = {}
    for name, value in flat.items():
        section, _, leaf = NESTED.get(name, name).rpartition(".")
        if section:
            part = nested.setdefault(section, {})
            if isinstance(part, dict):
                part[leaf] = value
        else:
            nested[leaf] = value
    return nested
