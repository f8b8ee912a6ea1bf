r"""Numbers: read strictly, compared exactly, or paid by how close they come.

A number is read exactly, as a fraction, so that $29.00 is 29 and 0.1 + 0.2 has no rounding. Taken off around it: dollar
signs, a name before an equals sign, LaTeX spaces, thousands separators in groups of three (8,000; 9{,}500), a percent sign,
and a unit after it (`\text{cm}` or a word). NaN, infinities and anything else are no number.
"""

import re
from fractions import Fraction

LONGEST = 400
"""Characters of a number that are read, and the largest power of ten."""
_SPACE = re.compile(r"\\[,;:! ]|~|\s+")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}")
_TEXT_UNIT = re.compile(r"(?<=[0-9}])\s*\\(?:text|mathrm|textbf|mbox)\s*\{[^0-9{}]*\}(?:\^\{?[0-9]\}?)?\s*$")
_FRACTION = re.compile(r"([-+]?)\\[dt]?frac\s*\{\s*([0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}")
_UNIT = re.compile(
    r"(?<=[0-9])(?:\s*\\?%|\s+(?!(?:and|or|to|not|but)\b)[A-Za-z]{2,}(?:\s(?!(?:and|or|to|not|but)\b)[A-Za-z]{2,})?)\.?$|\.$"
)
_PLAIN = re.compile(
    r"(?P<sign>[-+]?)(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.(?P<part>[0-9]*))?(?:[eE](?P<power>[-+]?[0-9]{1,6}))?"
    r"(?:/(?P<under>[0-9]+))?"
)


def parse_number(text: object) -> Fraction | None:
    """Return the number that a text or a plain number is, exactly; None where it is none."""
    if isinstance(text, bool) or text is None:
        return None
    if isinstance(text, int):
        return Fraction(text)
    if isinstance(text, float):
        text = repr(text)
    if not isinstance(text, str) or len(text) > LONGEST:
        return None
    shown = _bare(text)
    fraction = _FRACTION.fullmatch(shown)
    if fraction:
        sign, over, under = fraction.groups()
        return None if int(under) == 0 else Fraction(int(f"{sign}{over}"), int(under))
    return _plain(shown)


def equal_numbers(gold: object, answer: object) -> bool:
    """Whether both are numbers, and the same."""
    left, right = parse_number(gold), parse_number(answer)
    return left is not None and left == right


def closeness(gold: Fraction, answer: Fraction, *, width: float) -> float:
    """Return how close an answer comes, in [0, 1]: max(0, 1 − |answer − gold| / (width · max(1, |gold|))).

    1 for the number itself and nothing else; falling linearly to 0 at the relative distance `width`. With gold 408 and
    width 0.1 an answer of 400 earns 1 − 8/40.8 = 0.804, and 380 earns 0.314.

    Args:
        gold: The right number.
        answer: The number given.
        width: Distance from gold at which nothing is left, as a share of it; above 0.
    """
    room = Fraction(width) * max(Fraction(1), abs(gold))
    share = 1 - abs(answer - gold) / room
    if share <= 0:
        return 0.0
    return 1.0 if answer == gold else min(float(share), 1.0 - 2**-53)


def _bare(text: str) -> str:
    """Take off what may stand around a number."""
    shown = text.strip().replace("−", "-").replace("{,}", ",").replace("\\$", "$").replace("$", "")
    shown = _TEXT.sub(r"\1", _TEXT_UNIT.sub("", shown)).replace("\\left", "").replace("\\right", "")
    shown = _SPACE.sub(" ", shown).strip()
    shown = re.sub(r"^[A-Za-z]\w* ?= ?", "", shown)  # x = 5
    shown = re.sub(r"^([-+])\s+", r"\1", shown)
    return _UNIT.sub("", shown).strip()


def _plain(shown: str) -> Fraction | None:
    found = _PLAIN.fullmatch(shown)
    if not found or not (found["whole"] or found["part"]):
        return None
    power = int(found["power"] or 0)
    if abs(power) > LONGEST or (found["under"] is not None and int(found["under"]) == 0):
        return None
    whole, part = found["whole"].replace(",", ""), found["part"] or ""
    value = Fraction(int(f"{whole}{part}" or "0"), 10 ** len(part)) * Fraction(10) ** power
    if found["under"] is not None:
        value /= int(found["under"])
    return -value if found["sign"] == "-" else value
