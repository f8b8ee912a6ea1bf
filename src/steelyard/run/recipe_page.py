"""The page of all recipe keys, written from the models themselves: `python -m steelyard.run.recipe_page`."""

import sys
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from steelyard.config import Section
from steelyard.run.dpo_recipe import DpoRecipe
from steelyard.run.recipe import Recipe
from steelyard.run.reward_model_recipe import RewardModelRecipe
from steelyard.run.sft_recipe import SftRecipe

HEAD = """\
# Recipes

A recipe is a TOML file. Unknown keys, wrong types and combinations without meaning are refused before anything is
loaded, with the nearest valid name. `key.path=value` on the command line overrides a key, `key.path=` takes it out. This page
is written by `python -m steelyard.run.recipe_page` and checked by a test.
"""


def recipe_page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD, "## Training (`steelyard train`)\n", *_tables(Recipe)]
    parts += ["## Warming up a small model (`steelyard sft`)\n", *_tables(SftRecipe)]
    parts += ["## Learning from preferences (`steelyard dpo`)\n", *_tables(DpoRecipe)]
    parts += ["## Reward models (`steelyard reward-model`)\n", *_tables(RewardModelRecipe)]
    return "\n".join(parts)


def _tables(model: type[Section], prefix: str = "") -> list[str]:
    rows: list[str] = []
    tables: list[str] = []
    for name, field in model.model_fields.items():
        annotation = field.annotation
        several = next((item for item in get_args(annotation) if _is_section(item)), None)
        if several is not None:
            tables += _tables(several, f"[{prefix}{name}].")
        if isinstance(annotation, type) and issubclass(annotation, Section):
            tables += _tables(annotation, f"{prefix}{name}.")
        else:
            meaning = " ".join(str(field.description).split())
            rows.append(
                f"| `{prefix.replace('[', '').replace(']', '')}{name}` | {_kind(annotation)} | {_default(field)} | {meaning} |"
            )
    if not rows:
        return tables
    head = [f"### [{prefix.rstrip('.')}]\n", "| key | type | default | meaning |", "|---|---|---|---|"]
    return ["\n".join([*head, *rows]) + "\n", *tables]


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _kind(annotation: object) -> str:
    if annotation == tuple[float, float]:
        return "[float, float]"
    if annotation == tuple[str, ...]:
        return "[str, …]"
    if any(_is_section(item) for item in get_args(annotation)):
        return "tables"
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{option}`" for option in get_args(annotation))
    options = [option for option in get_args(annotation) if option is not type(None)]
    return " or ".join(_kind(option) for option in options) or getattr(annotation, "__name__", str(annotation))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    return (
        "–"
        if field.default is None
        else f"`{list(field.default) if isinstance(field.default, tuple) else field.default}`"
    )


if __name__ == "__main__":
    sys.stdout.write(recipe_page())
