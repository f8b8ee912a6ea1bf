import ast
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.verify.extract import MAX_TEXT, extract_program, normalised_source

GOOD = "def solve(x):\n    return x\n"
OTHER = "def solve(x):\n    return -x\n"


def extract(text):
    return extract_program(text, entry_point="solve")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (GOOD, GOOD),
        (f"```python\n{GOOD}```", GOOD),
        (f"```\n{GOOD}```\n", GOOD),
        (f"~~~py\n{GOOD}~~~", GOOD),
        (f"````\n{GOOD}````", GOOD),
        (f"First:\n```python\n{OTHER}```\nbetter:\n```python\n{GOOD}```\nDone.", GOOD),
        (f"```python\n{GOOD}```\nUse it so:\n```python\nprint(solve(3))\n```", GOOD),
        (f"```python\n{GOOD}```\nOutput:\n```\n3\n```", GOOD),
        (f"```python\n{GOOD}```\nand now\n```python\n{OTHER}", GOOD),
        (f"Here is the code.\n\n{GOOD}\nThis returns what it was given, and that's it!\n", GOOD),
        (f"<think>\n```python\n{OTHER}```\n</think>\n```python\n{GOOD}```", GOOD),
        (f"{OTHER}</think>{GOOD}", GOOD),
        ("\ufeff" + GOOD, GOOD),
        (GOOD.replace("\n", "\r\n"), GOOD),
        (f"```python\r\n{GOOD}```".replace("\n", "\r\n"), GOOD),
        ("def solve(x):\n\treturn x\n", "def solve(x):\n\treturn x\n"),
        ("def solve(x):\n\f    return x\n", "def solve(x):\n\f    return x\n"),
        ("solve = lambda x: x\n", "solve = lambda x: x\n"),
        (f"import math\n\n{GOOD}", f"import math\n\n{GOOD}"),
        (f"@staticmethod\n{GOOD}", f"@staticmethod\n{GOOD}"),
        ("   ```python\n   def solve(x):\n       return x\n   ```", GOOD),
    ],
)
def test_the_last_complete_program_is_found(text, found):
    assert extract(text) == found
    assert isinstance(ast.parse(found), ast.Module)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "I cannot do that.",
        "The answer is solve(x) = x.",
        "def other(x):\n    return x\n",
        "class A:\n    def solve(self, x):\n        return x\n",
        "if True:\n    def solve(x):\n        return x\n",
        "async def solve(x):\n    return x\n",
        "solve = 3\n",
        "def solve(x):\n    return (\n",
        f"```python\n{GOOD}",
        f"```python\n{GOOD}\n``",
        f"```python\n{GOOD}~~~",
        f"<think>\n```python\n{GOOD}```\n",
        f"```python\n{GOOD}x = '\0'\n```",
        f"```python\n{GOOD}x = '\ud800'\n```",
        f"```python\n{GOOD}x = {'(' * 9000}\n```",
        f"```python\n{GOOD}x = {'-' * 90000}1\n```",
        f"```python\n{GOOD}x = x{'.a' * 30000}\n```",
        f"```python\n{GOOD}x = {'9' * 5000}\n```",
        GOOD + "#" * MAX_TEXT,
        "(" * 50_000,
        "def " * 20_000,
        "```\n" * 20_000,
    ],
)
def test_everything_else_is_no_answer(text):
    assert extract(text) is None


def test_nothing_of_the_text_is_run(tmp_path):
    mark = tmp_path / "mark"
    text = f"open({str(mark)!r}, 'w')\n{GOOD}"
    assert extract(f"```\n{text}```") == text
    assert not mark.exists()


def test_an_odd_escape_is_no_warning_of_ours():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert extract("def solve(x):\n    return '\\d'\n") is not None


lines = st.sampled_from(
    ["```", "```python", "~~~", "````", "def solve(x):", "    return x", "  return", "\treturn", "<think>", "</think>", "prose here", "'''", "(", "\0", "\ud800", "\f", "\ufeff", "class A:", "x = 1", "@d", "solve = lambda: 0", ""]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(lines, max_size=12).map("\n".join)))
def test_extraction_and_normal_form_never_raise(text):
    found = extract(text)
    assert found is None or any(
        getattr(node, "name", None) == "solve" or isinstance(node, ast.Assign) for node in ast.parse(found).body
    )
    assert isinstance(normalised_source(text), str)


ONE = '''
def solve(items, limit=3):
    """Says what it does."""
    total = 0  # a comment
    for item in items:
        total += item
    return sorted([x for x in items if x < limit], key=lambda y: -y), total
'''
TWO = """
def solve(bookings, most=3):
    s = 0
    for b in bookings:
        s += b
    return (sorted([q for q in bookings if q < most], key=lambda key: -key), s)
"""


def test_names_comments_docstrings_and_layout_do_not_count():
    assert normalised_source(ONE) == normalised_source(TWO)


@pytest.mark.parametrize(
    ("old", "new"),
    [("+=", "-="), ("<", "<="), ("key=", "reverse="), ("sorted", "list"), ("solve", "other"), ("= 0", "= 1")],
)
def test_everything_else_counts(old, new):
    assert normalised_source(ONE) != normalised_source(ONE.replace(old, new))


def test_swapped_variables_count():
    assert normalised_source("def f(a, b):\n    return a - b") != normalised_source("def f(a, b):\n    return b - a")


def test_globals_and_calls_of_helpers_stay():
    source = "N = 1\n\ndef helper(a):\n    return a\n\ndef f(x):\n    global N\n    N = x\n    return helper(x) + N"
    normal = normalised_source(source)
    assert "helper(v0)" in normal
    assert "global N" in normal
    assert normalised_source(normal) == normal


def test_the_normal_form_of_a_deep_program_is_its_text():
    deep = "x = " + "(" * 150 + "1" + ")" * 150
    assert normalised_source(f" {deep} \n") in (deep, "x = 1")
    assert normalised_source("x = 1" + "+1" * 20_000 + "\n").startswith("x = 1+1")
