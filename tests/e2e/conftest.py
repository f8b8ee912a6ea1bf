"""The command line in this process: what it prints and how it leaves."""

import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from steelyard.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.out.strip().splitlines()[-1]


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `steelyard ARGS` through the real entry point."""

    def call(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["steelyard", *map(str, args)])
        handler = signal.getsignal(signal.SIGINT)
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
        finally:
            signal.signal(signal.SIGINT, handler)
            logging.getLogger("transformers").handlers.clear()
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_task(workdir: Path, model_directory: Path) -> Path:
    """Twenty prompts, a reward, and a recipe on the random tiny model: a training that takes seconds."""
    rows = [f'{{"prompt": "question {n}", "wanted": {n}}}\n' for n in range(20)]
    (workdir / "data.jsonl").write_text("".join(rows))
    (workdir / "reward.py").write_text(
        "def score(prompts, completions, wanted, **columns):\n"
        "    return [float(sum(map(ord, text)) % 7 + number % 2) for text, number in zip(completions, wanted)]\n"
        "def constant(prompts, completions, **columns):\n    return [0.5 for _ in completions]\n"
        "def raises(prompts, completions, **columns):\n    return [1 / 0]\n"
        "def abstains(prompts, completions, **columns):\n    return [None for _ in completions]\n"
    )
    recipe = workdir / "own.toml"
    recipe.write_text(
        f"""
[run]
updates = 2
threads = 1
[model]
source = "{model_directory}"
[task]
data = "data.jsonl"
[reward]
function = "reward.py:score"
[rollout]
prompts_per_update = 2
group_size = 4
max_new_tokens = 8
[objective]
kl.coef = 0.0
[optimizer]
lr = 1e-2
[eval]
samples = 2
every = 1
"""
    )
    return recipe
