"""Operators without state: map, filter, flat map (of several inputs too), and partial aggregation before a shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.functions import Aggregate, Place, Row, function_at
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.runtime_errors import ProtocolError
from barrier_tck.reference_impl.state.snapshots import FinishedSnapshot

BatchFunction = Callable[[Payload], Payload | None]
"""From a batch to a batch; None if nothing is emitted."""


class StatelessOperator:
    """An ``Operator`` that is a function from batch to batch; a snapshot only says whether its input has ended."""

    def __init__(self, uid: str, make: Callable[[Place], BatchFunction]) -> None:
        """Take the operator's id, and a factory that ``open`` calls with the place where the operator runs."""
        self.uid = uid
        self._make = make
        self._function: BatchFunction = self._not_opened
        self._input_ended = False

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Make the function, and restore whether the input had ended."""
        self._function = self._make(context.place)
        self._input_ended = restored is not None and restored.input_ended

    def process(self, payload: Payload) -> Payload | None:
        """Apply the function."""
        return self._function(payload)

    def before_barrier(self, checkpoint: CheckpointId) -> Iterable[Payload]:
        """Emit nothing: no record is held back."""
        return ()

    def end_of_input(self) -> Iterable[Payload]:
        self._input_ended = True
        return ()

    def snapshot(self, checkpoint: CheckpointId) -> FinishedSnapshot[OperatorSnapshot]:
        """Return a finished snapshot without state."""
        return FinishedSnapshot(OperatorSnapshot(self.uid, input_ended=self._input_ended))

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """Return False: there was nothing to commit."""
        return False

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def _not_opened(self, payload: Payload) -> Payload | None:
        raise ProtocolError(f"operator {self.uid!r} was used before it was opened")


class StatelessMultiInputOperator(StatelessOperator):
    """A ``MultiInputOperator`` without state: a function from batch to batch for each input."""

    def __init__(self, uid: str, make: Callable[[Place], tuple[BatchFunction, ...]]) -> None:
        super().__init__(uid, lambda place: self._not_opened)
        self._make_all = make
        self._functions: tuple[BatchFunction, ...] = ()

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        super().open(context, restored)
        self._functions = self._make_all(context.place)

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        """Apply the input's function."""
        return self._functions[number](payload)


@dataclass(frozen=True, slots=True)
class Map:
    """Spec of a map: every record is replaced by one other."""

    inputs: ClassVar[int] = 1
    keeps_state: ClassVar[bool] = False
    uid: str
    function: Any
    """A function from row to row, ``Vectorized``, or ``PerSubtask``."""

    def build(self, plane: DataPlane) -> StatelessOperator:
        return StatelessOperator(self.uid, partial(_applied, plane.map, self.function))


@dataclass(frozen=True, slots=True)
class Filter:
    """Spec of a filter: records for which the predicate fails are dropped."""

    inputs: ClassVar[int] = 1
    keeps_state: ClassVar[bool] = False
    uid: str
    function: Any
    """A function from row to truth value, ``Vectorized``, or ``PerSubtask``."""

    def build(self, plane: DataPlane) -> StatelessOperator:
        return StatelessOperator(self.uid, partial(_applied, plane.filter, self.function))


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Spec of a flat map: every record is replaced by zero or more others."""

    inputs: ClassVar[int] = 1
    keeps_state: ClassVar[bool] = False
    uid: str
    function: Any
    """A function from row to rows, ``Vectorized``, or ``PerSubtask``."""

    def build(self, plane: DataPlane) -> StatelessOperator:
        return StatelessOperator(self.uid, partial(_applied, plane.flat_map, self.function))


@dataclass(frozen=True, slots=True)
class CoFlatMap:
    """Spec of a flat map over several inputs, whose records may have different columns."""

    keeps_state: ClassVar[bool] = False
    uid: str
    inputs: int
    function: Any
    """A function from row and number of the input to rows, or ``PerSubtask``."""

    def build(self, plane: DataPlane) -> StatelessMultiInputOperator:
        inputs, function = self.inputs, self.function

        def make(place: Place) -> tuple[BatchFunction, ...]:
            here = function_at(function, place)
            return tuple(partial(flat_mapped, plane, partial(_on_input, here, n)) for n in range(inputs))

        return StatelessMultiInputOperator(self.uid, make)


@dataclass(frozen=True, slots=True)
class Combine:
    """Spec of a partial aggregation: each batch becomes one row per key, aggregated over that batch alone.

    It is used before a shuffle, as in the plans of Spark SQL. It keeps nothing from one batch to the next, so it holds
    no record back when a barrier comes.
    """

    inputs: ClassVar[int] = 1
    keeps_state: ClassVar[bool] = False
    uid: str
    key: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    max_parallelism: int

    def build(self, plane: DataPlane) -> StatelessOperator:
        key, aggregates, groups = self.key, self.aggregates, self.max_parallelism
        return StatelessOperator(
            self.uid, lambda place: lambda payload: plane.combine(payload, key, aggregates, groups)
        )


def flat_mapped(plane: DataPlane, function: Callable[[Row], Any], payload: Payload) -> Payload | None:
    """Replace every record by the rows that a function returns; the types of columns follow from the values alone.

    This is for operators with several inputs, where an output column may have the name of an input's but another type.
    """
    rows = [result for row in plane.to_rows(payload) for result in function(row)]
    return plane.from_rows(rows) if rows else None


def _applied(apply: Callable[[Payload, Any], Payload | None], function: Any, place: Place) -> BatchFunction:
    here = function_at(function, place)
    return lambda payload: apply(payload, here)


def _on_input(function: Callable[[Row, int], Any], number: int, row: Row) -> Any:
    return function(row, number)
