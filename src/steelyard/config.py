"""Recipes: frozen configuration models, read from TOML, changed by `key.path=value`, hashed.

A recipe is a tree of `Section`s. An unknown key is an error with the nearest valid name, a value of
the wrong type is an error with the value; both are `ConfigError` and name file and key path.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from steelyard.content import content_hash
from steelyard.errors import ConfigError

ModelT = TypeVar("ModelT", bound="Section")


class Section(BaseModel):
    """Base of every configuration model: frozen, no unknown keys, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


def load(path: Path, model: type[ModelT], overrides: Sequence[str] = ()) -> ModelT:
    """Read a TOML recipe, apply `key.path=value` overrides, and validate.

    Args:
        path: The recipe file.
        model: The recipe model to validate against.
        overrides: As typed on the command line; values are TOML, a bare word is a string.

    Raises:
        ConfigError: If the file cannot be read or parsed, or a key or value is not valid.
    """
    return build(with_overrides(read_toml(path), overrides), model, where=str(path))


def read_toml(path: Path) -> dict[str, object]:
    """Return the parsed TOML file, or raise `ConfigError` that says which line is wrong."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, _siblings(path), n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else "; `steelyard init` writes a starting recipe."
        raise ConfigError(f"no recipe at {path}{hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a directory; name a recipe file in it (TOML).") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the recipe {path}: {error}. It must be a readable UTF-8 file.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}. Strings need quotes, keys may appear once.") from None


def build(data: Mapping[str, object], model: type[ModelT], *, where: str) -> ModelT:
    """Validate a nested mapping; `where` names its origin in error messages."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [_explain(dict(item), model) for item in error.errors()]
        raise ConfigError("\n".join(f"{where}: {line}" for line in lines)) from None


def with_overrides(data: Mapping[str, object], overrides: Sequence[str]) -> dict[str, object]:
    """Return a copy of `data` with each `key.path=value` set, each `key.path=` taken out; the same key twice is an error."""
    result = _copy(data)
    seen: dict[str, str] = {}
    for text in overrides:
        key, equals, raw = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"override {text!r} is not key.path=value, for example run.seed=1")
        if seen.setdefault(key, raw) != raw:
            raise ConfigError(f"override {key} is given twice, as {seen[key]} and as {raw}; keep one.")
        *parents, leaf = key.split(".")
        node = result
        for depth, name in enumerate(parents):
            child = node.setdefault(name, {})
            if not isinstance(child, dict):
                raise ConfigError(f"override {text!r}: {'.'.join(parents[: depth + 1])} is a value, not a section")
            node = child
        if raw.strip():
            node[leaf] = _toml_value(raw.strip())
        elif leaf in node:
            del node[leaf]  # its default holds again
        else:
            raise ConfigError(f"override {text!r} would take {key} out, but the recipe does not write it; remove it.")
    return result


def explicit_keys(section: Section, prefix: str = "") -> frozenset[str]:
    """Return the dotted keys that were written by the user, as against filled in by defaults."""
    keys: set[str] = set()
    for name in section.model_fields_set:
        value = getattr(section, name)
        if isinstance(value, Section):
            keys |= explicit_keys(value, f"{prefix}{name}.")
        else:
            keys.add(prefix + name)
    return frozenset(keys)


def chosen_keys(section: Section, prefix: str = "") -> frozenset[str]:
    """Return the written keys whose value is not the default: a dumped recipe writes every key and chooses none anew."""
    keys: set[str] = set()
    for name in section.model_fields_set:
        value = getattr(section, name)
        if isinstance(value, Section):
            keys |= chosen_keys(value, f"{prefix}{name}.")
        elif value != type(section).model_fields[name].get_default(call_default_factory=True, validated_data={}):
            keys.add(prefix + name)
    return frozenset(keys)


def dump(recipe: Section) -> str:
    """Return the whole recipe, defaults included, as TOML that loads back to an equal recipe."""
    return tomli_w.dumps(recipe.model_dump(mode="python", exclude_none=True))


def recipe_hash(recipe: Section) -> str:
    """SHA-256 over every value of the recipe, defaults included."""
    return content_hash(recipe.model_dump(mode="json"))


# ------------------------------------------------------------------ details


def _copy(node: Mapping[str, object]) -> dict[str, object]:
    return {key: _copy(value) if isinstance(value, dict) else value for key, value in node.items()}


def _toml_value(raw: str) -> object:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw  # a bare word: objective.variant=dr_grpo


def _siblings(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir() if entry.suffix == ".toml"]
    except OSError:
        return []


def _explain(item: Mapping[str, object], model: type[Section]) -> str:
    """One line for one pydantic error: key path, what is wrong, the way out."""
    location = [str(part) for part in _sequence(item["loc"])]
    key = ".".join(location)
    if item["type"] == "extra_forbidden":
        return _unknown_key(location, model)
    if item["type"] == "missing":
        return f"{key} is missing; it has no default."
    message = str(item["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if isinstance(item.get("input"), Mapping):
        return f"{key}: {message}" if key else message
    return f"{key} = {item.get('input')!r}: {message}"


def _unknown_key(location: Sequence[str], model: type[Section]) -> str:
    *parents, leaf = location
    section: type[Section] | None = model
    for name in parents:
        section = _child(section, name)
    known = sorted(section.model_fields) if section else []
    prefix = "".join(f"{name}." for name in parents)
    near = _nearest(leaf, known) or _nearest_anywhere(leaf, model, prefix)
    hint = f"; did you mean {near if '.' in near else prefix + near}?" if near else "."
    return f"{prefix}{leaf} is not a known key{hint} Known here: {', '.join(known)}."


def _child(section: type[Section] | None, name: str) -> type[Section] | None:
    annotation = section.model_fields[name].annotation if section and name in section.model_fields else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def _nearest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def _nearest_anywhere(leaf: str, model: type[Section], prefix: str) -> str | None:
    """A key that exists under another section: `lr` at top level is `optimizer.lr`."""
    paths = [path for path in key_paths(model) if not path.startswith(prefix) or not prefix]
    exact = [path for path in paths if path.rpartition(".")[2] == leaf]
    return exact[0] if exact else _nearest(prefix + leaf, paths)


def key_paths(model: type[Section], prefix: str = "") -> list[str]:
    """Return every dotted key of a recipe model, in the order of the document."""
    paths: list[str] = []
    for name in model.model_fields:
        child = _child(model, name)
        paths += key_paths(child, f"{prefix}{name}.") if child else [prefix + name]
    return paths


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple | list) else (value,)
