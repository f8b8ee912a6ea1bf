"""The operators: what each changes, and that no two mutants are the same program."""

import ast
import textwrap

import pytest

from steelyard.audit.strength.mutants import AUTHORED, changed_lines, make_mutants
from steelyard.audit.strength.operators import OPERATORS
from steelyard.tasks.booking import REFERENCES, faults
from steelyard.verify.extract import normalised_source

CHANGES = [
    ("comparison boundary", "x < y", {"x <= y"}),
    ("comparison boundary", "x >= y > z", {"x > y > z", "x >= y >= z"}),
    ("comparison turned", "x < y", {"x > y"}),
    ("comparison turned", "x not in y", {"x in y"}),
    ("sort dropped", "sorted(x, key=f)", {"list(x)"}),
    ("sort dropped", "x.sort()", {"pass"}),
    (
        "sort key part",
        "sorted(x, key=lambda e: (e[0], e[1]))",
        {"sorted(x, key=lambda e: e[0])", "sorted(x, key=lambda e: e[1])"},
    ),
    ("sort key part", "x.sort(key=lambda e: (e.a,))", {"x.sort(key=lambda e: ())"}),
    ("sort key part", "x.sort()", {"x.sort(key=lambda item: item[0])"}),
    ("sort ties", "sorted(x, key=len)", {"sorted(list(x)[::-1], key=len)"}),
    ("duplicates lost", "for e in x:\n    y", {"for e in dict.fromkeys(x):\n    y"}),
    ("duplicates lost", "sum(x)", {"sum(list(dict.fromkeys(x)))"}),
    ("keyword dropped", "f(1, a=2, b=3)", {"f(1, b=3)", "f(1, a=2)"}),
    ("arguments swapped", "f(a, b, c)", {"f(b, a, c)", "f(a, c, b)"}),
    ("loop bounds", "range(n)", {"range(n + 1)", "range(n - 1)"}),
    ("loop bounds", "for e in x:\n    y", {"for e in list(x)[1:]:\n    y", "for e in list(x)[:-1]:\n    y"}),
    ("constant", "x = 5", {"x = 6", "x = 4", "x = 0"}),
    ("constant", "x = 0.25", {"x = 1.25", "x = -0.75", "x = 0.0"}),
    ("constant", "x = 'a'", {"x = ''"}),
    ("arithmetic", "x // y", {"x / y"}),
    ("arithmetic", "x -= 1", {"x += 1"}),
    ("arithmetic", "x = -y", {"x = y"}),
    ("boolean part", "x and y", {"x or y", "x", "y"}),
    ("boolean part", "not x", {"x"}),
    ("boolean part", "x = True", {"x = False"}),
    ("boolean part", "[e for e in x if e if y]", {"[e for e in x if e]", "[e for e in x if y]"}),
    ("call dropped", "abs(x)", {"x"}),
    ("call dropped", "min(x, y)", {"max(x, y)"}),
    ("statement dropped", "f(x)", {"pass"}),
    ("statement dropped", "x[0] = 1", {"pass"}),
    (
        "constant return",
        "def f():\n    return x",
        {f"def f():\n    return {c}" for c in ("None", 0, 1, True, False, "''", "[]")},
    ),
]


def program(body: str) -> str:
    return ast.unparse(ast.parse("def g():\n" + textwrap.indent(body, "    ")))


@pytest.mark.parametrize(("operator", "before", "after"), CHANGES)
def test_what_an_operator_makes_of_a_program(operator, before, after):
    made = {mutant.source for mutant in make_mutants({"r": program(before)}, {}) if mutant.operator == operator}
    assert made == {program(text) for text in after}


def test_every_operator_is_in_the_table_above():
    assert {operator for operator, _, _ in CHANGES} == set(OPERATORS)


def test_names_and_assignments_stay_since_without_them_nothing_runs():
    assert not [m for m in make_mutants({"r": "x = y"}, {}) if m.operator == "statement dropped"]


def test_mutants_of_the_booking_programs_are_distinct_and_none_is_a_reference():
    mutants = make_mutants(REFERENCES, {name: faults.faulty_program(name) for name in faults.FAULTS})
    names = [normalised_source(mutant.source) for mutant in mutants]
    assert len(names) == len(set(names)) >= 120
    assert not set(names) & {normalised_source(source) for source in REFERENCES.values()}
    assert {mutant.reference for mutant in mutants if mutant.operator != AUTHORED} == set(REFERENCES)
    assert sum(mutant.operator == AUTHORED for mutant in mutants) == len(faults.FAULTS) == 12
    assert len({mutant.id for mutant in mutants}) == len(mutants)


def test_each_mutant_differs_by_one_place():
    source = "def f(x):\n    y = x + 1\n    return y * 2\n"
    for mutant in make_mutants({"r": source}, {}):
        assert mutant.diff.count("\n") == 1, mutant
        assert mutant.diff == changed_lines(source, mutant.source)


def test_annotations_docstrings_and_what_the_task_gives_stay():
    given = "def helper(x):\n    return x + 1"
    source = f'{given}\n\ndef f(x: tuple[int, 5]) -> "text":\n    """Less than < 3."""\n    return helper(x)\n'
    for mutant in make_mutants({"r": source}, {}, given=given):
        assert "def helper(x):\n    return x + 1" in mutant.source
        assert "def f(x: tuple[int, 5]) -> 'text':" in mutant.source
