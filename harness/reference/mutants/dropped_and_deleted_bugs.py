"""Planted bugs of state backends in what is cancelled, dropped and deleted (CER-2)."""

from __future__ import annotations

import threading
from typing import ClassVar

from barrier_tck.harness.reference.mutants.held_out_backend_bugs import Handles, Variant
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.state.backend import (
    SharingStateWriter,
    SnapshotFuture,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore, IncrementalHeapStore
from barrier_tck.reference_impl.state.heap_files import CapturedState, Change
from barrier_tck.reference_impl.state.heap_increments import IncrementTask, StoredSnapshot
from barrier_tck.reference_impl.state.heap_write_task import Captured, WriteTask

# --- cancelled and dropped snapshots --------------------------------------------------------------------------


class _OfOneThread:
    """A future whose cursor belongs to the thread that opened it, as in some libraries."""

    def __init__(self, inner: SnapshotFuture[Handles]) -> None:
        self._inner = inner
        self._owner = threading.get_ident()

    @property
    def done(self) -> bool:
        return self._inner.done

    def run(self) -> Handles:
        return self._inner.run()

    def cancel(self) -> None:
        if threading.get_ident() != self._owner:
            raise RuntimeError("a cursor is closed by the thread that opened it")
        self._inner.cancel()


class _CursorStore(HeapStateStore):
    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        return _OfOneThread(super().snapshot(checkpoint, writer))


class CancelsOnItsOwnThread(Variant):
    """SB-21: a snapshot can only be cancelled by the thread that took it."""

    store = _CursorStore


class _CopiesUntilTheEnd:
    """A future that lets its copy of the state go when it has run."""

    def __init__(
        self,
        inner: SnapshotFuture[Handles],
        copies: dict[CheckpointId, list[CapturedState]],
        own: CheckpointId,
    ) -> None:
        self._inner = inner
        self._copies = copies
        self._own = own

    @property
    def done(self) -> bool:
        return self._inner.done

    def run(self) -> Handles:
        try:
            return self._inner.run()
        finally:
            self._copies.pop(self._own, None)

    def cancel(self) -> None:
        self._inner.cancel()


class _CopyingStore(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._copies: dict[CheckpointId, list[CapturedState]] = {}

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        self._copies[checkpoint] = [
            (name, {group: dict(table) for group, table in tables.items()}) for name, tables in self.capture()
        ]
        return _CopiesUntilTheEnd(super().snapshot(checkpoint, writer), self._copies, checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        self._copies.pop(checkpoint, None)


class KeepsCancelledSnapshots(Variant):
    """SB-22: a snapshot that is cancelled and never run is kept in memory."""

    store = _CopyingStore


class _RegisteredStore(HeapStateStore):
    REGISTER: ClassVar[list[object]] = []

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self.REGISTER.append(self._states)


class KeepsClosedStores(Variant):
    """SB-25: the state of a store that was closed stays in a register of all stores."""

    store = _RegisteredStore


# --- many deletions -------------------------------------------------------------------------------------------


class _StaleGroups(HeapStateStore):
    """Writes the content of a key group again if it has any, and takes the last one otherwise."""

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._last: dict[tuple[str, int], dict[bytes, bytes]] = {}

    def capture(self) -> list[CapturedState]:
        captured = []
        for name, tables in super().capture():
            for group, table in tables.items():
                if table:
                    self._last[name, group] = dict(table)
            captured.append(
                (name, {group: self._last.get((name, group), table) for group, table in tables.items()})
            )
        return captured


class KeepsEmptiedGroups(Variant):
    """SB-23: a snapshot has the last entries of a key group that was emptied."""

    store = _StaleGroups


class _FewDeletions(IncrementTask):
    DELETIONS_MAX = 500

    def _changes(self, base: StoredSnapshot) -> list[Change] | None:
        changes = super()._changes(base)
        if changes is None:
            return None
        return [(name, group, entries, gone[: self.DELETIONS_MAX]) for name, group, entries, gone in changes]


class OtherIncrements(IncrementalHeapStore):
    """Base of stores that write increments with a task of their own."""

    task: ClassVar[type[IncrementTask]]

    def write_task(self, checkpoint: CheckpointId, captured: Captured, writer: StateWriter) -> WriteTask:
        if not isinstance(writer, SharingStateWriter):
            return super().write_task(checkpoint, captured, writer)
        version = self._version
        self._log.begin(version)
        planned = self._log.planned(version, checkpoint, writer)
        return self.task(captured, self._slices, self._compression, lambda: self._release(version), planned)


class _FewDeletionsStore(OtherIncrements):
    task = _FewDeletions


class LosesManyDeletions(HeapStateBackend):
    """SB-24: an increment has 500 deletions of a key group at most; what else was deleted comes back."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that loses deletions."""
        return _FewDeletionsStore(scope) if scope.incremental else HeapStateStore(scope)
