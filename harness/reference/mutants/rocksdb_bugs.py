"""Planted bugs of a state backend with files that it does not write itself, RocksDB (CER-2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateReader, StateScope
from barrier_tck.reference_impl.state.rocksdb import RocksDBStateBackend, RocksDBStateStore
from barrier_tck.reference_impl.state.rocksdb_capture import CapturingDatabase
from barrier_tck.reference_impl.state.rocksdb_library import make_directory
from barrier_tck.reference_impl.state.rocksdb_reading import NAME
from barrier_tck.reference_impl.state.rocksdb_restore import GROUP, restored_database, snapshots_of


class KeepsForeignGroups(RocksDBStateBackend):
    """SB-18: a store keeps key groups above its own of the files from which it is restored, and stores them, too."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore up to the last key group of the first snapshot."""
        assert scope.working_directory is not None
        snapshots = snapshots_of(restore, reader, scope.key_groups)
        if not snapshots:
            return super().open(replace(scope, restored=None), restore, reader)
        working = Path(scope.working_directory)
        checkpoints = working / "checkpoints"
        make_directory(checkpoints)
        end = max(scope.key_groups.end, snapshots[0][0].key_groups.end)
        kept = KeyGroupRange(scope.key_groups.start, end)
        database = restored_database(working, snapshots, reader, kept, scope.own_threads)
        captured = CapturingDatabase(database, own_threads=scope.own_threads)
        return RocksDBStateStore(scope.key_groups, captured, checkpoints)


class _ShortPrefixes(dict[int, bytes]):
    def __init__(self, name: str) -> None:
        super().__init__()
        encoded = name.encode()
        self._end = NAME.pack(len(encoded) & 0xFF) + encoded

    def __missing__(self, group: int) -> bytes:
        prefix = self[group] = GROUP.pack(group) + self._end
        return prefix


class _ShortNamedStore(RocksDBStateStore):
    def _prefixes_of(self, name: str) -> Any:
        return _ShortPrefixes(name)


class ForgetsHowLongNamesAre(RocksDBStateBackend):
    """SB-43: the length of a state's name is kept in one byte, so that a long name may begin with another state's."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store whose names are written in that way."""
        store = super().open(replace(scope, read_only=False), restore, reader)
        store.__class__ = _ShortNamedStore
        return store


class _UnorderedDatabase(CapturingDatabase):
    def entries(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        later = dict(self._later.get(prefix, {})) if self._is_captured() else {}
        stored = super().entries(prefix)
        kept = [(key, value) for key, value in stored if key not in later]
        return iter([*kept, *((key, value) for key, value in sorted(later.items()) if value is not None)])


class ScansLaterWritesLast(RocksDBStateBackend):
    """SB-44: while a snapshot is unfinished, a scan gives what was written since behind all that was there."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store that scans in that way."""
        assert scope.working_directory is not None
        working = Path(scope.working_directory)
        checkpoints = working / "checkpoints"
        make_directory(checkpoints)
        snapshots = snapshots_of(restore, reader, scope.key_groups)
        database = restored_database(working, snapshots, reader, scope.key_groups, scope.own_threads)
        captured = _UnorderedDatabase(database, own_threads=scope.own_threads)
        return RocksDBStateStore(scope.key_groups, captured, checkpoints)
