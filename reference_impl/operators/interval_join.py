"""The join of two keyed inputs by an interval in event time: inner, left, right or full.

A left row and a right one of equal keys are a pair if ``right time - left time`` lies in [lower, upper]. A pair is
emitted when the later one of both comes. Rows wait as long as a row that is on time may match them: a left row of
time t until the watermark is ``t + upper`` or more, a right one until it is ``t - lower`` or more. An outer join
emits a row that has matched nothing when it is removed, which happens at once if it is too late for others when it
comes.

So the output does not depend on the order of arrival, nor on when watermarks come, as long as no record is late. Late
ones go to the side output ``late`` as they came, with the columns of their input, and match nothing. What waits,
whether it has matched, and when it is removed lie in the state of its key, so all of this happens once in the committed
output, whatever number of restores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from barrier_tck.reference_impl.operators.chosen_columns import Kept
from barrier_tck.reference_impl.operators.event_time_process import BatchedProcess, EventTimers
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.join_sides import SIDES, JoinedRows, JoinForm, JoinSide, Keys
from barrier_tck.reference_impl.operators.on_time import OnTimeFunction
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.operators.windows import LATE
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.keyed import KeyedStates


@dataclass(frozen=True, slots=True)
class Within:
    """By how much the right row of a pair is later than the left one: both bounds are included, in milliseconds.

    Either may be negative: then the right row may be, or must be, the earlier one.
    """

    lower_ms: int
    upper_ms: int

    def __post_init__(self) -> None:
        if self.lower_ms > self.upper_ms:
            raise JobUsageError(
                f"Within: no time lies between {self.lower_ms} and {self.upper_ms}; give the lower bound first"
            )


class WaitingRow(msgspec.Struct, array_like=True):
    """A row that waits for partners."""

    time: int
    """Its event time (ms)."""
    matched: bool
    """Whether it is part of a pair; always false on a side whose rows are not emitted alone."""
    columns: dict[str, Kept]
    """What it gives to the output."""


def interval_join(
    uid: str, keys: Keys, within: Within, left: JoinSide, right: JoinSide, time: str, form: JoinForm
) -> BatchedProcess:
    """Return the spec of a join by an interval; input 0 is the left side, each input is partitioned by its key.

    ``time`` is the output column with the event time (ms): of a pair the larger one of both, of a row alone the time at
    which that is certain (its own, or that of its removal if that is later), so that no row is late for what
    follows. Raises JobUsageError if an output column is given twice, or the keys do not fit.
    """
    rows = JoinedRows(uid, keys, (left, right), form, (time,))
    function = partial(IntervalJoinFunction, uid, rows, within, time)
    definition = IntervalJoinDefinition(uid, keys, within, (left, right), time, form)
    return BatchedProcess(uid, keys, function, (LATE,), definition)


@dataclass(frozen=True, slots=True)
class IntervalJoinDefinition:
    """What is to be joined."""

    uid: str
    """The name of the operator, for messages."""
    keys: Keys
    within: Within
    sides: tuple[JoinSide, JoinSide]
    time: str
    """The output column with the event time (ms)."""
    form: JoinForm

    def removal_after_ms(self, number: int) -> int:
        """Return how long after its event time a row of an input is removed."""
        return self.within.upper_ms if number == 0 else -self.within.lower_ms


class IntervalJoinFunction(OnTimeFunction):
    """An ``EventTimeFunction``: a row meets the waiting rows of the other side, then it waits on its own."""

    def __init__(self, uid: str, rows: JoinedRows, within: Within, time: str) -> None:
        super().__init__(uid)
        self._rows = rows
        self._within = within
        self._time = time

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._waiting = tuple(states.list(name, WaitingRow) for name in SIDES)
        self._timers = event_timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Return the pairs that a row completes, or the row alone if it can match nothing."""
        at_ms = self._event_time_of(row, self._rows.times[number])
        watermark = self._timers.watermark(group)
        if at_ms <= watermark:
            self._emit_late(row)
            return ()
        mine = WaitingRow(at_ms, False, self._rows.chosen(row, number))
        if self._rows.has_null_key(row, number):
            return (
                [self._with_time(self._rows.alone(mine.columns, number), at_ms)]
                if self._keeps(number)
                else ()
            )
        partners = self._partners(group, key, at_ms, number)
        mine.matched = bool(partners) and self._keeps(number)
        removal_ms = self._removal_of(at_ms, number)
        if removal_ms > watermark:
            self._waiting[number].of(group, key).add(mine)
            self._timers.set(group, key, removal_ms)
        elif self._keeps(number) and not partners:
            return [self._alone(mine, number)]
        return [
            self._with_time(self._rows.pair(mine.columns, other.columns, number), max(at_ms, other.time))
            for other in partners
        ]

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterator[Row]:
        """Remove the rows that nothing on time can match any more; emit those that an outer join emits alone."""
        for number, waiting in enumerate(self._waiting):
            cell = waiting.of(group, key)
            rows = cell.get()
            over = [one for one in rows if self._removal_of(one.time, number) <= at_ms]
            if over:
                cell.set([one for one in rows if self._removal_of(one.time, number) > at_ms])
            if self._keeps(number):
                yield from (self._alone(one, number) for one in over if not one.matched)

    def _partners(self, group: int, key: bytes, at_ms: int, number: int) -> list[WaitingRow]:
        """Return the waiting rows that match one, and note that they have matched."""
        cell = self._waiting[1 - number].of(group, key)
        others = cell.get()
        partners = [one for one in others if self._matches(at_ms, one.time, number)]
        if self._keeps(1 - number) and not all(one.matched for one in partners):
            for one in partners:
                one.matched = True
            cell.set(others)
        return partners

    def _matches(self, mine_ms: int, other_ms: int, number: int) -> bool:
        later_ms = other_ms - mine_ms if number == 0 else mine_ms - other_ms
        return self._within.lower_ms <= later_ms <= self._within.upper_ms

    def _removal_of(self, at_ms: int, number: int) -> int:
        """Return at which watermark a row is removed (ms). However wide the interval is, it is at the end of time."""
        latest_ms = at_ms + self._within.upper_ms if number == 0 else at_ms - self._within.lower_ms
        return min(latest_ms, END_OF_TIME)

    def _alone(self, one: WaitingRow, number: int) -> Row:
        # Its own time would be late behind watermarks that have come while it waited.
        at_ms = max(one.time, self._removal_of(one.time, number))
        return self._with_time(self._rows.alone(one.columns, number), at_ms)

    def _with_time(self, row: Row, at_ms: int) -> Row:
        row[self._time] = at_ms
        return row

    def _keeps(self, number: int) -> bool:
        return self._rows.form.keeps(number)
