"""A unified diff against the reference implementation: the sources with it applied.

A hunk's lines are compared exactly. They count, not the numbers of the lines, which move with every change above them;
only if the same lines are there more than once, the number decides. Files can be changed; none can be added, removed or
renamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from barrier_tck.harness.reference.bugs.patch import ROOT, PatchProblem, product_source

_HEADERS = ("--- ", "diff ", "Index: ")
_CHANGES_THE_TREE = ("rename from ", "copy from ", "new file mode ", "deleted file mode ", "Binary files ")
"""Lines of a diff that say so without any hunk."""
_ONLY_CHANGED = f"files below {ROOT}/ can be changed, and none can be added, removed or renamed"


def is_diff(text: str) -> bool:
    """Return whether a text is a unified diff, not the file of a planted bug."""
    return any(line.startswith(_HEADERS) for line in text.splitlines())


def files_of(text: str) -> tuple[str, ...]:
    """Return the files that a diff changes, relative to the reference implementation."""
    return tuple(_below_root(patched.path) or patched.path for patched in PatchSet(text))


def sources_with_diff(text: str, source: str) -> Mapping[str, str]:
    """Return file -> its text with the diff applied; raises PatchProblem if it is none, or does not fit."""
    for line in text.splitlines():
        if line.startswith(_CHANGES_THE_TREE):
            raise PatchProblem(f"{source} says {line!r}: {_ONLY_CHANGED}")
    try:
        patched_files = list(PatchSet(text))
    except UnidiffParseError as error:
        raise PatchProblem(f"{source} is not a unified diff: {error}") from error
    if not any(patched_files):
        raise PatchProblem(f"{source} is not a unified diff: it changes no file")
    sources: dict[str, str] = {}
    for patched in patched_files:
        file = _file_of(patched, source)
        lines = sources.get(file, product_source(file)).splitlines()
        for hunk in patched:
            _apply(hunk, lines, file, source)
        sources[file] = "\n".join(lines) + "\n"
    return sources


def _file_of(patched: PatchedFile, source: str) -> str:
    """Return which file below the reference implementation a part of a diff changes."""
    names = [_below_root(name) for name in (patched.source_file, patched.target_file)]
    changed = names[0] if names[0] == names[1] else None
    if changed is None or patched.is_added_file or patched.is_removed_file:
        raise PatchProblem(
            f"{source} leads from {patched.source_file} to {patched.target_file}: only {_ONLY_CHANGED}"
        )
    return changed


def _below_root(name: str) -> str | None:
    """Return a file's path below the reference implementation; None if it is elsewhere."""
    parts = name.split("/")
    if ROOT not in parts:
        return None
    return "/".join(parts[len(parts) - parts[::-1].index(ROOT) :])


def _apply(hunk: Hunk, lines: list[str], file: str, source: str) -> None:
    """Replace a hunk's lines in the lines of its file, in which earlier hunks are applied already."""
    where = f"{source}: {file}"
    before = [line.value.rstrip("\r\n") for line in hunk.source_lines()]
    after = [line.value.rstrip("\r\n") for line in hunk.target_lines()]
    if not before:
        raise PatchProblem(f"{where}: a hunk has no line of the file as it was; make the diff with context")
    places = [start for start in range(len(lines) - len(before) + 1) if _is_at(before, lines, start)]
    stated = hunk.target_start - 1  # those before it are applied already
    if len(places) != 1 and stated not in places:
        product = product_source(file).splitlines()
        if places:
            found = f"are there {len(places)} times"
        elif any(_is_at(before, product, start) for start in range(len(product) - len(before) + 1)):
            found = "were changed by an earlier hunk of the same patch"
        else:
            found = "are not there"
        raise PatchProblem(
            f"{where}: the lines before must be there once; they {found}:\n" + "\n".join(before)
        )
    start = stated if stated in places else places[0]
    lines[start : start + len(before)] = after


def _is_at(wanted: Sequence[str], lines: Sequence[str], start: int) -> bool:
    """Return whether lines are there; at the end of a line, blanks do not count."""
    return all(line.rstrip() == want.rstrip() for line, want in zip(lines[start:], wanted, strict=False))
