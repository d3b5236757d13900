"""What a subtask takes over of the records that a job of another parallelism had in flight (RSC-3, UNA-4).

Grain: the redistribution and the reader of its files together, on every kind of edge, at drawn widths.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.elements import decode_element, encode_watermark
from barrier_tck.reference_impl.operators.functions import Emission, Sum
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning, Vertex
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.messages import (
    CHANNEL_STATE,
    ChannelState,
    CompletedCheckpoint,
    StateHandle,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.rescale import redistributed
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime.rescaling import Rerouting, new_job
from barrier_tck.reference_impl.storage import channel_state
from barrier_tck.reference_impl.storage.channel_state import Fragment

KEYS = 6
PLANE = RowPlane()
TOTALS = AggregateSpec("totals", ("key",), {"sum": Sum("value")}, Emission.FINAL)
WIDTHS = st.tuples(st.integers(1, 4), st.integers(1, 4))
Batch = tuple[bool, int]
"""Whether it came before everything on other channels already, and its number."""


def graph(widths: tuple[int, int], by: Partitioning) -> JobGraph:
    key = ("key",) if by is Partitioning.HASH else ()
    source, keyed = widths
    return JobGraph(
        "job",
        (Vertex("read", source, CollectionSource((), 1)), Vertex("totals", keyed, None, (TOTALS,))),
        (Edge("read", "totals", by, key),),
        max_parallelism=8,
    )


class Files:
    """The channel state of a checkpoint, as a job at some widths left it."""

    def __init__(self, job: JobGraph, held: dict[ChannelId, tuple[int, int]]) -> None:
        """Take how many batches each channel holds that came first, and how many others."""
        self.contents: dict[str, bytes] = {}
        self.batches: dict[ChannelId, list[Batch]] = {}
        number = 0
        for channel, (first, others) in held.items():
            own = self.batches[channel] = []
            for place in range(first + others):
                own.append((place < first, number))
                number += 1
        parts = [self._part(job, subtask) for subtask in job.subtasks]
        self.checkpoint = CompletedCheckpoint(
            CheckpointId(1), AttemptNumber(1), 0, 1, tuple(parts), job.shape
        )

    def _part(self, job: JobGraph, subtask: SubtaskId) -> SubtaskSnapshot:
        own = {one: self.batches[one] for one in job.inputs_of(subtask) if self.batches.get(one)}
        inputs = {
            channel: [
                Fragment(data)
                for _, number in batches
                for data in (PLANE.encode(rows_of(job, channel, number)), encode_watermark(Watermark(number)))
            ]
            for channel, batches in own.items()
        }
        if not inputs:
            return SubtaskSnapshot(subtask, AttemptNumber(1), ())
        name = f"flight-{subtask}"
        self.contents[name] = b"".join(channel_state.encode(inputs, {}, PLANE.name))
        handle = StateHandle(name, 1, "crc32:00000000", KeyGroupRange(0, 0), CHANNEL_STATE)
        held = tuple(
            replace(one, first=2 * sum(first for first, _ in own[one.channel]))
            for one in channel_state.contents(inputs)
        )
        return SubtaskSnapshot(subtask, AttemptNumber(1), (), channels=ChannelState(handle, held, ()))

    def read(self, handle: StateHandle) -> bytes:
        return self.contents[handle.path]


def rows_of(job: JobGraph, channel: ChannelId, number: int) -> list[dict[str, Any]]:
    """Return the records of a batch: one of each key that the receiver owns, or of every key without a hash edge."""
    rows = [{"key": key, "batch": number, "of": str(channel)} for key in range(KEYS)]
    edge = job.edge_of(channel)
    if edge.partitioning is not Partitioning.HASH:
        return rows
    parts = PLANE.partition(rows, edge.key, job.vertex(edge.target).parallelism, job.max_parallelism)
    return next((part for index, part in parts if index == channel.receiver.index), [])


@settings(max_examples=80, deadline=None)
@given(st.data(), WIDTHS, WIDTHS, st.sampled_from([Partitioning.HASH, Partitioning.REBALANCE]))
def test_records_in_flight_keep_their_order_and_what_came_first_does_so_again(
    data: st.DataObject, before: tuple[int, int], now: tuple[int, int], by: Partitioning
) -> None:
    """A checkpoint may be taken while records of a former redistribution are still replayed."""
    former, present = graph(before, by), graph(now, by)
    amount = st.tuples(st.integers(0, 2), st.integers(0, 2))
    files = Files(former, {channel: data.draw(amount, str(channel)) for channel in former.channels})
    found = redistributed(files.checkpoint, new_job(present))
    if before == now:
        assert found is files.checkpoint
        return
    first = {number for batches in files.batches.values() for came_first, number in batches if came_first}
    seen: Counter[tuple[int, int]] = Counter()
    for part in found.snapshots:
        rerouting = Rerouting(present, part.subtask, PLANE, files)
        for target, taken in rerouting.taken_over(part.rerouted or ()).items():
            assert target in present.inputs_of(part.subtask)
            elements = [decode_element(PLANE, fragment.data) for fragment in taken.fragments]
            rows = [row for one in elements if not isinstance(one, Watermark) for row in one]
            seen.update((row["batch"], row["key"]) for row in rows)
            early = [row["batch"] in first for row in rows]
            assert early == sorted(early, reverse=True), "what came before all others does so again"
            for channel, batches in files.batches.items():
                order = [number for _, number in batches]
                own = [row["batch"] for row in rows if row["of"] == str(channel)]
                assert [one for one in order for _ in range(own.count(one))] == own, (
                    "a channel keeps its order"
                )
    held = Counter(
        (row["batch"], row["key"])
        for channel, batches in files.batches.items()
        for _, number in batches
        for row in rows_of(former, channel, number)
    )
    assert seen == held, "each record comes once"


def test_what_was_on_a_channel_comes_again_on_it_if_neither_end_has_another_parallelism() -> None:
    """Also watermarks, which are those of its sender then; on the other edge they count for no receiver of today."""
    former, present = (
        JobGraph(
            "job",
            (
                Vertex("read", 2, CollectionSource((), 1)),
                Vertex("totals", 2, None, (TOTALS,)),
                Vertex("last", last, None, (dataclasses.replace(TOTALS, uid="last"),)),
            ),
            (
                Edge("read", "totals", Partitioning.HASH, ("key",)),
                Edge("totals", "last", Partitioning.HASH, ("key",)),
            ),
            max_parallelism=8,
        )
        for last in (1, 3)
    )
    files = Files(former, dict.fromkeys(former.channels, (1, 1)))
    found = redistributed(files.checkpoint, new_job(present))
    for part in found.snapshots:
        taken = Rerouting(present, part.subtask, PLANE, files).taken_over(part.rerouted or ())
        elements = {
            target: [decode_element(PLANE, fragment.data) for fragment in one.fragments]
            for target, one in taken.items()
        }
        if part.subtask.vertex == "totals":
            first = {target: one.before_all for target, one in taken.items()}
            assert first == dict.fromkeys(present.inputs_of(part.subtask), 2), (
                "what came before all others does so"
            )
            assert elements == {
                channel: [
                    element
                    for _, number in files.batches[channel]
                    for element in (rows_of(former, channel, number), Watermark(number))
                ]
                for channel in present.inputs_of(part.subtask)
            }
        for target, one in elements.items() if part.subtask.vertex == "last" else ():
            assert taken[target].before_all == len(one)
            marks = [element.origin for element in one if isinstance(element, Watermark)]
            assert marks and all(len(origin) == 1 for origin in marks)
