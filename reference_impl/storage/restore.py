"""Reading a checkpoint back: can everything it needs be read, and from which copy? (REC-4, LOC-4)"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import (
    CHANNEL_STATE,
    LocalCopy,
    RestoredFile,
    ServedBy,
    StateHandle,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure, StorageCause, StorageError
from barrier_tck.reference_impl.state.backend import StateReader
from barrier_tck.reference_impl.storage.local_copies import (
    CopyManifest,
    LinkingFileSystem,
    TaskLocalStateStore,
    copy_directory,
)


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why a copy does not serve: in words, and what is wrong with it, if anything is."""

    reason: str = ""
    cause: StorageCause | None = None

    def __str__(self) -> str:
        return self.reason


def _refused(error: RuntimeFailure) -> _Refused:
    return _Refused(str(error), error.cause if isinstance(error, StorageError) else None)


_SERVES = _Refused()


class RestoreReader:
    """Reads the state files of one subtask's restore: the secondary copy first, the primary if that is not good.

    Keeps for each file which copy served it (LOC-4). Implements ``StateReader`` and ``LocalStateReader``. A file
    that no copy gives raises what the primary raised, with the secondary's reason as a note (LOC-5).
    """

    def __init__(
        self,
        primary: StateReader,
        snapshot: SubtaskSnapshot,
        checkpoint: CheckpointId,
        local: TaskLocalStateStore | None = None,
    ) -> None:
        """Take the storage of primaries, what is restored, and the host's copies (None: without local recovery)."""
        self._primary = primary
        self._local = local
        self._operators = {
            handle.name: part.operator for part in snapshot.operators for handle in part.handles
        }
        if snapshot.channels is not None:
            self._operators[snapshot.channels.file.path] = CHANNEL_STATE
        for rerouted in snapshot.rerouted or ():
            self._operators |= {file.name: CHANNEL_STATE for file in rerouted.files}
        self._copy: tuple[str, CopyManifest] | None = None
        self._no_copy = _Refused("local recovery is off")
        self._served: dict[str, RestoredFile] = {}
        self.unreadable: str | None = None
        """Why a file can be read from no copy; None as long as all can.

        A storage that does not answer says nothing about its files: then the attempt fails, and another one follows.
        """
        if local is not None and self._operators:
            try:
                self._copy = local.find(checkpoint, snapshot.attempt)
            except RuntimeFailure as error:
                self._no_copy = _refused(error)
                local.invalidate(copy_directory(LocalCopy(snapshot.subtask, checkpoint, snapshot.attempt)))

    @property
    def files(self) -> tuple[RestoredFile, ...]:
        """Return every file that was read, in the order of the first reading."""
        return tuple(self._served.values())

    def read(self, handle: StateHandle) -> bytes:
        """Return a state file from the first copy that is what its handle says."""
        found = self._from_copy(handle)
        if isinstance(found, tuple):
            self._note(handle, ServedBy.SECONDARY)
            return found[1]
        try:
            content = self._primary.read(handle)
        except StorageError as error:
            if error.cause is not StorageCause.FAILED:
                self.unreadable = f"{handle.name}: {error}; and its local copy: {found}"
            error.add_note(f"the local copy could not be read either: {found}")
            raise
        self._note(handle, ServedBy.PRIMARY, found)
        return content

    def local_file(self, handle: StateHandle) -> Path | None:
        """Return the verified local copy of a file, for backends that link it; None: use ``read``."""
        local = self._local
        if local is None or not isinstance(local.files, LinkingFileSystem):
            return None
        found = self._from_copy(handle)
        if not isinstance(found, tuple):
            return None
        self._note(handle, ServedBy.SECONDARY)
        return local.files.path_of(found[0])

    def _from_copy(self, handle: StateHandle) -> tuple[str, bytes] | _Refused:
        """Return path and content, or why the copy does not serve."""
        if self._local is None or self._copy is None:
            return self._no_copy
        directory, manifest = self._copy
        try:
            return self._local.read(directory, manifest, handle)
        except RuntimeFailure as error:
            self._local.invalidate(directory, manifest, handle)
            return _refused(error)

    def _note(self, handle: StateHandle, served_by: ServedBy, why: _Refused = _SERVES) -> None:
        operator = self._operators.get(handle.name, "")
        secondary = served_by is ServedBy.SECONDARY
        copy_of = self._copy[1].checkpoint if self._copy is not None and secondary else 0
        self._served[handle.name] = RestoredFile(
            operator,
            handle.name,
            handle.key_groups,
            served_by,
            why.reason,
            why.cause,
            copy_of,
        )
