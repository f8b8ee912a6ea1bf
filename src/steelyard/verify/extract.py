"""From the text of a completion to the source of a program; parsing only, nothing of it is ever run here."""

import ast
import re
import warnings
from collections.abc import Callable, Iterator

MAX_TEXT = 1 << 17
"""Characters of a completion that are looked at; a longer text is no answer."""
_MAX_CUTS = 20
_THINKING = re.compile(r"<think(?:ing)?>|</think(?:ing)?>", re.IGNORECASE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_STATEMENT = re.compile(r"(?:def|class|import|from|async|@)\b|@|[A-Za-z_]\w*\s*(?::[^=\n]+)?=[^=]")
_SCRIPT = re.compile(_STATEMENT.pattern + r"|(?:for|while|if|with|try)\b.*:|[A-Za-z_][\w.]*\(")
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def extract_program(text: str, *, entry_point: str, preamble: str = "", stem: str = "") -> str | None:
    """Return the source of the last complete program in a completion, or None where there is none.

    Looked at are fenced blocks that are closed; a text without fences is one bare block, from its first line of code to
    the last line that still parses. A block counts when it parses and defines the entry point at its top level: as a
    function, or as a name bound to a lambda. Of several the last counts. Text inside <think> … </think> is no answer.

    With a stem, a text whose first line is indented is the rest of the function: it is joined to the stem and cut off
    before the first line at the left margin that is no part of it any more. The same is tried with fenced blocks where
    none defines the entry point.

    Args:
        text: The completion, as decoded.
        entry_point: Name of the function that must be defined.
        preamble: Source that is put before the program.
        stem: Source that the completion may continue, the preamble included.
    """
    lines = _answer_lines(text)
    if lines is None:
        return None
    first = next((line for line in lines if line.strip()), "")
    if stem and first[:1].isspace():
        joined = _joined(stem, lines, entry_point)
        if joined is not None:
            return joined
    if not any(map(_FENCE.match, lines)):
        found = _bare(lines, lambda tree: _defines(tree, entry_point))
        return found if found is None else _after_preamble(preamble, found)
    blocks = list(_closed_blocks(lines))[::-1]
    for block in blocks:
        if _defines(_parse(block), entry_point):
            return _after_preamble(preamble, block)
    rests = (_joined(stem, block.split("\n"), entry_point) for block in blocks if stem)
    return next((rest for rest in rests if rest is not None), None)


def extract_script(text: str) -> str | None:
    """Return the source of the last complete script in a completion, or None where there is none.

    Blocks are looked at as in `extract_program`. One counts when it parses and calls something: a program that calls
    nothing can print nothing, so a block with a sample of the output is passed over.
    """
    lines = _answer_lines(text)
    if lines is None:
        return None
    if not any(map(_FENCE.match, lines)):
        return _bare(lines, _calls, start=_SCRIPT)
    return next((block for block in list(_closed_blocks(lines))[::-1] if _calls(_parse(block))), None)


def normalised_source(source: str) -> str:
    """Return a form in which programs that differ in local names, comments and layout alone are equal.

    Arguments and local variables of each top-level function are renamed in order of appearance; docstrings go. Names of
    functions, attributes, keywords and globals stay. A source that does not parse is returned without outer space.
    """
    tree = _parse(source)
    if tree is None:
        return source.strip()
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTION, ast.ClassDef, ast.Module)):
            _drop_docstring(node)
    for node in tree.body:
        if isinstance(node, _FUNCTION):
            _rename_locals(node)
    try:
        return ast.unparse(tree)
    except (RecursionError, ValueError):
        return source.strip()


def _answer_lines(text: str) -> list[str] | None:
    """Return the lines of what is answered; None where there is no answer."""
    if len(text) > MAX_TEXT:
        return None
    answer = _after_thinking(text.replace("\ufeff", "").replace("\r\n", "\n"))
    return None if answer is None else answer.split("\n")  # not splitlines: form feeds stay inside a line


def _after_thinking(text: str) -> str | None:
    """Return what follows the thinking part; None where it does not end."""
    marks = list(_THINKING.finditer(text))
    if not marks:
        return text
    last = marks[-1]
    return text[last.end() :] if last.group().startswith("</") else None


def _closed_blocks(lines: list[str]) -> Iterator[str]:
    """Yield the content of each fenced block that is closed."""
    fence, block, indent = "", list[str](), 0
    for line in lines:
        match = _FENCE.match(line)
        if not fence and match:
            fence, block, indent = match.group(1), [], len(line) - len(line.lstrip(" "))
        elif match and match.group(1).startswith(fence) and not match.group(2).strip():
            yield "\n".join(block) + "\n"
            fence = ""
        elif fence:
            block.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])


def _bare(lines: list[str], counts: Callable[[ast.Module], bool], *, start: re.Pattern[str] = _STATEMENT) -> str | None:
    """Return the program in a text without fences: prose before it and after it is cut off."""
    first = next((i for i, line in enumerate(lines) if start.match(line)), None)
    if first is None:
        return None
    code = lines[first:]
    for _ in range(_MAX_CUTS):
        source = "\n".join(code).rstrip() + "\n"
        tree = _parse(source)
        if tree is not None:
            return source if counts(tree) else None
        cut = _last_top_level(code, _error_line(source))
        if cut <= 0:
            return None
        code = code[:cut]
    return None


def _joined(stem: str, lines: list[str], entry_point: str) -> str | None:
    """Return stem and rest as a program that ends with the entry point, or None where that does not make one."""
    tree = _parse(stem)
    given = _body_length(tree, entry_point)
    starts = [i for i in range(len(lines)) if _is_outside(lines, i)]
    for end in [*starts[:_MAX_CUTS], len(lines)]:
        source = stem + "\n".join(lines[:end]).rstrip() + "\n"
        if _body_length(_parse(source), entry_point) > given:
            return source
    return None


def _body_length(tree: ast.Module | None, entry_point: str) -> int:
    """Statements in the entry point where it is the last thing that is defined, else 0."""
    last = tree.body[-1] if tree is not None and tree.body else None
    return len(last.body) if isinstance(last, ast.FunctionDef) and last.name == entry_point else 0


def _is_outside(lines: list[str], index: int) -> bool:
    """Whether a line starts at the left margin; a comment counts as the line of code after it does."""
    for line in lines[index:]:
        if line.strip() and not line.startswith("#"):
            return bool(lines[index].strip()) and not lines[index][0].isspace() and not line[0].isspace()
    return bool(lines[index].strip()) and not lines[index][0].isspace()


def _after_preamble(preamble: str, source: str) -> str:
    """Return both; what a program imports from `__future__` stays at the top."""
    tree = _parse(source)
    if not preamble.strip() or tree is None:
        return source
    future = [n.end_lineno or 0 for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    lines = source.split("\n")
    top = max(future, default=0)
    return "\n".join([*lines[:top], preamble.rstrip("\n"), *lines[top:]])


def _last_top_level(code: list[str], line: int) -> int:
    """Return the index of the last line at or before line number `line` that is not indented."""
    for i in range(min(line, len(code)) - 1, 0, -1):
        if code[i].strip() and not code[i][0].isspace():
            return i
    return 0


def _error_line(source: str) -> int:
    try:
        _compile(source)
    except SyntaxError as error:
        return error.lineno or 0
    except (ValueError, RecursionError, MemoryError):
        return 0
    return 0


def _parse(source: str) -> ast.Module | None:
    """Parse hostile text: None for everything that is no program, whatever the parser makes of it."""
    try:
        return _compile(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def _compile(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in an answer is not our warning
        return ast.parse(source)


def _defines(tree: ast.Module | None, entry_point: str) -> bool:
    if tree is None:
        return False
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry_point:
            return True
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Lambda)
            and any(isinstance(target, ast.Name) and target.id == entry_point for target in node.targets)
        ):
            return True
    return False


def _calls(tree: ast.Module | None) -> bool:
    return tree is not None and any(isinstance(node, ast.Call) for node in ast.walk(tree))


def _drop_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]


def _rename_locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Rename what is bound inside a top-level function; scopes inside it that share a name share its new name."""
    nodes = list(_in_order(function))
    outer = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    new_names: dict[str, str] = {}
    for node in nodes:
        name = None if node is function else _bound_name(node)
        if name is not None and name not in outer:
            new_names.setdefault(name, f"v{len(new_names)}")
    for node in nodes:
        if node is not function:
            _rename(node, new_names)


def _in_order(root: ast.AST) -> Iterator[ast.AST]:
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _bound_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, (*_FUNCTION, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return node.name
    if isinstance(node, ast.alias):
        return node.asname
    return None


def _rename(node: ast.AST, new_names: dict[str, str]) -> None:
    if isinstance(node, ast.Name):
        node.id = new_names.get(node.id, node.id)
    elif isinstance(node, ast.arg):
        node.arg = new_names.get(node.arg, node.arg)
    elif isinstance(node, ast.alias) and node.asname is not None:
        node.asname = new_names.get(node.asname, node.asname)
    elif isinstance(node, (*_FUNCTION, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        node.name = None if node.name is None else new_names.get(node.name, node.name)  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        node.names = [new_names.get(name, name) for name in node.names]
