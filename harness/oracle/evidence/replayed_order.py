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

from barrier_tck.harness.oracle.evidence.arrivals import Arrivals, CameRecords, Growth, Place
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.in_flight import edge_of
from barrier_tck.harness.oracle.evidence.record_routes import SPLIT_IDS, RecordPaths
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
        self._found: dict[str, list[_Block]] = {}
        for number, block in enumerate(blocks):
            self._by_path.setdefault(block.path, []).append((number, block))

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def on_the_way(self, path: str) -> list[_Block]:
        """Return the blocks whose paths are a beginning of a path, or all of it, in the order of the blocks."""
        if path not in self._found:
            self._found[path] = self._find(path)
        return self._found[path]

    def _find(self, path: str) -> list[_Block]:
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


@dataclass(slots=True)
class _Come:
    """What came to one place on one way, without what is in flight."""

    ids: list[int] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    """The same without their order."""
    latest: dict[int, int] = field(default_factory=dict)
    """Split -> the id of its record that came last."""

    @property
    def is_repeated(self) -> bool:
        """Whether a record came more than once, so that it may have come over several edges."""
        return len(self.known) < len(self.ids)


_Way = tuple[int, str, str]
"""(number of the input, full path, key)."""


@dataclass
class ReplayedOrder:
    """Judges the order of records in checkpoints that descend from restored ones."""

    jobs: Sequence[JobPlan]
    """The job, and what becomes of it at each rescaled start."""
    arrivals: Arrivals
    """Reads the checkpoints of the trial; others may ask it, too."""
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
    _on_channels: _Blocks = field(default_factory=lambda: _Blocks(()))
    """What these held in flight."""
    _growth: Growth = field(default_factory=Growth)
    _come: dict[tuple[str, ...], dict[_Way, _Come]] = field(default_factory=dict)
    """Place -> way -> what came on it."""
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
        descent = tuple(before.checkpoint for before, _ in restored)
        if self._descent != descent:  # other blocks: nothing was compared with them
            self._descent, self._growth, self._come = descent, Growth(), {}
            self._on_channels = _Blocks(
                block for before, plan in restored for block in self._blocks(before, plan)
            )
        if not self._on_channels and len(self.jobs) == 1:
            return
        for came, end in self.arrivals.in_checkpoint(job, view):
            if len(self.jobs) == 1 or came.keyed:
                yield from self._grown(came, end)

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

    def _grown(self, came: CameRecords, end: Place | None) -> Iterator[Difference]:
        """Yield, path by path, what is out of order among the records that are new since the checkpoint before."""
        known = self._growth.known(came)
        found = self._come.setdefault(came.place, {}) if known else {}
        self._come[came.place] = found
        new: dict[_Way, list[int]] = {}
        for number, identifier, path, key in came.taken_from(known):
            new.setdefault((number, path, key), []).append(identifier)
        coming: dict[_Way, list[int]] = {}
        for number, identifier, path, key in came.coming:
            coming.setdefault((number, path, key), []).append(identifier)
        for way in dict.fromkeys((*new, *coming)):
            yield from self._on_way(
                came.subtask, way, found.setdefault(way, _Come()), new.get(way, []), coming.get(way, []), end
            )

    def _on_way(
        self,
        subtask: str,
        way: _Way,
        come: _Come,
        new: Sequence[int],
        coming: Sequence[int],
        end: Place | None,
    ) -> Iterator[Difference]:
        """Yield what is out of order on one way; nothing if its records may have come over several edges."""
        number, path, key = way
        self.steps += len(new) + len(coming)
        latest = dict(come.latest)
        come.ids.extend(new)
        come.known.update(new)
        come.latest.update((identifier // SPLIT_IDS, identifier) for identifier in new)
        if come.is_repeated or len(set(coming)) < len(coming) or not come.known.isdisjoint(coming):
            return
        vertices = self._routes.vertices_on(path, end)
        if not self._is_one_way(vertices) or self._mixed.intersection(vertices):
            return
        fresh = [*new, *coming]
        if len(self.jobs) > 1:
            yield from _read_later(subtask, way, latest, fresh)
        touched = [
            block for block in self._on_channels.on_the_way(path) if not block.places.keys().isdisjoint(fresh)
        ]
        if touched:
            lane = _Lane(subtask, number, path, key, vertices, (*come.ids, *coming))
            for block in touched:
                yield from self._replayed(lane, block)

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


def _read_later(subtask: str, way: _Way, latest: dict[int, int], ids: Sequence[int]) -> Iterator[Difference]:
    """Yield which records come after others of their split that were read later.

    ``latest`` is the record of each split that came last before them, and is carried on.
    """
    _, path, key = way
    for identifier in ids:
        split = identifier // SPLIT_IDS
        if identifier < latest.get(split, -1):
            yield Difference(
                Kind.ORDER,
                f"record {identifier} of key {key} is behind record {latest[split]} in {subtask}, though "
                f"both came by way of {path or 'their source'} and it was read first: a rescaled start changed their "
                "order (RSC-3)",
                subtask,
                moved=True,
            )
        latest[split] = identifier
