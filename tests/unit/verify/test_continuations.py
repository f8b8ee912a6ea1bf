"""Answers that continue a prompt, answers with a preamble before them, and whole scripts."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.verify.extract import MAX_TEXT, extract_program, extract_script

PREAMBLE = "import math\n\n\ndef helper(x):\n    return math.floor(x)\n\n\n"
STEM = f'{PREAMBLE}def solve(x):\n    """Return the floor.\n\n    >>> solve(1.5)\n    1\n    """\n'
BODY = "    y = helper(x)\n    return y\n"
WHOLE = "def solve(x):\n    return helper(x)\n"


def extract(text, *, preamble=PREAMBLE, stem=STEM):
    return extract_program(text, entry_point="solve", preamble=preamble, stem=stem)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (BODY, BODY),
        (f"\n\n{BODY}", f"\n\n{BODY}"),
        (f"{BODY}\n\ndef other(x):\n    return 1\n", BODY),
        (f"{BODY}\nprint(solve(1.5))\n", BODY),
        (f"{BODY}\n# Test it\nassert solve(2.5) == 2\n", BODY),
        (f"{BODY}\nif __name__ == '__main__':\n    solve(1)\n", BODY),
        (f"{BODY}```\nThis floors the number.\n", BODY),
        (f"{BODY}\n\nThis function floors the number.", BODY),
        (f"{BODY}\n\ndef solve(x):\n    return 'again'\n", BODY),
        (f"{BODY}\n\ndef solve(x):\n    return (", BODY),
        ("    y = x\n# a comment at the margin\n    return y\n", "    y = x\n# a comment at the margin\n    return y\n"),
        ("    y = '''\nat the margin\n'''\n    return y\n", "    y = '''\nat the margin\n'''\n    return y\n"),
        ("    y = (\n1,\n)\n    return y[0]\n", "    y = (\n1,\n)\n    return y[0]\n"),
        ("    def inner(a):\n        return a\n    return inner(x)\n", "    def inner(a):\n        return a\n    return inner(x)\n"),
        (f"```python\n{BODY}```", BODY),
        (f"The body is:\n```python\n{BODY}```\nDone.", BODY),
        (f"<think>{WHOLE}</think>{BODY}", BODY),
    ],
)  # fmt: skip
def test_the_rest_of_the_function_is_joined_and_cut(text, kept):
    found = extract(text)
    assert found == STEM + kept.rstrip() + "\n"
    assert ast.parse(found)


@pytest.mark.parametrize(
    "text",
    [
        "I cannot do that.",
        "    I cannot do that.",
        "    return (",
        "    # nothing but a comment\n",
        "\n\n",
        "return x\n",
        "\treturn x\n",
        "def other(x):\n    return x\n",
        "print(solve(1))\n",
        f"<think>\n{BODY}",
        "```python\n    return (\n```",
    ],
)
def test_what_makes_no_function_is_no_answer(text):
    assert extract(text) is None


@pytest.mark.parametrize(
    "text", [WHOLE, f"```python\n{WHOLE}```", f"Here:\n\n{WHOLE}\nThat's it!\n", f"```\n{BODY}```\n```\n{WHOLE}```"]
)
def test_a_whole_function_stands_alone_after_the_preamble(text):
    assert extract(text) == PREAMBLE.rstrip("\n") + "\n" + WHOLE


def test_without_a_stem_a_rest_is_no_answer():
    assert extract(BODY, stem="") is None
    assert extract(WHOLE, stem="", preamble="") == WHOLE


def test_an_import_from_the_future_stays_at_the_top():
    found = extract(f'```\n"""Floors."""\nfrom __future__ import annotations\n{WHOLE}```')
    assert found.startswith('"""Floors."""\nfrom __future__ import annotations\nimport math')
    compile(found, "found", "exec")


def test_a_prompt_that_ends_inside_a_line_is_continued_there():
    stem = "def solve(x):\n    "
    assert extract("return x\n\nprint(1)\n", stem=stem, preamble="") is None
    assert extract(" return x\n\nprint(1)\n", stem="def solve(x):\n   ", preamble="") == "def solve(x):\n    return x\n"


def test_a_head_that_is_defined_twice_is_the_models_own_second_one():
    assert extract(f"{OTHER}\n{WHOLE}").count("def solve") == 2


OTHER = "def solve(x):\n    return -x\n"
SCRIPT = "n = int(input())\nprint(n + 1)\n"


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT,
        f"```python\n{SCRIPT}```",
        f"```\nprint(0)\n```\nbetter:\n```\n{SCRIPT}```",
        f"```python\n{SCRIPT}```\nOutput:\n```\n3\n```",
        f"```python\n{SCRIPT}```\nInput:\n```\n1 2\n```",
        f"```python\n{SCRIPT}```\nand now\n```python\nprint(",
        f"Here is the code.\n\n{SCRIPT}\nThis adds one, and that's it!\n",
        f"<think>```\nprint(0)\n```</think>\n```\n{SCRIPT}```",
        "\ufeff" + SCRIPT,
        SCRIPT.replace("\n", "\r\n"),
    ],
)
def test_the_last_complete_script_is_found(text):
    assert extract_script(text) == SCRIPT


@pytest.mark.parametrize(
    "text",
    ["", "3", "Yes", "I cannot.", "x = 1\n", "```\n3\n```", f"```\n{SCRIPT}", f"<think>{SCRIPT}", "print(" * 9000, SCRIPT + "#" * MAX_TEXT],
)  # fmt: skip
def test_what_can_print_nothing_is_no_script(text):
    assert extract_script(text) is None


@pytest.mark.parametrize(
    "text", ["print(int(input()) + 1)\n", "for line in open(0):\n    print(line)\n", "while True:\n    print(1)\n"]
)
def test_a_bare_script_may_begin_with_any_statement(text):
    assert extract_script(text) == text
    assert extract_script(f"So:\n\n{text}\nThat's it!\n") == text


def test_nothing_of_a_rest_is_run(tmp_path):
    mark = tmp_path / "mark"
    assert extract(f"    open({str(mark)!r}, 'w')\n") is not None
    assert extract_script(f"open({str(mark)!r}, 'w')\n") is not None
    assert not mark.exists()


lines = st.sampled_from(
    ["```", "```python", "    return x", "\treturn", "return x", "def solve(x):", "print(1)", "# c", "'''", "(", "\0", "\ud800", "\f", "", "prose here", "<think>", "</think>", "  x"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(lines, max_size=12).map("\n".join)))
def test_never_raises_and_always_defines_the_entry_point(text):
    found = extract(text)
    assert found is None or "solve" in {getattr(node, "name", "solve") for node in ast.parse(found).body}
    script = extract_script(text)
    assert script is None or ast.parse(script)


@pytest.mark.parametrize(
    "name", ["candidate", "check", "harness", "frames", "send", "main", "print", "f", "test", "jail"]
)
def test_an_entry_point_may_have_the_name_of_anything(name):
    source = f"def {name}(x):\n    return x\n"
    assert extract_program(f"```\n{source}```", entry_point=name) == source


def test_an_answer_that_is_echoed_in_prose_is_no_program():
    text = "The function is `def solve(x): return helper(x)` and I think that def solve is right."
    assert extract(text) is None
    assert (
        extract(f"{text}\n```python\n{WHOLE}```\nAgain: `def solve(x): return 1`.")
        == PREAMBLE.rstrip("\n") + "\n" + WHOLE
    )
