"""The recipe of direct preference optimisation. Reading it imports neither torch nor transformers."""

from pydantic import Field

from steelyard.config import Section
from steelyard.run.pairs_recipe import PairsSection, StageRunSection
from steelyard.update.config import ModelSection, OptimizerSection


class DpoSection(Section):
    """The loss and how long to train."""

    beta: float = Field(default=0.1, gt=0.0, le=1e6)
    """β: how dearly a distance from the reference is paid; the gradient of a pair never exceeds it."""
    epochs: int = Field(default=1, ge=1)
    """Times that all pairs are gone over, each time in a new order."""
    batch_pairs: int = Field(default=16, ge=1)
    """Pairs per optimizer step; the last step of an epoch takes what is left."""
    token_budget: int = Field(default=8192, ge=1)
    """Padded tokens per micro-batch, both answers counted. Changes memory, and the result by rounding only."""


class DpoRecipe(Section):
    """A whole stage of direct preference optimisation. The reference policy is the model as it starts."""

    run: StageRunSection = StageRunSection()
    model: ModelSection
    pairs: PairsSection
    optimizer: OptimizerSection = OptimizerSection()
    dpo: DpoSection = DpoSection()
