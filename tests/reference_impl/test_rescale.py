"""Redistribution gives all that a checkpoint holds to exactly one owner, at every parallelism (RSC-1 to RSC-3)."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.list_process import OperatorStates
from barrier_tck.reference_impl.protocol.key_groups import key_group_range, owner_of
from barrier_tck.reference_impl.protocol.messages import (
    CHANNEL_STATE,
    ChannelContent,
    ChannelState,
    CompletedCheckpoint,
    JobShape,
    OperatorSnapshot,
    SplitPosition,
    StateHandle,
    StateList,
    SubtaskSnapshot,
    VertexShape,
)
from barrier_tck.reference_impl.protocol.rescale import EdgeShape, NewJob, dealt_out, redistributed
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle
from barrier_tck.reference_impl.runtime.operator_contexts import built_on
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.storage import metadata

GROUPS = 16
NO_GROUPS = KeyGroupRange(0, 0)
WIDTHS = st.integers(1, GROUPS)


def shape(source: int, keyed: int, sink: int) -> JobShape:
    return JobShape(
        GROUPS,
        (
            VertexShape("read", source, ("read.source",)),
            VertexShape("count", keyed, ("count",)),
            VertexShape("out", sink, ("out",)),
        ),
    )


EDGES = (EdgeShape("read", "count", 0, by_key=True), EdgeShape("count", "out", 0))


def handle(name: str, own: KeyGroupRange = NO_GROUPS, kind: str = "keyed") -> StateHandle:
    return StateHandle(name, 1, "crc32:00000000", own, kind)


def splits_of(index: int, parallelism: int, splits: int) -> tuple[SplitPosition, ...]:
    return tuple(SplitPosition(f"s{number}", number) for number in range(index, splits, parallelism))


def part(vertex: str, index: int, operator: OperatorSnapshot, **more: Any) -> SubtaskSnapshot:
    return SubtaskSnapshot(SubtaskId(vertex, index), AttemptNumber(1), (operator,), **more)


def checkpoint(source: int, keyed: int, sink: int, splits: int = 5) -> CompletedCheckpoint:
    """Return a checkpoint with something of everything; each channel has records in flight at its receiver."""
    parts = [
        part("read", i, OperatorSnapshot("read.source", splits_of(i, source, splits))) for i in range(source)
    ]
    for i in range(keyed):
        own = key_group_range(i, keyed, GROUPS)
        held = tuple(
            ChannelContent(ChannelId(SubtaskId("read", sender), SubtaskId("count", i)), 1, 1)
            for sender in range(source)
        )
        files = (handle(f"count-{i}", own),) if len(own) else ()
        state = ChannelState(handle(f"flight-{i}", kind=CHANNEL_STATE), inputs=held)
        parts.append(part("count", i, OperatorSnapshot("count", handles=files), channels=state))
    for i in range(sink):
        transactions = (TransactionHandle(f"t{i}", CheckpointId(1), (), i),)
        parts.append(part("out", i, OperatorSnapshot("out", transactions=transactions)))
    return CompletedCheckpoint(
        CheckpointId(1), AttemptNumber(1), 0, 1, tuple(parts), shape(source, keyed, sink)
    )


def operators(completed: CompletedCheckpoint, vertex: str) -> list[OperatorSnapshot]:
    return [part.operators[0] for part in completed.snapshots if part.subtask.vertex == vertex]


@given(st.tuples(WIDTHS, WIDTHS, WIDTHS), st.tuples(WIDTHS, WIDTHS, WIDTHS), st.integers(0, 12))
@settings(max_examples=120, deadline=None)
def test_everything_has_exactly_one_owner_at_any_parallelism(
    before: tuple[int, int, int], now: tuple[int, int, int], splits: int
) -> None:
    found = redistributed(checkpoint(*before, splits), NewJob(shape(*now), EDGES))
    assert [str(one.subtask) for one in found.snapshots] == [
        f"{vertex}[{index}]"
        for vertex, width in zip(("read", "count", "out"), now, strict=True)
        for index in range(width)
    ]
    # Splits: each once, and where a first start would have it.
    dealt = [one.positions for one in operators(found, "read")]
    assert dealt == [splits_of(i, now[0], splits) for i in range(now[0])]
    # Keyed state: each key group is in reach of its owner, by the file that holds it, and by no superfluous file.
    for index, one in enumerate(operators(found, "count")):
        own = key_group_range(index, now[1], GROUPS)
        held = [group for file in one.handles for group in file.key_groups.intersection(own)]
        assert held == list(own)
        assert all(len(file.key_groups.intersection(own)) for file in one.handles)
    # Transactions: each once.
    prepared = Counter(t.transaction for one in operators(found, "out") for t in one.transactions)
    assert prepared == Counter(f"t{index}" for index in range(before[2]))


def listing(lists: list[list[bytes]], to_all: bool, finished: int = 0) -> CompletedCheckpoint:
    """Return a checkpoint in which each subtask of ``count`` keeps a list; the first ones had finished before it."""
    parts = [
        part(
            "count",
            i,
            OperatorSnapshot("count", lists=(StateList("l", tuple(own), to_all),)),
            finished=i < finished,
        )
        for i, own in enumerate(lists)
    ]
    others = [
        part("read", 0, OperatorSnapshot("read.source")),
        part("out", 0, OperatorSnapshot("out")),
    ]
    parts = [others[0], *parts, others[1]]
    return CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, tuple(parts), shape(1, len(lists), 1))


def entries(completed: CompletedCheckpoint) -> list[tuple[bytes, ...]]:
    return [one.lists[0].entries if one.lists else () for one in operators(completed, "count")]


LISTS = st.lists(st.lists(st.binary(max_size=2), max_size=5), min_size=1, max_size=GROUPS)


@given(LISTS, WIDTHS)
@settings(max_examples=150, deadline=None)
def test_each_entry_of_a_list_has_one_owner_and_at_the_same_parallelism_the_one_it_had(
    lists: list[list[bytes]], now: int
) -> None:
    found = entries(redistributed(listing(lists, to_all=False), NewJob(shape(1, now, 1), EDGES)))
    if now == len(lists):
        assert found == [tuple(own) for own in lists]
        return
    assert [entry for own in found for entry in own] == [entry for own in lists for entry in own]
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.long
@given(LISTS, WIDTHS)
@settings(max_examples=150, deadline=None)
def test_each_subtask_gets_all_entries_of_a_list_for_all_at_any_parallelism(
    lists: list[list[bytes]], now: int
) -> None:
    found = redistributed(listing(lists, to_all=True), NewJob(shape(1, now, 1), EDGES))
    assert entries(found) == [tuple(entry for own in lists for entry in own)] * now
    if now == len(lists):
        assert not any(one.redistributed is True for one in found.snapshots)


@given(LISTS, WIDTHS, st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_subtasks_that_had_finished_kept_is_handed_on_once(
    lists: list[list[bytes]], now: int, to_all: bool, everyone: bool
) -> None:
    """If all had finished, no subtask reads the lists, so a list for all must not be multiplied."""
    finished = len(lists) if everyone else len(lists) // 2
    found = redistributed(listing(lists, to_all, finished), NewJob(shape(1, now, 1), EDGES))
    whole = Counter(entry for own in lists for entry in own)
    if everyone:
        assert Counter(entry for own in entries(found) for entry in own) == whole
    elif to_all:
        counting = [one for one in found.snapshots if one.subtask.vertex == "count"]
        reading = [Counter(one.operators[0].lists[0].entries) for one in counting if not one.finished]  # type: ignore[index]
        assert all(one == whole for one in reading)
    else:
        assert Counter(entry for own in entries(found) for entry in own) == whole


@given(LISTS, st.lists(st.none() | WIDTHS, min_size=1, max_size=3), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_list_that_no_function_names_is_handed_on_once_however_often_it_is_restored(
    lists: list[list[bytes]], widths: list[int | None], to_all: bool, some_finished: bool
) -> None:
    """Each restore gives all entries of a list for all to each subtask: who kept them all would multiply them."""
    finished = len(lists) // 2 if some_finished else 0
    completed = listing(lists, to_all, finished)
    whole = sorted(entry for own in lists for entry in own)
    held = lists
    for width in widths:
        now = width or len(held)
        found = redistributed(completed, NewJob(shape(1, now, 1), EDGES))
        finished = 0 if width and width != len(held) else finished
        held = [
            list(kept[0].entries) if (kept := _kept(one, has_finished=index < finished)) else []
            for index, one in enumerate(operators(found, "count"))
        ]
        assert sorted(entry for own in held for entry in own) == whole
        completed = listing(held, to_all, finished)


def _kept(one: OperatorSnapshot, has_finished: bool) -> tuple[StateList, ...]:
    """Return what a subtask hands on whose function names no list."""
    return one.lists or () if has_finished else OperatorStates("count", one).stored()


@pytest.mark.parametrize("lists", [[[b"a"], [], [b"b", b"c"]], [[], [b"a"]], [[b"a"]]])
def test_at_the_same_parallelism_each_subtask_gets_all_entries_of_a_list_for_all(
    lists: list[list[bytes]],
) -> None:
    found = redistributed(listing(lists, to_all=True), NewJob(shape(1, len(lists), 1), EDGES))
    assert entries(found) == [tuple(entry for own in lists for entry in own)] * len(lists)


def test_every_list_of_every_operator_of_a_chain_has_all_its_entries_after_a_change_of_parallelism() -> None:
    def kept(index: int) -> SubtaskSnapshot:
        head, behind = (
            OperatorSnapshot(
                uid,
                lists=(
                    StateList("dealt", (f"{uid} dealt {index}".encode(),)),
                    StateList("shared", (f"{uid} shared {index}".encode(),), to_all=True),
                ),
            )
            for uid in ("count", "behind")
        )
        return SubtaskSnapshot(SubtaskId("count", index), AttemptNumber(1), (head, behind))

    parts = (
        part("read", 0, OperatorSnapshot("read.source")),
        kept(0),
        kept(1),
        part("out", 0, OperatorSnapshot("out")),
    )
    completed = CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, parts, shape(1, 2, 1))
    found = redistributed(completed, NewJob(shape(1, 3, 1), EDGES))
    counting = [one.operators for one in found.snapshots if one.subtask.vertex == "count"]
    for place, uid in enumerate(("count", "behind")):
        dealt, shared = (
            [{kept.name: kept.entries for kept in of[place].lists or ()}[name] for of in counting]
            for name in ("dealt", "shared")
        )
        assert sorted(chain(*dealt)) == [f"{uid} dealt {index}".encode() for index in (0, 1)]
        assert shared == [tuple(f"{uid} shared {index}".encode() for index in (0, 1))] * 3


def test_lists_survive_in_metadata_and_checkpoints_without_any_hold_no_word_of_them() -> None:
    kept = listing([[b"a", b"\x00\xff"], []], to_all=True)
    assert metadata.decode(metadata.encode(kept), "chk-1/_metadata") == kept
    assert b"lists" not in metadata.encode(checkpoint(1, 2, 1))


@given(WIDTHS, WIDTHS, WIDTHS, WIDTHS)
@settings(max_examples=60, deadline=None)
def test_each_record_in_flight_on_a_hash_edge_reaches_the_owner_of_its_key_group_once(
    source: int, keyed: int, sources_now: int, keyed_now: int
) -> None:
    found = redistributed(checkpoint(source, keyed, 1), NewJob(shape(sources_now, keyed_now, 1), EDGES))
    if (source, keyed) == (sources_now, keyed_now):
        assert all(not part.rerouted and part.channels is not None for part in found.snapshots[source:-1])
        return
    for group in range(GROUPS):
        for sender in range(source):
            origin = ChannelId(SubtaskId("read", sender), SubtaskId("count", owner_of(group, keyed, GROUPS)))
            takers = [
                part.subtask.index
                for part in found.snapshots
                for one in part.rerouted or ()
                if one.origin == origin
                and one.by_key
                and group in key_group_range(part.subtask.index, keyed_now, GROUPS)
            ]
            assert takers == [owner_of(group, keyed_now, GROUPS)]
    assert all(part.channels is None for part in found.snapshots)
    targets = [one.target for part in found.snapshots for one in part.rerouted or ()]
    assert all(one.sender.index < sources_now and one.receiver.index < keyed_now for one in targets)


def test_a_parallelism_that_did_not_change_gets_exactly_its_own() -> None:
    """RS-02: the first of two sinks has nothing prepared, and must not get what the second one has."""
    completed = checkpoint(2, 2, 2)
    empty = part("out", 0, OperatorSnapshot("out"))
    parts = tuple(empty if str(one.subtask) == "out[0]" else one for one in completed.snapshots)
    given_ = CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, parts, completed.job)
    assert redistributed(given_, NewJob(shape(2, 2, 2), EDGES)) is given_
    wider = redistributed(given_, NewJob(shape(2, 5, 2), EDGES))
    assert [len(one.transactions) for one in operators(wider, "out")] == [0, 1]
    assert operators(wider, "read") == operators(completed, "read")


def test_increments_build_on_nothing_of_a_vertex_whose_parallelism_changed_and_on_all_of_the_others() -> None:
    completed = checkpoint(2, 2, 2)
    found = redistributed(completed, NewJob(shape(2, 3, 2), EDGES))
    assert [part.subtask.vertex for part in found.snapshots if part.redistributed is True] == ["count"] * 3
    for part_of in found.snapshots:
        deployment = SubtaskDeployment(
            "job", part_of.subtask, AttemptNumber(2), JobConfig(), part_of, found.checkpoint
        )
        assert built_on(deployment) == (None if part_of.subtask.vertex == "count" else found.checkpoint)
    assert not any(part_of.redistributed for part_of in completed.snapshots)
    assert b"redistributed" not in metadata.encode(completed)


def test_what_both_ends_of_a_channel_hold_is_read_receiver_first() -> None:
    channel = ChannelId(SubtaskId("count", 0), SubtaskId("out", 0))
    content = (ChannelContent(channel, 1, 1),)
    count = part(
        "count", 0, OperatorSnapshot("count"), channels=ChannelState(handle("late"), outputs=content)
    )
    out = part("out", 0, OperatorSnapshot("out"), channels=ChannelState(handle("early"), inputs=content))
    read = part("read", 0, OperatorSnapshot("read.source"))
    completed = CompletedCheckpoint(
        CheckpointId(1), AttemptNumber(1), 0, 1, (read, count, out), shape(1, 1, 1)
    )
    found = redistributed(completed, NewJob(shape(1, 1, 3), EDGES))
    taken = {part.subtask: part.rerouted for part in found.snapshots if part.rerouted}
    assert list(taken) == [SubtaskId("out", 0)], "a batch of an edge without keys goes to one receiver, whole"
    (one,) = taken[SubtaskId("out", 0)] or ()
    assert [file.path for file in one.files] == ["early", "late"]


@pytest.mark.parametrize("now", [1, 3])
@pytest.mark.parametrize("ended", [{0}, {0, 1}])
def test_the_input_of_a_subtask_had_ended_if_it_had_for_all_former_ones(ended: set[int], now: int) -> None:
    """What is chained to a source has the input of its splits, and these are not dealt out by key group."""
    completed = checkpoint(1, 2, 1)
    parts = tuple(
        part("count", one.subtask.index, OperatorSnapshot("count", input_ended=one.subtask.index in ended))
        if one.subtask.vertex == "count"
        else one
        for one in completed.snapshots
    )
    given_ = CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, parts, completed.job)
    found = redistributed(given_, NewJob(shape(1, now, 1), EDGES))
    assert [one.input_ended for one in operators(found, "count")] == [len(ended) == 2] * now


@pytest.mark.parametrize("finished", [1, 2])
def test_the_subtasks_of_a_vertex_stay_finished_only_if_all_had(finished: int) -> None:
    """The others begin again at the end of what was read, and finish once more (BAR-6)."""
    completed = checkpoint(2, 1, 1, splits=4)
    parts = tuple(
        part("read", one.subtask.index, one.operators[0], finished=one.subtask.index < finished)
        if one.subtask.vertex == "read"
        else one
        for one in completed.snapshots
    )
    given_ = CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, parts, completed.job)
    found = redistributed(given_, NewJob(shape(3, 1, 1), EDGES))
    sources = [one for one in found.snapshots if one.subtask.vertex == "read"]
    assert [one.finished for one in sources] == [finished == 2] * 3
    assert sum(len(one.operators[0].positions) for one in sources) == 4


def test_splits_are_dealt_out_as_at_a_first_start_also_by_way_of_other_widths() -> None:
    held: tuple[tuple[SplitPosition, ...], ...] = tuple(splits_of(i, 3, 10) for i in range(3))
    for width in (7, 1, 16, 2, 3):
        held = dealt_out(held, width)
        assert held == tuple(splits_of(i, width, 10) for i in range(width))
