"""Which records reached each place of a job, checkpoint by checkpoint, in the order in which they were taken.

A checkpoint of this suite's jobs holds all that ever reached its operators and sinks. To read all of it anew for each
checkpoint costs records times checkpoints. So what grew at its end since the checkpoint before is read, and whoever
judges records is told how many it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from barrier_tck.harness.oracle.evidence.in_flight import edge_of
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.record.history import Row, SnapshotView
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.workloads.operator_kind import TIMERS

Arrival = tuple[int, int, str, str]
"""(number of the input, id, full path, key on arrival)."""

Place = tuple[str, int]
"""(vertex of the plan's job, place of a subtask among those of the vertex)."""


@dataclass(frozen=True, slots=True)
class CameRecords:
    """Records that reached one place of a subtask, in the order in which it took them, as far as this is known."""

    subtask: str
    where: tuple[str, ...]
    """In which state, under which key, or on which channel they are. With the subtask, it is the same in every
    checkpoint."""
    begun: int
    """Which list of the place this is, of all that were read: it is the same as long as the list only grows."""
    number: int
    """How many it took; they are in ``_list``, which may have grown since."""
    _list: Sequence[Arrival]
    coming: tuple[Arrival, ...] = ()
    """What is still in flight, and comes next."""
    keyed: bool = True
    """Whether the subtask that has a key has all of its records. Lists without keys are split, whatever is in them."""

    @property
    def place(self) -> tuple[str, ...]:
        """Return the name of the place."""
        return (self.subtask, *self.where)

    def taken_from(self, known: int) -> Sequence[Arrival]:
        """Return what it took, without as many as are known already."""
        return self._list[known : self.number]


class Growth:
    """How many records of each place a judge has seen: it looks at those that are new."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], tuple[int, int]] = {}

    def known(self, came: CameRecords) -> int:
        """Return how many records, the first ones, were seen before; 0 if they are others now. All are seen then."""
        begun, number = self._seen.get(came.place, (came.begun, 0))
        self._seen[came.place] = came.begun, came.number
        return number if begun == came.begun else 0


@dataclass(slots=True)
class _Read:
    """What was read of one place: the items that a checkpoint shows, and the records that they stand for."""

    begun: int
    items: Sequence[Any]
    records: list[Arrival]


@dataclass
class Arrivals:
    """Reads the checkpoints of one trial, one after the other."""

    plan: JobPlan
    _read: dict[tuple[str, ...], _Read] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)
    _last: tuple[SnapshotView, tuple[tuple[CameRecords, Place | None], ...]] | None = None
    """The checkpoint that was read last, and what it holds."""

    def in_checkpoint(
        self, job: JobView | None, view: SnapshotView
    ) -> tuple[tuple[CameRecords, Place | None], ...]:
        """Return the records that reached each state and each sink, and those on their way, with the place where they
        are; None if the system does not say.

        ``job`` is the job that took the checkpoint, as its system sees it.
        """
        if self._last is None or self._last[0] is not view:
            coming = tuple(self._in_flight(view))
            found = (*self._in_states(view, coming), *self._at_sinks(view, coming), *coming)
            places = {subtask: _place_of(subtask, job) for subtask in dict.fromkeys(c.subtask for c in found)}
            self._last = view, tuple((came, places[came.subtask]) for came in found)
        return self._last[1]

    def _came(
        self,
        subtask: str,
        where: tuple[str, ...],
        items: Sequence[Any],
        records: Callable[[Sequence[Any]], Iterable[Arrival]],
        coming: Sequence[Arrival] = (),
        keyed: bool = True,
    ) -> CameRecords:
        """Return what a place took, of which only the items are read that were not there in the checkpoint before."""
        place = (subtask, *where)
        read = self._read.get(place)
        if read is None or items[: len(read.items)] != read.items:
            read = self._read[place] = _Read(next(self._numbers), items, list(records(items)))
        else:
            read.records.extend(records(items[len(read.items) :]))
            read.items = items
        return CameRecords(subtask, where, read.begun, len(read.records), read.records, tuple(coming), keyed)

    def _in_flight(self, view: SnapshotView) -> Iterator[CameRecords]:
        """Yield what is on each channel, which is what its receiver will take next."""
        for channel in view.in_flight:
            edge = edge_of(self.plan, channel)
            if edge is not None:
                rows = tuple((edge.input, row["id"], row["path"], str(row["key"])) for row in channel.rows)
                where = channel.sender, str(channel.edge)
                yield CameRecords(channel.receiver, where, next(self._numbers), len(rows), rows)

    def _in_states(self, view: SnapshotView, coming: Sequence[CameRecords]) -> Iterator[CameRecords]:
        """Yield what a state holds, key by key, because only the records of one key are in the order of arrival.

        If the state is that of the first operator of a chain, what is in flight to its subtask follows.
        """
        heads = [vertex.operators[0].name for vertex in self.plan.vertices]
        for part in view.state:
            if part.name == TIMERS:
                continue
            following: dict[str, list[Arrival]] = {}
            for channel in coming if part.operator in heads else ():
                for record in channel.taken_from(0) if channel.subtask == part.subtask else ():
                    following.setdefault(record[3], []).append(record)
            for text, kept in part.entries.items():
                key = str(key_of_text(text)[0])

                def records(items: Sequence[Any], key: str = key) -> Iterator[Arrival]:
                    return ((number, identifier, path, key) for number, identifier, path, *_ in items)

                where = part.operator, part.name, text
                yield self._came(part.subtask, where, kept, records, following.get(key, ()), part.keyed)

    def _at_sinks(self, view: SnapshotView, coming: Sequence[CameRecords]) -> Iterator[CameRecords]:
        """Yield what each sink subtask wrote, if the system says which of them wrote what, and what is in flight to
        it."""
        written: dict[str, list[Row]] = {}
        for subtask, row in zip(view.reached_by, view.reached_sinks or (), strict=False):
            written.setdefault(subtask, []).append(row)
        for subtask, rows in written.items():
            after = [
                record for channel in coming if channel.subtask == subtask for record in channel.taken_from(0)
            ]
            yield self._came(subtask, ("written",), rows, _written, after)


def _written(rows: Sequence[Row]) -> Iterator[Arrival]:
    return ((0, row["id"], row["path"], row["key"]) for row in rows)


def _place_of(subtask: str, job: JobView | None) -> Place | None:
    """Return the place of a subtask in the plan's job; None if the system does not say."""
    view = job.by_name.get(subtask) if job is not None else None
    if job is None or view is None or not view.vertex:
        return None
    return view.vertex, job.like(subtask).index(subtask)
