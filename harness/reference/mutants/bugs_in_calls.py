"""Planted bugs of state backends in what they do where they must not have threads of their own, as in simulated trials.

The levels contract and crash ask for such stores now and then; trials of the level chaos always do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import StateScope, StateWriter
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore
from barrier_tck.reference_impl.state.heap_files import CapturedState
from barrier_tck.reference_impl.state.heap_write_task import Captured, WriteTask


def _works_in_calls(scope: StateScope) -> bool:
    """Return whether a store does in calls what it would do in threads of its own; one that is only read does not."""
    return not scope.own_threads and not scope.read_only


class _InCalls(HeapStateBackend):
    """The heap backend, with another store where it has no threads of its own."""

    store: type[HeapStateStore]

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return self.store(scope) if _works_in_calls(scope) else HeapStateStore(scope)


class _MergingInPlace(HeapStateStore):
    def capture(self) -> list[CapturedState]:
        return [(name, dict(state.readable)) for name, state in self._states.items()]


class MergesUnderASnapshot(_InCalls):
    """CH-01: writes are merged into the tables in the call, and an unfinished snapshot has them."""

    store = _MergingInPlace


class _Deferring(HeapStateStore):
    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        if not self._outstanding or self._states[name].readable[group].get(key) is None:
            super().put(name, group, key, value)

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        for group, key, value in zip(groups, keys, values, strict=True):
            self.put(name, group, key, value)


class DropsWritesDuringASnapshot(_InCalls):
    """CH-02: an entry that is written over while a snapshot is unfinished keeps its old value."""

    store = _Deferring


class _WithoutItsEnd(WriteTask):
    """Leaves out what is still in the buffer when the file is closed."""

    def cancellable(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return super().cancellable([*chunks][:-1])


class _ClosingEarly(HeapStateStore):
    def write_task(self, checkpoint: CheckpointId, captured: Captured, writer: StateWriter) -> WriteTask:
        version = self._version
        return _WithoutItsEnd(
            captured, writer, self._slices, self._compression, lambda: self._release(version)
        )


class LosesTheEndOfTheFile(_InCalls):
    """CH-03: a file of a snapshot is closed before its buffer is written, and its handle fits what is there."""

    store = _ClosingEarly


class _HandedOutEarly(HeapStateStore):
    def build_on(
        self, scope: StateScope, full: Sequence[StateHandle], increments: Sequence[StateHandle]
    ) -> None:
        for state in self._states.values():
            for group in [*state.readable][-1:]:
                state.readable[group] = {}


class ForgetsAGroupWhenRestored(_InCalls):
    """CH-04: the last key group that was read is not yet in its table when the store is handed out."""

    store = _HandedOutEarly
