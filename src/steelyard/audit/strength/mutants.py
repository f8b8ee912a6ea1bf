"""Programs that differ from a right one by one small change, and the task's own wrong programs."""

import ast
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from steelyard.audit.strength.operators import OPERATORS
from steelyard.verify.extract import normalised_source

AUTHORED = "authored"
"""Operator of a wrong program that the task brings along."""
_SKIPPED = frozenset({"annotation", "returns", "decorator_list", "type_comment", "type_params"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One changed program."""

    id: str
    """reference/operator/number, or authored/name."""
    reference: str
    """The right program that was changed; for an authored one its own name."""
    operator: str
    """Name in `OPERATORS`, or `authored`."""
    source: str
    """The whole program."""
    diff: str
    """Changed lines, with - and +; for an authored one its source."""


def make_mutants(references: Mapping[str, str], faults: Mapping[str, str], *, given: str = "") -> list[Mutant]:
    """Return every distinct mutant of every reference, then the authored faults.

    Distinct means: no two have the same source up to local names, comments and layout, and none that of a reference.

    Args:
        references: Source of right programs by name.
        faults: Source of wrong programs by name.
        given: Source that the task puts before every program; its statements stay as they are.
    """
    fixed = {ast.unparse(statement) for statement in ast.parse(given).body}
    seen = {normalised_source(source) for source in references.values()}
    found: list[Mutant] = []
    for name, source in references.items():
        tree = ast.parse(source)
        _drop_docstrings(tree)
        ast.fix_missing_locations(tree)
        before = ast.unparse(tree)
        for operator, changed in _changes(tree, fixed):
            if _is_new(changed, seen):
                id_ = f"{name}/{operator}/{sum(m.reference == name and m.operator == operator for m in found) + 1}"
                diff = changed_lines(before, changed)
                found.append(Mutant(id=id_, reference=name, operator=operator, source=changed, diff=diff))
    for name, source in faults.items():
        if _is_new(source, seen):
            found.append(Mutant(id=f"authored/{name}", reference=name, operator=AUTHORED, source=source, diff=source))
    return found


def changed_lines(before: str, after: str) -> str:
    """Return the lines that differ, with - and + in front."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def _is_new(source: str, seen: set[str]) -> bool:
    """Whether a source parses and was not seen before; it has been seen from then on."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return False
    name = normalised_source(source)
    if name in seen:
        return False
    seen.add(name)
    return True


def _changes(tree: ast.Module, fixed: set[str]) -> Iterator[tuple[str, str]]:
    """Yield operator and source of each single change; the tree is put back after each."""
    own = [statement for statement in tree.body if ast.unparse(statement) not in fixed]
    slots = [slot for statement in own for slot in _slots(statement)]
    for operator, function in OPERATORS.items():
        for parent, field, index, node in slots:
            for replacement in function(node):
                _put(parent, field, index, replacement)
                source = ast.unparse(ast.fix_missing_locations(tree))
                _put(parent, field, index, node)
                yield operator, source


def _slots(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield every place of the tree in order: parent, field, index in a list, and what stands there."""
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED:
            continue
        items = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, item in items:
            if isinstance(item, ast.AST):
                yield node, field, index, item
                yield from _slots(item)


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _drop_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            has = ast.get_docstring(node, clean=False) is not None
            node.body = (node.body[1:] or [ast.Pass()]) if has else node.body
