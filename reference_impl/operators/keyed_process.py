"""Keyed functions with states of their own, over one input or several: what ``aggregate`` cannot express."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.encoding import encode_key, group_of_encoded
from barrier_tck.reference_impl.operators.functions import PerSubtask, Row, function_at, missing_column
from barrier_tck.reference_impl.operators.stateless import flat_mapped
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, StateHandle
from barrier_tck.reference_impl.runtime_errors import JobUsageError, ProtocolError
from barrier_tck.reference_impl.state.backend import KeyedStateStore, SnapshotFuture
from barrier_tck.reference_impl.state.keyed import KeyedStates
from barrier_tck.reference_impl.state.snapshots import MappedSnapshot

TIMERS = "~timers"
"""Name of the state that holds the timers of each key (``timed_process``): their times, in order."""


class KeyedFunction(Protocol):
    """A user's function; one instance per subtask and attempt. What it must remember, it keeps in states."""

    def open(self, states: KeyedStates) -> None:
        """Name the states."""

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        """Take a record and return what is passed on; ``group`` and ``key`` are for ``NamedState.of``."""


class KeyedCoFunction(Protocol):
    """A user's function over several inputs, which share its states: equal keys of all inputs meet in one subtask."""

    def open(self, states: KeyedStates) -> None:
        """Name the states."""

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Take a record of an input and return what is passed on; ``group`` and ``key`` are for ``NamedState.of``."""


@dataclass(frozen=True, slots=True)
class KeyedProcess:
    """Spec of a keyed function; its input is partitioned by ``key``."""

    inputs: ClassVar[int] = 1
    keeps_state: ClassVar[bool] = True
    uid: str
    key: tuple[str, ...]
    function: Callable[[], KeyedFunction] | PerSubtask
    """Makes the function of one subtask; shipped to subtasks."""

    def build(self, plane: DataPlane) -> KeyedProcessOperator:
        return KeyedProcessOperator(self.uid, (self.key,), self.function, plane)


@dataclass(frozen=True, slots=True)
class KeyedCoProcess:
    """Spec of a keyed function over several inputs; input i is partitioned by ``keys[i]``."""

    keeps_state: ClassVar[bool] = True
    uid: str
    keys: tuple[tuple[str, ...], ...]
    """The key columns of each input. Their names may differ, but not their number."""
    function: Callable[[], KeyedCoFunction] | PerSubtask
    """Makes the function of one subtask; shipped to subtasks."""

    def __post_init__(self) -> None:
        require_joinable(self.uid, self.keys)

    @property
    def inputs(self) -> int:
        return len(self.keys)

    def build(self, plane: DataPlane) -> KeyedCoProcessOperator:
        return KeyedCoProcessOperator(self.uid, self.keys, self.function, plane)


def require_joinable(uid: str, keys: tuple[tuple[str, ...], ...]) -> None:
    """Raise JobUsageError unless there are two inputs or more, with equally many key columns each."""
    if len(keys) < 2:
        raise JobUsageError(f"{uid!r} needs keys of two inputs or more, not of {len(keys)}")
    if not keys[0] or len({len(key) for key in keys}) > 1:
        raise JobUsageError(f"the inputs of {uid!r} need equally many key columns, not {keys!r}")


class StoredOperator:
    """What operators with keyed state share: the store and its snapshots."""

    def __init__(self, uid: str, plane: DataPlane) -> None:
        self.uid = uid
        self._plane = plane
        self._context: OperatorContext | None = None
        self._store: KeyedStateStore | None = None

    def _open_store(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files."""
        self._context = context
        self._store = context.open_store(self.uid, restored)

    def before_barrier(self, checkpoint: CheckpointId) -> Iterable[Payload]:
        """Return nothing: nothing is held back."""
        return ()

    def end_of_input(self) -> Iterable[Payload]:
        """Return nothing: nothing is held back."""
        return ()

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """Do the store's synchronous part (SNP-1)."""
        uid = self.uid
        context, store = self._opened()
        future = store.snapshot(checkpoint, context.writers.writer(checkpoint, uid))

        def wrap(handles: tuple[StateHandle, ...]) -> OperatorSnapshot:
            return OperatorSnapshot(uid, handles=handles)

        return MappedSnapshot(future, wrap)

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

    def _opened(self) -> tuple[OperatorContext, KeyedStateStore]:
        if self._context is None or self._store is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._context, self._store


class KeyedFunctionOperator(StoredOperator):
    """What operators around keyed functions share: the function, and its states."""

    def __init__(
        self,
        uid: str,
        keys: tuple[tuple[str, ...], ...],
        function: Callable[[], Any] | PerSubtask,
        plane: DataPlane,
    ) -> None:
        super().__init__(uid, plane)
        self._keys = keys
        self._make = function
        self._function: Any = None
        self._states: KeyedStates | None = None

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files and let the function name its states (REC-1)."""
        self._open_store(context, restored)
        self._require_no_timers(context)
        self._function.open(self._open_states())

    def _require_no_timers(self, context: OperatorContext) -> None:
        """Raise JobUsageError if the restored state has timers, which would never go off."""
        store = self._opened()[1]
        if any(True for group in context.key_groups for _ in store.scan(TIMERS, group)):
            raise JobUsageError(
                f"operator {self.uid!r} has timers in the checkpoint and none in the job, so they would never go off; "
                "write process(..., timers=True), or give the operator another name"
            )

    def _open_store(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files and make the function."""
        super()._open_store(context, restored)
        make = self._make
        self._function = function_at(make, context.place) if isinstance(make, PerSubtask) else make()

    def _open_states(self) -> KeyedStates:
        """Return the states of the function, of which those with a time to live end by the subtask's clock."""
        context, store = self._opened()
        self._states = KeyedStates(store, context.key_groups, context.now_ms)
        return self._states

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """Do the store's synchronous part (SNP-1), without the state whose time to live is over."""
        if self._states is not None:
            self._states.remove_what_is_over()
        return super().snapshot(checkpoint)

    def _key_of(self, row: Row, columns: tuple[str, ...]) -> tuple[int, bytes]:
        context, _ = self._opened()
        try:
            key = encode_key(tuple(row[column] for column in columns))
        except KeyError as error:
            raise missing_column(error.args[0], row, self.uid) from error
        return group_of_encoded(key, context.max_parallelism), key


class KeyedProcessOperator(KeyedFunctionOperator):
    """An ``Operator`` around a ``KeyedFunction``, on either plane, a record at a time."""

    def process(self, payload: Payload) -> Payload | None:
        """Give every record to the function."""
        return self._plane.flat_map(payload, self._process_row)

    def _process_row(self, row: Row) -> Iterable[Row]:
        group, key = self._key_of(row, self._keys[0])
        found: Iterable[Row] = self._function.process(group, key, row)
        return found


class KeyedCoProcessOperator(KeyedFunctionOperator):
    """A ``MultiInputOperator`` around a ``KeyedCoFunction``, on either plane, a record at a time."""

    def process(self, payload: Payload) -> Payload | None:
        """Refuse: every batch belongs to one of the inputs."""
        raise ProtocolError(f"operator {self.uid!r} has several inputs; pass its batches to process_input")

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        """Give every record to the function."""
        return flat_mapped(self._plane, partial(self._process_row, number), payload)

    def _process_row(self, number: int, row: Row) -> Iterable[Row]:
        group, key = self._key_of(row, self._keys[number])
        found: Iterable[Row] = self._function.process(group, key, row, number)
        return found
