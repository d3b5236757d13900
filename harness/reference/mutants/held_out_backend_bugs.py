"""Planted bugs of state backends that an earlier suite certified, and similar ones (CER-2). None appears with small
state and sequential calls in one process. Each needs something more: another form of read, a larger size, threads
that run freely, another process, or a file that no snapshot wrote.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import (
    SnapshotFuture,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.checks import require_in_range
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore, IncrementalHeapStore
from barrier_tck.reference_impl.state.heap_files import CapturedState, Table
from barrier_tck.reference_impl.state.heap_increments import EPOCHS_MAX, ChangeLog, StoredSnapshot
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot

Handles = tuple[StateHandle, ...]
Place = tuple[str, int, bytes]


class Variant(HeapStateBackend):
    """The heap backend with another store."""

    store: type[HeapStateStore]

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return self.store(scope)


# --- reads --------------------------------------------------------------------------------------------------


class _StaleStore(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._cache: dict[Place, bytes | None] = {}

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        if (name, group, key) not in self._cache:
            self._cache[name, group, key] = super().get(name, group, key)
        return self._cache[name, group, key]

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        super().put(name, group, key, value)
        self._cache.pop((name, group, key), None)

    def delete(self, name: str, group: int, key: bytes) -> None:
        super().delete(name, group, key)
        self._cache.pop((name, group, key), None)


class ReadsStaleValues(Variant):
    """SB-01: writing several values bypasses the cache that reading a single value fills."""

    store = _StaleStore


class _SkippingStore(HeapStateStore):
    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        entries = list(super().scan(name, group))
        return iter([entry for number, entry in enumerate(entries, 1) if number % 10_000])


class SkipsInLongScans(Variant):
    """SB-07: a scan skips the first entry of each page but the first."""

    store = _SkippingStore


class _FoldingStore(HeapStateStore):
    """Keeps only ten bits of the key group."""

    BITS = 0x3FF

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._own = scope.key_groups

    def _folded(self, group: int) -> int:
        require_in_range(group, self._own)
        folded = group & self.BITS
        return folded if folded in self._own else group

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        return super().get(name, self._folded(group), key)

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        super().put(name, self._folded(group), key, value)

    def delete(self, name: str, group: int, key: bytes) -> None:
        super().delete(name, self._folded(group), key)

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        return super().scan(name, self._folded(group))

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        return super().get_many(name, [self._folded(group) for group in groups], keys)

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        super().put_many(name, [self._folded(group) for group in groups], keys, values)


class FoldsKeyGroups(Variant):
    """SB-06: key groups above 1,023 collide with smaller ones."""

    store = _FoldingStore


# --- what is written ----------------------------------------------------------------------------------------


class _ForgettingLongKeys(HeapStateStore):
    def capture(self) -> list[CapturedState]:
        return [
            (name, {g: {k: v for k, v in table.items() if len(k) <= 100_000} for g, table in tables.items()})
            for name, tables in super().capture()
        ]


class LosesLongKeys(Variant):
    """SB-02: a snapshot loses keys longer than 100 kB."""

    store = _ForgettingLongKeys


class _CuttingLargeValues(HeapStateStore):
    def capture(self) -> list[CapturedState]:
        return [
            (name, {g: {k: v[: 1 << 20] for k, v in table.items()} for g, table in tables.items()})
            for name, tables in super().capture()
        ]


class CutsLargeValues(Variant):
    """SB-02-values: a snapshot cuts values at 1 MiB."""

    store = _CuttingLargeValues


class _KeepsDescriptors(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._open_files: list[int] = []

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        self._open_files.append(os.open(os.devnull, os.O_RDONLY))
        return super().snapshot(checkpoint, writer)

    def close(self) -> None:
        while self._open_files:
            os.close(self._open_files.pop())
        super().close()


class KeepsDescriptors(Variant):
    """SB-09: each snapshot keeps a file descriptor until the store is closed."""

    store = _KeepsDescriptors


class _KeepsSnapshots(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._history: list[list[CapturedState]] = []

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        captured = [(name, {g: dict(t) for g, t in tables.items()}) for name, tables in self.capture()]
        inner = super().snapshot(checkpoint, writer)

        def write() -> Handles:
            handles = inner.run()
            self._history.append(captured)
            return handles

        return DeferredSnapshot(write, inner.cancel)


class KeepsSnapshots(Variant):
    """SB-12: every snapshot that succeeded is kept in memory."""

    store = _KeepsSnapshots


# --- boundaries ---------------------------------------------------------------------------------------------


class _ShortIdStore(HeapStateStore):
    """Knows snapshots by the low 16 bits of their id."""

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._number = 0
        self._known: dict[int, list[CapturedState]] = {}

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        self._number = checkpoint & 0xFFFF
        return super().snapshot(checkpoint, writer)

    def capture(self) -> list[CapturedState]:
        captured = super().capture()
        copied = [
            (name, {group: dict(table) for group, table in tables.items()}) for name, tables in captured
        ]
        return self._known.setdefault(self._number, copied)


class NumbersInTwoBytes(Variant):
    """SB-14: a snapshot whose id is known, as far as two bytes can tell, is taken for a repetition."""

    store = _ShortIdStore


class _CountingStore(HeapStateStore):
    """Counts its snapshots in one byte; when the count has wrapped, a table looks newer than every snapshot."""

    _taken = 0

    def writable_copy(self, state: Any, group: int) -> Table:
        table: Table | None = state.readable.get(group)
        if self._taken > 0xFF and table is not None:
            return table
        return super().writable_copy(state, group)

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        self._taken += 1
        return super().snapshot(checkpoint, writer)


class CountsInOneByte(Variant):
    """SB-15: after 255 snapshots, tables are not copied before they are written; later snapshots are not isolated."""

    store = _CountingStore


class _SkippingWritesStore(HeapStateStore):
    """Does not write what it takes for unchanged."""

    COMPARED = 16

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        old = super().get(name, group, key)
        if old is None or len(old) != len(value) or old[: self.COMPARED] != value[: self.COMPARED]:
            super().put(name, group, key, value)

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        for group, key, value in zip(groups, keys, values, strict=True):
            self.put(name, group, key, value)


class ComparesTheBeginning(Variant):
    """SB-16: a value with the length and the first bytes of the old one is not written."""

    store = _SkippingWritesStore


# --- increments ----------------------------------------------------------------------------


class _ForgetfulLog(ChangeLog):
    """Keeps apart what changed before each of the newest 64 snapshots, and nothing of older ones."""

    def begin(self, version: int) -> None:
        super().begin(version)
        if version > EPOCHS_MAX:
            self._epochs.pop(min(self._epochs), None)


class _ForgetfulStore(IncrementalHeapStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._log = _ForgetfulLog()


class ForgetsOldChanges(HeapStateBackend):
    """SB-17: what changed before 64 snapshots that failed is missing in the next increment."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that remembers so much only."""
        return _ForgetfulStore(scope) if scope.incremental else HeapStateStore(scope)


class _RegressingLog(ChangeLog):
    """Offers whatever was stored as a base, although what changed before the newest base is forgotten."""

    def stored(self, snapshot: StoredSnapshot) -> None:
        self._stored[snapshot.version] = snapshot


class _RegressingStore(IncrementalHeapStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._log = _RegressingLog()


class GoesBackToAnOlderBase(HeapStateBackend):
    """SB-19: a snapshot that ends and is confirmed after a newer one becomes the base of the next increment."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store whose increments may build on an older snapshot than before."""
        return _RegressingStore(scope) if scope.incremental else HeapStateStore(scope)


# --- several unfinished snapshots -------------------------------------------------------------------------


class _SubsumingStore(HeapStateStore):
    def _release(self, version: int) -> None:
        with self._pin_lock:
            self._pins = {number: None for number in self._pins if number > version}
        self._outstanding.pop(version, None)


class ReleasesOlderOnes(Variant):
    """SB-20: when a snapshot ends, older ones that are unfinished are not isolated any more."""

    store = _SubsumingStore
