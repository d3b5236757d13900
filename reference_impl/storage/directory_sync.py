"""Directory syncs that make names durable: shared by checkpoint storage and sinks."""

from __future__ import annotations

from typing import Protocol

from barrier_tck.reference_impl.paths import parent


class SyncsDirectories(Protocol):
    """The one call of a file system, or of another medium, that is needed here."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable; raises StorageError."""


class DirectorySync:
    """Makes the names in directories durable, and, the first time, the names of the directories themselves.

    A file survives a crash only if every directory above it does. Directories are not renamed here, so the
    way down to one needs to be made durable once; after that each call is a single sync.
    """

    def __init__(self, files: SyncsDirectories) -> None:
        self._files = files
        # Directories whose own name, and those above, are durable.
        self._durable: dict[str, None] = {}

    def sync_directory(self, path: str) -> None:
        """Make the names in an existing directory durable; raises StorageError."""
        directory = path
        self._files.sync_directory(directory)
        found = []
        while directory and directory not in self._durable:
            found.append(directory)
            directory = parent(directory)
            self._files.sync_directory(directory)
        self._durable.update(dict.fromkeys(found))
