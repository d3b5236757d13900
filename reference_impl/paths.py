"""Names of files: what a part of one may be, and how paths are put together."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote


@lru_cache(maxsize=4096)
def safe_name(text: str) -> str:
    """Return a text as one part of a file name: without ``/``, ``-`` or a leading dot; one to one.

    The hyphen separates the parts of our file names, so a name that has one is escaped: otherwise operator
    ``a`` writing ``b-c`` and operator ``a-b`` writing ``c`` would meet in one file.
    """
    quoted = quote(text, safe="").replace("-", "%2D")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def join(*parts: str) -> str:
    """Join parts of a path with ``/``, leaving out empty ones."""
    return "/".join(part for part in parts if part)


def parent(path: str) -> str:
    """Return the directory that holds a path; the root of the file system is the empty path."""
    return path.rpartition("/")[0]
