"""Operators without state: map, filter, flat map, and the partial aggregation ahead of a shuffle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext
from barrier_tck.reference_impl.operators.functions import Aggregate
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.runtime.ports import Payload
from barrier_tck.reference_impl.state.snapshots import FinishedSnapshot


class StatelessOperator:
    """An ``Operator`` that is a function from batch to batch and adds nothing to a snapshot but its name."""

    def __init__(self, uid: str, function: Callable[[Payload], Payload | None]) -> None:
        """Take the operator's id and what it does to a batch."""
        self.uid = uid
        self._function = function
        self._input_ended = False

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Recall whether the input had ended."""
        self._input_ended = restored is not None and restored.input_ended

    def process(self, payload: Payload) -> Payload | None:
        """Apply the function."""
        return self._function(payload)

    def before_barrier(self, checkpoint: CheckpointId) -> Payload | None:
        """Emit nothing: no record is held back."""
        return None

    def end_of_input(self) -> Payload | None:
        """Emit nothing."""
        self._input_ended = True
        return None

    def snapshot(self, checkpoint: CheckpointId) -> FinishedSnapshot[OperatorSnapshot]:
        """Return a finished snapshot without state."""
        return FinishedSnapshot(OperatorSnapshot(self.uid, input_ended=self._input_ended))

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """Return False: nothing was to be committed."""
        return False

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Map:
    """Spec of a map: every record is replaced by one other."""

    uid: str
    function: Any
    """A function from row to row, or ``Vectorized``."""

    def build(self, plane: DataPlane) -> StatelessOperator:
        """Return the operator."""
        function = self.function
        return StatelessOperator(self.uid, lambda payload: plane.map(payload, function))


@dataclass(frozen=True, slots=True)
class Filter:
    """Spec of a filter: records for which the predicate fails are dropped."""

    uid: str
    function: Any
    """A function from row to truth value, or ``Vectorized``."""

    def build(self, plane: DataPlane) -> StatelessOperator:
        """Return the operator."""
        function = self.function
        return StatelessOperator(self.uid, lambda payload: plane.filter(payload, function))


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Spec of a flat map: every record is replaced by zero or more others."""

    uid: str
    function: Any
    """A function from row to rows, or ``Vectorized``."""

    def build(self, plane: DataPlane) -> StatelessOperator:
        """Return the operator."""
        function = self.function
        return StatelessOperator(self.uid, lambda payload: plane.flat_map(payload, function))


@dataclass(frozen=True, slots=True)
class Combine:
    """Spec of a partial aggregation: each batch becomes one row per key, aggregated over that batch alone.

    It stands before a shuffle, as in the plans of Spark SQL, and keeps nothing from one batch to the next;
    so a barrier never finds a record in it.
    """

    uid: str
    key: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    max_parallelism: int

    def build(self, plane: DataPlane) -> StatelessOperator:
        """Return the operator."""
        key, aggregates, groups = self.key, self.aggregates, self.max_parallelism
        return StatelessOperator(self.uid, lambda payload: plane.combine(payload, key, aggregates, groups))
