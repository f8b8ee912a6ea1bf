"""The booking task: sizes, families, overlaps, references, hashes, and which suite catches which fault."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from steelyard.errors import TaskError
from steelyard.tasks.booking import PROMPT, REFERENCES, booking_task, committed_hashes, faults, generate
from steelyard.tasks.booking.patterns import LAST, PATTERNS, Draw, shares_endpoint
from steelyard.tasks.booking.references import FUNCTIONS
from steelyard.types import Case

TASK = booking_task()
FAMILIES = ("ordinary", "state", "interaction", "boundary")


def bookings_of(case: Case) -> list[list[int]]:
    (bookings,) = case.args
    assert isinstance(bookings, list)
    return bookings


def test_suites_have_the_sizes_of_the_study():
    sizes = {name: len(suite.cases) for name, suite in TASK.suites.items()}
    assert sizes == {"reference": 96, "weak": 57, "repaired": 57, "audit": 192}
    assert TASK.eval_suite == "audit"


def test_families_have_24_cases_in_training_and_48_in_the_audit():
    for name, count in (("reference", 24), ("audit", 48)):
        assert Counter(case.family for case in TASK.suites[name].cases) == dict.fromkeys(FAMILIES, count)


def test_sizes_cycle_and_the_boundary_family_starts_at_two():
    for name, rounds in (("reference", 3), ("audit", 6)):
        for family in FAMILIES:
            sizes = Counter(len(bookings_of(case)) for case in TASK.suites[name].cases if case.family == family)
            expected = dict.fromkeys((1, 2, 3, 8, 25, 75, 150, 200), rounds)
            if family == "boundary":
                expected |= {1: 0, 2: 2 * rounds}
            if family == "ordinary":
                expected |= {1: rounds - 1, 0: 1}
            assert sizes == Counter(expected), (name, family)


def test_every_input_lies_in_the_domain():
    for suite in TASK.suites.values():
        for case in suite.cases:
            for start, end in bookings_of(case):
                assert type(start) is int and type(end) is int
                assert 0 <= start < end <= LAST == 10_000


def test_c54_287_distinct_inputs_and_only_the_empty_list_is_shared():
    reference = {case.key: case for case in TASK.suites["reference"].cases}
    audit = {case.key: case for case in TASK.suites["audit"].cases}
    assert (len(reference), len(audit), len(reference | audit)) == (96, 192, 287)
    assert [bookings_of(reference[key]) for key in reference.keys() & audit.keys()] == [[]]


def test_no_input_is_a_permutation_of_another():
    cases = {case.id: case for suite in TASK.suites.values() for case in suite.cases}
    assert len({tuple(sorted(map(tuple, bookings_of(case)))) for case in cases.values()}) == len(cases) == 287


def test_39_of_96_share_an_endpoint_and_weak_is_the_rest():
    reference = TASK.suites["reference"].cases
    shared = [case for case in reference if shares_endpoint(bookings_of(case))]
    assert Counter(case.family for case in shared) == {"boundary": 24, "ordinary": 5, "state": 5, "interaction": 5}
    assert TASK.suites["weak"].cases == tuple(case for case in reference if case not in shared)
    assert sum(shares_endpoint(bookings_of(case)) for case in TASK.suites["audit"].cases) == 78


def test_repaired_exchanges_eight_ordinary_for_eight_boundary_cases_of_the_reference():
    weak, repaired = ({case.id for case in TASK.suites[name].cases} for name in ("weak", "repaired"))
    cases = {case.id: case for case in TASK.suites["reference"].cases}
    gone = [cases[case_id] for case_id in weak - repaired]
    new = [cases[case_id] for case_id in repaired - weak]
    assert [case.family for case in gone] == ["ordinary"] * 8
    assert [case.family for case in new] == ["boundary"] * 8
    assert all(shares_endpoint(bookings_of(case)) for case in new)
    assert sorted(len(bookings_of(case)) for case in gone) == [1, 2, 3, 8, 25, 75, 150, 200]
    assert "empty" in repaired


def test_ids_are_unique_within_a_suite_and_name_one_case_across_suites():
    by_id: dict[str, Case] = {}
    for suite in TASK.suites.values():
        assert len({case.id for case in suite.cases}) == len(suite.cases)
        for case in suite.cases:
            assert by_id.setdefault(case.id, case) == case


@pytest.mark.parametrize("name", FUNCTIONS)
def test_references_agree_with_every_expected_value(name):
    for suite in TASK.suites.values():
        for case in suite.cases:
            assert FUNCTIONS[name](bookings_of(case)) == case.expected, case.id


def test_expected_values_equal_a_count_at_every_time():
    for suite in ("reference", "audit"):
        for case in TASK.suites[suite].cases:
            active = [0] * (LAST + 1)
            for start, end in bookings_of(case):
                for time in range(start, end):
                    active[time] += 1
            assert max(active) == case.expected, case.id


def test_answers_are_varied_and_no_constant_passes_four_in_ten():
    for suite in TASK.suites.values():
        most = Counter(case.expected for case in suite.cases).most_common(1)[0][1]
        assert most < 0.4 * len(suite.cases), suite.name


# fault: cases of reference, weak, repaired and audit that catch it
CAUGHT = {
    "inclusive_endpoint": (36, 0, 7, 72),
    "order_sensitive_ties": (22, 0, 4, 39),
    "deduplicating": (16, 12, 12, 33),
    "neighbours_only": (29, 12, 13, 57),
    "assumes_sorted": (40, 16, 21, 75),
    "merged_interval_count": (83, 46, 47, 165),
    "largest_block": (38, 20, 21, 72),
    "overlap_degree": (38, 20, 21, 71),
    "shared_end_lost": (11, 3, 6, 28),
    "counts_all": (75, 36, 37, 149),
    "empty_is_one": (1, 1, 1, 1),
    "empty_crash": (1, 1, 1, 1),
}


def test_how_many_cases_of_each_suite_catch_each_fault():
    counted = {
        fault: tuple(sum(faults.catches(fault, case) for case in suite.cases) for suite in TASK.suites.values())
        for fault in faults.FAULTS
    }
    assert counted == CAUGHT


def test_weak_pays_the_two_endpoint_faults_in_full_and_every_other_suite_catches_all():
    missed = {name: [fault for fault, counts in CAUGHT.items() if counts[i] == 0] for i, name in enumerate(TASK.suites)}
    assert missed == {
        "reference": [],
        "weak": ["inclusive_endpoint", "order_sensitive_ties"],
        "repaired": [],
        "audit": [],
    }


def test_most_boundary_cases_tell_inclusive_from_half_open():
    for name in ("reference", "audit"):
        boundary = [case for case in TASK.suites[name].cases if case.family == "boundary"]
        decisive = sum(faults.catches("inclusive_endpoint", case) for case in boundary)
        assert decisive / len(boundary) >= 0.8, name


def test_signatures_are_what_the_faults_return_and_differ_from_each_other():
    inputs = {case.key: bookings_of(case) for suite in TASK.suites.values() for case in suite.cases}
    assert TASK.signatures == faults.signatures(inputs.items())
    assert all(len(signature) == 287 for signature in TASK.signatures.values())
    right = {case.key: case.expected for suite in TASK.suites.values() for case in suite.cases}
    every = [right, *TASK.signatures.values()]
    assert all(one != other for i, one in enumerate(every) for other in every[:i])
    assert "empty_crash" not in TASK.signatures


def test_hashes_are_the_committed_ones():
    assert {name: suite.hash for name, suite in TASK.suites.items()} == committed_hashes()
    assert len(set(committed_hashes().values())) == 4


def test_the_seed_makes_the_committed_data(capsys):
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().out == f"data equal seed {generate.SEED}\n"


def test_another_seed_makes_other_cases_under_the_same_rules():
    suites = generate.make_suites(generate.SEED + 1)
    assert {name: len(suite.cases) for name, suite in suites.items()} == {
        name: len(suite.cases) for name, suite in TASK.suites.items()
    }
    assert all(suites[name].hash != TASK.suites[name].hash for name in suites)
    assert not any(shares_endpoint(bookings_of(case)) for case in suites["weak"].cases)


def test_a_changed_or_missing_data_file_is_named(tmp_path):
    texts = generate.render(generate.make_suites(generate.SEED))
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert generate.stale_files(tmp_path) == []
    rows = json.loads(texts["cases.json"])
    rows[5][3] += 1
    (tmp_path / "cases.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "signatures.json").unlink()
    assert generate.stale_files(tmp_path) == ["cases.json", "signatures.json"]


def test_a_specification_that_cannot_be_met_says_which(monkeypatch):
    monkeypatch.setattr(generate, "ATTEMPTS", 20)
    monkeypatch.setitem(PATTERNS, "boundary", (lambda draw, size: [[0, 1]] * size,))
    with pytest.raises(TaskError, match=r"train-boundary-00.*20 draws"):
        generate.make_cases(0)


def specified(pattern, *, size=2, order="sorted", touch=generate.Touch.NONE):
    return generate.Specification(id="x", family="ordinary", size=size, pattern=pattern, order=order, touch=touch)


def test_a_list_or_its_permutation_is_never_drawn_twice(monkeypatch):
    monkeypatch.setattr(generate, "ATTEMPTS", 200)
    spec = specified(lambda draw, size: draw.shuffled([[0, 1], [2, draw.between(3, 5)]]), order="shuffled")
    draw, seen = Draw(0), set()
    drawn = [generate._draw_new(draw, spec, seen) for _ in range(3)]
    assert sorted(max(end for _, end in bookings) for bookings in drawn) == [3, 4, 5]
    with pytest.raises(TaskError):
        generate._draw_new(draw, spec, seen)


@pytest.mark.parametrize(
    ("bookings", "none", "decisive", "harmless"),
    [
        ([[0, 1], [2, 3]], True, False, False),
        ([[0, 2], [2, 3]], False, True, False),
        ([[0, 2], [1, 2], [2, 3]], False, True, False),
        ([[0, 2], [0, 2], [0, 2], [2, 3], [5, 6], [5, 6], [5, 6], [5, 6]], False, False, True),
    ],
)
def test_a_list_is_kept_only_for_what_it_was_meant_to_be(bookings, none, decisive, harmless):
    meant = dict(zip(generate.Touch, (none, decisive, harmless), strict=True))
    for touch, expected in meant.items():
        spec = specified(PATTERNS["ordinary"][0], size=len(bookings), touch=touch)
        assert generate.matches(bookings, spec) is expected
    out_of_order = specified(PATTERNS["ordinary"][0], size=len(bookings), order="shuffled")
    assert not generate.matches(bookings, out_of_order)


def test_references_that_disagree_stop_the_generator(monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "heap", faults.inclusive_endpoint)
    with pytest.raises(TaskError, match=r"the references disagree: .*'heap'"):
        generate.make_cases(0)


def test_prompt_is_short_states_the_rule_and_gives_both_examples():
    assert PROMPT.id == "booking"
    assert isinstance(PROMPT.content, str)
    assert len(PROMPT.content.split()) <= 70
    assert "required_capacity(bookings: list[list[int]]) -> int" in PROMPT.content
    assert "active at its start but no longer at its end" in PROMPT.content
    assert FUNCTIONS["heap"]([[1, 5], [2, 6], [7, 9]]) == 2 and "[[1, 5], [2, 6], [7, 9]] gives 2" in PROMPT.content
    assert FUNCTIONS["heap"]([[1, 5], [5, 9]]) == 1 and "[[1, 5], [5, 9]] gives 1" in PROMPT.content
    assert TASK.train_prompts == TASK.eval_prompts == (PROMPT,)


@pytest.mark.parametrize(
    ("name", "source"),
    [*REFERENCES.items(), *((name, faults.faulty_program(name)) for name in faults.FAULTS)],
)
def test_sources_are_self_contained_programs(name, source):
    """In a process of its own, without our package on its path, the source answers the first example."""
    script = f"{source}\nprint(required_capacity([[1, 5], [2, 6], [7, 9]]))\n"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    function = FUNCTIONS.get(name) or faults.FAULTS[name]
    assert int(ran.stdout) == function([[1, 5], [2, 6], [7, 9]])


def test_loading_generates_nothing_and_imports_nothing_heavy():
    code = (
        "import sys; from steelyard.tasks.booking import booking_task; booking_task();"
        "print([m for m in ('torch', 'numpy', 'pydantic', 'steelyard.tasks.booking.generate') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
