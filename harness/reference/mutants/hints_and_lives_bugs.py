"""Planted bugs of state backends that depend on a hint of the scope, on the life before, or on an exact size (CER-2).

Those of one store's methods do not declare increments, which the store does not write.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from barrier_tck.harness.reference.mutants.held_out_backend_bugs import Handles, Variant
from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SnapshotFuture,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
    TwoFormatStateWriter,
)
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore, IncrementalHeapStore
from barrier_tck.reference_impl.state.heap_files import CapturedState, serialised
from barrier_tck.reference_impl.state.heap_write_task import slices_of
from barrier_tck.reference_impl.state.snapshots import FinishedSnapshot, MappedSnapshot


class _Plain(Variant):
    @property
    def capabilities(self) -> frozenset[StateCapability]:
        return super().capabilities - {StateCapability.INCREMENTAL_SNAPSHOTS}


# --- hints ----------------------------------------------------------------------------------------------------


class _CompressedLater(HeapStateStore):
    def capture(self) -> list[CapturedState]:
        if self._compression is Compression.NONE:
            return super().capture()
        return [(name, dict(state.readable)) for name, state in self._states.items()]


class CompressesLiveTables(_Plain):
    """SB-36: with compression, the asynchronous part of a snapshot compresses the tables as they are by then."""

    store = _CompressedLater


class _OneBufferStore(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._buffer: list[tuple[bytes, bytes]] = []

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        self._buffer = list(super().scan(name, group))
        return self._read()

    def _read(self) -> Iterator[tuple[bytes, bytes]]:
        place = 0
        while place < len(self._buffer):
            yield self._buffer[place]
            place += 1


class ScansIntoOneBuffer(_Plain):
    """SB-49: a scan that begins while another one is read gives its own entries to that one."""

    store = _OneBufferStore


class _UnfencedStore(HeapStateStore):
    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        with self._pin_lock:
            self._pins.clear()


class ForgetsOthersOnAbort(_Plain):
    """SB-47: an abort of any checkpoint ends the protection of all unfinished snapshots from later writes."""

    store = _UnfencedStore


class _EagerStore(IncrementalHeapStore):
    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        def believed(handles: Handles) -> Handles:
            self.confirm(checkpoint)
            return handles

        return MappedSnapshot(super().snapshot(checkpoint, writer), believed)


class BuildsOnWhatIsStored(HeapStateBackend):
    """SB-48: an increment builds on the newest snapshot that was stored, confirmed or not."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that confirms its snapshots itself."""
        return _EagerStore(scope) if scope.incremental else super().new_store(scope)


class _LiveAgain:
    """A writer that takes what the store holds by now for the second copy."""

    def __init__(self, inner: TwoFormatStateWriter, live: Callable[[], list[CapturedState]]) -> None:
        self._inner = inner
        self._live = live

    @property
    def second_compression(self) -> Compression | None:
        return self._inner.second_compression

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        return self._inner.write(name, chunks, key_groups)

    def write_twice(
        self, name: str, chunks: Iterable[bytes], second: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        now = [
            (state, {group: table for group, table in tables.items() if group in key_groups})
            for state, tables in self._live()
        ]
        again = serialised(now, self.second_compression or Compression.NONE)
        return self._inner.write_twice(name, chunks, again, key_groups)


class _CopiedLater(HeapStateStore):
    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        if isinstance(writer, TwoFormatStateWriter):
            writer = _LiveAgain(writer, self._live)
        return super().snapshot(checkpoint, writer)

    def _live(self) -> list[CapturedState]:
        return [(name, dict(state.readable)) for name, state in self._states.items()]


class CopiesLiveTables(_Plain):
    """SB-46: a second copy in another format is made of the tables as they are by then."""

    store = _CopiedLater


class ReadsTheFirstFile(HeapStateBackend):
    """SB-37: a store that will only be read is restored from the first of several files."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore, in the cheaper way if nothing will be written."""
        return super().open(scope, restore[:1] if scope.read_only else restore, reader)


class _IndexedStore(HeapStateStore):
    """Remembers the writer of its newest snapshot, through which a file can be written."""

    writers: ClassVar[dict[tuple[str, int], StateWriter]] = {}

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self.owner = scope.operator, scope.subtask_index

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        self.writers[self.owner] = writer
        return super().snapshot(checkpoint, writer)

    def index(self) -> None:
        """Write an index of the newest snapshot, once."""
        writer = self.writers.pop(self.owner, None)
        if writer is not None:
            writer.write("index", [b"of what is read"], self._key_groups)


class WritesAnIndexToRead(_Plain):
    """SB-42: a store that will only be read writes an index into the storage."""

    store = _IndexedStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore, and write the index."""
        store = super().open(scope, restore, reader)
        if scope.read_only and isinstance(store, _IndexedStore):
            store.index()
        return store


class _MergingStore(HeapStateStore):
    """Has two files of what was written lately, and one of what has rested for a while."""

    REST_S = 0.02

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._merged, self._lately = slices_of(scope.key_groups, 1), slices_of(scope.key_groups, 2)
        self._timer: threading.Timer | None = None

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        super().put_many(name, groups, keys, values)
        self._rest()
        self._slices = self._lately
        self._timer = threading.Timer(self.REST_S, self._merge)
        self._timer.daemon = True
        self._timer.start()

    def _merge(self) -> None:
        self._slices = self._merged

    def _rest(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()

    def close(self) -> None:
        super().close()
        self._rest()


class MergesBetweenCalls(_Plain):
    """SB-38: files are merged by a thread, also if the store may have none."""

    store = _MergingStore

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        return super().capabilities - {StateCapability.DETERMINISTIC_FILES}


# --- the life before ------------------------------------------------------------------------------------------

_Owner = tuple[str, str, str, int]
"""Job, vertex, operator and subtask of a store."""
_Tables = dict[tuple[str, int], dict[bytes, bytes]]


class _CachedStore(HeapStateStore):
    """Writes each snapshot at once. Aborts let a cache of what was written last grow stale."""

    STALE_AFTER = 4
    caches: ClassVar[dict[_Owner, _Tables]] = {}

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._owner = scope.job, scope.vertex, scope.operator, scope.subtask_index
        self._aborted = 0
        self._written: _Tables = {}

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        future = super().snapshot(checkpoint, writer)
        self._written = {
            (name, group): dict(table)
            for name, state in self._states.items()
            for group, table in state.readable.items()
        }
        return FinishedSnapshot(future.run())

    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        self._aborted += 1

    def close(self) -> None:
        super().close()
        if self._aborted >= self.STALE_AFTER:
            self.caches[self._owner] = self._written

    def revive(self) -> None:
        """Take from the cache what is not there."""
        for (name, group), table in self.caches.get(self._owner, {}).items():
            if group in self._key_groups:
                self.amend(name, group, {**table, **self._states[name].readable[group]}, ())


class RevivesAfterManyAborts(HeapStateBackend):
    """SB-39: after a life with four aborted snapshots, what was deleted since an older snapshot is there again."""

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        return frozenset()

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore; nothing is cached for a new state."""
        store = super().open(scope, restore, reader)
        assert isinstance(store, _CachedStore)
        if restore:
            store.revive()
        store.caches.pop((scope.job, scope.vertex, scope.operator, scope.subtask_index), None)
        return store

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return _CachedStore(scope)


# --- sizes ----------------------------------------------------------------------------------------------------


class _PagedStore(HeapStateStore):
    PAGE_BYTES = 8_192

    def capture(self) -> list[CapturedState]:
        return [
            (
                name,
                {
                    group: {key: value for key, value in table.items() if len(key) != self.PAGE_BYTES}
                    for group, table in tables.items()
                },
            )
            for name, tables in super().capture()
        ]


class LosesKeysOfAPage(_Plain):
    """SB-40: a snapshot loses keys of exactly 8,192 bytes."""

    store = _PagedStore


class _BufferedStore(HeapStateStore):
    BUFFER_BYTES = 1 << 15

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        super().put_many(
            *(name, groups, keys),
            [value[:-1] if len(value) == self.BUFFER_BYTES else value for value in values],
        )


class CutsValuesOfABuffer(_Plain):
    """SB-41: writing several values cuts those of exactly 32,768 bytes by one."""

    store = _BufferedStore


# --- a restore that fails -------------------------------------------------------------------------------------


class _Reads:
    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self.failed = False

    def read(self, handle: StateHandle) -> bytes:
        self.failed = True
        content = self._reader.read(handle)
        self.failed = False
        return content


class StaysOpenIfTheReaderFails(HeapStateBackend):
    """SB-50: if the reader cannot read a file, what was opened before stays open."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        opened, reads = os.open(os.devnull, os.O_RDONLY), _Reads(reader)
        try:
            return super().open(scope, restore, reads)
        finally:
            if not reads.failed:
                os.close(opened)


# --- stores side by side --------------------------------------------------------------------------------------

_OPEN_BY_NAME: dict[str, Any] = {}
_OPENED: Counter[tuple[str, str, str, int]] = Counter()
"""How many stores of a place were opened: two of one and the same place do not meet."""


class _NamedStore(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        place = scope.job, scope.vertex, scope.operator, scope.subtask_index
        self._name = "-".join(map(str, (*place, _OPENED[place])))
        _OPENED[place] += 1
        self._states = _OPEN_BY_NAME.setdefault(self._name, self._states)

    def close(self) -> None:
        super().close()
        _OPEN_BY_NAME.pop(self._name, None)


class MeetsByJoinedNames(Variant):
    """SB-51: stores whose names of job, vertex and operator give the same text when joined share their tables."""

    store = _NamedStore


# --- whole batches, and values that come again ----------------------------------------------------------------


class _BatchStore(HeapStateStore):
    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        if len(keys) < 256:
            super().put_many(name, groups, keys, values)
            return
        for group, key, value in zip(groups, keys, values, strict=True):
            self._states[name].readable[group][key] = value


class WritesLargeBatchesInPlace(_Plain):
    """SB-52: a call that writes 256 entries or more writes into the tables that unfinished snapshots hold."""

    store = _BatchStore


class _FirstValuesStore(IncrementalHeapStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._first: dict[tuple[str, int, bytes], bytes] = {}

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        HeapStateStore.put_many(self, name, groups, keys, values)
        for group, key, value in zip(groups, keys, values, strict=True):
            if self._first.get((name, group, key)) != value:
                self._log.note(name, group, key)
            self._first.setdefault((name, group, key), value)


class ForgetsValuesThatComeAgain(HeapStateBackend):
    """SB-53: an increment leaves out entries whose value is the one that they had at first."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that remembers the first value of each key."""
        return _FirstValuesStore(scope) if scope.incremental else super().new_store(scope)
