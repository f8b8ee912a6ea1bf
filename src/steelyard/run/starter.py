"""What `steelyard init` writes: a recipe, a reward function and a data file that train as they are."""

from pathlib import Path

from steelyard.errors import RequestError

RECIPE = """\
# Train a model on your own prompts with your own reward: `steelyard train recipe.toml`.
# `steelyard explain recipe.toml` prints the objective; any key can be set on the command line, run.seed=1.

[run]
updates = 20          # about half a minute on two cores; the held-out reward rises from about 0.7 to 1
seed = 0

[model]
# The small model that Steelyard warms up itself: it needs no download and starts in minutes, but it has only
# ever seen small Python functions. For real work name a hub id ("Qwen/Qwen2.5-0.5B-Instruct") or a directory.
source = "sft:recipes/booking-sft.toml"

[task]
data = "prompts.jsonl"          # one JSON object a line: "prompt", and any columns your reward function wants
held_out = 0.2                  # share of the prompts kept back for measuring

[reward]
function = "reward.py:score"    # file.py:name or package.module:name

[rollout]
prompts_per_update = 2
group_size = 8
temperature = 1.0
max_new_tokens = 64

[objective]
variant = "grpo"                # reinforce, reinforce_baseline, rloo, grpo, dr_grpo, dapo
kl.coef = 0.0

[optimizer]
lr = 1e-3

[eval]
samples = 8
every = 5
"""

REWARD = '''\
"""The reward: called with lists, returns one number per completion (None: could not be judged)."""


def score(prompts, completions, wanted, **columns):
    """Share of the wanted words that the answer contains; `wanted` is a column of prompts.jsonl."""
    return [
        sum(word in completion for word in words) / len(words)
        for completion, words in zip(completions, wanted, strict=True)
    ]
'''

NAMES = ("total", "count", "best", "first", "last", "longest", "shortest", "largest", "smallest", "average")


def write_starter(directory: Path) -> list[Path]:
    """Write the three files and return their paths.

    Raises:
        RequestError: If one of them exists already, or the directory cannot be written.
    """
    contents = {"recipe.toml": RECIPE, "reward.py": REWARD, "prompts.jsonl": _prompts()}
    paths = [directory / name for name in contents]
    taken = [path for path in paths if path.exists()]
    if taken:
        raise RequestError(f"{taken[0]} exists already and is left alone; give another directory: steelyard init DIR.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, contents.values(), strict=True):
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"cannot write to {directory}: {error.strerror}.") from None
    return paths


def _prompts() -> str:
    lines = [
        f'{{"prompt": "Write a Python function {name}_{kind}(items) that returns the {name} of a list.", '
        f'"wanted": ["def ", "return", "for "]}}'
        for name in NAMES
        for kind in ("value", "of")
    ]
    return "\n".join(lines) + "\n"
