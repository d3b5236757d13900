"""A state backend that keeps state in RocksDB, on local disk (SNP-4).

A snapshot's synchronous part flushes the memtable and makes a native checkpoint: a directory of hard links to
RocksDB's files, which never change once written, so the time does not grow with what earlier snapshots flushed.
The asynchronous part uploads the directory's files and removes it. With local recovery the runtime keeps the files by
hard links, and a restore on the same disk links the table files back (LOC-10).

The write-ahead log is off. A crash loses the working directory anyway: the attempt that follows starts from a
checkpoint in checkpoint storage, never from a log, so a log would cost every write and save none.

**Keys** in RocksDB are, in this order: key group (4 bytes, big-endian), length of the state name in UTF-8 (2 bytes,
big-endian), the name, the key. A key group is therefore one contiguous range, and a state in a key group one range
within it.

**Files of a snapshot**, version 1: an index and RocksDB's own files, as they are. The index is the first handle,
though the last file written, and is b"rockssnp" and a MessagePack array: version, then an array of
[file name, path in checkpoint storage] in the order of the handles that follow. No state, no files.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Callable, Iterator, Sequence
from operator import add
from pathlib import Path
from threading import Lock

import msgspec
from rocksdict import Checkpoint, Rdict, WriteBatch

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
    LocalStateReader,
    SnapshotFuture,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.checks import refuse_overlaps, require_in_range, require_same_length
from barrier_tck.reference_impl.state.rocksdb_library import (
    Failures,
    close_database,
    entries_from,
    is_empty,
    make_directory,
    open_database,
)
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot, FinishedSnapshot
from barrier_tck.reference_impl.state.working_directory import remove_tree

_MAGIC = b"rockssnp"
_VERSION = 1
_CHUNK_BYTES = 1 << 20
"""Files are uploaded in chunks of this size: a cancel is noticed between any two."""
_BATCH_ENTRIES = 10_000
_TABLE = ".sst"
"""Suffix of the files that hold entries."""
_GROUP = struct.Struct(">I")
_NAME = struct.Struct(">H")
_DATABASE, _CHECKPOINTS = "db", "checkpoints"

_Index = tuple[int, list[tuple[str, str]]]
_encode = msgspec.msgpack.Encoder().encode
_decode_index = msgspec.msgpack.Decoder(_Index).decode


class RocksDBStateBackend:
    """Opens stores in RocksDB. A value: it is shipped to subtasks."""

    def __init__(self, local_checkpoints: str | None = None) -> None:
        """Take where local checkpoints are made; None: in the working directory, which is nearly always right."""
        self._local_checkpoints = local_checkpoints

    @property
    def name(self) -> str:
        """Return ``rocksdb``."""
        return "rocksdb"

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        """Return what the backend declares."""
        return frozenset(
            {
                StateCapability.ASYNCHRONOUS_SNAPSHOTS,
                StateCapability.CONCURRENT_SNAPSHOTS,
                StateCapability.ORDERED_SCAN,
                StateCapability.LOCAL_FILES,
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
        checkpoints = working / _CHECKPOINTS
        if self._local_checkpoints is not None:
            checkpoints = Path(self._local_checkpoints) / working.parent.name / working.name
        make_directory(checkpoints)
        _require_one_file_system(working, checkpoints)
        database = _restored_database(working, restore, reader, scope.key_groups)
        return RocksDBStateStore(scope.key_groups, database, checkpoints)


class _Prefixes(dict[int, bytes]):
    """What the keys of one state begin with, by key group; refuses groups that the store does not own."""

    __slots__ = ("_key_groups", "_name")

    def __init__(self, name: str, key_groups: KeyGroupRange) -> None:
        super().__init__()
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise JobUsageError(f"the name of a state has 65,535 bytes at most, not {len(encoded):,}")
        self._name = _NAME.pack(len(encoded)) + encoded
        self._key_groups = key_groups

    def __missing__(self, group: int) -> bytes:
        require_in_range(group, self._key_groups)
        prefix = self[int(group)] = _GROUP.pack(group) + self._name
        return prefix


class RocksDBStateStore:
    """The live state of one operator of one subtask, in one RocksDB database."""

    def __init__(self, key_groups: KeyGroupRange, database: Rdict, checkpoints: Path) -> None:
        """Take the open database, which the store closes, and the directory of local checkpoints."""
        self._key_groups = key_groups
        self._database: Rdict | None = database
        self._checkpoints = checkpoints
        self._prefixes: dict[str, _Prefixes] = {}
        self._snapshots_taken = 0
        self._outstanding: dict[int, tuple[CheckpointId, DeferredSnapshot[tuple[StateHandle, ...]]]] = {}
        self._scans: weakref.WeakValueDictionary[int, _Scan] = weakref.WeakValueDictionary()
        self._scans_begun = 0

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""
        database, prefix = self._open(name), self._prefixes_of(name)[group]
        with Failures("read from"):
            value: bytes | None = database.get(prefix + key)
        return value

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value; raises JobUsageError for a key group that is not the store's."""
        database, prefix = self._open(name), self._prefixes_of(name)[group]
        with Failures("write to"):
            database.put(prefix + key, value)

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value; a missing one is no error."""
        database, prefix = self._open(name), self._prefixes_of(name)[group]
        with Failures("write to"):
            database.delete(prefix + key)

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries as they are now, in the order of their keys; later writes do not disturb it."""
        database, prefix = self._open(name), self._prefixes_of(name)[group]
        scan = _Scan(entries_from(database, prefix), prefix)
        self._scans_begun += 1
        self._scans[self._scans_begun] = scan
        return scan

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys with one multi-get; ``groups`` and ``keys`` run in step."""
        require_same_length(len(groups), len(keys))
        database, prefixes = self._open(name), self._prefixes_of(name)
        wanted = list(map(add, map(prefixes.__getitem__, groups), keys))
        with Failures("read from"):
            return database.get(wanted) if wanted else []  # type: ignore[return-value]

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set many values, all or none; the three sequences run in step."""
        require_same_length(len(groups), len(keys))
        require_same_length(len(groups), len(values))
        database, prefixes = self._open(name), self._prefixes_of(name)
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        with Failures("write to"):
            for prefix, key, value in zip(map(prefixes.__getitem__, groups), keys, values, strict=True):
                put(prefix + key, value)
            database.write(batch)

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Flush, link the files into a local checkpoint; the future uploads and removes it (SNP-1, SNP-4)."""
        database = self._open("")
        if is_empty(database):
            return FinishedSnapshot(())
        self._snapshots_taken += 1
        number = self._snapshots_taken
        directory = self._checkpoints / f"{number}-of-checkpoint-{checkpoint}"
        try:
            with Failures("take a local checkpoint of"):
                # With the log off, what is not flushed is in no file.
                database.flush(wait=True)
                Checkpoint(database).create_checkpoint(str(directory))
        except StorageError:
            if directory.exists():
                remove_tree(directory)
            raise
        task = _Upload(directory, writer, self._key_groups, lambda: self._outstanding.pop(number, None))
        future = DeferredSnapshot(task.run, task.cancel)
        self._outstanding[number] = (checkpoint, future)
        return future

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Do nothing: nothing is kept for a checkpoint once its files are uploaded."""

    def abort(self, checkpoint: CheckpointId) -> None:
        """Cancel the checkpoint's upload if it has not ended (COO-2)."""
        self._cancel([future for number, future in list(self._outstanding.values()) if number == checkpoint])

    def close(self) -> None:
        """Cancel what runs, end what iterates, and close the database: its lock, its files, its threads."""
        self._cancel([future for _, future in list(self._outstanding.values())])
        database, self._database = self._database, None
        if database is None:
            return
        for _, scan in sorted(self._scans.items()):
            # An iterator keeps the database open.
            scan.close()
        close_database(database)

    @staticmethod
    def _cancel(futures: list[DeferredSnapshot[tuple[StateHandle, ...]]]) -> None:
        for future in futures:
            future.cancel()

    def _open(self, name: str) -> Rdict:
        if self._database is None:
            raise JobUsageError(f"the state {name!r} was used after its store was closed")
        return self._database

    def _prefixes_of(self, name: str) -> _Prefixes:
        prefixes = self._prefixes.get(name)
        if prefixes is None:
            prefixes = self._prefixes[name] = _Prefixes(name, self._key_groups)
        return prefixes


class _Scan:
    """Iterates over the entries of one prefix; after ``close`` it refuses instead of looking exhausted."""

    __slots__ = ("__weakref__", "_entries", "_prefix")

    def __init__(self, entries: Iterator[tuple[bytes, bytes]], prefix: bytes) -> None:
        self._entries: Iterator[tuple[bytes, bytes]] | None = entries
        self._prefix = prefix

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        if self._entries is None:
            raise JobUsageError("a scan was continued after its store was closed")
        key, value = next(self._entries)
        if not key.startswith(self._prefix):
            self._entries = iter(())
            raise StopIteration
        return key[len(self._prefix) :], value

    def close(self) -> None:
        self._entries = None


class _Upload:
    """The asynchronous part of one snapshot: uploads a local checkpoint and removes it, whatever happens."""

    def __init__(
        self, directory: Path, writer: StateWriter, key_groups: KeyGroupRange, ended: Callable[[], object]
    ) -> None:
        self._directory = directory
        self._writer = writer
        self._key_groups = key_groups
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
        try:
            for file in sorted(self._directory.iterdir()):
                self._check_cancelled()
                handles.append(self._upload(file))
                names.append((file.name, handles[-1].path))
            self._check_cancelled()
            index = _MAGIC + _encode((_VERSION, names))
            return (self._writer.write("index", [index], self._key_groups), *handles)
        except OSError as error:
            self._check_cancelled()
            raise StorageError(f"cannot read the local checkpoint {self._directory}: {error}") from error
        finally:
            self._release()

    def _upload(self, file: Path) -> StateHandle:
        if isinstance(self._writer, LinkingStateWriter):
            return self._writer.write_file(file.name, file, self._chunks(file), self._key_groups)
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
        remove_tree(self._directory)

    def _chunks(self, file: Path) -> Iterator[bytes]:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                self._check_cancelled()
                yield chunk

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise SnapshotCancelled("the upload of a RocksDB checkpoint was cancelled")


# --- restoring ----------------------------------------------------------------------------------------------


def _restored_database(
    working: Path, restore: Sequence[StateHandle], reader: StateReader, key_groups: KeyGroupRange
) -> Rdict:
    """Open a database with the snapshots' entries of these key groups; leaves nothing open on an error."""
    snapshots = _snapshots_of(restore, reader, key_groups)
    path = working / _DATABASE
    if snapshots:
        # The first snapshot's files become the database; only what others hold has to be copied over.
        _download(snapshots[0], reader, path)
    database = open_database(path)
    try:
        if snapshots:
            _drop_foreign_groups(database, snapshots[0][0].key_groups, key_groups)
        for number, snapshot in enumerate(snapshots[1:], 2):
            part = working / f"restored-{number}"
            _download(snapshot, reader, part)
            _copy_groups(part, database, snapshot[0].key_groups.intersection(key_groups))
            remove_tree(part)
    except BaseException:
        close_database(database)
        raise
    return database


_Snapshot = tuple[StateHandle, list[tuple[str, StateHandle]]]
"""The index of a snapshot, and its files by their names in the database."""


def _snapshots_of(
    handles: Sequence[StateHandle], reader: StateReader, key_groups: KeyGroupRange
) -> list[_Snapshot]:
    """Sort handles into the snapshots they come from, those of foreign key groups left out."""
    wanted = [handle for handle in handles if len(handle.key_groups.intersection(key_groups))]
    by_path = {handle.path: handle for handle in wanted}
    snapshots: list[_Snapshot] = []
    claimed: dict[str, None] = {}
    for handle in wanted:
        if handle.path in claimed:
            continue
        files = []
        for name, path in _read_index(handle, reader.read(handle)):
            if path not in by_path or path in claimed:
                raise CorruptStateError(
                    f"{handle.path} names {path}, which is not among the restored files, or not once but twice"
                )
            claimed[path] = None
            files.append((name, by_path[path]))
        snapshots.append((handle, files))
    refuse_overlaps([index for index, _ in snapshots])
    return snapshots


def _read_index(handle: StateHandle, content: bytes) -> list[tuple[str, str]]:
    try:
        if content[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"it does not begin with {_MAGIC!r}")
        decoded: _Index = _decode_index(content[len(_MAGIC) :])
        version, files = decoded
        if version != _VERSION:
            raise ValueError(f"it has format version {version}; this release reads version {_VERSION}")
        for name, _ in files:
            if name in ("", ".", "..") or "/" in name:
                raise ValueError(f"{name!r} is not the name of a file")
    except (ValueError, msgspec.MsgspecError) as error:
        raise CorruptStateError(f"{handle.path} is not the index of a RocksDB snapshot: {error}") from error
    return list(files)


def _download(snapshot: _Snapshot, reader: StateReader, target: Path) -> None:
    make_directory(target)
    for name, handle in snapshot[1]:
        # Only table files are linked: RocksDB never changes them, and may well write to the others.
        local = (
            reader.local_file(handle)
            if name.endswith(_TABLE) and isinstance(reader, LocalStateReader)
            else None
        )
        content = reader.read(handle) if local is None else b""
        try:
            if local is None:
                (target / name).write_bytes(content)
            else:
                os.link(local, target / name)
        except OSError as error:
            raise StorageError(f"cannot write {target / name}: {error}") from error


def _drop_foreign_groups(database: Rdict, held: KeyGroupRange, kept: KeyGroupRange) -> None:
    with Failures("write to"):
        if held.start < kept.start:
            database.delete_range(_GROUP.pack(held.start), _GROUP.pack(kept.start))
        if kept.end < held.end:
            database.delete_range(_GROUP.pack(kept.end), _GROUP.pack(held.end))


def _copy_groups(part: Path, database: Rdict, key_groups: KeyGroupRange) -> None:
    source = open_database(part)
    end = _GROUP.pack(key_groups.end)
    try:
        batch = WriteBatch(raw_mode=True)
        with Failures("copy restored state into"):
            for key, value in entries_from(source, _GROUP.pack(key_groups.start)):
                if key >= end:
                    break
                batch.put(key, value)
                if batch.len() >= _BATCH_ENTRIES:
                    database.write(batch)
                    batch = WriteBatch(raw_mode=True)
            database.write(batch)
    finally:
        close_database(source)


def _require_one_file_system(working: Path, checkpoints: Path) -> None:
    if os.stat(working).st_dev != os.stat(checkpoints).st_dev:
        raise JobUsageError(
            f"{checkpoints} is on another file system than RocksDB's directory {working}, so local checkpoints "
            "would be copies instead of hard links (LOC-10); put both on one file system"
        )
