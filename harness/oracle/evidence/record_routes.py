"""Routes: records followed the edges of the graph, and stayed in order on their paths (BAR-2, RSC-1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import MappingProxyType

from barrier_tck.harness.oracle.evidence.arrivals import Arrival, Arrivals, CameRecords, Growth, Place
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.named_places import last_step, way_to
from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, Spread
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.workloads.dataflow_model import windows_of
from barrier_tck.harness.workloads.kind_catalogue import kind_named

_STEP = re.compile(r"(?P<operator>[^\[\]/]+)(?:/[ab])?\[(?P<index>\d+)\]")


_NUMBER = re.compile(r"\[\d+\]")

Lane = tuple[int, str, int, str]
"""(number of the input, full path, split, key where records of one key alone are in order): it keeps its order."""


@dataclass(slots=True)
class _Taken:
    """What is known of the records of one place, without those in flight."""

    latest: dict[Lane, int] = field(default_factory=dict)
    times: Counter[Arrival] = field(default_factory=Counter)
    ways: dict[tuple[str, str], None] = field(default_factory=dict)
    """(path, key) of each record."""

    def copy(self) -> _Taken:
        return _Taken(dict(self.latest), Counter(), dict(self.ways))


class RouteJudge:
    """Judges which way the records of one trial came, checkpoint by checkpoint."""

    def __init__(self, paths: RecordPaths, arrivals: Arrivals) -> None:
        """``arrivals`` reads the checkpoints of the trial; others may ask it, too."""
        self._paths = paths
        self._arrivals = arrivals
        self._growth = Growth()
        self._taken: dict[tuple[str, ...], _Taken] = {}
        self.steps = 0
        """How many records were looked at; work is counted, because time depends on the machine."""

    def problems(self, job: JobView | None, view: SnapshotView, once: bool) -> Iterator[Difference]:
        """Yield which records of a checkpoint took a path that the graph does not have, or overtook another record.

        ``job`` is the plan's job, as its system sees it. ``once`` means that no record was read twice, so that their
        order is the order of reading, and each came at most as often as there are edges along its path. What was there
        in the checkpoint before was judged there.
        """
        receivers = _Receivers(self._paths)
        for came, end in self._arrivals.in_checkpoint(job, view):
            known = self._growth.known(came)
            taken = self._taken.setdefault(came.place, _Taken()) if known else _Taken()
            self._taken[came.place] = taken
            yield from self._new(came, came.taken_from(known), taken, end, once)
            if came.coming:
                before, taken = taken, taken.copy()
                yield from self._new(came, came.coming, taken, end, once, before.times)
            receivers.note(taken.ways, end)
        yield from receivers.split_keys()

    def _new(
        self,
        came: CameRecords,
        records: Sequence[Arrival],
        taken: _Taken,
        end: Place | None,
        once: bool,
        before: Mapping[Arrival, int] = MappingProxyType({}),
    ) -> Iterator[Difference]:
        """Judge records that come after those of which something is known."""
        self.steps += len(records)
        paths = self._paths
        for path in dict.fromkeys(path for _, _, path, _ in records):
            yield from (
                Difference(Kind.WRONG_WAY, problem, came.subtask) for problem in paths.way_problems(path, end)
            )
        taken.ways.update(dict.fromkeys((path, key) for _, _, path, key in records))
        if once:
            taken.times.update(records)
            times = {record: taken.times[record] + before.get(record, 0) for record in dict.fromkeys(records)}
            yield from paths.too_often(came.subtask, times, end)
            yield from paths.overtaken(came.subtask, records, taken.latest, end)


def placement_problems(job: JobView | None, view: SnapshotView) -> Iterator[Difference]:
    """Yield which keys have state in a subtask that does not own their key group (RSC-1)."""
    for part in view.state:
        own = key_groups_of(part.subtask, job)
        for key, group in part.groups.items():
            if own is not None and group not in own:
                yield Difference(
                    Kind.FOREIGN_KEY,
                    f"key {key} of {part.operator} is in {part.subtask}, which owns the key groups {own.start} to "
                    f"{own.stop - 1}, but its key group is {group}",
                    part.subtask,
                )


def key_groups_of(subtask: str, job: JobView | None) -> range | None:
    """Return the key groups that a subtask owns (RSC-1); None if it owns none, or the system does not say."""
    view = job.by_name.get(subtask) if job is not None else None
    return range(*view.key_groups) if view is not None and view.key_groups is not None else None


SPLIT_IDS = 100_000
"""In the workload ``lineage``, the ids of one split lie in one range of this length, in reading order."""


Step = tuple[str, int, str]
"""(vertex, number of its subtask, operator); no operator stands for the place where the record is."""


@dataclass(frozen=True, slots=True)
class _Path:
    """A path, read once for all records that came on it."""

    hops: tuple[tuple[Step, Step, bool], ...]
    """From each step to the next; and whether that is the next operator of a chain, and not along an edge."""
    vertices: tuple[str, ...]
    """The vertices in order; a vertex counts once for all operators of its chain."""
    is_whole: bool
    """Whether every part of the path names an operator of a subtask."""
    problems: tuple[str, ...]
    """Each step that no edge allows."""
    backwards: tuple[_Hop, ...]
    """Its hops, the last one first."""


@dataclass(frozen=True, slots=True)
class _Hop:
    """What a hop of a path says about the key of a record that came on it."""

    target: str
    """The vertex to which it leads."""
    index: int
    by_key: bool
    """Whether it goes along hash edges alone."""
    rekeyed: Callable[[str], str] | None
    """The key of a record before the operator that it comes from gave it another one; None if it keeps its key."""


class RecordPaths:
    """What the edges of a job say about the paths of records. Each path is read once."""

    def __init__(self, job: JobPlan) -> None:
        self.job = job
        self._vertex_of = {
            operator.name: vertex.name for vertex in job.vertices for operator in vertex.operators
        }
        self._operators = {
            operator.name: operator for vertex in job.vertices for operator in vertex.operators
        }
        self._places = {
            operator.name: place for vertex in job.vertices for place, operator in enumerate(vertex.operators)
        }
        """Operator -> its place in the chain of its vertex."""
        self._lengths = {vertex.name: len(vertex.operators) for vertex in job.vertices}
        self._rekeys = {
            operator.name: partial(key_before, operator)
            for vertex in job.vertices
            for operator in vertex.operators
            if (key_before := kind_named(operator.kind).key_before) is not None
        }
        self._windows = windows_of(job)
        self._edges: dict[tuple[str, str], tuple[EdgePlan, ...]] = {}
        for edge in job.edges:
            ends = edge.source, edge.target
            self._edges[ends] = (*self._edges.get(ends, ()), edge)
        self._read: dict[tuple[str, Place | None], _Path] = {}
        """(path, end) -> what it says."""

    def way_problems(self, path: str, end: Place | None) -> Iterator[str]:
        """Yield each step of a path that no edge allows; the last step leads to the place where the record is."""
        return iter(self._path(path, end).problems)

    def _problems(self, hops: Iterable[tuple[Step, Step, bool]]) -> Iterator[str]:
        """Yield each hop that no edge allows."""
        for (sender, i, _), (receiver, j, _), chained in hops:
            edges = self._edges.get((sender, receiver), ())
            if chained:
                if i != j:
                    yield f"a record went from {sender}[{i}] to {receiver}[{j}] within one chain"
            elif not edges:
                yield f"a record went from {sender}[{i}] to {receiver}[{j}], between which there is no edge"
            elif all(edge.by is Spread.FORWARD for edge in edges) and i != j:
                only = f"though the edge only leads to {receiver}[{i}]"
                yield f"a record went from {sender}[{i}] to {receiver}[{j}], {only}"

    def overtaken(
        self, subtask: str, records: Iterable[Arrival], latest: dict[Lane, int], end: Place | None
    ) -> Iterator[Difference]:
        """Yield which records come after others that were read later and came on the same channels (BAR-2).

        ``latest`` is the last record of each lane that came before, and is carried on.
        """
        for number, identifier, path, key in records:
            lane = (number, path, identifier // SPLIT_IDS, key if self._passes_window(path, end) else "")
            if identifier < latest.get(lane, -1) and self._edges_along(path, end, number) == 1:
                yield Difference(
                    Kind.ORDER,
                    f"record {identifier} is behind record {latest[lane]} in {subtask}, though both came by "
                    f"way of {path} and it was read first: one overtook the other",
                    subtask,
                    self._way(path, subtask),
                )
            latest[lane] = identifier

    def _way(self, path: str, subtask: str) -> str:
        """Return the channel on which what came on a path came to a subtask; "" if it is not known."""
        return way_to(self.job, subtask.partition("[")[0], last_step(path), subtask)

    def _passes_window(self, path: str, end: Place | None) -> bool:
        """Return whether records of one key alone are in order on a path, because a window let keys go one by one."""
        hops = self._path(path, end).hops
        return any(operator in self._windows for (_, _, operator), _, _ in hops)

    def too_often(
        self, subtask: str, found: Mapping[Arrival, int], end: Place | None
    ) -> Iterator[Difference]:
        """Yield which records came on one path more often than its edges and operators explain."""
        for (number, identifier, path, key), times in found.items():
            if times > 1:
                edges = self._edges_along(path, end, number)
                if times > edges and times > edges * self._copies(identifier, path, key):
                    yield Difference(
                        Kind.SURPLUS,
                        f"record {identifier} came to {subtask} {times} times by way of {path}, "
                        f"along which {edges} edges lead",
                        subtask,
                        self._way(path, subtask),
                    )

    def _copies(self, identifier: int, path: str, key: str) -> int:
        """Return how many equal records the operators on a path make at most of the one that was read."""
        names = [_NUMBER.sub("", part) for part in path.split(">")]
        copies = 1
        for position in reversed(range(len(names))):
            operator = self._operators.get(names[position].partition("/")[0])
            if operator is None:
                continue
            kind = kind_named(operator.kind)
            if kind.key_before is not None:
                key = kind.key_before(operator, key)
            if kind.emits is not None:
                emitted = kind.emits(operator, (identifier, key, ">".join(names[:position])))
                copies *= max(Counter(emitted).values(), default=1)
        return copies

    def hops_back(self, path: str, end: Place | None) -> tuple[_Hop, ...]:
        """Return the hops of a path, the last one first."""
        return self._path(path, end).backwards

    def vertices_on(self, path: str, end: Place | None) -> tuple[str, ...]:
        """Return the vertices on a path, in order; a vertex counts once for all operators of its chain."""
        return self._path(path, end).vertices

    def _edges_along(self, path: str, end: Place | None, number: int) -> int:
        """Return for how many combinations of edges one path of subtasks stands."""
        read, found = self._path(path, end), 1
        hops = read.hops if read.is_whole else ()
        for position, ((sender, i, _), (receiver, j, _), chained) in enumerate(hops, 1):
            if not chained:
                last = end is not None and position == len(hops)
                found *= sum(
                    (edge.by is not Spread.FORWARD or i == j) and (not last or edge.input == number)
                    for edge in self._edges.get((sender, receiver), ())
                )
        return found

    def _path(self, path: str, end: Place | None) -> _Path:
        """Return what a path says; its last step is the place where the record is."""
        if (path, end) not in self._read:
            self._read[path, end] = self._read_path(path, end)
        return self._read[path, end]

    def _read_path(self, path: str, end: Place | None) -> _Path:
        parts = path.split(">") if path else []
        found = [_STEP.fullmatch(part) for part in parts]
        steps: list[Step] = [
            (self._vertex_of.get(step["operator"], ""), int(step["index"]), step["operator"])
            for step in found
            if step is not None
        ]
        is_whole = len(steps) == len(parts)
        if end is not None:
            steps.append((*end, ""))
        hops = tuple((step, after, self._is_chained(step, after)) for step, after in pairwise(steps))
        starts = [steps[0], *(after for _, after, chained in hops if not chained)] if steps else []
        vertices = tuple(vertex for vertex, _, _ in starts)
        problems = self._problems(hops) if is_whole else (f"{path!r} is no path of subtasks",)
        return _Path(hops, vertices, is_whole, tuple(problems), tuple(map(self._hop, reversed(hops))))

    def _hop(self, hop: tuple[Step, Step, bool]) -> _Hop:
        (sender, _, operator), (receiver, index, _), chained = hop
        edges = self._edges.get((sender, receiver), ())
        by_key = not chained and bool(edges) and all(edge.by is Spread.HASH for edge in edges)
        return _Hop(receiver, index, by_key, self._rekeys.get(operator))

    def _is_chained(self, step: Step, after: Step) -> bool:
        """Return whether a hop leads to the next operator of a chain, and not along an edge."""
        (sender, _, operator), (receiver, _, next_one) = step, after
        place = self._places.get(operator, -1)
        return (
            sender == receiver
            and place < self._lengths.get(sender, 0) - 1
            and self._places.get(next_one, place + 1) == place + 1
        )


class _Receivers:
    """To which subtasks hash edges sent each key, by the paths of the records of one checkpoint."""

    def __init__(self, paths: RecordPaths) -> None:
        self._paths = paths
        self._found: dict[tuple[str, str], dict[int, str]] = {}
        """(vertex, key) -> the subtasks that got the key over hash edges, each with a path that leads there."""

    def note(self, ways: Iterable[tuple[str, str]], end: Place | None) -> None:
        """Take the (path, key) of records that are at one place."""
        for path, last_key in ways:
            key = last_key
            for hop in self._paths.hops_back(path, end):
                if hop.by_key:
                    self._found.setdefault((hop.target, key), {}).setdefault(hop.index, path)
                if hop.rekeyed is not None:
                    key = hop.rekeyed(key)

    def split_keys(self) -> Iterator[Difference]:
        """Yield which keys were sent by hash edges to more than one subtask of a vertex (RSC-1)."""
        for (vertex, key), found in self._found.items():
            if len(found) > 1:
                (first, path), (second, other_path), *_ = found.items()
                yield Difference(
                    Kind.SPLIT_KEY,
                    f"key {key!r} went to {vertex}[{first}] by way of {path or 'its source'} and to "
                    f"{vertex}[{second}] by way of {other_path or 'its source'}, though records are sent there by key",
                    vertex,
                )
