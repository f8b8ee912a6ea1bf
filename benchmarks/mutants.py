"""Mutation score of steelyard.numerics: faults put into the code one at a time, and whether a test fails under each.

The faults are cosmic-ray's. It is used for its operators alone; each mutant is tested in a process forked from one that
has torch imported, which takes a second or two where a fresh process takes ten.

Which operators: one neighbour for each arithmetic, bit and comparison operator, deleted signs and `not`, negated conditions,
and/or, True/False, break/continue, numbers ±1, loops without iterations. cosmic-ray knows eleven replacements for every `+`; one
of them is one fault.

Left out, by rule and not by hand: what stands in a `raise` (how an error is worded), in an annotation, in a decorator, in a
signature but for its default values, in `__all__`, and in `if TYPE_CHECKING`.

Which tests: first those named after the module, then all of numerics, property and oracle tests; the two-process test is not
run. A mutant is killed when one fails, or when they take longer than the limit (a loop that no longer ends).

    python benchmarks/mutants.py [MODULE ...]

writes benchmarks/results/mutants.json and the table in docs/mutations.md.
"""

import ast
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NUMERICS = ROOT / "src" / "steelyard" / "numerics"
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
PAGE = ROOT / "docs" / "mutations.md"
TESTS = ROOT / "tests"
AT_ONCE = 2
LIMIT_SECONDS = 120.0
EXAMPLES = "8"
"""Examples of each property test, as against 60 in `make test`; derandomised."""
NEIGHBOURS = (
    *("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul", "BitOr_BitAnd", "BitAnd_BitOr"),
)
COMPARED = ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Is_IsNot", "IsNot_Is")
OPERATORS = (
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in NEIGHBOURS),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in COMPARED),
    *(f"core/ReplaceUnaryOperator_Delete_{name}" for name in ("USub", "Invert", "Not")),
    *("core/AddNot", "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue"),
    *("core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak"),
    *("core/NumberReplacer", "core/ZeroIterationForLoop"),
)
OWN_TESTS = {
    "_bounds": ("test_kl", "test_surrogates", "test_every_surrogate"),
    "_checks": ("test_variants", "test_surrogates", "test_preference"),
    "_groups": ("test_advantages",),
    "_surrogate_terms": ("test_surrogates", "test_every_surrogate", "test_held_surrogates"),
    "_surrogates_held": ("test_held_surrogates", "test_every_surrogate"),
    "surrogates": ("test_surrogates", "test_every_surrogate"),
}
"""Where the tests of a module do not carry its name alone."""
Span = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault."""

    module: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str


# ------------------------------------------------------------------ the faults


def mutants(path: Path) -> Iterator[tuple[Mutant, str]]:
    """Yield every mutant of a module with its whole source."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = path.read_text(encoding="utf-8")
    excluded = list(_excluded(ast.parse(source)))
    lines = source.splitlines()
    for name in OPERATORS:
        operator = get_operator(name)()
        for occurrence, (start, _end) in enumerate(_places(operator, path)):
            if any(first <= start < last for first, last in excluded):
                continue
            mutated = mutate_code(source, operator, occurrence)
            if mutated is None or mutated == source:
                continue
            changed = next(n for n, (a, b) in enumerate(zip(lines, mutated.splitlines(), strict=False)) if a != b)
            after = mutated.splitlines()[changed].strip()
            yield Mutant(path.stem, name, occurrence, changed + 1, lines[changed].strip(), after), mutated


def _places(operator: Any, path: Path) -> list[Span]:
    """Positions in the order in which cosmic-ray counts occurrences."""
    from cosmic_ray.ast import get_ast

    found: list[Span] = []

    def visit(node: Any) -> None:
        found.extend(operator.mutation_positions(node))
        for child in getattr(node, "children", ()):
            visit(child)

    visit(get_ast(path.read_text(encoding="utf-8")))
    return found


def _excluded(tree: ast.Module) -> Iterator[Span]:
    """Spans in which nothing is mutated."""
    for node in ast.walk(tree):
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        guarded = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom) or "__all__" in names or guarded:
            yield _span(node)
        for part in (getattr(node, "annotation", None), *getattr(node, "decorator_list", ())):
            if isinstance(part, ast.AST):
                yield _span(part)
        if isinstance(node, ast.FunctionDef):
            yield from _signature(node)


def _signature(node: ast.FunctionDef) -> Iterator[Span]:
    """A signature without its default values."""
    at = (node.lineno, node.col_offset)
    given = [value for value in (*node.args.defaults, *node.args.kw_defaults) if value is not None]
    for start, end in sorted(_span(value) for value in given):
        yield at, start
        at = end
    yield at, (node.body[0].lineno, node.body[0].col_offset)


def _span(node: ast.AST) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined,return-value]


# ------------------------------------------------------------------ the tests


def stages(module: str) -> list[list[str]]:
    """Return test files in the order in which they are tried: the module's own, then the others."""
    unit = sorted((TESTS / "unit" / "numerics").glob("test_*.py"))
    names = (*OWN_TESTS.get(module, (f"test_{module}",)), "test_exact_edges")
    own = [path for path in unit if path.stem in names or path.stem.startswith(f"test_{module.strip('_')}")]
    rest = [path for path in unit if path not in own and path.stem != "test_two_ranks"]
    return [
        [str(path) for path in part]
        for part in (own, [*rest, TESTS / "oracle" / "numerics", TESTS / "property" / "numerics"])
    ]


def verdicts(found: Sequence[tuple[Mutant, str]], slots: Sequence[Path]) -> Iterator[tuple[Mutant, str]]:
    """Test every mutant, as many at once as there are slots; yield it with killed, timeout or survived."""
    waiting, running = list(found), {}
    free = list(slots)
    while waiting or running:
        while waiting and free:
            mutant, source = waiting.pop(0)
            slot = free.pop()
            running[_start(mutant, source, slot)] = (mutant, slot, time.monotonic())
        time.sleep(0.02)
        for pid, (mutant, slot, began) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() - began > LIMIT_SECONDS
            if not done and not late:
                continue
            if not done:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            del running[pid]
            free.append(slot)
            original = NUMERICS / f"{mutant.module}.py"
            shutil.copyfile(original, slot / "steelyard" / "numerics" / original.name)
            yield mutant, "timeout" if not done else "survived" if status == 0 else "killed"


def _start(mutant: Mutant, source: str, slot: Path) -> int:
    """Fork a process that tests the mutant; its exit status is 0 when every test passed."""
    (slot / "steelyard" / "numerics" / f"{mutant.module}.py").write_text(source, encoding="utf-8")
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os._exit(_tested(mutant.module, slot))
    finally:  # whatever happened, this process must not go on as the parent does
        os._exit(1)


def _tested(module: str, slot: Path) -> int:
    sys.path.insert(0, str(slot))
    os.chdir(ROOT)
    return int(any(_fails(files) for files in stages(module)))


def _fails(files: Sequence[str]) -> bool:
    """Run tests in a process of their own: the checks of shapes can be installed once."""
    import pytest

    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] != 0
    try:
        quick = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
        already = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins that were imported before the fork
        os._exit(int(pytest.main([*quick, *already, *files])))
    finally:
        os._exit(1)


# ------------------------------------------------------------------ the whole run


def main(names: Sequence[str]) -> None:
    """Test the mutants of some modules, or of all; write results and page."""
    modules = [path.stem for path in sorted(NUMERICS.glob("*.py")) if path.stem != "__init__"]
    unknown = set(names) - set(modules)
    if unknown:
        sys.exit(f"no module {', '.join(sorted(unknown))} in numerics; choose from {', '.join(modules)}")
    os.environ |= {"STEELYARD_EXAMPLES": EXAMPLES, "OMP_NUM_THREADS": "1"}
    sys.dont_write_bytecode = True
    os.nice(5)
    _warm()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"modules": {}}
    with tempfile.TemporaryDirectory() as scratch:
        slots = [Path(scratch) / str(number) for number in range(AT_ONCE)]
        for slot in slots:
            shutil.copytree(ROOT / "src", slot, ignore=shutil.ignore_patterns("__pycache__"))
        for module in names or modules:
            results["modules"][module] = _module(module, slots)
            _write(results)


def _module(module: str, slots: Sequence[Path]) -> dict[str, object]:
    began = time.monotonic()
    found = list(mutants(NUMERICS / f"{module}.py"))
    original = Mutant(module, "none", 0, 0, "", "")
    if [
        outcome for _, outcome in verdicts([(original, (NUMERICS / f"{module}.py").read_text(encoding="utf-8"))], slots)
    ] != ["survived"]:
        sys.exit(f"{module}: the tests fail without any fault; nothing can be said of its mutants")
    counts = {"killed": 0, "timeout": 0, "survived": 0}
    survivors: list[dict[str, object]] = []
    for number, (mutant, outcome) in enumerate(verdicts(found, slots), start=1):
        counts[outcome] += 1
        if outcome == "survived":
            survivors.append(asdict(mutant))
        left = (time.monotonic() - began) / number * (len(found) - number)
        print(
            f"\r{module}: {number} of {len(found)}, {counts['survived']} survived, {left:.0f} s left ",
            end="",
            flush=True,
        )
    print()
    survivors.sort(key=lambda each: (each["line"], each["operator"], each["after"]))
    return {"mutants": len(found), **counts, "seconds": round(time.monotonic() - began), "survivors": survivors}


def _warm() -> None:
    """Import everything heavy but the package under test."""
    import beartype  # noqa: F401
    import hypothesis  # noqa: F401
    import jaxtyping  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import tokenizers  # noqa: F401
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: F401

    torch.set_num_threads(1)


def _write(results: dict[str, Any]) -> None:
    results |= {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "versions": {name: version(name) for name in ("cosmic-ray", "torch", "pytest", "hypothesis")},
    }
    RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    begin, end = "<!-- score: written by benchmarks/mutants.py -->", "<!-- /score -->"
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(begin)[0], text.split(end)[1]
    PAGE.write_text(f"{head}{begin}\n{score_table(results)}\n{end}{rest}", encoding="utf-8")


def score(row: dict[str, Any]) -> float:
    """Return the share of mutants that were found."""
    return (row["killed"] + row["timeout"]) / row["mutants"] if row["mutants"] else 1.0


def score_table(results: dict[str, Any]) -> str:
    """Return the table of the page."""
    rows = dict(sorted(results["modules"].items()))
    names = ("mutants", "killed", "timeout", "survived")
    total: dict[str, Any] = {name: sum(row[name] for row in rows.values()) for name in names}
    lines = ["| module | mutants | killed | too slow | survived | score |", "|---|---|---|---|---|---|"]
    for module, row in {**rows, "**all**": total}.items():
        lines.append(f"| {module} | " + " | ".join(str(row[name]) for name in names) + f" | {100 * score(row):.1f} % |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
