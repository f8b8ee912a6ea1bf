"""The recipe of a reward model. Reading it imports neither torch nor transformers."""

from pydantic import Field

from steelyard.config import Section
from steelyard.run.pairs_recipe import PairsSection, StageRunSection
from steelyard.update.config import ModelSection, OptimizerSection


class RewardModelSection(Section):
    """The ensemble and how long to train it."""

    members: int = Field(default=1, ge=1)
    """Models that differ in first head and order of the pairs; several can disagree, and reward.disagreement_penalty uses it."""
    epochs: int = Field(default=1, ge=1)
    """Times that all pairs are gone over, each time in a new order."""
    batch_pairs: int = Field(default=16, ge=1)
    """Pairs per optimizer step; the last step of an epoch takes what is left."""
    token_budget: int = Field(default=8192, ge=1)
    """Padded tokens per micro-batch, both answers counted. Changes memory, and the result by rounding only."""


class RewardModelRecipe(Section):
    """A whole reward model. The network starts as the model's own, the head from nothing."""

    run: StageRunSection = StageRunSection()
    model: ModelSection
    pairs: PairsSection
    optimizer: OptimizerSection = OptimizerSection()
    reward_model: RewardModelSection = RewardModelSection()
