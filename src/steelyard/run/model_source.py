"""From `model.source` to something that can be loaded: a hub id, a directory, or a warm-up made on the spot."""

from steelyard.config import load
from steelyard.errors import ModelError
from steelyard.run.recipes import find_recipe
from steelyard.run.reporter import Reporter
from steelyard.run.sft_recipe import SftRecipe
from steelyard.update.models import check_source

WARM_UP = "sft:"


def check_model(source: str) -> None:
    """Refuse a source that cannot work, without loading weights.

    Raises:
        ModelError: If a directory or hub id has no model.
        ConfigError: If the recipe of a warm-up cannot be read.
    """
    if source.startswith(WARM_UP):
        load(find_recipe(source.removeprefix(WARM_UP)), SftRecipe)
        return
    for scheme in ("gguf:", "pypi:"):
        if source.startswith(scheme):
            raise ModelError(
                f"model.source = {source!r}: {scheme} sources are not implemented yet. "
                "Use a Hugging Face directory, a hub id, or sft:RECIPE."
            )
    check_source(source)


def resolve_model(source: str, *, reporter: Reporter) -> str:
    """Return a hub id or directory to load; build or reuse the warm-up of an sft: source."""
    if not source.startswith(WARM_UP):
        return source
    from steelyard.run.sft import SftProgress, sft

    recipe = load(find_recipe(source.removeprefix(WARM_UP)), SftRecipe)
    reporter.stage(f"warming up the model of {source.removeprefix(WARM_UP)}")

    def progress(step: SftProgress) -> None:
        reporter.progress("warming up", done=step.step, total=step.steps)

    result = sft(recipe, progress=progress)
    if result.cached:
        reporter.note(f"the warmed-up model was reused from {result.directory}")
    return str(result.directory)
