"""Planted bugs of state backends; a third party could have handed in each of these backends (CER-2)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SnapshotFuture,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore, IncrementalHeapStore
from barrier_tck.reference_impl.state.heap_files import CapturedState, read_snapshot, serialised
from barrier_tck.reference_impl.state.heap_increments import StoredSnapshot
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot

__all__ = [
    "BuildsOnOtherRanges",
    "CutsLongKeys",
    "HalvesTheRange",
    "IgnoresFailedWrites",
    "KeepsFailedSnapshots",
    "LosesOneOfTwoStates",
    "ReleasesTwice",
    "RunsAfterCancel",
    "SnapshotsLiveTables",
]


class _LiveStore(HeapStateStore):
    """BE-01: the asynchronous part reads the live tables."""

    def capture(self) -> list[CapturedState]:
        return [(name, dict(state.readable)) for name, state in self._states.items()]


class SnapshotsLiveTables(HeapStateBackend):
    """BE-01: the synchronous part copies only references, and writes continue in place."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store without copy-on-write."""
        return _LiveStore(scope)


class BuildsOnOtherRanges(HeapStateBackend):
    """IN-15: increments build on whatever was restored, also on what stores with other key groups wrote."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that takes any files for its own chain."""
        return _TrustingStore(scope) if scope.incremental else HeapStateStore(scope)


class _TrustingStore(IncrementalHeapStore):
    def build_on(
        self, scope: StateScope, full: Sequence[StateHandle], increments: Sequence[StateHandle]
    ) -> None:
        newest = max((handle.shared for handle in (*full, *increments)), default=0)
        if newest:
            handles = (*full, *increments)
            self._log.build_on(StoredSnapshot(0, CheckpointId(newest), handles, len(increments)))


class CutsLongKeys(HeapStateBackend):
    """BE-keys: keys are cut at the length that some engines allow."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store in which long keys with the same beginning are one key."""
        return _CuttingStore(scope)


class _CuttingStore(HeapStateStore):
    LONGEST = 511

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        return super().get(name, group, key[: self.LONGEST])

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        super().put(name, group, key[: self.LONGEST], value)

    def delete(self, name: str, group: int, key: bytes) -> None:
        super().delete(name, group, key[: self.LONGEST])

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        return super().get_many(name, groups, [key[: self.LONGEST] for key in keys])

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        super().put_many(name, groups, [key[: self.LONGEST] for key in keys], values)


class IgnoresFailedWrites(HeapStateBackend):
    """BE-06: one file per state, and only those whose write succeeded are counted."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return _OptimisticStore(scope)

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore from several files that share key groups."""
        store = self.new_store(scope)
        for handle in restore:
            if len(handle.key_groups.intersection(scope.key_groups)):
                for name, group, table in read_snapshot(handle, reader.read(handle), scope.key_groups):
                    store.adopt(name, group, table)
        return store


class _OptimisticStore(HeapStateStore):
    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        captured = [(name, {g: dict(t) for g, t in tables.items()}) for name, tables in self.capture()]

        def write_all() -> tuple[StateHandle, ...]:
            handles = []
            for number, state in enumerate(captured):
                with contextlib.suppress(StorageError):
                    handles.append(writer.write(f"state-{number}", serialised([state]), self._key_groups))
            return tuple(handles)

        return DeferredSnapshot(write_all)


class KeepsFailedSnapshots(HeapStateBackend):
    """BE-07: versions are released as a by-product of success; a failed snapshot pins its tables for ever."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that never forgets a failed snapshot."""
        return _HoardingStore(scope)


class _HoardingStore(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._registered: dict[CheckpointId, list[CapturedState]] = {}

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        inner = super().snapshot(checkpoint, writer)
        self._registered[checkpoint] = [
            (name, {group: dict(table) for group, table in state.readable.items()})
            for name, state in self._states.items()
        ]

        def write() -> tuple[StateHandle, ...]:
            handles = inner.run()
            del self._registered[checkpoint]
            return handles

        return DeferredSnapshot(write, inner.cancel)


class ReleasesTwice(HeapStateBackend):
    """BE-07: pins are a counter, and a snapshot that fails and is then aborted is released twice."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that miscounts."""
        return _MiscountingStore(scope)


class _MiscountingStore(HeapStateStore):
    """Copies on write only while the count of running snapshots is above zero."""

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._count = 0

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        self._count += 1
        inner = super().snapshot(checkpoint, writer)

        def write() -> tuple[StateHandle, ...]:
            try:
                return inner.run()
            finally:
                self._count -= 1

        if self._count <= 0:
            self._pins.clear()
        return DeferredSnapshot(write, inner.cancel)

    def abort(self, checkpoint: CheckpointId) -> None:
        self._count -= 1
        super().abort(checkpoint)


class LosesOneOfTwoStates(HeapStateBackend):
    """BE-03: of several restored files only the first one's states are registered."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Skip states that the first handle does not have."""
        store = self.new_store(scope)
        known: list[str] | None = None
        for handle in restore:
            tables = list(read_snapshot(handle, reader.read(handle), scope.key_groups))
            names = [name for name, _, _ in tables]
            for name, group, table in tables:
                if known is None or name in known:
                    store.adopt(name, group, table)
            known = names if known is None else known
        return store


class HalvesTheRange(HeapStateBackend):
    """FLINK-21650: the last key group of the range is not restored."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore everything except the last key group."""
        last = KeyGroupRange(scope.key_groups.start, max(scope.key_groups.start, scope.key_groups.end - 1))
        store = self.new_store(scope)
        for handle in restore:
            if len(handle.key_groups.intersection(last)):
                for name, group, table in read_snapshot(handle, reader.read(handle), last):
                    store.adopt(name, group, table)
        return store


class RunsAfterCancel(HeapStateBackend):
    """A cancelled asynchronous part fails with an error of its own, as if storage had broken."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store whose cancelled futures fail."""
        return _StubbornStore(scope)


class _StubbornStore(HeapStateStore):
    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        inner = super().snapshot(checkpoint, writer)
        cancelled: list[bool] = []

        def write() -> tuple[StateHandle, ...]:
            if cancelled:
                raise RuntimeError("generator already closed")
            return inner.run()

        return _Stubborn(write, cancelled)


class _Stubborn:
    """A future that notes that it was cancelled, and then fails because of it."""

    done = False

    def __init__(self, function: Callable[[], tuple[StateHandle, ...]], cancelled: list[bool]) -> None:
        self._function = function
        self._cancelled = cancelled

    def run(self) -> tuple[StateHandle, ...]:
        return self._function()

    def cancel(self) -> None:
        self._cancelled.append(True)
