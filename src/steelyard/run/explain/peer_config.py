"""Reading another trainer's configuration: YAML, JSON, or the shell command that starts it, as flat settings.

Nothing is run and nothing is guessed: a shell script is read for assignments and the arguments of the command; what
would need a shell to know is an error that names it.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import yaml

from steelyard.errors import ConfigError

Settings = Mapping[str, object]
"""Dotted key → value, as written."""
SHELL = (".sh", ".bash", ".zsh")
_ASSIGNMENT = re.compile(r"(?:export\s+|local\s+|declare\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)")
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w@]*(?:\.[\w@]+)+)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)


def read_settings(path: Path) -> Settings:
    """Return the settings of a file: YAML, JSON, or a shell script.

    Raises:
        ConfigError: If it cannot be read, holds no settings, or needs a shell to be understood.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"no file at {path}; relative paths start at {Path.cwd()}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}. It must be a readable UTF-8 file.") from None
    settings = _from_shell(text, path) if _is_shell(path, text) else _from_data(text, path)
    if not settings:
        raise ConfigError(f"{path} holds no settings; give YAML, JSON, or the shell command that starts the training.")
    return settings


def check_known(settings: Settings, known: Mapping[str, object] | frozenset[str], path: Path, peer: str) -> None:
    """Refuse keys that `peer` does not have, each with the nearest that it has.

    Raises:
        ConfigError: If there is one.
    """
    unknown = [key for key in settings if key not in known]
    if unknown:
        lines = []
        for key in unknown:
            near = get_close_matches(key, list(known), n=1)
            lines.append(f"{path}: {peer} has no key {key}" + (f"; did you mean {near[0]}?" if near else "."))
        raise ConfigError("\n".join(lines))


def _is_shell(path: Path, text: str) -> bool:
    if path.suffix in SHELL or text.startswith("#!"):
        return True
    return path.suffix not in (".yaml", ".yml", ".json") and bool(
        re.search(r"^\s*(?:--\w|\S*python3? |trl )", text, re.M)
    )


# ------------------------------------------------------------------ data


def _from_data(text: str, path: Path) -> dict[str, object]:
    try:
        data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        first = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid {kind}: {first}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds {type(data).__name__}, not key: value settings.")
    return dict(_flat(data, ""))


def _flat(node: Mapping[object, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


# ------------------------------------------------------------------ shell


def _from_shell(text: str, path: Path) -> dict[str, object]:
    variables: dict[str, str] = {}
    settings: dict[str, object] = {}
    for number, line in enumerate(_statements(text), start=1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise ConfigError(f"{path}, statement {number}: not readable as shell ({error}): {line[:60]!r}") from None
        assignment = _ASSIGNMENT.fullmatch(" ".join(words)) if words and "." not in words[0].split("=")[0] else None
        if assignment is not None and all("=" in word for word in words if word not in ("export", "local", "declare")):
            for word in words:
                if (found := _ASSIGNMENT.fullmatch(word)) is not None:
                    variables[found[1]] = found[2]
            continue
        for key, raw in _arguments(words):
            settings[key] = _value(raw, key, variables, path)
    return settings


def _statements(text: str) -> list[str]:
    """Lines, with those joined that a backslash continues."""
    joined = re.sub(r"\\[ \t]*\n", " ", text)
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _arguments(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield key and text of hydra overrides and of --flags."""
    for place, word in enumerate(words):
        if (override := _OVERRIDE.fullmatch(word)) is not None:
            yield override[1], override[2]
        elif (flag := _FLAG.fullmatch(word)) is not None:
            name = flag[1].replace("-", "_")
            if flag[2] is not None:
                yield name, flag[2]
                continue
            values: list[str] = []
            for later in words[place + 1 :]:
                if later.startswith("--") or _OVERRIDE.fullmatch(later):
                    break
                values.append(later)
            yield name, "true" if not values else values[0] if len(values) == 1 else f"[{', '.join(values)}]"


def _value(raw: str, key: str, variables: Mapping[str, str], path: Path) -> object:
    text = raw
    for _ in range(10):  # a variable may name another one
        text = _VARIABLE.sub(lambda found: _lookup(found, key, variables, path), text)
        if "$" not in text:
            break
    if "$" in text or "`" in text:
        raise ConfigError(f"{path}: {key} = {raw!r} needs a shell to be known; write the value itself.")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _lookup(found: re.Match[str], key: str, variables: Mapping[str, str], path: Path) -> str:
    name = found[1] or found[3]
    value = variables.get(name, found[2])
    if value is None:
        raise ConfigError(
            f"{path}: {key} reads the variable {name}, which the script does not set; write the value itself."
        )
    return value
