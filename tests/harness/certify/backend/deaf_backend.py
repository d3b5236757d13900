"""A backend for the suite's own tests: its snapshots cannot be cancelled."""

from __future__ import annotations

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import SnapshotFuture, StateScope, StateWriter
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore


class _DeafSnapshot:
    def __init__(self, inner: SnapshotFuture[tuple[StateHandle, ...]]) -> None:
        self._inner = inner

    @property
    def done(self) -> bool:
        return self._inner.done

    def run(self) -> tuple[StateHandle, ...]:
        return self._inner.run()

    def cancel(self) -> None:
        """Do nothing."""


class _DeafStore(HeapStateStore):
    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        return _DeafSnapshot(super().snapshot(checkpoint, writer))


class Deaf(HeapStateBackend):
    """Ignores every cancel."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return _DeafStore(scope)
