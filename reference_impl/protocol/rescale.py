"""Redistribution: what each subtask gets of a checkpoint that a job of another parallelism took (RSC-2, RSC-3).

A vertex whose parallelism did not change gets exactly its own parts back, and of a list that is for all subtasks the
entries of all. For any other vertex:

- keyed state goes to the owners of its key groups: a subtask gets every file that has some of its key groups. The next
  checkpoint of these subtasks refers to none of them (SNP-5);
- entries of a list that an operator keeps without keys are dealt out in their order, so many to each subtask that their
  numbers differ by one at most; a list that is for all goes to each subtask whole;
- positions of splits are dealt out in turn, in the order of the source's list of splits, as at a first start;
- a prepared transaction goes to one subtask, which commits it. Which one follows from the subtask that prepared it,
  whoever held it since then (``transactions``);
- a subtask had seen the end of its input if all those had from which it gets something;
- if only some of a vertex's subtasks had finished (BAR-6), all of them run again. Sources stand at the end of what
  was read, operators know that their input had ended, and they finish once more.

Records in flight (UNA-1) are given to their receivers, whichever end of a channel held them: those of a hash edge
to the owner of each record's key group, those of any other edge whole, to one receiver. Where neither end of a channel
has another parallelism, all of it comes again on that channel. All of this is described here, and nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import msgspec

from barrier_tck.reference_impl.ids import ChannelId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.key_groups import key_group_range
from barrier_tck.reference_impl.protocol.messages import (
    ChannelState,
    CompletedCheckpoint,
    JobShape,
    OperatorSnapshot,
    ReroutedChannel,
    SplitPosition,
    StateHandle,
    StateList,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.rescaled_watermarks import redistributed_event_time
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle, owner_of


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """What decides where the records of an edge go."""

    source: str
    target: str
    number: int
    """Which of the edges between the two vertices it is."""
    by_key: bool = False
    """Whether each record belongs to the owner of its key group."""
    to_all: bool = False
    """Whether every receiver gets each record."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """The job that is to start from a checkpoint."""

    shape: JobShape
    edges: tuple[EdgeShape, ...]


def widths_of(shape: JobShape) -> dict[str, int]:
    """Return vertex -> parallelism."""
    return {vertex.name: vertex.parallelism for vertex in shape.vertices}


def new_index(index: int, before: int, now: int) -> int:
    """Return which subtask of ``now`` takes the place of subtask ``index`` of ``before``.

    If the parallelism did not change, it is the same one. The order of subtasks is kept.
    """
    return index * now // before


def redistributed(completed: CompletedCheckpoint, job: NewJob) -> CompletedCheckpoint:
    """Return the checkpoint with one part for each subtask of the job; unchanged if no parallelism changed and no list
    is for all subtasks.

    The checkpoint must fit the job otherwise: ``runtime.compatibility`` refuses those that do not.
    """
    if completed.job is None or widths_of(completed.job) == widths_of(job.shape):
        return _with_lists_for_all(completed)
    rerouted = dict(_rerouted(completed, completed.job, job))
    parts = _by_vertex(completed)
    was, now = widths_of(completed.job), widths_of(job.shape)
    widened = {edge.target for edge in job.edges if was[edge.source] != now[edge.source]}
    new = [
        _with_channels(
            part,
            rerouted,
            parts.get(vertex.name, []),
            completed.job,
            vertex.name in widened,
            vertex.parallelism,
        )
        for vertex in job.shape.vertices
        for part in _spread(
            parts.get(vertex.name, []),
            vertex.name,
            vertex.parallelism,
            completed,
        )
    ]
    return CompletedCheckpoint(
        completed.checkpoint,
        completed.attempt,
        completed.triggered_at_ms,
        completed.completed_at_ms,
        tuple(new),
        job.shape,
        completed.savepoint,
    )


def _by_vertex(completed: CompletedCheckpoint) -> dict[str, list[SubtaskSnapshot]]:
    parts: dict[str, list[SubtaskSnapshot]] = {}
    for part in completed.snapshots:
        parts.setdefault(part.subtask.vertex, []).append(part)
    return parts


# --- what operators keep ----------------------------------------------------------------------------------------


def _spread(
    parts: Sequence[SubtaskSnapshot], vertex: str, now: int, completed: CompletedCheckpoint
) -> Iterator[SubtaskSnapshot]:
    """Yield the parts of a vertex, one for each of its present subtasks."""
    if len(parts) == now:
        for part in parts:
            yield _sharing_lists(part, parts)
        return
    assert completed.job is not None
    groups = completed.job.max_parallelism
    uids = list(dict.fromkeys(one.operator for part in parts for one in part.operators))
    of = {uid: [_of(part, uid) for part in parts] for uid in uids}
    positions = {uid: dealt_out([one.positions for one in of[uid]], now) for uid in uids}
    finished = bool(parts) and all(part.finished for part in parts)
    lists = {uid: dealt_lists(of[uid], now, finished) for uid in uids}
    for index in range(now):
        own = key_group_range(index, now, groups)
        operators = tuple(
            OperatorSnapshot(
                uid,
                positions[uid][index],
                files_of(own, [handle for one in of[uid] for handle in one.handles]),
                tuple(_transactions(of[uid], index, now)),
                _ended(of[uid]),
                lists[uid][index],
            )
            for uid in uids
        )
        attempt = parts[index].attempt if index < len(parts) else completed.attempt
        yield SubtaskSnapshot(
            SubtaskId(vertex, index), attempt, operators, finished=finished, redistributed=True
        )


def _of(part: SubtaskSnapshot, uid: str) -> OperatorSnapshot:
    return next((one for one in part.operators if one.operator == uid), OperatorSnapshot(uid))


def dealt_out(
    held: Sequence[Sequence[SplitPosition]], parallelism: int
) -> tuple[tuple[SplitPosition, ...], ...]:
    """Return the splits of each of ``parallelism`` subtasks, given those of each former one.

    Subtask i of p has the splits i, i + p, ... of the source's list. So taking one split of each subtask in turn gives
    the list, and dealing it out gives each subtask the splits that it would have at a first start.
    """
    listed = [position for position in chain(*zip_longest(*held)) if position is not None]
    return tuple(tuple(listed[index::parallelism]) for index in range(parallelism))


Lists = tuple[StateList, ...] | msgspec.UnsetType


def dealt_lists(of: Sequence[OperatorSnapshot], parallelism: int, finished: bool) -> tuple[Lists, ...]:
    """Return the lists of each of ``parallelism`` subtasks, given an operator's parts of all former ones, by index.

    Subtasks that have ``finished`` read none. They hand theirs on, so no entry may be given to two of them.
    """
    wholes = _lists_of(of)
    if not wholes:
        return (msgspec.UNSET,) * parallelism

    def given(whole: StateList, index: int) -> StateList:
        start, stop = _share(len(whole.entries), index, parallelism)
        if whole.to_all and not finished:
            return msgspec.structs.replace(whole, own=(start, stop))
        return msgspec.structs.replace(whole, entries=whole.entries[start:stop])

    return tuple(tuple(given(whole, index) for whole in wholes) for index in range(parallelism))


def _lists_of(of: Sequence[OperatorSnapshot]) -> tuple[StateList, ...]:
    """Return each list of an operator with the entries of all its subtasks, in their order."""
    found: dict[str, list[StateList]] = {}
    for one in of:
        for own in one.lists or ():
            found.setdefault(own.name, []).append(own)
    return tuple(
        StateList(name, tuple(chain(*(own.entries for own in lists))), lists[0].to_all)
        for name, lists in found.items()
    )


def _share(count: int, index: int, parallelism: int) -> tuple[int, int]:
    """Return from where to where the entries are that fall to one of the subtasks."""
    return index * count // parallelism, (index + 1) * count // parallelism


def _with_lists_for_all(completed: CompletedCheckpoint) -> CompletedCheckpoint:
    """Return the checkpoint with every list that is for all in each part; the same one if there is no such list."""
    parts = _by_vertex(completed)
    snapshots = tuple(_sharing_lists(part, parts[part.subtask.vertex]) for part in completed.snapshots)
    return (
        completed
        if snapshots == completed.snapshots
        else msgspec.structs.replace(completed, snapshots=snapshots)
    )


def _sharing_lists(part: SubtaskSnapshot, parts: Sequence[SubtaskSnapshot]) -> SubtaskSnapshot:
    """Return a subtask's part with the lists that are for all; ``parts`` are those of its vertex.

    One that has finished hands its own entries on, and reads none.
    """
    if part.finished:
        return part

    def with_all(one: OperatorSnapshot) -> OperatorSnapshot:
        of = [_of(other, one.operator) for other in parts]
        before = {kept.name: len(kept.entries) for kept in _lists_of(of[: parts.index(part)])}
        held = {kept.name: len(kept.entries) for kept in one.lists or ()}

        def marked(whole: StateList) -> StateList:
            start = before.get(whole.name, 0)
            return msgspec.structs.replace(whole, own=(start, start + held.get(whole.name, 0)))

        wholes = [marked(whole) for whole in _lists_of(of) if whole.to_all]
        if not wholes:
            return one
        own = tuple(kept for kept in one.lists or () if not kept.to_all)
        return msgspec.structs.replace(one, lists=(*own, *wholes))

    operators = tuple(map(with_all, part.operators))
    return part if operators == part.operators else msgspec.structs.replace(part, operators=operators)


def files_of(own: KeyGroupRange, handles: Sequence[StateHandle]) -> tuple[StateHandle, ...]:
    """Return the files that hold some of a subtask's key groups, in their order."""
    return tuple(handle for handle in handles if len(handle.key_groups.intersection(own)))


def _transactions(of: Sequence[OperatorSnapshot], index: int, now: int) -> Iterator[TransactionHandle]:
    for former, one in enumerate(of):
        for transaction in one.transactions:
            writer = former if transaction.writer is None else transaction.writer
            if owner_of(writer, now) == index:
                yield transaction


def _ended(of: Sequence[OperatorSnapshot]) -> bool:
    """Return whether the input of all former subtasks had ended, and so has that of each new one.

    Which of them a split came to, or a channel without keys, does not follow from key groups. Who emits something at
    the end is not rescaled in between (``half_ended``).
    """
    return all(one.input_ended for one in of)


def half_ended(completed: CompletedCheckpoint, vertex: str, uid: str) -> bool:
    """Return whether an operator had seen the end of its input in some of its subtasks and not in others."""
    ended = [_of(part, uid).input_ended for part in completed.snapshots if part.subtask.vertex == vertex]
    return any(ended) and not all(ended)


# --- records in flight ------------------------------------------------------------------------------------------


def channels_held(completed: CompletedCheckpoint) -> tuple[ChannelId, ...]:
    """Return the channels of which a checkpoint holds records, those of which the receiver holds some first."""
    states = [part.channels for part in completed.snapshots if part.channels is not None]
    inputs = [one.channel for state in states for one in state.inputs]
    return tuple(dict.fromkeys([*inputs, *(one.channel for state in states for one in state.outputs)]))


def _rerouted(
    completed: CompletedCheckpoint, before: JobShape, job: NewJob
) -> Iterator[tuple[SubtaskId, list[ReroutedChannel]]]:
    """Yield receiver -> the former channels from which it gets records."""
    states = {part.subtask: part.channels for part in completed.snapshots}
    edges = {(edge.source, edge.target, edge.number): edge for edge in job.edges}
    old, new, groups = widths_of(before), widths_of(job.shape), before.max_parallelism
    found: dict[SubtaskId, list[ReroutedChannel]] = {}
    for channel in channels_held(completed):
        edge = edges[channel.sender.vertex, channel.receiver.vertex, channel.edge]
        as_it_was = old[edge.source] == new[edge.source] and old[edge.target] == new[edge.target]
        # All go on one channel: records of one key may have come from several senders, one after another.
        by_key = edge.by_key and not as_it_was
        sending = 0 if by_key else new_index(channel.sender.index, old[edge.source], new[edge.source])
        sender, first = SubtaskId(edge.source, sending), _first(states[channel.receiver], channel)
        files = tuple(_files(states[channel.receiver], states[channel.sender], channel))
        for index in _receivers(edge, channel.receiver.index, old[edge.target], new[edge.target], groups):
            receiver = SubtaskId(edge.target, index)
            target = ChannelId(sender, receiver, edge.number)
            rerouted = ReroutedChannel(channel, files, target, first, by_key, as_it_was)
            found.setdefault(receiver, []).append(rerouted)
    yield from found.items()


def _receivers(edge: EdgeShape, index: int, before: int, now: int, groups: int) -> Iterator[int]:
    """Yield who gets records of those that were on their way to a former receiver."""
    if not edge.by_key or before == now:
        yield new_index(index, before, now)
        return
    former = key_group_range(index, before, groups)
    yield from (i for i in range(now) if len(key_group_range(i, now, groups).intersection(former)))


def _files(
    receiver: ChannelState | None, sender: ChannelState | None, channel: ChannelId
) -> Iterator[StateHandle]:
    """Yield the files that hold records of a channel; who reads them takes what the receiver holds as the older."""
    if receiver is not None and any(one.channel == channel for one in receiver.inputs):
        yield receiver.file
    if sender is not None and any(one.channel == channel for one in sender.outputs):
        yield sender.file


def _first(receiver: ChannelState | None, channel: ChannelId) -> int:
    held = receiver.inputs if receiver is not None else ()
    return next((one.first for one in held if one.channel == channel), 0)


def _with_channels(
    part: SubtaskSnapshot,
    rerouted: Mapping[SubtaskId, Sequence[ReroutedChannel]],
    former: Sequence[SubtaskSnapshot],
    before: JobShape,
    senders_changed: bool,
    parallelism: int,
) -> SubtaskSnapshot:
    """Return a part with the records in flight and the event time of its new place."""
    taken_over = tuple(rerouted.get(part.subtask, ()))
    return SubtaskSnapshot(
        part.subtask,
        part.attempt,
        part.operators,
        finished=part.finished,
        rerouted=taken_over or msgspec.UNSET,
        redistributed=part.redistributed,
        event_time=redistributed_event_time(
            former,
            part.subtask.index,
            parallelism,
            before.max_parallelism,
            senders_changed,
            bool(taken_over),
        ),
    )
