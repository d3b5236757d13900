"""A state backend that keeps state in RocksDB, on local disk (SNP-4).

A snapshot's synchronous part only begins a capture (``rocksdb_capture``): from then on writes are kept apart. The
asynchronous part flushes the memtable and makes a native checkpoint: a directory of hard links to RocksDB's files,
which never change once written. Then it uploads the directory's files and removes it. With local recovery the runtime
keeps the files by hard links, and a restore on the same disk links the table files back (LOC-10).

The write-ahead log is off. A crash loses the working directory anyway: the attempt that follows starts from a
checkpoint in checkpoint storage, never from a log, so a log would cost every write and save none.

**Keys** in RocksDB are, in this order: key group (4 bytes, big-endian), length of the state name in UTF-8 (2 bytes,
big-endian), the name, the key. A key group is therefore one contiguous range, and a state in a key group one range
within it.

**Files of a snapshot**, version 1: an index and RocksDB's own files, as they are. The index is the first handle,
though the last file written, and is b"rockssnp" and a MessagePack array: version, then an array of
[file name, path in checkpoint storage] in the order of the handles that follow. A snapshot without state has no files.

With incremental checkpoints, table files are shared (SNP-5). RocksDB never changes a table file, and uses no number
twice. So a table file whose name occurs in a confirmed snapshot of this store is the same file, and is not uploaded
again.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock

from rocksdict import Rdict, WriteBatch

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    SnapshotCancelled,
    StorageError,
)
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    LinkingStateWriter,
    SharingStateWriter,
    SnapshotFuture,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.checks import require_in_range, require_same_length
from barrier_tck.reference_impl.state.held import NOTHING_HELD, FrozenState, HeldState
from barrier_tck.reference_impl.state.rocksdb_capture import Capture, CapturingDatabase
from barrier_tck.reference_impl.state.rocksdb_library import make_directory
from barrier_tck.reference_impl.state.rocksdb_reading import NAME, store_in_memory
from barrier_tck.reference_impl.state.rocksdb_restore import (
    GROUP,
    TABLE,
    encoded_index,
    restored_database,
    shared_tables,
    snapshots_of,
)
from barrier_tck.reference_impl.state.rocksdb_tables import SharedTables, Tables
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot, FinishedSnapshot

_CHUNK_BYTES = 1 << 20
"""Files are uploaded in chunks of this size: a cancel is noticed between any two."""
_CHECKPOINTS = "checkpoints"


class RocksDBStateBackend:
    """Opens stores in RocksDB. It is a value, which is sent to subtasks."""

    def __init__(self, local_checkpoints: str | None = None) -> None:
        """Take where local checkpoints are made; None: in the working directory, which is nearly always right."""
        self._local_checkpoints = local_checkpoints

    @property
    def name(self) -> str:
        """Return ``rocksdb``."""
        return "rocksdb"

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        return frozenset(
            {
                StateCapability.ASYNCHRONOUS_SNAPSHOTS,
                StateCapability.CONCURRENT_SNAPSHOTS,
                StateCapability.ORDERED_SCAN,
                StateCapability.LOCAL_FILES,
                StateCapability.INCREMENTAL_SNAPSHOTS,
            }
        )

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store with the entries of the handles that lie in the scope's key groups (RSC-1).

        Raises JobUsageError without a working directory, or if local checkpoints would lie on another file
        system (LOC-10); CorruptStateError if files are not a RocksDB snapshot, are missing, or overlap.
        """
        if scope.working_directory is None:
            raise JobUsageError(
                "the rocksdb backend needs StateScope.working_directory, a local directory; the runtime gives one"
            )
        working = Path(scope.working_directory)
        snapshots = snapshots_of(restore, reader, scope.key_groups)
        if scope.read_only:
            with _naming_files(restore):
                return store_in_memory(scope, working, snapshots, reader)
        checkpoints = working / _CHECKPOINTS
        if self._local_checkpoints is not None:
            checkpoints = Path(self._local_checkpoints) / working.parent.name / working.name
        make_directory(checkpoints)
        _require_one_file_system(working, checkpoints)
        with _naming_files(restore):
            database = restored_database(working, snapshots, reader, scope.key_groups, scope.own_threads)
        captured = CapturingDatabase(database, own_threads=scope.own_threads)
        store = RocksDBStateStore(scope.key_groups, captured, checkpoints)
        if (
            scope.restored is not None
            and len(snapshots) == 1
            and snapshots[0][0].key_groups == scope.key_groups
        ):
            # After a redistribution the first snapshot uploads all: no two subtasks use the same file.
            store.tables.build_on(scope.restored, shared_tables(snapshots[0][1]))
        return store


@contextlib.contextmanager
def _naming_files(restore: Sequence[StateHandle]) -> Iterator[None]:
    """Let a CorruptStateError name the files of the snapshot: the library knows local names only."""
    try:
        yield
    except CorruptStateError as error:
        if any(handle.path in str(error) for handle in restore):
            raise
        named = [handle.path for handle in restore if handle.path.rpartition("-")[2] in str(error)]
        files = ", ".join(named or [handle.path for handle in restore])
        raise CorruptStateError(f"{error}; restored from {files}") from error


class _Prefixes(dict[int, bytes]):
    """What the keys of one state begin with, by key group; refuses groups that the store does not own."""

    __slots__ = ("_key_groups", "_name")

    def __init__(self, name: str, key_groups: KeyGroupRange) -> None:
        super().__init__()
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise JobUsageError(f"the name of a state has 65,535 bytes at most, not {len(encoded):,}")
        self._name = NAME.pack(len(encoded)) + encoded
        self._key_groups = key_groups

    def __missing__(self, group: int) -> bytes:
        require_in_range(group, self._key_groups)
        prefix = self[int(group)] = GROUP.pack(group) + self._name
        return prefix


class RocksDBStateStore:
    """The live state of one operator of one subtask, in one RocksDB database."""

    def __init__(self, key_groups: KeyGroupRange, database: CapturingDatabase, checkpoints: Path) -> None:
        """Take the open database, which the store closes, and the directory of local checkpoints."""
        self._key_groups = key_groups
        self._database: CapturingDatabase | None = database
        self._checkpoints = checkpoints
        self.tables = SharedTables()
        self._prefixes: dict[str, _Prefixes] = {}
        self._snapshots_taken = 0
        self._outstanding: dict[int, tuple[CheckpointId, DeferredSnapshot[tuple[StateHandle, ...]]]] = {}
        self._scans: weakref.WeakValueDictionary[int, _Scan] = weakref.WeakValueDictionary()
        self._scans_begun = 0
        self._held: HeldState | None = None
        self._held_version = 0
        """The version whose entries of what is held are in the database. Set by whoever makes a capture."""

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        return self._open(name).get(self._prefixes_of(name)[group], key)

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value; raises JobUsageError for a key group that is not the store's."""
        self._open(name).put(self._prefixes_of(name)[group], key, value)

    def delete(self, name: str, group: int, key: bytes) -> None:
        self._open(name).delete(self._prefixes_of(name)[group], key)

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries as they are now, in the order of their keys; later writes do not disturb it."""
        scan = _Scan(self._open(name).entries(self._prefixes_of(name)[group]))
        self._scans_begun += 1
        self._scans[self._scans_begun] = scan
        return scan

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys with one multi-get; ``groups`` and ``keys`` run in step."""
        require_same_length(len(groups), len(keys))
        return self._open(name).get_many(map(self._prefixes_of(name).__getitem__, groups), keys)

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set many values, all or none; the three sequences run in step."""
        require_same_length(len(groups), len(keys))
        require_same_length(len(groups), len(values))
        self._open(name).put_many(map(self._prefixes_of(name).__getitem__, groups), keys, values)

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Keep later writes apart; the future flushes, links the files, uploads and removes them (SNP-1, SNP-4)."""
        database = self._open("")
        number = self._snapshots_taken + 1
        frozen = self._held.freeze(number) if self._held is not None else NOTHING_HELD
        capture = database.begin(
            self._checkpoints / f"{number}-of-checkpoint-{checkpoint}",
            not frozen.is_empty,
            lambda native: self._write_held(native, frozen, number),
        )
        if capture is None:
            frozen.release()
            return FinishedSnapshot(())
        self._snapshots_taken = number
        task = _Upload(
            capture,
            writer,
            self._key_groups,
            self.tables.reusable(writer),
            lambda tables: self.tables.stored(number, checkpoint, tables),
            lambda: self._ended(number, frozen),
        )
        future = DeferredSnapshot(task.run, task.cancel)
        self._outstanding[number] = (checkpoint, future)
        return future

    def hold(self, held: HeldState, names: Sequence[str]) -> None:
        """Write what an operator holds to the database whenever a local checkpoint is made.

        What was restored of these states stays in it: the operator has it, too, and changes it.
        """
        self._held = held

    @property
    def changes_since(self) -> int | None:
        """The version whose entries are in the database."""
        return self._held_version

    def _write_held(self, native: Rdict, frozen: FrozenState, version: int) -> None:
        """Write what has changed since it was done last."""
        for part in frozen.entries(self._held_version):
            batch = WriteBatch(raw_mode=True)
            prefix = self._prefixes_of(part.name)[part.group]
            for key, value in zip(part.keys, part.values, strict=True):
                batch.put(prefix + key, value)
            for key in part.removed:
                batch.delete(prefix + key)
            native.write(batch)
        self._held_version = version
        frozen.release()

    def _ended(self, number: int, frozen: FrozenState) -> None:
        frozen.release()
        self._outstanding.pop(number, None)

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Let later snapshots refer to the table files of this one."""
        self.tables.confirm(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        """Cancel the checkpoint's upload if it has not ended, and never refer to its files (COO-2)."""
        self.tables.abort(checkpoint)
        self._cancel([future for number, future in list(self._outstanding.values()) if number == checkpoint])

    def close(self) -> None:
        """Cancel running uploads, end open scans, and close the database with its lock, files and threads."""
        self._cancel([future for _, future in list(self._outstanding.values())])
        database, self._database = self._database, None
        if database is None:
            return
        for _, scan in sorted(self._scans.items()):
            # An iterator keeps the database open.
            scan.close()
        database.close()

    @staticmethod
    def _cancel(futures: list[DeferredSnapshot[tuple[StateHandle, ...]]]) -> None:
        for future in futures:
            future.cancel()

    def _open(self, name: str) -> CapturingDatabase:
        if self._database is None:
            raise JobUsageError(f"the state {name!r} was used after its store was closed")
        return self._database

    def _prefixes_of(self, name: str) -> _Prefixes:
        prefixes = self._prefixes.get(name)
        if prefixes is None:
            prefixes = self._prefixes[name] = _Prefixes(name, self._key_groups)
        return prefixes


class _Scan:
    """Iterates over entries; after ``close`` it refuses instead of looking exhausted."""

    __slots__ = ("__weakref__", "_entries")

    def __init__(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        self._entries: Iterator[tuple[bytes, bytes]] | None = entries

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        if self._entries is None:
            raise JobUsageError("a scan was continued after its store was closed")
        return next(self._entries)

    def close(self) -> None:
        self._entries = None


class _Upload:
    """The asynchronous part of one snapshot: makes a local checkpoint, uploads and removes it, whatever happens."""

    def __init__(
        self,
        capture: Capture,
        writer: StateWriter,
        key_groups: KeyGroupRange,
        reusable: Tables,
        stored: Callable[[Tables], object],
        ended: Callable[[], object],
    ) -> None:
        self._capture = capture
        self._directory = capture.directory
        self._writer = writer
        self._key_groups = key_groups
        self._reusable = reusable
        self._stored = stored
        self._ended = ended
        self._lock = Lock()
        self._started = False
        self._cancelled = False

    def run(self) -> tuple[StateHandle, ...]:
        """Upload every file, then the index that names them; returns the handles, the index first."""
        with self._lock:
            self._started = True
        handles: list[StateHandle] = []
        names = []
        # Asked once and not for each file, because such a question takes long.
        sharing = self._writer if isinstance(self._writer, SharingStateWriter) else None
        linking = self._writer if isinstance(self._writer, LinkingStateWriter) else None
        try:
            self._check_cancelled()
            self._capture.require()
            for file in sorted(self._directory.iterdir()):
                self._check_cancelled()
                handles.append(self._upload(file, sharing, linking))
                names.append((file.name, handles[-1].path))
            self._check_cancelled()
            first = self._writer.write("index", [encoded_index(names)], self._key_groups)
            self._stored(shared_tables((name, one) for (name, _), one in zip(names, handles, strict=True)))
            return (first, *handles)
        except OSError as error:
            self._check_cancelled()
            raise StorageError(f"cannot read the local checkpoint {self._directory}: {error}") from error
        finally:
            self._release()

    def _upload(
        self, file: Path, sharing: SharingStateWriter | None, linking: LinkingStateWriter | None
    ) -> StateHandle:
        """Store one file. ``sharing`` and ``linking`` are the writer, if it can share or link files."""
        if sharing is not None and file.name.endswith(TABLE):
            known = self._reusable.get(file.name)
            if known is not None:
                return sharing.reuse(known)
            return sharing.write_shared(file.name, self._chunks(file), self._key_groups, file)
        if linking is not None:
            return linking.write_file(file.name, file, self._chunks(file), self._key_groups)
        return self._writer.write(file.name, self._chunks(file), self._key_groups)

    def cancel(self) -> None:
        """Make a running upload stop at its next chunk. One that has not started is released here."""
        with self._lock:
            self._cancelled = True
            started = self._started
        if not started:
            self._release()

    def _release(self) -> None:
        self._ended()
        self._capture.drop()

    def _chunks(self, file: Path) -> Iterator[bytes]:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                self._check_cancelled()
                yield chunk

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise SnapshotCancelled("the upload of a RocksDB checkpoint was cancelled")


def _require_one_file_system(working: Path, checkpoints: Path) -> None:
    if os.stat(working).st_dev != os.stat(checkpoints).st_dev:
        raise JobUsageError(
            f"{checkpoints} is on another file system than RocksDB's directory {working}, so local checkpoints "
            "would be copies instead of hard links (LOC-10); put both on one file system"
        )
