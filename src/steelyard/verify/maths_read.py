# pyright: basic
# ruff: noqa: ANN401
"""From the text of a formula to a sympy object that math-verify's parser makes of it, or to text where it is none.

(Checked less strictly than its neighbours: sympy has no types.)
"""

import re
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import NormalizationConfig, latex2sympy, normalize_latex
from math_verify.grader import should_treat_as_complex

DEEPEST = 60
"""Braces and brackets inside each other; what is deeper is not parsed."""
_CONFIG = NormalizationConfig(
    basic_latex=True, units=True, malformed_operators=True, nits=True, boxed="none", equations=False
)
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’ .-]*")
_AS_TEXT = re.compile(r"\\[lcd]?dots|…|\.\.\.")
_RATIO = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:\s*:\s*[0-9]+(?:\.[0-9]+)?)+")
_STYLE = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_REPEATING = re.compile(r"([0-9]*)\.([0-9]*)\\overline\s*\{([0-9]+)\}")
_POWER = re.compile(r"^([-+]?[0-9]+(?:\.[0-9]+)?)[eE]([-+]?[0-9]{1,4})$")
_THOUSANDS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:(?:,|\{,\}|,\\!|\\,|\\;| )[0-9]{3})+(?![0-9])")


class Unreadable(ValueError):
    """A formula that does not parse; the message says why."""


def text_of(found: Any, written: str) -> str:
    """A word as it is compared; a single letter beside a word is one too."""
    letter = _STYLE.sub(r"\1", written.strip().strip("$")).strip(" .()")
    return found if isinstance(found, str) else letter.lower() if len(letter) == 1 and letter.isalpha() else ""


def parse(text: str, *, complex_too: bool = False) -> Any:
    """Return a sympy object, or text where the answer is a word, a ratio or has an ellipsis.

    Raises:
        Unreadable: It does not parse to its end, or is not finite.
    """
    plain = text.strip().strip("$").strip()
    plain = plain if plain.endswith("..") else plain.removesuffix(".")
    _refuse_form(plain)
    kept = _kept_as_text(plain)
    if kept is not None:
        return kept
    if re.search(r"(?<![_^0-9.])[0-9.]+\s+[0-9.]", _THOUSANDS.sub("1", plain)):
        raise Unreadable("two numbers stand side by side")
    return _formula(plain, complex_too=complex_too)


def _refuse_form(plain: str) -> None:
    if not plain:
        raise Unreadable("it is empty")
    if _depth(plain) > DEEPEST:
        raise Unreadable(f"more than {DEEPEST} brackets inside each other")


def _formula(plain: str, *, complex_too: bool) -> Any:
    shown = _THOUSANDS.sub(lambda found: re.sub(r"[^0-9]", "", found.group()), plain) if "(" not in plain else plain
    shown = _REPEATING.sub(_as_fraction, shown.replace("\\varnothing", "\\emptyset"))
    shown = _POWER.sub(r"\1 \\cdot 10^{\2}", shown)
    try:
        normal = normalize_latex(shown, _CONFIG)
        real = not (complex_too or should_treat_as_complex(shown))
        found = latex2sympy(normal, is_real=real, convert_degrees=False, normalization_config=None)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the parser raises, it did not parse
        raise Unreadable(" ".join(str(error).split())[:120] or type(error).__name__) from None
    if found is None or _not_finite(found):
        raise Unreadable("it has no finite value")
    if isinstance(found, sympy.Basic) and found.has(sympy.Float):  # a decimal is the fraction that it was written as
        found = found.replace(lambda part: part.is_Float, lambda part: sympy.Rational(str(part)))
    if not real and isinstance(found, sympy.Basic):  # the parser leaves i a symbol
        found = found.subs({symbol: sympy.I for symbol in found.free_symbols if str(symbol) == "i"})
    return found


def _kept_as_text(plain: str) -> str | None:
    words = _STYLE.sub(r"\1", plain).strip()
    if _WORDS.fullmatch(words) and (words != plain or len(words) > 1):
        return " ".join(words.lower().rstrip(".").split())
    if _RATIO.fullmatch(words):
        return re.sub(r"\s", "", words)
    if _AS_TEXT.search(plain) and re.search(r"[0-9A-Za-z]", _AS_TEXT.sub("", plain)):
        return re.sub(r"\s|\\[,;:! ]|\\left|\\right", "", _AS_TEXT.sub("…", plain))
    return None


def _as_fraction(found: re.Match[str]) -> str:
    r"""Write a repeating decimal, 0.1\overline{6}, as a fraction."""
    whole, fixed, repeated = found.groups()
    over = int(f"{whole}{fixed}{repeated}") - int(f"{whole}{fixed}" or "0")
    return f"\\frac{{{over}}}{{{(10 ** len(repeated) - 1) * 10 ** len(fixed)}}}"


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(character, 0)
        deepest = max(deepest, depth)
    return deepest


def _not_finite(found: Any) -> bool:
    return isinstance(found, sympy.Basic) and found.has(sympy.nan, sympy.zoo)
