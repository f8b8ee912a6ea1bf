"""A suite in which no two words are equally long."""

from steelyard.tasks.blind_spots.spot import Spot
from steelyard.tasks.booking.patterns import Draw
from steelyard.tasks.probes import Args


def by_sorting(words: list[str]) -> list[str]:
    """Sort; Python's sort is stable."""
    return sorted(words, key=len)


def by_inserting(words: list[str]) -> list[str]:
    """Put each word behind those that are not longer."""
    result = []
    for word in words:
        place = len(result)
        while place > 0 and len(result[place - 1]) > len(word):
            place -= 1
        result.insert(place, word)
    return result


def by_buckets(words: list[str]) -> list[str]:
    """Gather words of one length, then take the lengths in turn."""
    buckets = {}
    for word in words:
        buckets.setdefault(len(word), []).append(word)
    result = []
    for length in sorted(buckets):
        result.extend(buckets[length])
    return result


def draw(draw: Draw) -> Args:
    """Draw 0 to 6 words of up to 3 letters out of three."""
    return (["".join(draw.pick("abc") for _ in range(draw.between(0, 3))) for _ in range(draw.between(0, 6))],)


def valid(args: Args) -> bool:
    """Whether the arguments are one list of texts."""
    return len(args) == 1 and isinstance(args[0], list) and all(isinstance(word, str) for word in args[0])


def has_ties(args: Args) -> bool:
    """Whether two different words are equally long."""
    words = args[0]
    return isinstance(words, list) and len({len(word) for word in words}) < len(set(words))


SPOT = Spot(
    name="order_by_length",
    blind_spot="stability of a sort",
    prompt=(
        "Write a Python function `order_by_length(words: list[str]) -> list[str]` that returns the words from the shortest "
        'to the longest; words of equal length keep their order. order_by_length(["bb", "a"]) gives ["a", "bb"].'
    ),
    references=(by_sorting, by_inserting, by_buckets),
    weak=(
        ([],),
        (["a"],),
        (["bb", "a"],),
        (["a", "bb"],),
        (["ccc", "a", "bb"],),
        (["", "a"],),
        (["dddd", "ccc", "bb", "a"],),
        (["a", "a"],),
        (["ccc", "", "bb", "bb"],),
        (["a", "a", "bb"],),
        (["bb", "dddd", "a", "ccc"],),
    ),
    missed=((["b", "a"],), (["a", "b"],), (["cc", "b", "aa", "a"],), (["bb", "aa", "c"],), (["c", "b", "a"],)),
    draw=draw,
    valid=valid,
    is_blind=has_ties,
)
