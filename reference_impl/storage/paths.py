"""Names of files, and the directory syncs that make names durable: shared by checkpoint storage and sinks."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from barrier_tck.reference_impl.storage.filesystem import FileSystem


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


class DirectorySync:
    """Makes the names in directories durable, and, the first time, the names of the directories themselves.

    A file survives a crash only if every directory above it does. Directories are not renamed here, so the
    way down to one needs to be made durable once; after that each call is a single sync.
    """

    def __init__(self, files: FileSystem) -> None:
        """Take the file system."""
        self._files = files
        # Directories whose own name, and those above, are durable.
        self._durable: dict[str, None] = {}

    def sync(self, directory: str) -> None:
        """Make the names in an existing directory durable; raises StorageError."""
        self._files.sync_directory(directory)
        found = []
        while directory and directory not in self._durable:
            found.append(directory)
            directory = parent(directory)
            self._files.sync_directory(directory)
        self._durable.update(dict.fromkeys(found))
