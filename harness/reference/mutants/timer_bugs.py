"""Planted bugs of timers: what sets them, what keeps them, and when they go off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from barrier_tck.reference_impl.operators.api import DataPlane, Operator, OperatorContext, Payload
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers, TimedProcess, TimedProcessOperator
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.protocol.subtask_commands import ForwardBarrier
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.runtime.subtask_timers import OF_OPERATORS


class NotWokenByARestore(TimedProcessOperator):
    """TI-02: timers that were restored do not go off before a record comes."""

    _asleep = False

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Sleep after a restore."""
        super().open(context, restored)
        self._asleep = restored is not None

    def next_timer_ms(self) -> int | None:
        """Say that none is set until the first record has come."""
        return None if self._asleep else super().next_timer_ms()

    def _process_row(self, number: int, row: Row) -> Iterable[Row]:
        self._asleep = False
        return super()._process_row(number, row)


class OnlyAtTheEnd(TimedProcessOperator):
    """TI-03: timers go off only at the end of the input."""

    def next_timer_ms(self) -> int | None:
        """Say that none is set."""
        return None


class _InMemory(KeyedTimers):
    """Timers that no snapshot has: they are known to the queue alone."""

    def set(self, group: int, key: bytes, at_ms: int) -> None:
        """Set a timer, and take it out of the state."""
        super().set(group, key, at_ms)
        self._cell(group, key).set([])


class KeepsTimersInMemory(TimedProcessOperator):
    """TI-04: values are part of the snapshot, and timers are not."""

    _make_timers = _InMemory


class _LeftInTheState(KeyedTimers):
    """Timers that stay in the state when they go off."""

    def delete(self, group: int, key: bytes, at_ms: int) -> None:
        """Forget it in memory alone."""
        self._live.discard((at_ms, group, key))


class LeavesTimersInTheState(TimedProcessOperator):
    """TI-05: a timer that has gone off is forgotten in memory only, and goes off again after a restore."""

    _make_timers = _LeftInTheState


class ForgetsTimersAtTheEnd(TimedProcessOperator):
    """TI-06: at the end of the input, timers do not go off."""

    def end_of_input(self) -> Iterator[Payload]:
        """Emit nothing."""
        return iter(())


class FiresForTheLastKey(TimedProcessOperator):
    """TI-07: whatever key a timer belongs to, the function is given the key of the last record."""

    _last: tuple[int, bytes] | None = None

    def _process_row(self, number: int, row: Row) -> Iterable[Row]:
        self._last = self._key_of(row, self._keys[number])
        return super()._process_row(number, row)

    def _fired(self, due: tuple[int, int, bytes]) -> Sequence[Payload]:
        at_ms, group, key = due
        return super()._fired((at_ms, *(self._last or (group, key))))


class FiresBeforeTheBarrier(SubtaskDriver):
    """TI-08: timers that are due go off between the snapshot and the barrier."""

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Let them go off, then forward the barrier."""
        self._timers.due(OF_OPERATORS, self.run_chain)
        super().forward_barrier(command)


def with_timers(operator: Callable[..., Operator], spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build an operator; one with timers becomes the given variant."""
    if isinstance(spec, TimedProcess):
        return operator(spec.uid, spec.keys, spec.function, plane)
    return spec.build(plane)
