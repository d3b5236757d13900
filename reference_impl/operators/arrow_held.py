"""What operators in event time on whole Arrow batches share: keys, watermarks, and how their state gets to the store.

Their state is arrays in memory, whatever the state backend. Entries for the store are made in the asynchronous part of
a snapshot, if the store can wait for them (``state.held``), and before it otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.arrow_keys import Ints, as_int64, bounds_of, columns_of
from barrier_tck.reference_impl.operators.arrow_window_keys import WindowKeys
from barrier_tck.reference_impl.operators.arrow_window_slabs import Pins
from barrier_tck.reference_impl.operators.keyed_process import StoredOperator
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.protocol.watermarks import BEGINNING_OF_TIME, GroupFloor, GroupWatermarks
from barrier_tck.reference_impl.runtime_errors import JobUsageError, ProtocolError
from barrier_tck.reference_impl.state.backend import SnapshotFuture
from barrier_tck.reference_impl.state.held import FrozenState, HoldingStore

_TIME_MAX_MS = 1 << 61
"""No event time is further from the epoch (ms): so what is computed of it has 64 bits."""


class ArrowHolder(StoredOperator, ABC):
    """The common part; it is the ``HeldState`` of its store."""

    def __init__(self, uid: str, plane: DataPlane, names: Sequence[str]) -> None:
        """Take the names of the states."""
        super().__init__(uid, plane)
        self._names = names
        self._watermarks = GroupWatermarks()
        self._keys: WindowKeys | None = None
        self._pins = Pins()
        self._holding: HoldingStore | None = None
        self._written = 0
        """The version whose changes the store has, if it holds nothing."""
        self._write_through = False

    def _open_keys(
        self, context: OperatorContext, restored: OperatorSnapshot | None, key: tuple[str, ...]
    ) -> None:
        """Open the store with the restored files; event time goes on where it stood (REC-1, EVT-1)."""
        self._open_store(context, restored)
        at_ms, floors = BEGINNING_OF_TIME, tuple[GroupFloor, ...]()
        if context.event_time is not None:
            at_ms, floors = context.event_time.at_ms, context.event_time.floors
        self._watermarks = GroupWatermarks(at_ms, floors)
        self._keys = WindowKeys(key, self._watermarks, context.max_parallelism)
        self._write_through = context.write_through

    def _hold(self) -> None:
        """Let the store ask for the state from now on, which has been read, if it can."""
        store = self._opened()[1]
        if isinstance(store, HoldingStore) and not self._write_through:
            self._holding = store
            store.hold(self, self._names)

    def advance_watermark(self, at_ms: int) -> Iterator[Payload]:
        self._watermarks.advance(at_ms)
        return self.fire_due()

    def raise_floor(self, key_groups: KeyGroupRange, at_ms: int) -> Iterator[Payload]:
        self._watermarks.raise_floor(key_groups, at_ms)
        return self.fire_due()

    @abstractmethod
    def fire_due(self) -> Iterator[Payload]:
        """Do what is due at the watermarks of the key groups; yield what is emitted."""

    @abstractmethod
    def freeze(self, version: int) -> FrozenState:
        """Freeze the state for a snapshot."""

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """Do the store's synchronous part (SNP-1)."""
        if self._holding is None:
            self._write()
        return super().snapshot(checkpoint)

    def _changes_since(self) -> int | None:
        """Return since which version changes may be asked for; None: never."""
        return self._written if self._holding is None else self._holding.changes_since

    def _written_through(self) -> None:
        """Write what has changed to the store, if that is to be done after each batch."""
        if self._write_through:
            self._write()

    def _write(self) -> None:
        store, version = self._opened()[1], self._with_keys().version
        frozen = self.freeze(version)
        try:
            for part in frozen.entries(self._written):
                if part.keys:
                    store.put_many(part.name, [part.group] * len(part.keys), part.keys, part.values)
                for key in part.removed:
                    store.delete(part.name, part.group, key)
        finally:
            frozen.release()
        self._written = version  # if the store fails, all of it is written the next time

    def _with_keys(self) -> WindowKeys:
        if self._keys is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._keys


def times_of(payload: Any, column: str, uid: str, error: Callable[[str, str, object], JobUsageError]) -> Ints:
    """Return the event times of a batch (ms); raises what ``error`` makes of name, column and value if one has none."""
    values = columns_of(payload, [column], uid)[0]
    integers = as_int64(values) if not values.null_count else None
    if integers is not None:
        times: Ints = integers.to_numpy()
        if max(map(abs, bounds_of(times))) <= _TIME_MAX_MS:
            return times
    found = next(one for one in values.to_pylist() if type(one) is not int or abs(one) > _TIME_MAX_MS)
    raise error(uid, column, found)
