"""Five small tasks, each with a suite that overlooks one kind of input: to try `steelyard suite strength` on.

Each has several right programs, a weak suite, the complete suite that also asks for the overlooked kind, and a suite that
measures, drawn at random.
"""

from collections.abc import Mapping

from steelyard.tasks.blind_spots import closest_to_zero, count_pairs, longest_run, order_by_length, same_total
from steelyard.tasks.blind_spots.spot import Spot
from steelyard.tasks.probes import Probe

SPOTS: Mapping[str, Spot] = {
    module.SPOT.name: module.SPOT for module in (longest_run, count_pairs, closest_to_zero, order_by_length, same_total)
}
"""By name of the task."""
PROBES: Mapping[str, Probe] = {name: spot.probe for name, spot in SPOTS.items()}
"""By name of the task."""

__all__ = ["PROBES", "SPOTS", "Spot"]
