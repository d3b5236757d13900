"""A state backend on LMDB: memory-mapped, copy-on-write, with snapshots that are read transactions.

The live database is temporary. A restore always starts from a snapshot in checkpoint storage, so the database is never
synced, and what a dead process leaves of it is never read again. A snapshot is one file: a magic number, batches of
MessagePack records ``[state name, key group, key, value]``, and the number of records. So a truncated file is not a
snapshot.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import tempfile
from collections.abc import Iterator, Sequence
from threading import Lock

import lmdb
import msgspec

from barrier_tck.harness import (
    BatchedStateStore,
    CheckpointId,
    CorruptStateError,
    JobUsageError,
    KeyedStateStore,
    KeyGroupRange,
    SnapshotCancelled,
    SnapshotFuture,
    StateCapability,
    StateHandle,
    StateReader,
    StateScope,
    StateWriter,
)

MAP_BYTES = 1 << 30
"""The most that one store can hold; address space, not memory."""
_PREFIX = struct.Struct(">16sH")
_BATCH_BYTES = 64 * 1024
_MAGIC = b"lmdbsnap"
_COUNT = struct.Struct(">Q")

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, int, bytes, bytes]]).decode


class LmdbStateBackend:
    """Opens stores, each in a temporary directory of its own."""

    @property
    def name(self) -> str:
        """Return ``lmdb``."""
        return "lmdb"

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        """Return what the backend declares."""
        return frozenset({StateCapability.ASYNCHRONOUS_SNAPSHOTS, StateCapability.CONCURRENT_SNAPSHOTS})

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store with the entries of the handles that lie in the scope's key groups."""
        store = LmdbStateStore(scope)
        try:
            for handle in restore:
                if len(handle.key_groups.intersection(scope.key_groups)):
                    store.load(_batches(handle, reader.read(handle)))
        except BaseException:
            store.close()
            raise
        return store


class LmdbStateStore(BatchedStateStore):
    """One LMDB environment. Entries are stored under a hash of (name, group, key), because LMDB's keys are short."""

    def __init__(self, scope: StateScope) -> None:
        """Make an empty environment."""
        self._groups = scope.key_groups
        self._directory = tempfile.mkdtemp(prefix="lmdb-state-")
        # The lock file tells the writer which pages a snapshot still reads; without it they would be reused.
        self._environment = lmdb.open(self._directory, map_size=MAP_BYTES, sync=False, lock=True)
        self._snapshots: dict[CheckpointId, _Snapshot] = {}
        self._closed = False

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""
        with self._begin() as transaction:
            found = transaction.get(self._key(name, group, key))
        return None if found is None else _value(found)

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value."""
        with self._begin(write=True) as transaction:
            transaction.put(self._key(name, group, key), _entry(name, group, key, value))

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set many values in one transaction."""
        if not len(groups) == len(keys) == len(values):
            raise JobUsageError(
                f"{len(groups)} groups, {len(keys)} keys and {len(values)} values do not match in number"
            )
        with self._begin(write=True) as transaction:
            for group, key, value in zip(groups, keys, values, strict=True):
                transaction.put(self._key(name, group, key), _entry(name, group, key, value))

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value; a missing one is not an error."""
        with self._begin(write=True) as transaction:
            transaction.delete(self._key(name, group, key))

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries as they are now."""
        prefix = self._prefix(name, group)
        found = []
        with self._begin() as transaction, transaction.cursor() as cursor:
            positioned = cursor.set_range(prefix)
            while positioned and cursor.key().startswith(prefix):
                _, _, key, value = msgspec.msgpack.decode(cursor.value())
                found.append((key, value))
                positioned = cursor.next()
        return iter(found)

    def load(self, batches: Iterator[list[tuple[str, int, bytes, bytes]]]) -> None:
        """Take restored entries that lie in the store's key groups."""
        with self._begin(write=True) as transaction:
            for batch in batches:
                for name, group, key, value in batch:
                    if group in self._groups:
                        transaction.put(self._key(name, group, key), _entry(name, group, key, value))

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Begin a read transaction: it sees the store as it is now, whatever is written later."""
        snapshot = _Snapshot(self._begin(), writer, self._groups)
        self._snapshots[checkpoint] = snapshot
        return snapshot

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Forget the snapshot."""
        self._snapshots.pop(checkpoint, None)

    def abort(self, checkpoint: CheckpointId) -> None:
        """Cancel the snapshot if it has not ended."""
        snapshot = self._snapshots.pop(checkpoint, None)
        if snapshot is not None:
            snapshot.cancel()

    def close(self) -> None:
        """End all snapshots, close the environment, and remove its directory."""
        if self._closed:
            return
        self._closed = True
        for snapshot in self._snapshots.values():
            snapshot.release()
        self._snapshots.clear()
        self._environment.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _begin(self, write: bool = False) -> lmdb.Transaction:
        if self._closed:
            raise JobUsageError("the state was used after its store was closed")
        return self._environment.begin(write=write)

    def _key(self, name: str, group: int, key: bytes) -> bytes:
        return self._prefix(name, group) + hashlib.blake2b(key, digest_size=32).digest()

    def _prefix(self, name: str, group: int) -> bytes:
        if group not in self._groups:
            raise JobUsageError(f"key group {group} is not in the store's range {self._groups}")
        return _prefix(name, group)


class _Snapshot:
    """A snapshot future with a read transaction. However the future ends, the transaction ends with it."""

    def __init__(self, transaction: lmdb.Transaction, writer: StateWriter, groups: KeyGroupRange) -> None:
        self._transaction: lmdb.Transaction | None = transaction
        self._writer = writer
        self._groups = groups
        self._running = Lock()
        self._cancelled = False
        self.done = False

    def run(self) -> tuple[StateHandle, ...]:
        """Write the file."""
        with self._running:
            try:
                self._require_not_cancelled()
                return (self._writer.write("state", self._chunks(), self._groups),)
            finally:
                self.done = True
                self._end()

    def cancel(self) -> None:
        """Stop a running asynchronous part at its next entry; one that has not begun ends here."""
        self._cancelled = True
        if self._running.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._running.release()

    def release(self) -> None:
        """Stop, and return when the transaction has ended, because its environment is about to be closed."""
        self._cancelled = True
        with self._running:
            self._end()

    def _end(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.abort()

    def _require_not_cancelled(self) -> None:
        if self._cancelled or self._transaction is None:
            raise SnapshotCancelled("the snapshot was cancelled")

    def _chunks(self) -> Iterator[bytes]:
        assert self._transaction is not None
        pending, size, count = [], 0, 0
        yield _MAGIC
        with self._transaction.cursor() as cursor:
            for value in cursor.iternext(keys=False, values=True):
                self._require_not_cancelled()
                pending.append(value)
                size += len(value)
                count += 1
                if size >= _BATCH_BYTES:
                    yield _framed(pending)
                    pending, size = [], 0
        self._require_not_cancelled()
        yield _framed(pending) + _COUNT.pack(count)


def _prefix(name: str, group: int) -> bytes:
    return _PREFIX.pack(hashlib.blake2b(name.encode(), digest_size=16).digest(), group)


def _entry(name: str, group: int, key: bytes, value: bytes) -> bytes:
    return _encode((name, group, key, value))


def _value(entry: bytes) -> bytes:
    found: bytes = msgspec.msgpack.decode(entry)[3]
    return found


def _framed(entries: list[bytes]) -> bytes:
    """Return entries as one MessagePack array with its length in front."""
    body = struct.pack(">BI", 0xDD, len(entries)) + b"".join(entries)
    return struct.pack(">I", len(body)) + body


def _batches(handle: StateHandle, content: bytes) -> Iterator[list[tuple[str, int, bytes, bytes]]]:
    if content[: len(_MAGIC)] != _MAGIC or len(content) < len(_MAGIC) + _COUNT.size:
        raise CorruptStateError(f"{handle.path} is not an LMDB snapshot: it does not begin with {_MAGIC!r}")
    position, end, found = len(_MAGIC), len(content) - _COUNT.size, 0
    try:
        while position < end:
            (length,) = struct.unpack_from(">I", content, position)
            position += 4
            batch = _decode(content[position : position + length])
            position += length
            found += len(batch)
            yield batch
    except (struct.error, msgspec.DecodeError) as error:
        raise CorruptStateError(f"{handle.path} is not an LMDB snapshot: {error}") from error
    (count,) = _COUNT.unpack_from(content, end)
    if (position, found) != (end, count):
        raise CorruptStateError(f"{handle.path} is truncated: it has {found} of {count} records")
