"""The generated programs are what their labels say."""

import copy
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from steelyard.tasks.booking import PROMPT, booking_task
from steelyard.tasks.booking_corpus import Program, programs
from steelyard.tasks.booking_corpus.generate import label_shares, write_program
from steelyard.tasks.booking_corpus.templates import ALGORITHMS, INCLUSIVE, NAMES, PAIRS, RIGHT

Booking = list[list[int]]


def most_active(bookings: Booking, *, inclusive: bool) -> int:
    """The slow, obvious answer: the maximum is reached at some start."""
    times = [start for start, _ in bookings]
    if inclusive:
        return max((sum(s <= time <= e for s, e in bookings) for time in times), default=0)
    return max((sum(s <= time < e for s, e in bookings) for time in times), default=0)


def make_inputs() -> list[Booking]:
    """The empty list, small random lists with many shared endpoints, and the edge of the domain."""
    rng = random.Random(0)
    inputs: list[Booking] = [[], [[0, 10_000]], [[0, 1], [9_999, 10_000], [1, 9_999]]]
    for latest in [4, 6, 9, 12, 40, 10_000] * 6:
        starts = [rng.randrange(latest) for _ in range(rng.randint(1, 10))]
        bookings = [[start, rng.randint(start + 1, latest)] for start in starts]
        inputs.append(bookings + [list(bookings[0])] * rng.randint(0, 2))
    return inputs


INPUTS = make_inputs()
HALF_OPEN = [most_active(bookings, inclusive=False) for bookings in INPUTS]
CLOSED = [most_active(bookings, inclusive=True) for bookings in INPUTS]


def outputs(source: str) -> list[object]:
    """Run one of our own generated programs."""
    space: dict[str, Callable[..., object]] = {}
    exec(source, space)
    function = space["required_capacity"]
    results: list[object] = []
    for bookings in INPUTS:
        try:
            results.append(function([list(booking) for booking in bookings]))
        except (ValueError, IndexError, KeyError, UnboundLocalError) as error:
            results.append(type(error).__name__)
    return results


CELLS = [(name, label) for name, algorithm in ALGORITHMS.items() for label in sorted(algorithm.labels)]


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "label"), CELLS)
def test_every_template_behaves_as_labelled(name, label):
    rng = np.random.default_rng(0)
    for source in {write_program(ALGORITHMS[name], label=label, rng=rng) for _ in range(4)}:
        found = outputs(source)
        if label == RIGHT:
            assert found == HALF_OPEN, source
        elif label == INCLUSIVE:
            assert found == CLOSED, source
        else:
            assert found != HALF_OPEN, source
            assert found != CLOSED, source


def test_right_programs_pass_the_audit_suite():
    audit = booking_task().suites["audit"]
    for name, algorithm in ALGORITHMS.items():
        if RIGHT in algorithm.labels:
            space: dict[str, Callable[..., object]] = {}
            exec(write_program(algorithm, label=RIGHT, rng=np.random.default_rng(1)), space)
            for case in audit.cases[::4]:
                assert space["required_capacity"](*copy.deepcopy(case.args)) == case.expected, (name, case.id)


def draw(**changes) -> list[Program]:
    settings = {"count": 2000, "seed": 0, "right_share": 0.4, "inclusive_share": 0.1} | changes
    return list(programs(**settings))


def test_shares_are_kept():
    counts = Counter(program.label for program in draw())
    assert counts[RIGHT] / 2000 == pytest.approx(0.4, abs=0.04)
    assert counts[INCLUSIVE] / 2000 == pytest.approx(0.1, abs=0.03)
    assert set(counts) == set(label_shares(right_share=0.4, inclusive_share=0.1))


def test_shares_above_one_are_refused():
    with pytest.raises(ValueError, match=r"right_share \+ inclusive_share"):
        label_shares(right_share=0.9, inclusive_share=0.2)


def test_at_least_four_right_algorithms_in_many_spellings():
    sources = defaultdict(set)
    for program in draw():
        if program.label == RIGHT:
            sources[program.algorithm].add(program.source)
    assert len(sources) >= 4
    assert min(map(len, sources.values())) > 20


def test_equal_seeds_give_equal_programs_and_another_seed_others():
    assert draw(count=50) == draw(count=50)
    assert draw(count=50) != draw(count=50, seed=1)


def test_programs_do_not_depend_on_the_hash_seed_of_the_process():
    code = (
        "from steelyard.tasks.booking_corpus import programs\n"
        "print([p.source for p in programs(count=50, seed=0, right_share=0.4, inclusive_share=0.1)])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_programs_are_plain_sources():
    for program in draw(count=300):
        assert program.source.startswith(("def ", "import ", "from ")), program.source
        assert not set("$@«»|") & set(program.source), program.source
        assert "\n\n\n" not in program.source


def test_no_name_stands_for_two_variables():
    names = [name for pool in (*NAMES.values(), *PAIRS) for name in pool]
    assert len(names) == len(set(names))


def test_no_program_quotes_the_prompt():
    assert all(PROMPT.content not in program.source for program in draw(count=50))
