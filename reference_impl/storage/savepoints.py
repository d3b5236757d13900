"""A savepoint's directory: self-contained, portable, and owned by the user (COO-5).

    savepoints/monday/totals-0-a2-totals-state     a state file of subtask totals[0], attempt 2
    savepoints/monday/_metadata                    written last: the savepoint is complete

The metadata has the form of a checkpoint's, but its paths are relative to the directory, and it does not say where the
directory is. So it may be copied or moved, and what the job deletes of its own checkpoints does not touch it. Once it
is complete, only a job that was started from it and claimed it deletes it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    OperatorSnapshot,
    Savepoint,
    StateHandle,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.whole_files import ReadableFiles

_METADATA = "_metadata"
_PLACE_FORMAT, _PLACE_VERSION = "savepoint-place", 1


class SavepointDirectory:
    """One savepoint on a medium."""

    def __init__(self, files: ReadableFiles, directory: str) -> None:
        """Take the directory, relative to the medium's root; raises JobUsageError if it cannot be one."""
        if not directory or directory.strip("/") != directory or ".." in directory.split("/"):
            raise JobUsageError(
                f"a savepoint needs a directory below the job's files, like savepoints/monday, not {directory!r}"
            )
        self.directory = directory
        self._files = files
        self.failed = False
        """Whether the caller saw it fail, although its metadata may have been put and not been taken back."""

    @property
    def metadata_path(self) -> str:
        return join(self.directory, _METADATA)

    @property
    def is_complete(self) -> bool:
        """Whether the savepoint is complete, so that it is the user's."""
        return self._files.exists(self.metadata_path)

    @property
    def is_free(self) -> bool:
        """Whether the directory holds nothing, so that a savepoint can be put there."""
        return not self._files.list_files(self.directory)

    def path_of(self, handle: StateHandle) -> str:
        """Return where a state file of the savepoint is."""
        return join(self.directory, handle.path)

    def content(self, completed: CompletedCheckpoint) -> bytes:
        """Return what the metadata file of a savepoint holds: nothing in it depends on where the directory is."""
        stop = completed.stops_the_job
        return metadata.encode(_placed(replace(completed, savepoint=Savepoint("", stop)), ""))

    def load(self) -> CompletedCheckpoint:
        """Read a savepoint; raises StorageError if it is not there, CorruptStateError if its metadata is damaged."""
        path = self.metadata_path
        loaded = metadata.decode(self._files.read(path), path)
        stop = loaded.stops_the_job
        return _placed(replace(loaded, savepoint=Savepoint(self.directory, stop)), self.directory)

    def remove(self, state_files: Iterable[str]) -> None:
        """Delete a savepoint that a job took over: its metadata first, so that no half of one looks complete.

        ``state_files`` are relative to the directory. What else lies there is not the job's, and keeps the directory.
        """
        self._files.delete(self.metadata_path)
        for path in state_files:
            self._files.delete(join(self.directory, path))
        if self.is_free:
            self._files.delete_tree(self.directory)

    def remove_incomplete(self) -> None:
        """Delete what a savepoint that failed has left; does nothing if the savepoint is complete."""
        if self.failed:
            self._files.delete(self.metadata_path)
        if not self.is_complete:
            self._files.delete_tree(self.directory)


def encode_place(directory: str) -> bytes:
    """Return the content of the job's own note of where a savepoint is kept."""
    return metadata.frame(_PLACE_FORMAT, _PLACE_VERSION, msgspec.json.encode(Savepoint(directory)))


def decode_place(content: bytes, path: str) -> str:
    """Read the note at ``path``; raises CorruptStateError if it is damaged."""
    body = metadata.unframe(_PLACE_FORMAT, _PLACE_VERSION, content, path)
    return metadata.decode_body(body, Savepoint, path).directory


def _placed(completed: CompletedCheckpoint, directory: str) -> CompletedCheckpoint:
    """Return a savepoint whose handles say that they are in a directory."""

    def handle(of: StateHandle) -> StateHandle:
        return replace(of, savepoint=directory)

    def operator(of: OperatorSnapshot) -> OperatorSnapshot:
        return replace(of, handles=tuple(map(handle, of.handles)))

    def part(of: SubtaskSnapshot) -> SubtaskSnapshot:
        channels = of.channels
        if channels is not None:
            channels = replace(channels, file=handle(channels.file))
        return replace(of, operators=tuple(map(operator, of.operators)), channels=channels)

    return replace(completed, snapshots=tuple(map(part, completed.snapshots)))
