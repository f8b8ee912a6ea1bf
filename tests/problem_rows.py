"""Rows of our own in the published formats of programming problems."""

import gzip
import json
from pathlib import Path

DOUBLE = {
    "task_id": "Own/double",
    "prompt": 'from typing import List\n\n\ndef shift(x: int) -> int:\n    return x + 1\n\n\ndef double(items: List[int]) -> List[int]:\n    """Return each item twice as large.\n    >>> double([1, 2])\n    [2, 4]\n    """\n',
    "entry_point": "double",
    "canonical_solution": "    return [2 * item for item in items]\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate([]) == []\n    assert candidate([1, shift(2)]) == [2, 6]\n    assert double([-1]) == [-2]\n",
}
ROOT = {
    "task_id": "Own/root",
    "prompt": 'import math\n\n\ndef root(x):\n    """Return the square root, 0 for what has none."""\n',
    "entry_point": "root",
    "canonical_solution": "    return math.sqrt(x) if x > 0 else 0.0\n",
    "test": "def check(candidate):\n    assert abs(candidate(2.25) - 1.5) < 1e-9\n    assert candidate(-1) == 0\n",
}
LAST = {
    "task_id": "Own/last",
    "prompt": "def last(text):\n",
    "entry_point": "last",
    "canonical_solution": "    return text[-1] if text else None\n",
    "test": "def check(candidate):\n    assert candidate('abc') == 'c'\n    assert candidate('') is None\n",
}
HUMANEVAL = [DOUBLE, ROOT, LAST]

_HUB_TEST = """

import numpy as np

def is_floats(x) -> bool:
    return isinstance(x, float) or (isinstance(x, (list, tuple)) and all(isinstance(i, float) for i in x))

def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp

"""
HUMANEVAL_PLUS_HUB = [
    ROOT
    | {
        "test": _HUB_TEST
        + "def check(candidate):\n    for inp, exp in zip([[4.0], [2.0], [-3]], [2.0, 1.4142135, 0.0]):\n        assertion(candidate(*inp), exp, 0)\n"
    }
]
"""With `test`, as on the hub."""

_OWN_FORM = {"contract": "\n    assert True\n", "atol": 0}
HUMANEVAL_PLUS = [
    {k: v for k, v in DOUBLE.items() if k != "test"}
    | _OWN_FORM
    | {"base_input": [[[1, 2]], [[]]], "plus_input": [[[1, 2]], [[5, -7]], [[10**20]]]},
    {k: v for k, v in ROOT.items() if k != "test"} | _OWN_FORM | {"base_input": [[4.0]], "plus_input": [[2.0], [-1]]},
    {
        "task_id": "Own/zero",
        "prompt": "def poly(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\n\n\ndef find_zero(xs):\n",
        "entry_point": "find_zero",
        "canonical_solution": "    return -xs[0] / xs[1] if len(xs) == 2 else 1.0\n",
        "contract": "",
        "atol": 1e-4,
        "base_input": [[[-4, 2]]],
        "plus_input": [[[-1, 0, 1]]],
    },
]
"""Inputs and a solution, as EvalPlus has it."""

AREA = {
    "task_id": 9001,
    "text": "Write a function to find the area of a circle.",
    "code": "import math\r\ndef circle_of(r):\r\n  return r\r\ndef area(r):\r\n  return math.pi*circle_of(r)**2",
    "test_list": [
        "assert math.isclose(area(1), math.pi)",
        "assert area(0)==0",
        "assert math.isclose(area(TWO), 4*math.pi)",
    ],
    "test_setup_code": "import math\nTWO = 2",
    "challenge_test_list": [],
}
LONGEST = {
    "task_id": 9002,
    "text": "Write a function to find the longest word.",
    "code": "def longest(words):\r\n  return max(words, key=len)",
    "test_list": ["assert longest(['a', 'bb']) == 'bb'", "assert longest(['ccc', 'd']) == 'ccc'", "assert longest(['x', 'y']) == 'x'"],
    "test_setup_code": "",
    "challenge_test_list": ["assert longest(['', 'q']) == 'q'"],
}  # fmt: skip
MBPP = [AREA, LONGEST]
MBPP_SANITIZED = [
    {
        "source_file": "ours.ipynb",
        "task_id": 9001,
        "prompt": AREA["text"],
        "code": AREA["code"],
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(area(1), math.pi)", "assert area(0) == 0", "assert area(2) > 12"],
    }
]
MBPP_PLUS_HUB = [
    {**MBPP_SANITIZED[0], "test": "import numpy as np\n[]\n" + _HUB_TEST + "inputs = [[1], [3]]\nresults = [3.14159265, 28.27433388]\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(area(*inp), exp, 0)\n"}
]  # fmt: skip
_OWN_MBPP = {"atol": 0, "contract": "", "assertion": "assert True"}
MBPP_PLUS = [
    {
        "task_id": "Mbpp/9001",
        "prompt": '"""\nWrite a function to find the area of a circle.\n"""\n',
        "entry_point": "area",
        "canonical_solution": AREA["code"],
        "base_input": [[1]],
        "plus_input": [[3]],
    }
    | _OWN_MBPP,
    {
        "task_id": "Mbpp/2",
        "prompt": '"""\nWrite a function to find what two tuples share.\n"""\n',
        "entry_point": "similar_elements",
        "canonical_solution": "def similar_elements(a, b):\n    return tuple(x for x in a if x in b)\n",
        "base_input": [[[3, 4], [5, 4, 3]]],
        "plus_input": [[[1], [2]]],
    }
    | _OWN_MBPP,
    {
        "task_id": "Mbpp/9003",
        "prompt": '"""\nWrite a function that matches an a before a b.\n"""\n',
        "entry_point": "text_starta_endb",
        "canonical_solution": "import re\ndef text_starta_endb(text):\n    return 'found' if re.search('a.*b$', text) else None\n",
        "base_input": [["aabb"]],
        "plus_input": [["b"]],
    }
    | _OWN_MBPP,
    {
        "task_id": "Mbpp/9004",
        "prompt": '"""\nWrite a function that sums the distances of the digits.\n"""\n',
        "entry_point": "digit_distance_nums",
        "canonical_solution": "def digit_distance_nums(a, b):\n    return sum(map(int, str(abs(a - b))))\n",
        "base_input": [[23, 56]],
        "plus_input": [[100, 5]],
    }
    | _OWN_MBPP,
    {
        "task_id": "Mbpp/9005",
        "prompt": '"""\nWrite a function to find the surface of a square pyramid.\n"""\n',
        "entry_point": "surface_Area",
        "canonical_solution": "def surface_Area(b, s):\n    return 2 * b * s + b * b\n",
        "base_input": [[3, 4]],
        "plus_input": [],
    }
    | _OWN_MBPP,
]

FORMS = {
    "humaneval": HUMANEVAL,
    "humaneval+ hub": HUMANEVAL_PLUS_HUB,
    "humaneval+": HUMANEVAL_PLUS,
    "mbpp": MBPP,
    "mbpp sanitized": MBPP_SANITIZED,
    "mbpp+ hub": MBPP_PLUS_HUB,
    "mbpp+": MBPP_PLUS,
}
"""All that are read, by name."""


def write(path: Path, rows: list[dict[str, object]]) -> str:
    """Write JSONL, compressed where the name says so; return the name."""
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)
