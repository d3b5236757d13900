"""Planted bugs of a state backend with files that it does not write itself, RocksDB (CER-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateReader, StateScope
from barrier_tck.reference_impl.state.rocksdb import RocksDBStateBackend, RocksDBStateStore
from barrier_tck.reference_impl.state.rocksdb_capture import CapturingDatabase
from barrier_tck.reference_impl.state.rocksdb_library import make_directory
from barrier_tck.reference_impl.state.rocksdb_restore import restored_database, snapshots_of


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
