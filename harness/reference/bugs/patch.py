"""A patch: which lines of the reference implementation a planted bug replaces, and the sources with it applied.

The file of a planted bug has *changes*: where (`operators/sinks.py::FileSink.commit`), the lines before, the lines
after. The lines before must be there exactly once; a patch that fits nowhere, or in two places, is refused, because a
bug that was not planted would be counted as missed. Any unified diff is read by ``diff``.
"""

from __future__ import annotations

import ast
import builtins
import dis
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from barrier_tck.harness.support.errors import UsageProblem

ROOT = "reference_impl"
"""Folder whose files a patch may change."""
_INDENT = " " * 4
_MODULE_NAMES = (
    "__name__",
    "__file__",
    "__doc__",
    "__package__",
    "__spec__",
    "__path__",
    "__annotations__",
)
"""What every module knows besides what it defines."""
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class PatchProblem(UsageProblem):
    """A patch does not fit the reference implementation, or changes what cannot be changed while a trial runs."""


@dataclass(frozen=True, slots=True)
class Change:
    """Some lines that others replace."""

    file: str
    """Below ``reference_impl/``, for instance ``operators/sinks.py``."""
    scope: str
    """Qualified name of the function or class in which the lines are; empty: anywhere in the file."""
    before: str
    """The lines, indented as a whole in any way; empty: ``after`` is added at the end of the scope."""
    after: str
    """The lines that replace them, indented likewise; empty: the lines go."""

    @property
    def place(self) -> str:
        """Return where it is, as a bug's file names it."""
        return f"{self.file}::{self.scope}" if self.scope else self.file


def change_at(place: str, before: str, after: str) -> Change:
    """Return the change at a place such as ``operators/sinks.py::FileSink.commit``."""
    file, _, scope = place.partition("::")
    return Change(file, scope, before, after)


@cache
def product_source(file: str) -> str:
    """Return the text of a file below ``reference_impl/``; raises PatchProblem if there is none."""
    path = files(f"barrier_tck.{ROOT}").joinpath(file)
    if ".." in file.split("/") or not file.endswith(".py") or not path.is_file():
        raise PatchProblem(f"there is no module {file} below {ROOT}/")
    return path.read_text(encoding="utf-8")


@cache
def product_tree(file: str) -> ast.Module:
    """Return the syntax tree of a file below ``reference_impl/``; it is shared, and not to be changed."""
    return ast.parse(product_source(file))


def patched_sources(changes: Iterable[Change]) -> Mapping[str, str]:
    """Return file -> its text with all changes applied in order; raises PatchProblem for one that does not fit."""
    sources: dict[str, str] = {}
    for change in changes:
        text = sources.get(change.file)
        sources[change.file] = _applied(product_source(change.file) if text is None else text, change)
    return sources


def parsed(file: str, text: str) -> ast.Module:
    """Parse a patched file; raises PatchProblem if it is no Python, or uses an undefined global name.

    When that ran, the NameError would look like a failure of the subtask: a bug, but not the one that was planted.
    """
    try:
        tree = ast.parse(text)
        code = compile(_Runtime().visit(ast.parse(text)), file, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise PatchProblem(
            f"with this patch {file} is no Python: line {error.lineno}, {error.msg}"
        ) from error
    uses = [_Names(inner) for inner in _codes(code)]
    known = {*vars(builtins), *_MODULE_NAMES, *uses[0].assigned}
    known.update(name for names in uses for name in names.made_global)
    for names in uses:
        for name in names.read:
            # What a class body assigns, it may use.
            if name not in known and name not in names.assigned:
                raise PatchProblem(
                    f"{file}::{names.where}: {name!r} is not known there; import or define it, too"
                )
    return tree


class _Runtime(ast.NodeTransformer):
    """Takes away what is imported for the type checker only: when the program runs, it is not there."""

    def visit_If(self, node: ast.If) -> ast.AST:
        only_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return ast.copy_location(ast.Pass(), node) if only_for_types else node


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a module's code, and that of each class and function in it at any depth."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


class _Names:
    """The names that a code reads and assigns, in order, without its local variables."""

    def __init__(self, code: types.CodeType) -> None:
        self.where = code.co_qualname
        self.read: dict[str, None] = {}
        self.assigned: dict[str, None] = {}
        self.made_global: dict[str, None] = {}
        noted = {
            "LOAD_GLOBAL": self.read,
            "LOAD_NAME": self.read,
            "STORE_NAME": self.assigned,
            "STORE_GLOBAL": self.made_global,
        }
        for instruction in dis.get_instructions(code):
            if (names := noted.get(instruction.opname)) is not None:
                names[instruction.argval] = None


def _applied(text: str, change: Change) -> str:
    first, last = _span(text, change)
    lines = text.splitlines()
    after = _block(change.after)
    if not change.before.strip():
        return "\n".join([*lines[:last], *_added(lines[first], change, after), *lines[last:]]) + "\n"
    before = _block(change.before)
    places = [
        (start, indent)
        for start in range(first, last - len(before) + 1)
        if (indent := _indent_of_match(lines[start : start + len(before)], before)) is not None
    ]
    if len(places) != 1:
        found = "are not there" if not places else f"are there {len(places)} times"
        raise PatchProblem(
            f"{change.place}: the lines before must be there once; they {found}:\n{change.before}"
        )
    ((start, indent),) = places
    replaced = [indent + line if line else "" for line in after]
    return "\n".join([*lines[:start], *replaced, *lines[start + len(before) :]]) + "\n"


def _block(text: str) -> list[str]:
    """Return the lines without their common indentation, and without empty lines around them."""
    lines = textwrap.dedent(text).rstrip().splitlines()
    while lines and not lines[0].strip():
        lines.pop(0)
    return [line.rstrip() for line in lines]


def _indent_of_match(lines: list[str], wanted: list[str]) -> str | None:
    """Return the indentation with which lines are the wanted ones; None if they are others."""
    if not lines[0].rstrip().endswith(wanted[0]):
        return None
    indent = lines[0].rstrip().removesuffix(wanted[0])
    if indent.strip():
        return None
    matches = all(
        line.rstrip() == (indent + want if want else "") for line, want in zip(lines, wanted, strict=True)
    )
    return indent if matches else None


def _added(head: str, change: Change, after: list[str]) -> list[str]:
    """Return the lines to add at the end of a class or a module."""
    if not change.scope:
        return ["", "", *after]
    if not head.lstrip().startswith(("class ", "@")):
        raise PatchProblem(
            f"{change.place}: lines can be added to a class or a module; give the lines before"
        )
    indent = head[: len(head) - len(head.lstrip())] + _INDENT
    return ["", *(indent + line if line else "" for line in after)]


def _span(text: str, change: Change) -> tuple[int, int]:
    """Return the first line of the scope, and the line after its last one, from 0 on."""
    if not change.scope:
        return 0, len(text.splitlines())
    node: ast.AST = product_tree(change.file) if text == product_source(change.file) else ast.parse(text)
    for name in change.scope.split("."):
        found = [
            child
            for child in getattr(node, "body", [])
            if isinstance(child, _Definition) and child.name == name
        ]
        if not found:
            raise PatchProblem(f"{change.place}: there is no {change.scope} in this file")
        # A property and its setter have one name.
        node = found[0] if len(found) == 1 else _holding(found, text, change)
    assert isinstance(node, _Definition)
    begin = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    assert node.end_lineno is not None
    return begin - 1, node.end_lineno


def _holding(found: Sequence[_Definition], text: str, change: Change) -> _Definition:
    """Return which of several definitions of one name holds the lines; the first one if none does."""
    wanted = "\n".join(line.strip() for line in _block(change.before))
    for node in found:
        own = "\n".join(line.strip() for line in (ast.get_source_segment(text, node) or "").splitlines())
        if wanted in own:
            return node
    return found[0]
