"""Whether the lines of a patch ran at all: a copy of the product says so when it comes to them.

A patch that is not caught may be one that never ran. So in a patched copy, a call stands before the lines that differ
from the product's; it notes in a file that they ran, in whichever process that was. Lines outside of functions, the
head of a definition for instance, count as run, because importing the module runs them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

MODULE = "patched_lines.py"
"""File that a copy has in addition, below ``reference_impl/``."""
NOTE = "patched-lines-ran"
"""File that is there, beside that module, since patched lines ran."""
SOURCE = f'''"""Notes that lines of a patch ran."""

from pathlib import Path

_note = Path(__file__).with_name("{NOTE}")


def ran() -> None:
    if not _note.exists():
        _note.touch()
'''
_IMPORT = "from barrier_tck.reference_impl.patched_lines import ran as _patched_lines_ran"
_CALL = "_patched_lines_ran()"


@dataclass(frozen=True)
class _Statement:
    """A statement within a function."""

    node: ast.stmt
    function: int
    """Number of the function in which it is, of those in the file."""
    is_elif: bool
    within: _Statement | None
    """The statement in whose body it is, if that is in a function."""

    @property
    def first(self) -> int:
        return _first(self.node)

    @property
    def last(self) -> int:
        return self.node.end_lineno or self.node.lineno


def with_calls(product: str, patched: str) -> tuple[str, bool]:
    """Return a patched module with calls before the lines that differ, and whether they show all that differs.

    If not, something differs outside of functions. Imports and comments do not count.
    """
    old, new = product.splitlines(), patched.splitlines()
    statements = list(_statements(ast.parse(patched), new))
    places: dict[int, str] = {}
    complete = True
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal" or not any(map(_matters, (*old[i1:i2], *new[j1:j2]))):
            continue
        found = _added(statements, j1, j2) if any(map(_matters, new[j1:j2])) else {}
        found = found or _taken_away(statements, new, j1 + 1, _indent(old[i1:i2]))
        places |= found
        complete = complete and bool(found)
    if not places:
        return patched, complete
    lines = list(new)
    for place in sorted(places, reverse=True):
        lines.insert(place - 1, places[place] + _CALL)
    lines.insert(_after_head(ast.parse(patched)) - 1, _IMPORT)
    return "\n".join(lines) + "\n", complete


def _added(statements: Sequence[_Statement], start: int, end: int) -> dict[int, str]:
    """Return where calls belong for the lines from ``start`` (from 0 on) to ``end``: one in each function."""
    found: dict[int, _Statement] = {}
    for statement in statements:
        if start < statement.first <= end:
            found.setdefault(statement.function, statement)
    if not found:
        # They are within a statement: in the condition of an ``if``, or in the second line of a call.
        around = [
            statement for statement in statements if statement.first <= start + 1 and end <= statement.last
        ]
        if around and not isinstance(around[-1].node, (ast.FunctionDef, ast.ClassDef)):
            found[around[-1].function] = around[-1]
    return dict(_before(statement) for statement in found.values())


def _taken_away(
    statements: Sequence[_Statement], lines: Sequence[str], line: int, indent: str
) -> dict[int, str]:
    """Return where a call belongs for lines that were before a line (from 1 on), indented so."""
    around = [statement for statement in statements if statement.first < line <= statement.last]
    siblings = [
        statement for statement in statements if statement.first == line or statement.last == line - 1
    ]
    if around and not getattr(around[-1].node, "body", None):
        return dict([_before(around[-1])])
    if not around and not siblings:
        return {}
    with_call = [*lines[: line - 1], indent + _CALL, *lines[line - 1 :]]
    try:
        tree = ast.parse("\n".join(with_call))
    except SyntaxError:
        # Between an ``if`` and its ``else``, for instance.
        return dict([_before((around or siblings)[-1])])
    in_function = any(statement.first == line for statement in _statements(tree, with_call))
    return {line: indent} if in_function else {}


def _before(statement: _Statement) -> tuple[int, str]:
    """Return the place before a statement: its line and its indentation."""
    while statement.is_elif and statement.within is not None:
        statement = statement.within
    return statement.first, " " * statement.node.col_offset


def _statements(
    node: ast.AST, lines: Sequence[str], within: _Statement | None = None, function: int = 0
) -> Iterator[_Statement]:
    """Yield each statement within functions, in the order of their beginnings; docstrings are none."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        children = getattr(node, name, [])
        for child in children if isinstance(children, list) else ():
            if not isinstance(child, ast.stmt):  # an ``except`` or a ``case``
                yield from _statements(child, lines, within, function)
                continue
            inner = within
            if function and not _is_docstring(child):
                is_elif = name == "orelse" and lines[child.lineno - 1][child.col_offset :].startswith("elif")
                inner = _Statement(child, function, is_elif, within)
                yield inner
            number = child.lineno if isinstance(child, ast.FunctionDef) else function
            yield from _statements(child, lines, inner, number)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _indent(lines: Sequence[str]) -> str:
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]


def _matters(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(("#", "import ", "from "))


def _after_head(tree: ast.Module) -> int:
    """Return the first line after the docstring and what is imported from the future."""
    for node in tree.body:
        if not _is_docstring(node) and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return _first(node)
    return 1
