"""The files of sinks, with a point between any two steps of a commit.

A commit renames files and then makes their names durable. Whoever watches the job may let the process die in between.
"""

from __future__ import annotations

from collections.abc import Callable

from barrier_tck.reference_impl.paths import parent
from barrier_tck.reference_impl.storage.filesystem import FileSystem, OutputStream


class SinkFiles:
    """The output file system as sinks see it: after each step of a commit a function is called.

    Steps are renames, and the first sync of a directory into which something was renamed.
    """

    def __init__(self, inner: FileSystem, on_step: Callable[[], None]) -> None:
        self._inner = inner
        self._on_step = on_step
        self._renamed_into: dict[str, None] = {}

    def create(self, path: str) -> OutputStream:
        return self._inner.create(path)

    def read(self, path: str) -> bytes:
        return self._inner.read(path)

    def rename(self, source: str, target: str) -> None:
        self._inner.rename(source, target)
        self._renamed_into[parent(target)] = None
        self._on_step()

    def sync_directory(self, path: str) -> None:
        self._inner.sync_directory(path)
        directory = path.rstrip("/")
        if directory in self._renamed_into:
            del self._renamed_into[directory]
            self._on_step()

    def list_files(self, directory: str) -> list[str]:
        return self._inner.list_files(directory)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def size(self, path: str) -> int:
        return self._inner.size(path)

    def delete(self, path: str) -> None:
        self._inner.delete(path)

    def delete_tree(self, directory: str) -> None:
        self._inner.delete_tree(directory)
