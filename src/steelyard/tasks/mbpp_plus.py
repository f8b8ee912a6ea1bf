"""MBPP+ in EvalPlus's own form, whose JSON has lost tuples and sets; which problem had which, EvalPlus's code says.

The two tables are facts of EvalPlus 0.3.1 (Apache License 2.0): how the inputs of a problem are turned back
(`mbpp_deserialize_inputs`), and which problems have a rule of their own (`_special_oracle`).
"""

from collections.abc import Mapping, Sequence
from typing import cast

from steelyard.errors import TaskError
from steelyard.tasks.differential import EQUAL, differential_tests, inputs_of
from steelyard.tasks.problems import SUITE, Problem, functions_of, parsed, prompt_of, text_of
from steelyard.tasks.sources import Row
from steelyard.types import Case, Suite

SHAPES: Mapping[str, Sequence[int]] = {
    "t*": (2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809),
    "lt*": (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
    "lt -": (75, 413, 444, 753),
    "- t": (106, 750),
    "ls": (115,),
    "f c": (124,),
    "t -": (250, 405, 446, 617, 720, 763, 808),
    "c": (252,),
    "tt*": (259, 401, 445),
    "tx": (278,),
    "t - -": (307,),
    "dt -*": (722,),
    "T*": (580, 615, 791),
}
"""Shape of the arguments → problems. One word per argument, the last again where there is a star: `-` as it is, `t` tuple,
`l` list of, `d` dictionary of, `s` set (an empty one is a dictionary there), `x` tuple where it is a list, `T` tuples at every
depth, `f` float, `c` complex."""

_SAME_MEMBERS = "set(got) == set(expected)"
_FOUND = "got == (expected is not None) if isinstance(got, bool) else (got is None) == (expected is None)"
RULES: Mapping[str, str] = {
    **dict.fromkeys(
        ("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
         "intersection_array", "find_dissimilar", "Diff"), _SAME_MEMBERS,
    ),
    **dict.fromkeys(("check_str", "text_match_three", "text_starta_endb"), _FOUND),
    "sum_div": "got == expected or got == 0",
    "surface_Area": "agree(got, expected, tolerance) or abs(got - round(arguments[0] ** 2 + 2 * arguments[0] * "
    "math.sqrt((arguments[0] / 2) ** 2 + arguments[1] ** 2))) <= tolerance",
    "digit_distance_nums": "got == expected or got == sum(abs(int(a) - int(b)) for a, b in "
    "zip(*(str(n).zfill(max(len(str(m)) for m in arguments)) for n in arguments)))",
}  # fmt: skip
"""What is right, by entry point, where it is not the solution's own value. (EvalPlus also takes every value for Mbpp/164; a reward
that pays for everything teaches nothing, so there the solution's value is asked for.)"""


def mbpp_plus_problem(row: Row, *, task: str) -> Problem:
    """Return the problem in a row of MBPP+ in EvalPlus's own form: inputs, and a solution that has the outputs."""
    id_, entry_point = text_of(row, "task_id"), text_of(row, "entry_point")
    solution = text_of(row, "canonical_solution")
    if entry_point not in functions_of(parsed(row, "canonical_solution", solution)):
        raise TaskError(
            f"{row.where}: canonical_solution defines no function {entry_point!r}, the entry_point. Correct or remove the row."
        )
    base, plus = (_restored(row, column, id_) for column in ("base_input", "plus_input"))
    rule = RULES.get(entry_point, EQUAL)
    tests = differential_tests(row, base, plus, solution=solution, entry_point=entry_point, rule=rule)
    cases = tuple(
        Case(id=name, family=name.split("-")[0], args=("", test), expected=True) for name, test in tests.items()
    )
    suite = Suite(task=task, name=SUITE, version=1, entry_point=entry_point, cases=cases, form="asserts")
    without = ("task_id", "prompt", "base_input", "plus_input")
    return Problem(
        prompt=prompt_of(row, id_, text_of(row, "prompt"), without=without),
        suite=suite,
        reference=solution,
        where=row.where,
    )


def _restored(row: Row, column: str, id_: str) -> list[list[object]]:
    number = id_.rpartition("/")[2]
    shape = next((shape for shape, numbers in SHAPES.items() if number.isdecimal() and int(number) in numbers), "-*")
    try:
        return [restore(arguments, shape) for arguments in inputs_of(row, column)]
    except (TypeError, ValueError, AttributeError) as error:
        raise TaskError(
            f"{row.where}: column {column!r} has not the shape that {id_} has in EvalPlus ({error}). Correct or remove the row."
        ) from None


def restore(arguments: Sequence[object], shape: str) -> list[object]:
    """Return the arguments with their tuples, sets and numbers back; `shape` is a key of `SHAPES`."""
    words = shape.removesuffix("*").split(" ")
    last = words[-1]
    each = words + [last] * (len(arguments) - len(words)) if shape.endswith("*") else words
    if len(each) != len(arguments):
        raise ValueError(f"{len(arguments)} arguments, not {len(each)}")
    return [_value(value, word) for value, word in zip(arguments, each, strict=True)]


def _value(value: object, word: str) -> object:
    kind, rest = word[0], word[1:] or "-"
    if kind in "tl":
        items = [_value(item, rest) for item in cast("list[object]", value)]
        return tuple(items) if kind == "t" else items
    if kind == "d":
        return {key: _value(item, rest) for key, item in cast("dict[str, object]", value).items()}
    return _leaf(value, kind)


def _leaf(value: object, kind: str) -> object:
    if kind == "f":
        return float(cast(str, value))
    if kind == "c":
        return complex(cast(str, value))
    if kind == "s":
        return set(cast("list[object]", value)) if value else {}
    if kind == "x":
        return tuple(cast("list[object]", value)) if isinstance(value, list) else value
    return _tuples(value) if kind == "T" else value


def _tuples(value: object) -> object:
    return tuple(map(_tuples, cast("list[object]", value))) if isinstance(value, list) else value
