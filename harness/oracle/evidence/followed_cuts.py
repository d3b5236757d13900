"""Follows the cuts of one trial: of each checkpoint only that is looked at which differs from the one before.

A checkpoint of this suite's jobs holds all that ever reached its operators and sinks. To read every checkpoint from the
beginning costs records times checkpoints, minutes for a job with a few hundred of each. Between two checkpoints little
changes: lists grow at their ends, sources read on. So what is held and what is due are kept as one balance, which is
zero wherever a checkpoint is right. If it is not, the checkpoint is compared from the beginning, by whoever asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from barrier_tck.harness.oracle.evidence.in_flight import by_edge
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.oracle.evidence.opened_checkpoints import positions_of
from barrier_tck.harness.oracle.evidence.record_places import Positions
from barrier_tck.harness.oracle.evidence.sink_rows import SinkRows
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.workloads.dataflow_model import Flow
from barrier_tck.harness.workloads.operator_kind import TIMERS, WAITING
from barrier_tck.harness.workloads.record_forms import RecordForm
from barrier_tck.harness.workloads.records import Bag, Record

_Entry = tuple[str, str, str, str]
"""(operator, subtask, name of the state, key)."""
_NOTHING: Sequence[Any] = ()


class FollowedCuts:
    """What the checkpoints of one trial hold, from one to the next, beside what they must hold."""

    def __init__(
        self,
        flow: Flow,
        form: RecordForm,
        read: Callable[[Positions, Positions], Mapping[str, Bag]],
        vertices: Mapping[str, str],
        left_out: Collection[str],
    ) -> None:
        """Begin before anything was read.

        ``read`` returns what each source vertex reads between two cuts; ``vertices`` maps sink subtasks to their
        vertices; the operators that are ``left_out`` are judged elsewhere.
        """
        self._flow, self._form, self._read = flow, form, read
        self._vertices, self._left_out = vertices, left_out
        self._positions: Positions = {}
        self._in_flight: Mapping[tuple[str, str, int], Bag] = {}
        self._entries: dict[_Entry, Sequence[Any]] = {}
        self._sinks = SinkRows()
        self._surplus: dict[str, Bag] = {}
        """Operator or sink -> how much more of each record is there than is due."""
        self._due = 0
        self._shows_sinks: bool | None = None

    def agrees(self, view: SnapshotView) -> int | None:
        """Go on to a checkpoint that could be opened, and return how many records it must hold and does.

        None if something is not where it must be, or if the checkpoint does not say which sink wrote what.
        """
        self._follow(view)
        strange = any(
            part.operator not in self._flow.stateful and part.operator not in self._left_out
            for part in view.state
        )
        if strange or (view.reached_sinks and not view.reached_by):
            return None
        if (view.reached_sinks is not None) is not self._shows_sinks:
            return None
        return None if any(self._surplus.values()) or self._flow.unsent else self._due

    def duplicates(self, view: SnapshotView) -> int:
        """Go on to a checkpoint that could be opened, and return how many records it has beyond those that are due."""
        self._follow(view)
        return sum(
            times
            for place, surplus in self._surplus.items()
            if place in self._flow.sinks or place in self._flow.stateful
            for times in surplus.values()
            if times > 0
        )

    def _follow(self, view: SnapshotView) -> None:
        if self._shows_sinks is None:
            self._shows_sinks = view.reached_sinks is not None
        waiting: dict[str, Bag] = {}
        for place, record, times, waits in self._changed_state(view):
            self._add(place, record, times)
            if waits:
                waiting.setdefault(place, Counter())[record] += times
        for sink, record, times in self._changed_rows(view):
            self._add(sink, record, times)
        for place, bag in self._changes_due(view, waiting).items():
            if place in self._flow.sinks and not self._shows_sinks:
                continue
            for record, times in bag.items():
                self._due += times
                self._add(place, record, -times)

    def _add(self, place: str, record: Record, times: int) -> None:
        surplus = self._surplus.setdefault(place, Counter())
        now = surplus.get(record, 0) + times
        if now:
            surplus[record] = now
        else:
            surplus.pop(record, None)

    # --- what is held -----------------------------------------------------------------------------------------

    def _changed_state(self, view: SnapshotView) -> Iterator[tuple[str, Record, int, bool]]:
        """Yield (operator, record, by how much, whether it waits for a timer) for what state holds now or no more."""
        entries: dict[_Entry, Sequence[Any]] = {}
        for part in view.state:
            if part.operator not in self._left_out and part.name != TIMERS:
                for text, kept in part.entries.items():
                    entries[part.operator, part.subtask, part.name, text] = kept
        before, self._entries = self._entries, entries
        for name, entry in entries.items():
            yield from self._changed_entry(name, before.pop(name, _NOTHING), entry)
        for name, entry in before.items():
            yield from self._changed_entry(name, entry, _NOTHING)

    def _changed_entry(
        self, name: _Entry, before: Sequence[Any], now: Sequence[Any]
    ) -> Iterator[tuple[str, Record, int, bool]]:
        operator, _, state, text = name
        gone, come = differing(before, now)
        for times, items in ((-1, gone), (1, come)):
            if items:
                for number, row in self._form.kept(state, key_of_text(text), items):
                    yield operator, (number, self._form.read(row)), times, state == WAITING

    def _changed_rows(self, view: SnapshotView) -> Iterator[tuple[str, Record, int]]:
        """Yield (sink, record, by how much) for what sinks have written now or, of what was prepared, no more."""
        for writer, times, row in self._sinks.changes(view):
            yield self._vertices.get(writer, writer or "no subtask"), self._form.read(row), times

    # --- what is due ------------------------------------------------------------------------------------------

    def _changes_due(self, view: SnapshotView, waiting: Mapping[str, Bag]) -> Mapping[str, Bag]:
        """Return operator or sink -> by how much what must be there differs from the cut before."""
        before, self._positions = self._positions, positions_of(view)
        in_flight_before, self._in_flight = self._in_flight, by_edge(view, self._form)
        before = {name: before.get(name, 0) for name in self._positions}
        low = {name: min(before[name], position) for name, position in self._positions.items()}
        read: dict[str, Bag] = {}
        for start_to_end, sign in (((low, self._positions), 1), ((low, before), -1)):
            for vertex, bag in self._read(*start_to_end).items():
                _add_bag(read.setdefault(vertex, Counter()), bag, sign)
        in_flight: dict[tuple[str, str, int], Bag] = {}
        for edges, sign in ((self._in_flight, 1), (in_flight_before, -1)):
            for edge, bag in edges.items():
                _add_bag(in_flight.setdefault(edge, Counter()), bag, sign)
        return self._flow.change(read, in_flight, waiting)


def differing(before: Sequence[Any], now: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return what of a list is gone and what has come; of one that has grown at its end, only the end."""
    if now is before:
        return _NOTHING, _NOTHING
    known = len(before)
    if len(now) >= known and now[:known] == before[:known]:
        return _NOTHING, now[known:]
    return before, now


def _add_bag(bag: Bag, other: Bag, sign: int) -> None:
    for record, times in other.items():
        now = bag[record] + sign * times
        if now:
            bag[record] = now
        else:
            del bag[record]
