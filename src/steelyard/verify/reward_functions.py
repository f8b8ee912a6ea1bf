"""Reward functions in TRL's form: `f(prompts, completions, **columns) -> list[float | None]`."""

import difflib
import importlib
import importlib.util
import inspect
import math
import numbers
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

from steelyard.errors import ConfigError, RewardError


class RaisedError(RewardError):
    """The function itself raised, as against returning something that is no reward."""


RewardFunction = Callable[..., object]
"""Called with keywords: prompts, completions, and the data's other columns."""


def load_reward_function(spec: str) -> RewardFunction:
    """Return the function that `file.py:name` or `package.module:name` names.

    Args:
        spec: Path of a Python file, or a module's dotted name; a colon; the function's name.

    Raises:
        ConfigError: No such file, module or function, or it cannot be imported; the message has the way out.
    """
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise ConfigError(f"reward.function must be file.py:name or package.module:name, got {spec!r}.")
    module = _load_file(Path(where), spec) if where.endswith(".py") else _load_module(where, spec)
    found = getattr(module, name, None)
    if found is None:
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        close = difflib.get_close_matches(name, own, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else f" It has: {', '.join(sorted(own)) or 'no function'}."
        raise ConfigError(f"reward.function: {where} has no function {name!r}.{hint}")
    if not callable(found):
        raise ConfigError(f"reward.function: {name!r} in {where} is of type {type(found).__name__}; name a function.")
    return found


def score(
    function: RewardFunction,
    prompts: Sequence[object],
    completions: Sequence[object],
    columns: Mapping[str, Sequence[object]],
) -> list[float | None]:
    """Call a reward function on one batch and return one reward per completion.

    The function gets what its signature accepts: everything with `**kwargs`, else the arguments that it names. A returned
    None means unscored. Booleans count 1.0 and 0.0; numpy and torch scalars and one-dimensional arrays are taken.

    Args:
        function: The reward function.
        prompts: One per completion.
        completions: The answers.
        columns: The data's other columns, and further arguments by name; one entry per completion each.

    Raises:
        RewardError: It raised, or returned something else than one finite number or None per completion.
    """
    name = _name(function)
    arguments = _accepted(function, {"prompts": prompts, "completions": completions, **columns}, name)
    try:
        returned = function(**arguments)
    except (Exception, SystemExit) as error:
        raise RaisedError(
            f"Reward function {name} raised {type(error).__name__}: {error}{_line(error, function)}"
        ) from error
    rewards = _as_list(returned, name, len(completions))
    if len(rewards) != len(completions):
        raise RewardError(
            f"Reward function {name} returned {len(rewards)} rewards for {len(completions)} completions; "
            "return one per completion, None where it cannot be judged."
        )
    return [_as_reward(value, name, index) for index, value in enumerate(rewards)]


# ------------------------------------------------------------------ loading


def _load_file(path: Path, spec: str) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"reward.function: there is no file {path} (from {spec!r}, looked for in {Path.cwd()}).")
    module_name = f"steelyard_reward_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise ConfigError(f"reward.function: {path} cannot be imported as Python.")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module  # dataclasses and pickle look a function's module up
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise _import_failed(str(path), error) from error
    return module


def _load_module(name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(
                f"reward.function: there is no module {name!r} (from {spec!r}); for a file, write its path: file.py:name."
            ) from error
        raise _import_failed(name, error) from error
    except Exception as error:
        raise _import_failed(name, error) from error


def _import_failed(where: str, error: Exception) -> ConfigError:
    return ConfigError(f"reward.function: importing {where} raised {type(error).__name__}: {error}{_line(error)}")


def _name(function: RewardFunction) -> str:
    return repr(getattr(function, "__name__", type(function).__name__))


def _line(error: BaseException, function: RewardFunction | None = None) -> str:
    """Return where it was raised: the last line in the function's own file, or else the last line of all."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__ and "importlib" not in f.filename
    ]
    code = getattr(function, "__code__", None)
    own = [f for f in frames if code is not None and f.filename == code.co_filename] or frames
    return f" ({own[-1].filename}, line {own[-1].lineno}: {own[-1].line})" if own else ""


# ------------------------------------------------------------------ calling


def _accepted(function: RewardFunction, arguments: dict[str, object], name: str) -> dict[str, object]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return arguments
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return arguments
    lacking = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.name not in arguments and p.kind is not inspect.Parameter.VAR_POSITIONAL
    ]
    if lacking:
        raise RewardError(
            f"Reward function {name} needs {', '.join(map(repr, lacking))}; the data has {', '.join(map(repr, arguments))}."
        )
    return {key: value for key, value in arguments.items() if key in parameters}


def _as_list(returned: object, name: str, expected: int) -> list[object]:
    wanted = f"return a list of {expected} numbers"
    shape = getattr(returned, "shape", None)
    if shape is not None and len(shape) != 1:
        raise RewardError(
            f"Reward function {name} returned an array of shape {tuple(shape)}; {wanted}, or shape ({expected},)."
        )
    to_list: RewardFunction | None = getattr(returned, "tolist", None)
    if to_list is not None:
        return cast("list[object]", to_list())
    if isinstance(returned, (list, tuple)):
        return list(cast("Sequence[object]", returned))
    raise RewardError(f"Reward function {name} returned a {type(returned).__name__}; {wanted}.")


def _as_reward(value: object, name: str, index: int) -> float | None:
    if value is None:
        return None
    to_python: RewardFunction | None = getattr(value, "tolist", None)  # a numpy or torch scalar
    if to_python is not None:
        value = to_python()
    if not isinstance(value, numbers.Real):
        raise RewardError(
            f"Reward function {name} returned a {type(value).__name__} for completion {index}: {_short(value)}; "
            "return a number, or None where it cannot be judged."
        )
    try:
        reward = float(value)
    except OverflowError:
        reward = math.inf
    if not math.isfinite(reward):
        raise RewardError(
            f"Reward function {name} returned {reward} for completion {index}; return a finite number, "
            "or None where it cannot be judged."
        )
    return reward


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
