"""Fills the pages in ``docs/reference`` from the source; ``--check`` only compares.

What stands between ``<!-- of: NAME -->`` and ``<!-- end -->`` is made of the docstrings of that class, function,
constant or module, so that a page reads the same on a forge, in a terminal and on the site:
``python tests/reference_pages.py``. The source is read by griffe and not imported, so this runs where the package is
not installed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
EXPORTED = frozenset(
    re.findall(r'"(\w+)"', (ROOT / "harness" / "__init__.pyi").read_text().partition("__all__")[2])
)
"""The names that ``barrier_tck.harness`` exports."""
_PART = re.compile(r"<!-- of: (?P<name>\S+)(?P<only>(?: \w+)*) -->\n.*?<!-- end -->", re.DOTALL)
_LITERAL = re.compile(r"``([^`]+)``")


def updated(text: str) -> str:
    """Return a page with its parts made anew."""
    return _PART.sub(_made, text)


def _made(part: re.Match[str]) -> str:
    name, only = part["name"], part["only"].split()
    found = _object_named(name)
    members = [found] if not found.is_module else list(_defined_in(found, only))
    content = "\n\n".join("\n".join(_lines(member)) for member in members)
    return f"<!-- of: {name}{part['only']} -->\n\n{content}\n\n<!-- end -->"


def _object_named(name: str) -> griffe.Object:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = (ROOT / "src" / Path(*parts[:length])).with_suffix(".py")
        if path.is_file():
            break
    else:
        raise ValueError(f"{name} is in no module")
    loaded = griffe.visit(".".join(parts[:length]), filepath=path, code=path.read_text())
    found = loaded[".".join(parts[length:])] if length < len(parts) else loaded
    assert isinstance(found, griffe.Object), name
    return found


def _defined_in(module: griffe.Object, only: list[str]) -> Iterator[griffe.Object]:
    for name, member in module.members.items():
        if isinstance(member, griffe.Alias) or name.startswith("_") or (only and name not in only):
            continue
        if member.is_class or (member.is_function and not only):
            yield member


def _lines(one: griffe.Object) -> Iterator[str]:
    """Yield the lines of a class, with its members, or of a function or a constant."""
    yield f"### `{one.name}`"
    yield ""
    if one.name not in EXPORTED:
        yield f"From `{one.parent.path if one.parent is not None else ''}`."
        yield ""
    if isinstance(one, griffe.Function):
        yield f"`{_call(one)}`"
        yield ""
    if isinstance(one, griffe.Attribute) and one.value is not None:
        yield f"`{one.name} = {one.value}`"
        yield ""
    yield _text(one)
    if not isinstance(one, griffe.Class):
        return
    members = [member for name, member in one.members.items() if not name.startswith("_")]
    shown = [member for member in members if not isinstance(member, griffe.Alias)]
    if shown:
        yield ""
    for member in shown:
        text = re.sub(r"\n(?=.)", "\n  ", _text(member))
        yield f"- `{_signature(member)}`" + (f": {text}" if text else "")


def _signature(member: griffe.Object) -> str:
    if isinstance(member, griffe.Function):
        return _call(member)
    assert isinstance(member, griffe.Attribute), member
    kind = f": {member.annotation}" if member.annotation is not None else ""
    given = f" = {member.value}" if kind and member.value is not None and len(str(member.value)) < 40 else ""
    return f"{member.name}{kind}{given}"


def _call(function: griffe.Function) -> str:
    parameters = []
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
        name = f"{stars.get(parameter.kind, '')}{parameter.name}" if parameter.kind else parameter.name
        kind = f": {parameter.annotation}" if parameter.annotation is not None else ""
        default = f" = {parameter.default}" if parameter.default is not None and name[0] != "*" else ""
        parameters.append(f"{name}{kind}{default}")
    returned = f" -> {function.returns}" if function.returns is not None else ""
    return f"{function.name}({', '.join(parameters)}){returned}"


def _text(one: griffe.Object) -> str:
    """Return a docstring as Markdown, or what a member of an enumeration without one stands for."""
    if one.docstring is not None:
        return _LITERAL.sub(r"`\1`", one.docstring.value.strip())
    if isinstance(one, griffe.Attribute) and one.annotation is None and _is_text(str(one.value)):
        return str(ast.literal_eval(str(one.value)))
    return ""


def _is_text(expression: str) -> bool:
    try:
        return isinstance(ast.literal_eval(expression), str)
    except ValueError:
        return False


def main() -> int:
    """Write the pages, or say which of them are not what the source gives."""
    outdated = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text()
        made = updated(text)
        if made != text and "--check" in sys.argv:
            outdated.append(page.name)
        elif made != text:
            page.write_text(made)
    if outdated:
        print(f"outdated: {', '.join(outdated)}; run python tests/reference_pages.py", file=sys.stderr)
    return len(outdated)


if __name__ == "__main__":
    sys.exit(main())
