"""A state backend on SQLite: a snapshot is a read transaction of a connection of its own, in WAL mode.

In this mode of SQLite a reader sees the database as it was when its transaction began, whatever is written meanwhile.
So the synchronous part only begins a transaction, and any number of them can be open at once.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

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
    StorageError,
    refuse_overlaps,
    require_in_range,
)

_MAGIC = b"sqlite-state-1\n"
_BATCH = 500
"""Entries that are written and checked for a cancel together."""
_LENGTHS = struct.Struct(">II")
"""In front of each batch: its length and its checksum. A last batch is empty."""
_TABLE = """
CREATE TABLE entries (
    name BLOB, key_group INTEGER, key BLOB, value BLOB, PRIMARY KEY (name, key_group, key)
) WITHOUT ROWID
"""
Row = tuple[bytes, int, bytes, bytes]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Row]).decode


class SqliteStateBackend:
    """Opens stores. It has no settings, so every subtask can make its own."""

    name = "sqlite"
    capabilities = frozenset(
        {
            StateCapability.ASYNCHRONOUS_SNAPSHOTS,
            StateCapability.CONCURRENT_SNAPSHOTS,
            StateCapability.ORDERED_SCAN,
            StateCapability.LOCAL_FILES,
            StateCapability.DETERMINISTIC_FILES,
        }
    )

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store with the entries that lie in the scope's key groups."""
        wanted = [handle for handle in restore if len(handle.key_groups.intersection(scope.key_groups))]
        refuse_overlaps(wanted)
        store = SqliteStateStore(scope)
        try:
            for handle in wanted:
                store.load(_rows(handle, reader.read(handle)))
        except BaseException:
            store.close()
            raise
        return store


class SqliteStateStore(BatchedStateStore):
    """One database file in the store's own directory; ``get_many`` comes from the base."""

    def __init__(self, scope: StateScope) -> None:
        """Make an empty database."""
        assert scope.working_directory is not None, "LOCAL_FILES is declared"
        self._groups = scope.key_groups
        self._path = str(Path(scope.working_directory) / "state.sqlite")
        self._connection: sqlite3.Connection | None = _connected(self._path)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = OFF")  # what the process leaves is never read
        self._connection.execute(_TABLE)
        self._snapshots: dict[CheckpointId, _Snapshot] = {}

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""
        query = "SELECT value FROM entries WHERE name = ? AND key_group = ? AND key = ?"
        rows = self._execute(query, (self._place(name, group), group, key))
        return rows[0][0] if rows else None

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value."""
        self._execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)",
            (self._place(name, group), group, key, value),
        )

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set many values in one transaction."""
        if not len(groups) == len(keys) == len(values):
            raise JobUsageError(
                f"{len(groups)} groups, {len(keys)} keys and {len(values)} values do not match"
            )
        self.load(
            (self._place(name, group), group, key, value)
            for group, key, value in zip(groups, keys, values, strict=True)
        )

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value; a missing one is not an error."""
        query = "DELETE FROM entries WHERE name = ? AND key_group = ? AND key = ?"
        self._execute(query, (self._place(name, group), group, key))

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries as they are now, in ascending order of their keys."""
        query = "SELECT key, value FROM entries WHERE name = ? AND key_group = ? ORDER BY key"
        return iter(self._execute(query, (self._place(name, group), group)))

    def load(self, rows: Iterator[Row]) -> None:
        """Write those rows that lie in the store's key groups, all or none."""
        connection = self._opened()
        own = (row for row in rows if row[1] in self._groups)
        try:
            connection.execute("BEGIN")
            try:
                connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", own)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(f"SQLite could not write {self._path}: {error}") from error

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Begin a read transaction: it sees the database as it is now (SNP-1)."""
        self._opened()
        snapshot = _Snapshot(_connected(self._path), writer, self._groups)
        # Those that have ended hold nothing, so nobody has to be told of them any more.
        self._snapshots = {number: one for number, one in self._snapshots.items() if not one.ended}
        self._snapshots[checkpoint] = snapshot
        return snapshot

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Do nothing: what has ended holds nothing."""

    def abort(self, checkpoint: CheckpointId) -> None:
        """Cancel the snapshot if it has not ended."""
        snapshot = self._snapshots.pop(checkpoint, None)
        if snapshot is not None:
            snapshot.cancel()

    def close(self) -> None:
        """Cancel what is unfinished, and close the database; closing twice is harmless."""
        for snapshot in self._snapshots.values():
            snapshot.cancel()
        self._snapshots.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _execute(self, query: str, values: tuple[object, ...]) -> list[tuple[bytes, ...]]:
        try:
            return self._opened().execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StorageError(f"SQLite could not use {self._path}: {error}") from error

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise JobUsageError("the state was used after its store was closed")
        return self._connection

    def _place(self, name: str, group: int) -> bytes:
        """Return the name as bytes, which SQLite compares as they are; raises JobUsageError for a foreign group."""
        require_in_range(group, self._groups)
        return name.encode()


class _Snapshot:
    """A snapshot future with a read transaction. However the future ends, the transaction ends with it."""

    def __init__(self, connection: sqlite3.Connection, writer: StateWriter, groups: KeyGroupRange) -> None:
        self._connection = connection
        self._connection.execute("BEGIN")
        # The transaction begins with the first read, not with BEGIN.
        self._connection.execute("SELECT 1 FROM entries LIMIT 1").fetchall()
        self._writer = writer
        self._groups = groups
        self._running = Lock()
        self._cancelled = False
        self.done = False
        self.ended = False

    def run(self) -> tuple[StateHandle, ...]:
        """Write the file."""
        with self._running:
            try:
                self._require_not_cancelled()
                return (self._writer.write("state", self._chunks(), self._groups),)
            except sqlite3.Error as error:
                raise StorageError(f"SQLite could not read a snapshot: {error}") from error
            finally:
                self.done = True
                self._end()

    def cancel(self) -> None:
        """Stop a running asynchronous part at its next batch; one that has not begun ends here."""
        self._cancelled = True
        if self._running.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._running.release()

    def _end(self) -> None:
        self.ended = True
        self._connection.close()

    def _require_not_cancelled(self) -> None:
        if self._cancelled or self.ended:
            raise SnapshotCancelled("the snapshot was cancelled")

    def _chunks(self) -> Iterator[bytes]:
        yield _MAGIC
        cursor = self._connection.execute("SELECT * FROM entries ORDER BY name, key_group, key")
        while rows := cursor.fetchmany(_BATCH):
            self._require_not_cancelled()
            yield _framed(rows)
        yield _framed([])


def _connected(path: str) -> sqlite3.Connection:
    # A snapshot is taken by one thread and run or cancelled by another one, never by two at once.
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _framed(rows: list[Row]) -> bytes:
    body = _encode(rows)
    return _LENGTHS.pack(len(body), zlib.crc32(body)) + body


def _rows(handle: StateHandle, content: bytes) -> Iterator[Row]:
    """Yield the entries of a file; raises CorruptStateError if it is none of ours, or ends too early."""
    position, more = len(_MAGIC), True
    try:
        if content[:position] != _MAGIC:
            raise ValueError(f"it does not begin with {_MAGIC!r}")
        while more:
            length, checksum = _LENGTHS.unpack_from(content, position)
            position += _LENGTHS.size
            body = content[position : position + length]
            position += length
            if zlib.crc32(body) != checksum:
                raise ValueError("a checksum is wrong")
            rows = _decode(body)
            yield from rows
            more = bool(rows)
        if position != len(content):
            raise ValueError("something follows its end")
    except (ValueError, struct.error, msgspec.DecodeError) as error:
        raise CorruptStateError(f"{handle.path} is not a snapshot of SQLite: {error}") from error
