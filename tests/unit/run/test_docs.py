"""Docs are tested: the page of recipe keys, the links, and the commands and files that the README names."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from steelyard.cli import app
from steelyard.config import load
from steelyard.run.dpo_recipe import DpoRecipe
from steelyard.run.recipe import Recipe
from steelyard.run.recipe_page import recipe_page
from steelyard.run.reward_model_recipe import RewardModelRecipe
from steelyard.run.sft_recipe import SftRecipe

ROOT = Path(__file__).parents[3]
STAGES = {"sft": SftRecipe, "dpo": DpoRecipe, "reward_model": RewardModelRecipe}
"""Section → recipe of the stage that has it."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_of_recipe_keys_is_up_to_date():
    assert (ROOT / "docs/recipes.md").read_text() == recipe_page(), (
        "run: python -m steelyard.run.recipe_page > docs/recipes.md"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_show_exist(page):
    known = {command.callback.__name__.replace("_", "-") for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    for line in re.findall(r"^steelyard ([a-z-]+)", page.read_text(), flags=re.MULTILINE):
        assert line in known, line


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.name)
def test_shipped_recipes_are_valid_and_say_what_to_expect(path):
    sections = tomllib.loads(path.read_text()).keys()
    model = next((kind for key, kind in STAGES.items() if key in sections), Recipe)
    load(path, model)
    assert path.read_text().startswith("#")


def test_the_readme_shows_the_two_commands_first():
    blocks = re.findall(r"```\w*\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert blocks[0].splitlines()[0].startswith("make quickstart")
    assert blocks[0].splitlines()[1].startswith("make test")


def test_the_python_of_the_readme_is_a_valid_recipe():
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL).group(1)
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    (literal,) = [ast.literal_eval(call.args[0]) for call in calls if "model_validate" in ast.unparse(call.func)]
    Recipe.model_validate(literal)


def test_every_folder_of_the_package_is_in_the_readme_tree():
    text = (ROOT / "README.md").read_text()
    for folder in (ROOT / "src/steelyard").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert f"{folder.name}/" in text
