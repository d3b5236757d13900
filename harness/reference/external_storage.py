"""Checkpoints of trials that are not among the trial's files: in an object store, or where the storage of
a third party puts them (STA-2). Coordinator, subtasks and judges make the storage each for themselves.

The harness watches, slows down and refuses what passes the file system of a job. What passes another medium is shown
to the same wrappers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem, WatchesFiles
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import imported
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.whole_files import ReadableFiles, WholeFiles


class ExternalStorage(msgspec.Struct, frozen=True):
    """Makes checkpoint storage; takes what the storage on a file system takes."""

    target: str
    """``package.module:Factory``, which is called with the location and the job's name."""
    location: str

    def __call__(self, files: FileSystem, job: str, root: str = "checkpoints") -> MediumCheckpointStorage:
        """Return the storage of a job; wrappers of ``files`` are asked about, and notified of, what passes its
        medium.
        """
        storage = imported(self.target, "checkpoint storage")(self.location, job)
        if not isinstance(storage, MediumCheckpointStorage) or storage.root != root:
            raise UsageProblem(
                f"{self.target} makes {storage!r}; trials need a storage derived from MediumCheckpointStorage with the "
                f"root {root!r}, so that judges can read its files"
            )
        if not storage.outlives_its_process:
            raise UsageProblem(
                f"{self.target} keeps checkpoints in the memory of one process; the processes of a cluster share none"
            )
        return watched(storage, files)


def watched(storage: MediumCheckpointStorage, files: FileSystem) -> MediumCheckpointStorage:
    """Return a storage whose medium shows what passes it to the wrappers of a file system, and asks them."""
    layers = tuple(_layers(files))
    if layers:
        storage.reach_through(lambda medium: _WatchedMedium(medium, layers))
    return storage


class FilesAndMedium(DelegatingFileSystem):
    """A trial's files with those that are on another medium, for the checkers."""

    def __init__(self, inner: FileSystem, medium: ReadableFiles, external_storage: Sequence[str]) -> None:
        super().__init__(inner)
        self._medium = medium
        self._external_storage = tuple(external_storage)

    def read(self, path: str) -> bytes:
        return self._of(path).read(path)

    def list_files(self, directory: str) -> list[str]:
        return self._of(directory).list_files(directory)

    def exists(self, path: str) -> bool:
        return self._of(path).exists(path)

    def size(self, path: str) -> int:
        return len(self.read(path))

    def _of(self, path: str) -> ReadableFiles:
        return self._medium if path.partition("/")[0] in self._external_storage else self.inner


class _WatchedMedium:
    """A medium that asks the wrappers of a file system, and notifies them of what was read."""

    def __init__(self, inner: WholeFiles, layers: Sequence[WatchesFiles]) -> None:
        self._inner = inner
        self._layers = layers

    def read(self, path: str) -> bytes:
        for layer in self._layers:
            layer.check_read(path)
        content = self._inner.read(path)
        for layer in self._layers:
            layer.note_read(path, content)
        return content

    def list_files(self, directory: str) -> list[str]:
        return self._inner.list_files(directory)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def delete(self, path: str) -> None:
        self._inner.delete(path)

    def delete_tree(self, directory: str) -> None:
        self._inner.delete_tree(directory)

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        self._check(path)
        return self._inner.write(path, chunks)

    def put(self, path: str, content: bytes) -> None:
        self._check(path)
        self._inner.put(path, content)

    def put_new(self, path: str, content: bytes) -> bool:
        self._check(path)
        return self._inner.put_new(path, content)

    def sync_directory(self, path: str) -> None:
        self._inner.sync_directory(path)

    def _check(self, path: str) -> None:
        for layer in self._layers:
            layer.check(path)


def _layers(files: FileSystem) -> Iterator[WatchesFiles]:
    """Yield what a file system is wrapped in, the outermost first, and then itself if it has something to say."""
    while isinstance(files, DelegatingFileSystem):
        yield files
        files = files.inner
    if isinstance(files, WatchesFiles):
        yield files
