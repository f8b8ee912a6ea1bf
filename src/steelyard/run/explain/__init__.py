"""`steelyard explain`: what a recipe, or the configuration of another trainer, really optimises."""

from steelyard.run.explain.peer import explain_peer
from steelyard.run.explain.story import explain

__all__ = ["explain", "explain_peer"]
