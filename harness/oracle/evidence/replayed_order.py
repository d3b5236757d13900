"""Records in flight take effect in their order after a restore, at another parallelism too (UNA-1, RSC-3).

A checkpoint holds the records of a channel in the order in which they were sent. A restore hands them out again, to the
same receiver or to those that own their keys now. So take the records of one key that went the same way from a channel
on: wherever they come, those that were in flight stand in the order in which the checkpoint held them, with nothing
between them that was sent later. And of one key and split, no record comes before one that was read first, whichever
job of a trial sent it: what is replayed comes before everything newer.

Where a rebalance edge becomes narrower or wider, records of one key from several channels meet in one, in any order.
Nothing is said of what lies behind such an edge. Nor does a list without keys show an order once it was split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter

from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.in_flight import edge_of
from barrier_tck.harness.oracle.evidence.record_routes import (
    SPLIT_IDS,
    Growth,
    Place,
    RecordPaths,
    TakenRecords,
    arrivals_of,
)
from barrier_tck.harness.plan.job_graph import JobPlan, Spread
from barrier_tck.harness.record.history import InFlight, SnapshotView
from barrier_tck.harness.system.job_view import JobView

REPLAYED = "replayed"
"""The count of a finding that says how many records in flight were found again beside others of their channel."""


@dataclass(frozen=True, slots=True)
class _Block:
    """What a checkpoint held of one channel, of the records that had come to its sender on one path."""

    checkpoint: int
    channel: str
    target: str
    """The vertex of the receiver."""
    input: int
    path: str
    hop: int
    """How many vertices lie on the path, so which vertex of a lane follows them."""
    places: dict[int, int]
    """Id -> its place in the channel."""


class _Blocks:
    """Blocks by their paths: a lane is compared with those alone whose records may have gone on in it."""

    def __init__(self, blocks: Iterable[_Block]) -> None:
        self._by_path: dict[str, list[tuple[int, _Block]]] = {}
        for number, block in enumerate(blocks):
            self._by_path.setdefault(block.path, []).append((number, block))

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def on_the_way(self, path: str) -> list[_Block]:
        """Return the blocks whose paths are a beginning of a path, or all of it, in the order of the blocks."""
        steps = path.split(">")
        beginnings = ("", *(">".join(steps[:count]) for count in range(1, len(steps) + 1) if path))
        found = [entry for beginning in beginnings for entry in self._by_path.get(beginning, ())]
        return [block for _, block in sorted(found, key=itemgetter(0))]


@dataclass(frozen=True, slots=True)
class _Lane:
    """The records of one key that came to one subtask on one path, in the order in which it took them."""

    subtask: str
    number: int
    """Of the input."""
    path: str
    key: str
    vertices: tuple[str, ...]
    ids: tuple[int, ...]
    known: int
    """How many of them, the first ones, were judged with the checkpoint before."""


_Way = tuple[int, str, str]
"""(number of the input, full path, key)."""


@dataclass
class ReplayedOrder:
    """Judges the order of records in checkpoints that descend from restored ones."""

    jobs: Sequence[JobPlan]
    """The job, and what becomes of it at each rescaled start."""
    compared: int = 0
    """How many records that were in flight have been found again, beside others of their channel and key."""
    _routes: RecordPaths = field(init=False)
    _mixed: frozenset[str] = field(init=False)
    """The vertices in which a change of parallelism mixes the channels of one sender."""
    _one_way: frozenset[tuple[str, str]] = field(init=False)
    """The pairs of vertices between which one edge leads."""
    steps: int = 0
    """How many records were looked at; work is counted, because time depends on the machine."""
    _descent: tuple[int, ...] = ()
    """The checkpoints that were restored on the way to the newest one that was judged."""
    _growth: Growth = field(default_factory=Growth)
    _taken: dict[tuple[str, ...], dict[_Way, list[int]]] = field(default_factory=dict)
    """Place -> way -> the ids of its records that are not in flight, in order."""
    _held: dict[int, list[_Block]] = field(default_factory=dict)
    """Checkpoint that was restored -> what it held."""

    def __post_init__(self) -> None:
        self._routes = RecordPaths(self.jobs[0])
        dealt = {edge.target for job in self.jobs for edge in job.edges if edge.by is Spread.REBALANCE}
        self._mixed = frozenset(dealt if len(self.jobs) > 1 else ())
        edges = Counter((edge.source, edge.target) for edge in self.jobs[0].edges)
        self._one_way = frozenset(ends for ends, count in edges.items() if count == 1)

    def problems(
        self, view: SnapshotView, job: JobView | None, restored: Sequence[tuple[SnapshotView, JobPlan]]
    ) -> Iterator[Difference]:
        """Yield what is out of order in a checkpoint of a job.

        ``restored`` are the checkpoints from which its attempt descends, each with the plan of the job that took it.
        """
        blocks = _Blocks(block for before, plan in restored for block in self._blocks(before, plan))
        if not blocks and len(self.jobs) == 1:
            return
        descent = tuple(before.checkpoint for before, _ in restored)
        if self._descent != descent:  # other blocks: nothing was compared with them
            self._descent, self._growth, self._taken = descent, Growth(), {}
        for arrivals, end in arrivals_of(self.jobs[0], job, view):
            if len(self.jobs) > 1 and not arrivals.keyed:
                continue
            for lane in self._grown(arrivals, end):
                if len(self.jobs) > 1:
                    yield from _read_later(lane)
                for block in blocks.on_the_way(lane.path):
                    if not block.places.keys().isdisjoint(lane.ids[lane.known :]):
                        yield from self._replayed(lane, block)

    def _blocks(self, view: SnapshotView, plan: JobPlan) -> list[_Block]:
        """Return what a checkpoint holds of each channel, path by path; ``plan`` is the job that took it."""
        if view.checkpoint not in self._held:
            self._held[view.checkpoint] = [
                _Block(
                    view.checkpoint,
                    f"{channel.sender}->{channel.receiver}",
                    edge.target,
                    edge.input,
                    path,
                    len(self._routes.vertices_on(path, None)),
                    places,
                )
                for channel in view.in_flight
                if (edge := edge_of(plan, channel)) is not None
                for path, places in _by_path(channel).items()
                if len(places) > 1
            ]
        return self._held[view.checkpoint]

    def _grown(self, arrivals: TakenRecords, end: Place | None) -> Iterator[_Lane]:
        """Yield, path by path, the records that have come, if some are new since the checkpoint before; none if they
        may have come over several edges.
        """
        place = (arrivals.subtask, *arrivals.where)
        known, sure = self._growth.known(arrivals), len(arrivals.records) - arrivals.coming
        found = self._taken.setdefault(place, {}) if known else {}
        self._taken[place] = found
        new: dict[_Way, list[int]] = {}
        for number, identifier, path, key in arrivals.records[known:sure]:
            new.setdefault((number, path, key), []).append(identifier)
        before = {way: len(found.get(way, ())) for way in new}
        for way, ids in new.items():
            found.setdefault(way, []).extend(ids)
        coming: dict[_Way, list[int]] = {}
        for number, identifier, path, key in arrivals.records[sure:]:
            coming.setdefault((number, path, key), []).append(identifier)
        for way in dict.fromkeys((*new, *coming)):
            number, path, key = way
            held = found.get(way, [])
            ids = [*held, *coming.get(way, ())]
            self.steps += len(ids)
            if len(ids) > 1 and len(set(ids)) == len(ids):
                vertices = self._routes.vertices_on(path, end)
                if self._is_one_way(vertices) and not self._mixed.intersection(vertices):
                    seen = before.get(way, len(held))
                    yield _Lane(arrivals.subtask, number, path, key, vertices, tuple(ids), seen)

    def _is_one_way(self, vertices: Sequence[str]) -> bool:
        """Return whether one edge leads from each of these vertices to the next."""
        return self._one_way.issuperset(pairwise(vertices))

    def _replayed(self, lane: _Lane, block: _Block) -> Iterator[Difference]:
        """Yield what of a block on its way does not stand in a lane as it stood in its channel."""
        ends_here = lane.path == block.path
        follows = lane.vertices[block.hop] if block.hop < len(lane.vertices) else None
        if follows != block.target or (ends_here and lane.number != block.input):
            return
        held = [(place, entry) for place, entry in enumerate(lane.ids) if entry in block.places]
        if len(held) < 2:
            return
        self.compared += len(held)
        where = f"of key {lane.key} in {lane.subtask}"
        which = f"checkpoint {block.checkpoint} held both in flight on {block.channel}"
        for (place, item), (following, other) in pairwise(held):
            if block.places[item] > block.places[other]:
                behind = (
                    f"record {other} {where} is behind record {item}, and {which} the other way round (RSC-3)"
                )
                yield Difference(Kind.ORDER, behind, lane.subtask, block.channel, in_flight_before=True)
            # Records that a source sends show no path, so those of several sources may lie between them.
            elif block.path and following > place + 1:
                between = lane.ids[place + 1]
                yield Difference(
                    Kind.ORDER,
                    f"record {between} {where} is between {item} and {other}; {which}, "
                    "one right after the other (UNA-1)",
                    lane.subtask,
                    block.channel,
                    in_flight_before=True,
                )


def _by_path(channel: InFlight) -> dict[str, dict[int, int]]:
    """Return path -> id -> place of what is in flight on a channel."""
    paths: dict[str, dict[int, int]] = {}
    for place, row in enumerate(channel.rows):
        paths.setdefault(row["path"], {})[row["id"]] = place
    return paths


def _read_later(lane: _Lane) -> Iterator[Difference]:
    """Yield which records come after others of their split that were read later."""
    latest: dict[int, int] = {}
    for identifier in lane.ids:
        split = identifier // SPLIT_IDS
        if identifier < latest.get(split, -1):
            way = lane.path or "their source"
            yield Difference(
                Kind.ORDER,
                f"record {identifier} of key {lane.key} is behind record {latest[split]} in {lane.subtask}, though "
                f"both came by way of {way} and it was read first: a rescaled start changed their order (RSC-3)",
                lane.subtask,
                moved=True,
            )
        latest[split] = identifier
