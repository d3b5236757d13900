"""A patch: which lines of the reference implementation a planted bug replaces, and the sources with it applied.

Two forms say the same. A file of a planted bug has *changes*: where (`operators/sinks.py::FileSink.commit`), the lines
before, the lines after. Anybody's unified diff is read as changes too: each hunk is one, without its line numbers. In
both, the lines before must be there exactly once; a patch that fits nowhere, or in two places, is refused, because a
bug that was not planted would be counted as missed.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from barrier_tck.harness.support.errors import UsageProblem

ROOT = "reference_impl"
"""Folder whose files a patch may change."""
_INDENT = " " * 4
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


def changes_of_diff(text: str, source: str) -> tuple[Change, ...]:
    """Return the changes of a unified diff; raises PatchProblem if it is none, or changes other files."""
    try:
        patched_files = list(PatchSet(text))
    except UnidiffParseError as error:
        raise PatchProblem(f"{source} is not a unified diff: {error}") from error
    if not patched_files:
        raise PatchProblem(f"{source} is not a unified diff: it changes no file")
    found: list[Change] = []
    for patched in patched_files:
        _, separator, file = patched.path.rpartition(f"{ROOT}/")
        if not separator or patched.is_added_file or patched.is_removed_file or patched.is_rename:
            raise PatchProblem(
                f"{source} changes {patched.path}: only files that are below {ROOT}/ can be changed, and none "
                "can be added, removed or renamed"
            )
        for hunk in patched:
            before = "".join(line.value for line in hunk if not line.is_added)
            after = "".join(line.value for line in hunk if not line.is_removed)
            found.append(Change(file, "", before, after))
    return tuple(found)


@cache
def product_source(file: str) -> str:
    """Return the text of a file below ``reference_impl/``; raises PatchProblem if there is none."""
    path = files(f"barrier_tck.{ROOT}").joinpath(file)
    if ".." in file.split("/") or not file.endswith(".py") or not path.is_file():
        raise PatchProblem(f"there is no module {file} below {ROOT}/")
    return path.read_text(encoding="utf-8")


def patched_sources(changes: Iterable[Change]) -> Mapping[str, str]:
    """Return file -> its text with all changes applied in order; raises PatchProblem for one that does not fit."""
    sources: dict[str, str] = {}
    for change in changes:
        text = sources.get(change.file)
        sources[change.file] = _applied(product_source(change.file) if text is None else text, change)
    return sources


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
    node: ast.AST = ast.parse(text)
    if not change.scope:
        return 0, len(text.splitlines())
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
