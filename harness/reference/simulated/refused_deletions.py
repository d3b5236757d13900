"""A disk that refuses the coordinator's deletions of checkpoints, of each checkpoint the first one only."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.filesystem import FileSystem

_OF_CHECKPOINT = re.compile(r"(?:^|/)(chk-\d+)(?:/|$)")


@dataclass
class Deletions:
    """How many deletions are still refused, whichever coordinator tries; a ``DeletionsTarget``."""

    description: str = "deletions of checkpoints"
    _left: int = 0
    _refused: dict[str, None] = field(default_factory=dict)
    """The checkpoints of which a deletion was refused."""

    def refuse(self, times: int) -> Callable[[], bool]:
        self._left += times
        before = len(self._refused)
        return lambda: len(self._refused) > before

    def check(self, path: str) -> None:
        """Raise StorageError if a deletion is refused; the next one of the same checkpoint is not."""
        found = _OF_CHECKPOINT.search(path)
        if found is None or not self._left or found[1] in self._refused:
            return
        self._left -= 1
        self._refused[found[1]] = None
        raise StorageError(f"cannot delete {path}: device or resource busy")


class DeletionsRefused(DelegatingFileSystem):
    """The way of a coordinator to the shared disk."""

    def __init__(self, inner: FileSystem, deletions: Deletions) -> None:
        super().__init__(inner)
        self._deletions = deletions

    def delete(self, path: str) -> None:
        """Delete a file, unless that is refused."""
        if self.exists(path):
            self._deletions.check(path)
        super().delete(path)

    def delete_tree(self, directory: str) -> None:
        """Delete a directory with all that is in it, unless that is refused."""
        if self.list_files(directory):
            self._deletions.check(directory)
        super().delete_tree(directory)
