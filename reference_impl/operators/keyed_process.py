"""A keyed function with state of its own: what ``aggregate`` cannot say, said in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from barrier_tck.reference_impl.errors import ProtocolError
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext
from barrier_tck.reference_impl.operators.encoding import encode_key, group_of_encoded
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, StateHandle
from barrier_tck.reference_impl.runtime.ports import Payload
from barrier_tck.reference_impl.state.backend import KeyedStateStore, SnapshotFuture
from barrier_tck.reference_impl.state.keyed import KeyedStates
from barrier_tck.reference_impl.state.snapshots import CompositeSnapshot

Row = dict[str, Any]


class KeyedFunction(Protocol):
    """A user's function; one instance per subtask and attempt. What it must remember, it keeps in states."""

    def open(self, states: KeyedStates) -> None:
        """Name the states."""

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        """Take a record and return what goes on; ``group`` and ``key`` are for ``NamedState.of``."""


@dataclass(frozen=True, slots=True)
class KeyedProcess:
    """Spec of a keyed function; its input is partitioned by ``key``."""

    uid: str
    key: tuple[str, ...]
    function: Callable[[], KeyedFunction]
    """Makes the function of one subtask; shipped to subtasks."""

    def build(self, plane: DataPlane) -> KeyedProcessOperator:
        """Return the operator."""
        return KeyedProcessOperator(self, plane)


class KeyedProcessOperator:
    """An ``Operator`` around a ``KeyedFunction``, on either plane, a record at a time."""

    def __init__(self, spec: KeyedProcess, plane: DataPlane) -> None:
        """Take the spec and the data plane; nothing is opened yet."""
        self.uid = spec.uid
        self._key = spec.key
        self._plane = plane
        self._function = spec.function()
        self._context: OperatorContext | None = None
        self._store: KeyedStateStore | None = None

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files and let the function name its states (REC-1)."""
        self._context = context
        self._store = context.open_store(self.uid, restored)
        self._function.open(KeyedStates(self._store))

    def process(self, payload: Payload) -> Payload | None:
        """Give every record to the function."""
        return self._plane.flat_map(payload, self._process_row)

    def before_barrier(self, checkpoint: CheckpointId) -> Payload | None:
        """Return None: nothing is held back."""
        return None

    def end_of_input(self) -> Payload | None:
        """Return None: nothing is held back."""
        return None

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """Do the store's synchronous part (SNP-1)."""
        uid = self.uid
        context, store = self._opened()
        future = store.snapshot(checkpoint, context.writers.writer(checkpoint, uid))

        def wrap(results: list[tuple[StateHandle, ...]]) -> OperatorSnapshot:
            return OperatorSnapshot(uid, handles=results[0])

        return CompositeSnapshot([future], wrap)

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """Tell the store; returns False, as nothing is committed here."""
        self._opened()[1].confirm(checkpoint)
        return False

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Tell the store to release what it kept for the checkpoint (COO-2)."""
        self._opened()[1].abort(checkpoint)

    def close(self) -> None:
        """Close the store; harmless before ``open`` and twice."""
        if self._store is not None:
            self._store.close()

    def _process_row(self, row: Row) -> Iterable[Row]:
        context, _ = self._opened()
        key = encode_key(tuple(row[column] for column in self._key))
        return self._function.process(group_of_encoded(key, context.max_parallelism), key, row)

    def _opened(self) -> tuple[OperatorContext, KeyedStateStore]:
        if self._context is None or self._store is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._context, self._store
