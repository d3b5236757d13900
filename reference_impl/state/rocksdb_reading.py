"""Reads RocksDB snapshots whole into memory, for a store that is only read.

Opening a database to write costs RocksDB twice as much as opening it to read, and a scan of each key group of each
state costs more than one pass over all entries.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.runtime_errors import CorruptStateError
from barrier_tck.reference_impl.state.backend import StateReader, StateScope
from barrier_tck.reference_impl.state.heap import HeapStateStore
from barrier_tck.reference_impl.state.heap_files import Table
from barrier_tck.reference_impl.state.rocksdb_library import close_database, entries_from, open_to_read
from barrier_tck.reference_impl.state.rocksdb_restore import GROUP, Snapshot, download
from barrier_tck.reference_impl.state.working_directory import remove_tree

NAME = struct.Struct(">H")
"""What follows the key group in a key: the length of the state's name."""

_Tables = dict[tuple[str, int], Table]


def store_in_memory(
    scope: StateScope, working: Path, snapshots: Sequence[Snapshot], reader: StateReader
) -> HeapStateStore:
    """Return a store in memory with the snapshots' entries of the scope's key groups; nothing stays open or on disk."""
    store = HeapStateStore(scope)
    for number, snapshot in enumerate(snapshots, 1):
        part = working / f"read-{number}"
        download(snapshot, reader, part)
        for (name, group), table in _tables_in(part, scope.key_groups).items():
            store.adopt(name, group, table)
        remove_tree(part)
    return store


def _tables_in(part: Path, key_groups: KeyGroupRange) -> _Tables:
    tables: _Tables = {}
    database = open_to_read(part)
    try:
        for key, value in entries_from(database, GROUP.pack(key_groups.start)):
            group, name, rest = _split(key)
            if group >= key_groups.end:
                break
            tables.setdefault((name, group), {})[rest] = value
    finally:
        close_database(database)
    return tables


def _split(key: bytes) -> tuple[int, str, bytes]:
    """Return the key group, the name of the state and the rest of a key."""
    try:
        (group,), (length,) = GROUP.unpack_from(key), NAME.unpack_from(key, GROUP.size)
        begin = GROUP.size + NAME.size
        return group, key[begin : begin + length].decode(), key[begin + length :]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptStateError(f"the key {key!r} names no key group and state: {error}") from error
