"""The state backend seam: what a third party implements to keep keyed state.

Bytes in, bytes out. A value is addressed by (state name, key group, key). One store belongs to one operator of
one subtask and is used by one thread; only the asynchronous part of a snapshot runs on another.

The life of a store: ``backend.open(scope, restore)`` gives a store that holds exactly what the handles hold;
reads and writes follow; at a barrier ``store.snapshot(n, writer)`` does the synchronous part and returns a
``SnapshotFuture``; its ``run()`` does the asynchronous part, elsewhere and later, and gives the handles. Changes
made after ``snapshot`` returned never show in it (SNP-1). Then either ``confirm(n)`` or ``abort(n)`` follows, in
any order with other checkpoints; ``close()`` ends it.

Errors (``reference_impl.runtime_errors``). A backend raises StorageError if a disk fails: a snapshot that raises it
fails its checkpoint, any other call fails the subtask. It raises CorruptStateError, naming the file, if a restored file
is not what its snapshot wrote; SnapshotCancelled from a ``run`` that was cancelled; and JobUsageError for a call that
the caller got wrong: a foreign key group, sequences out of step, a closed store. Anything else is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.checks import require_same_length

ResultT_co = TypeVar("ResultT_co", covariant=True)


class StateCapability(Enum):
    """What a backend declares beyond the contract. Tests hold it to each of these.

    The value is the name in reports; ``sentence`` says what is claimed.
    """

    ASYNCHRONOUS_SNAPSHOTS = "asynchronous-snapshots"
    """``snapshot`` only captures the state; serialising and writing happen in ``run``."""
    CONCURRENT_SNAPSHOTS = "concurrent-snapshots"
    """Several snapshots of one store may be unfinished at once, and finish in any order."""
    ORDERED_SCAN = "ordered-scan"
    """``scan`` gives the entries in ascending order of their keys' bytes."""
    LOCAL_FILES = "local-files"
    """The store keeps files in the scope's working directory, and nowhere else. Only a backend that declares this gets
    one."""
    DETERMINISTIC_FILES = "deterministic-files"
    """The same calls in the same order write files with the same bytes."""
    INCREMENTAL_SNAPSHOTS = "incremental-snapshots"
    """With a ``SharingStateWriter``, a snapshot writes what has changed since the newest confirmed snapshot that may be
    reused, and refers to that snapshot's files for the rest. It refers to no file of an unconfirmed snapshot."""

    @property
    def sentence(self) -> str:
        """Return the claim in one sentence."""
        return _CLAIMS[self]


_CLAIMS = {
    StateCapability.ASYNCHRONOUS_SNAPSHOTS: "Serialising and writing happen after the synchronous part.",
    StateCapability.CONCURRENT_SNAPSHOTS: "Several snapshots may be unfinished at once and finish in any order.",
    StateCapability.ORDERED_SCAN: "Scans give entries in ascending order of their keys' bytes.",
    StateCapability.LOCAL_FILES: "State is kept in files below the working directory and nowhere else.",
    StateCapability.DETERMINISTIC_FILES: "The same calls in the same order write files with the same bytes.",
    StateCapability.INCREMENTAL_SNAPSHOTS: "A snapshot writes only what has changed since a confirmed one.",
}


@dataclass(frozen=True, slots=True)
class StateScope:
    """Whose state a store holds: job, vertex, operator, subtask index, attempt, and its key groups."""

    job: str
    vertex: str
    operator: str
    subtask_index: int
    attempt: int
    key_groups: KeyGroupRange
    working_directory: str | None = None
    """An empty local directory of this store alone, removed after ``close``; None unless the backend declares
    LOCAL_FILES. It is scratch space: after a crash it is not read."""
    files_wanted: int = 1
    """A hint: how many files, by key groups, it is useful to split a snapshot into. A local copy that lost one file
    still serves the others (LOC-6)."""
    compression: Compression = Compression.NONE
    """A wish: how to compress each key group of a snapshot by itself. A backend whose files are compressed already, or
    cannot be, ignores it; what was written with another compression must still be restored (SNP-6)."""
    incremental: bool = False
    """Whether snapshots will be asked for as increments (SNP-5): only then a store has to note what changes."""
    restored: CheckpointId | None = None
    """The checkpoint that the restored handles are of: it counts as confirmed, and a store with the same key groups
    wrote them. None if no snapshot may refer to them: nothing was restored, or they belong to a savepoint, which is the
    user's, or stores with other key groups wrote them (RSC-2)."""
    own_threads: bool = True
    """Whether the store may work in threads of its own between calls, as databases merge their files. Without them, the
    same calls in the same order leave as many files, with the same names and sizes: virtual time asks for that."""
    read_only: bool = False
    """A hint: the store will only be read, so a database may be opened in a cheaper way. Nothing is put or deleted, and
    no snapshot is asked for. A backend may ignore it."""


class StateWriter(Protocol):
    """Writes the files of one snapshot to checkpoint storage; made by the runtime, one per snapshot."""

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        """Write one durable file and return its handle.

        On any failure the partial file is removed and StorageError raised; after ``cancel`` it raises
        SnapshotCancelled (SNP-2).
        """


@runtime_checkable
class LinkingStateWriter(StateWriter, Protocol):
    """A writer that also takes a finished local file, and may keep it by a hard link (LOC-10)."""

    def write_file(
        self, name: str, file: Path, chunks: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        """Do what ``write`` does; ``chunks`` are the content of ``file``, which never changes again."""


@runtime_checkable
class SharingStateWriter(StateWriter, Protocol):
    """A writer for increments: a snapshot may refer to files of an earlier one instead of writing them again (SNP-5).

    The runtime passes one if the job asks for incremental checkpoints and the snapshot is not a savepoint. Then a
    backend with INCREMENTAL_SNAPSHOTS may use it, and gives the handles that ``reuse`` returns among the others. A
    file that is neither reused nor written with ``write_shared`` belongs to this snapshot alone.
    """

    def write_shared(
        self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange, file: Path | None = None
    ) -> StateHandle:
        """Do what ``write`` does, for a file that later snapshots may reuse.

        ``file``: ``chunks`` are the content of this local file, which never changes again.
        """

    def may_reuse(self, checkpoint: CheckpointId) -> bool:
        """Return whether files of a checkpoint may be reused. It must have been confirmed, or restored."""

    def reuse(self, handle: StateHandle) -> StateHandle:
        """Return the handle to give for a file of an earlier snapshot; raises JobUsageError if it is not shared.

        Raises SnapshotCancelled after ``cancel``.
        """


@runtime_checkable
class TwoFormatStateWriter(StateWriter, Protocol):
    """A writer whose second copy, on the subtask's own host, may have another format (LOC-7)."""

    @property
    def second_compression(self) -> Compression | None:
        """Return how the second copy is to be compressed; None: it has the bytes of the first."""

    def write_twice(
        self, name: str, chunks: Iterable[bytes], second: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        """Do what ``write`` does; ``second`` is the same state in the format of the second copy.

        A restore may be given either. ``second`` may be abandoned before its end.
        """


class StateReader(Protocol):
    """Reads the files of a snapshot, verified against size and checksum."""

    def read(self, handle: StateHandle) -> bytes:
        """Return the file's content; raises CorruptStateError if it is not what was written."""


@runtime_checkable
class LocalStateReader(StateReader, Protocol):
    """A reader that may have a file on the local disk already."""

    def local_file(self, handle: StateHandle) -> Path | None:
        """Return a verified local copy that may be linked but not changed; None: there is none, so ``read`` it."""


class SnapshotFuture(Protocol, Generic[ResultT_co]):
    """A snapshot whose synchronous part is done. ``run`` is called at most once, by any thread."""

    @property
    def done(self) -> bool:
        """Whether the result is there already (a purely synchronous snapshot, or after ``run``)."""

    def run(self) -> ResultT_co:
        """Do the asynchronous part and return the result; raises SnapshotCancelled or StorageError."""

    def cancel(self) -> None:
        """Ask the asynchronous part to stop and release all it holds; harmless at any time, and twice."""


class KeyedStateStore(Protocol):
    """The live state of one operator of one subtask."""

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value."""

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value; a missing one is no error."""

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries of one state in one key group, in any order."""

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys; ``groups`` and ``keys`` run in step."""

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set many values; the three sequences run in step."""

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Do the synchronous part of a snapshot and return the rest as a future (SNP-1)."""

    def confirm(self, checkpoint: CheckpointId) -> None:
        """The checkpoint completed."""

    def abort(self, checkpoint: CheckpointId) -> None:
        """The checkpoint failed; release what was kept for it."""

    def close(self) -> None:
        """Release everything: files, threads, memory. Unfinished snapshots are cancelled; twice is harmless."""


class StateBackend(Protocol):
    """Opens stores."""

    @property
    def name(self) -> str:
        """Return a short name for reports."""

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        """Return what the backend declares; constant. The empty set claims the bare contract."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store that holds the entries of the handles that lie in the scope's key groups.

        The handles are those of one or more snapshots, each snapshot's in the order in which its ``run`` gave
        them. Raises StorageError or CorruptStateError; nothing stays open then.
        """


class BatchedStateStore:
    """Defaults for the batch forms, for stores that have nothing better: inherit and implement the rest."""

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""
        raise AttributeError(f"{type(self).__name__} does not implement get")

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        raise AttributeError(f"{type(self).__name__} does not implement put")

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys, one ``get`` at a time."""
        require_same_length(len(groups), len(keys))
        return [self.get(name, group, key) for group, key in zip(groups, keys, strict=True)]

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set many values, one ``put`` at a time."""
        require_same_length(len(groups), len(keys))
        require_same_length(len(groups), len(values))
        for group, key, value in zip(groups, keys, values, strict=True):
            self.put(name, group, key, value)
