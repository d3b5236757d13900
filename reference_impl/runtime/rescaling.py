"""Starting a job from the state of one with another parallelism: what the graph says, and records in flight (RSC-3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from barrier_tck.reference_impl.ids import ChannelId, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.elements import Element, decode_element, encode_element
from barrier_tck.reference_impl.operators.graph import JobGraph, Partitioning
from barrier_tck.reference_impl.protocol.messages import ReroutedChannel, StateHandle
from barrier_tck.reference_impl.protocol.rescale import EdgeShape, NewJob
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime_errors import CorruptStateError
from barrier_tck.reference_impl.state.backend import StateReader
from barrier_tck.reference_impl.storage import channel_state
from barrier_tck.reference_impl.storage.channel_state import Fragment, RecordsInFlight


def new_job(graph: JobGraph) -> NewJob:
    """Return what decides how a checkpoint is redistributed for a job."""
    edges: dict[tuple[str, str, int], EdgeShape] = {}
    for channel in graph.channels:
        edge = graph.edge_of(channel)
        edges.setdefault(
            (edge.source, edge.target, channel.edge),
            EdgeShape(
                edge.source,
                edge.target,
                channel.edge,
                by_key=edge.partitioning is Partitioning.HASH,
                to_all=edge.partitioning is Partitioning.BROADCAST,
            ),
        )
    return NewJob(graph.shape, tuple(edges.values()))


@dataclass
class TakenOver:
    """What a channel begins with of the records that the job as it was had in flight."""

    fragments: list[Fragment] = field(default_factory=list)
    before_all: int = 0
    """So many of them, the first ones, come before everything on other channels."""


class Rerouting:
    """Reads the records in flight that one subtask takes over, and keeps those that are its own."""

    def __init__(self, graph: JobGraph, subtask: SubtaskId, plane: DataPlane, reader: StateReader) -> None:
        self._graph = graph
        self._subtask = subtask
        self._plane = plane
        self._reader = reader
        self._read: dict[str, RecordsInFlight] = {}

    def taken_over(self, rerouted: Sequence[ReroutedChannel]) -> dict[ChannelId, TakenOver]:
        """Return present input channel -> what comes first on it, as whole batches; those of a former channel in order.

        What came before all other channels then does so again: behind it are records of the same keys.
        Raises StorageError if a file cannot be read, CorruptStateError if it does not hold whole batches.
        """
        found: dict[ChannelId, TakenOver] = {}
        batches = [(one, list(self.batches(one))) for one in rerouted]
        ordered = [(one, batch, True) for one, held in batches for batch in held[: one.first]]
        # Where the sender is another one now, all of it comes before what that one sends, and so do others.
        ordered += [(one, batch, not one.as_it_was) for one, held in batches for batch in held[one.first :]]
        for one, batch, before_all in ordered:
            own = self._own(one, batch)
            if own is not None:
                taken = found.setdefault(one.target, TakenOver())
                taken.fragments.append(Fragment(encode_element(self._plane, own)))
                taken.before_all += before_all
        return found

    def batches(self, one: ReroutedChannel) -> Iterator[Element]:
        """Yield the elements of a former channel. What its sender holds may begin with the rest of a batch."""
        waiting: list[bytes] = []
        for fragment in self._fragments(one):
            waiting.append(fragment.data)
            if not fragment.more:
                yield decode_element(self._plane, b"".join(waiting))
                waiting.clear()
        if waiting:
            names = ", ".join(file.name for file in one.files)
            raise CorruptStateError(f"{names}: the last batch in flight on {one.origin} is not whole")

    def _fragments(self, one: ReroutedChannel) -> Iterator[Fragment]:
        contents = [self._content(file) for file in one.files]
        for content in contents:
            yield from content.inputs.get(one.origin, ())
        for content in contents:
            yield from content.outputs.get(one.origin, ())

    def _content(self, file: StateHandle) -> RecordsInFlight:
        if file.name not in self._read:
            content = self._reader.read(file)
            self._read[file.name] = channel_state.decode(content, self._plane.name, file.name)
        return self._read[file.name]

    def _own(self, one: ReroutedChannel, batch: Element) -> Element | None:
        """Return the records of a batch that belong to this subtask; None if there are none.

        On a channel whose ends are as they were, all do, and its watermarks are those of its sender. Any other
        watermark counts for the key groups of the receiver that it was on its way to (EVT-1). Where records have no
        key, it is left out: senders repeat theirs after such a start.
        """
        if one.as_it_was:
            return batch
        if isinstance(batch, Watermark):
            return replace(batch, origin=(*batch.origin, one.origin)) if one.by_key else None
        if not one.by_key:
            return batch
        edge, graph = self._graph.edge_of(one.target), self._graph
        width = graph.vertex(edge.target).parallelism
        parts = self._plane.partition(batch, edge.key, width, graph.max_parallelism)
        return next((part for index, part in parts if index == self._subtask.index), None)
