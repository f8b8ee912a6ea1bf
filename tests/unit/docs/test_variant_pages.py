"""docs/variants: what each page says about its variant is what the code does, and its examples run."""

import doctest
import re
import tomllib
from pathlib import Path

import pytest

from steelyard.config import Section
from steelyard.numerics.variants import READS, VARIANTS, practice_of
from steelyard.run.recipe import Recipe

DOCS = Path(__file__).parents[3] / "docs"
HEADINGS = ["Quick facts", "Key equations", "What each number does", "API", "Sources"]
SYMBOLS = {"ddof": "ddof", "gamma": "γ", "lam": "λ", "eps_low": "ε_low", "eps_high": "ε_high", "eps_max": "ε_max"}
COPIES_OF_POLICY, COPIES_OF_REFERENCE, COPIES_OF_CRITIC = 5, 1, 4
"""Held to a real step in test_copies.py."""


def page(name: str) -> str:
    return (DOCS / "variants" / f"{name}.md").read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row but headers and rules."""
    lines = [line.strip().strip("|") for line in text.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [cells for cells in found if any(cells) and "---" not in cells[0] and cells[0] != "key"]


def recipe(name: str, **sections: dict[str, object]) -> Recipe:
    made = {"model": {"source": "m"}, "task": {"name": "booking"}, "objective": {"variant": name}}
    return Recipe.model_validate(made | sections)


# ------------------------------------------------------------------ quick facts


def with_numbers(name: str, selector: str) -> str:
    objective = VARIANTS[name]
    choice = getattr(objective, selector)
    numbers = [f"{SYMBOLS[key]} {getattr(objective, key):g}" for key in READS[selector].get(choice, ())]
    return ", ".join([f"`{choice}`", *numbers])


def facts(name: str) -> dict[str, str]:
    objective, practice = VARIANTS[name], practice_of(name)
    kl = f"`{objective.kl_estimator}` in the {objective.kl_placement}, β {objective.kl_coef:g}"
    brings = ["dynamic sampling"] * practice.dynamic_sampling
    share = f"a soft overlong penalty over the last {practice.overlong_share:g} of the limit"
    brings += [share] * bool(practice.overlong_share)
    copies = (
        COPIES_OF_POLICY + COPIES_OF_REFERENCE * bool(objective.kl_coef) + COPIES_OF_CRITIC * objective.needs_critic
    )
    return {
        "advantage": with_numbers(name, "advantage"),
        "surrogate": with_numbers(name, "surrogate"),
        "aggregation": f"`{objective.aggregation}`",
        "KL": kl if objective.kl_coef else "none",
        "brings along": "; ".join(brings) or "nothing",
        "needs a critic": "yes" if objective.needs_critic else "no",
        "needs a group": "yes, two or more answers to each prompt" if objective.needs_group else "no",
        "needs a reference": "yes" if objective.kl_coef else "no",
        "copies of the weights": str(copies),
        "source": objective.source,
    }


@pytest.mark.parametrize("name", VARIANTS)
def test_quick_facts_are_those_of_the_code(name: str):
    assert {cells[0]: cells[1] for cells in rows(section(page(name), "Quick facts"))} == facts(name)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_has_a_page_with_its_sections_in_order(name: str):
    text = page(name)
    assert text.startswith(f"# {name}\n")
    found = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert [heading for heading in found if heading in HEADINGS] == HEADINGS


@pytest.mark.parametrize("name", VARIANTS)
def test_sources_name_the_papers_of_the_code(name: str):
    for identifier in re.findall(r"(?:arXiv|doi):\S+?(?=[,;]|$)", VARIANTS[name].source):
        assert identifier in section(page(name), "Sources")


# ------------------------------------------------------------------ what each number does


def every_key(of: type[Section] = Recipe, prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, field in of.model_fields.items():
        kind = field.annotation
        inner = isinstance(kind, type) and issubclass(kind, Section)
        found += every_key(kind, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]
    return found


KEYS = every_key()


def own_keys(name: str) -> set[str]:
    """What this variant's page must explain: the numbers that its choices read, and what it brings along."""
    objective, practice = VARIANTS[name], practice_of(name)
    own = {"rollout.group_size", "update.passes"}
    for selector, reads in READS.items():
        own |= {f"objective.{key}" for key in reads.get(getattr(objective, selector), ())}
    if objective.kl_coef:
        own |= {"objective.kl.coef", "objective.kl.estimator", "objective.kl.placement"}
    if objective.needs_critic:
        own |= {key for key in KEYS if key.startswith("critic.")}
        own |= {"update.minibatches", "update.max_kl", "update.max_clip_share"}
    if objective.aggregation == "fixed_length" or practice.overlong_share:
        own.add("rollout.max_new_tokens")
    if practice.dynamic_sampling:
        own |= {"rollout.dynamic_sampling", "rollout.max_dead_groups"}
    if practice.overlong_share:
        own |= {"reward.overlong_buffer", "reward.overlong_penalty"}
    return own


def key_table(text: str) -> dict[str, list[str]]:
    return {cells[0].strip("`"): cells[1:] for cells in rows(text) if len(cells) == 5}


def default(key: str, name: str) -> object:
    """What a recipe that names this variant and nothing else has."""
    made = recipe(name)
    objective, _ = made.objective.resolve()
    if key.startswith("objective."):
        return getattr(objective, key.removeprefix("objective.").replace(".", "_"))
    if key in ("rollout.dynamic_sampling", "reward.overlong_buffer"):
        return getattr(made, key.partition(".")[2])
    value: object = made
    for part in key.split("."):
        value = getattr(value, part)
    return value


def as_written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return "none" if value is None else str(value)


@pytest.mark.parametrize("name", VARIANTS)
def test_each_number_that_a_variant_reads_is_explained_with_its_default(name: str):
    table = key_table(section(page(name), "What each number does"))
    assert set(table) == own_keys(name)
    for key, cells in table.items():
        wanted = "as `optimizer.lr`" if key == "critic.lr" else as_written(default(key, name))
        assert cells[0] == wanted, key


def test_the_common_page_has_all_the_others_with_their_defaults():
    table = key_table(page("common"))
    sections = ("rollout.", "objective.", "optimizer.", "update.", "critic.", "reward.overlong")
    wanted = {key for key in KEYS if key.startswith(sections)} - {"objective.variant"}
    everywhere = set.intersection(*map(own_keys, VARIANTS))
    of_variants = {key for name in VARIANTS for key in own_keys(name)}
    assert set(table) == (wanted - of_variants) | (set(table) & of_variants)
    assert not set(table) & everywhere
    for key, cells in table.items():
        same = {as_written(default(key, name)) for name in VARIANTS}
        chosen = key.startswith("objective.") or key in ("rollout.dynamic_sampling", "reward.overlong_buffer")
        assert cells[0] == ("as the variant says" if chosen else same.pop()), key


@pytest.mark.parametrize("path", sorted((DOCS / "variants").glob("*.md")), ids=lambda path: path.stem)
def test_every_key_that_a_page_names_exists(path: Path):
    named = re.findall(
        r"`((?:run|model|task|reward|rollout|objective|optimizer|update|critic|eval)(?:\.[a-z_]+)+)", path.read_text()
    )
    sections = {key.rpartition(".")[0] for key in KEYS}
    for key in set(named) - {"critic.safetensors"}:  # a file
        assert key in KEYS or key in sections, key


# ------------------------------------------------------------------ API


@pytest.mark.parametrize("name", VARIANTS)
def test_the_recipe_lines_are_a_recipe_of_that_variant(name: str):
    (block,) = re.findall(r"```toml\n(.*?)```", section(page(name), "API"), flags=re.DOTALL)
    written = tomllib.loads(block)
    assert written["objective"]["variant"] == name
    recipe(name, **written)


@pytest.mark.parametrize("path", sorted((DOCS / "variants").glob("*.md")), ids=lambda path: path.stem)
def test_the_examples_run(path: Path):
    found = doctest.testfile(str(path), module_relative=False)
    assert found.failed == 0
    assert found.attempted >= (5 if path.stem in VARIANTS else 0)
