"""Event time in a job that starts from the state of one with another parallelism (EVT-1, RSC-3).

A subtask whose senders and whose own vertex did not change goes on from its own part. Any other has channels from
other senders, and key groups that stood at different watermarks. Each of its channels begins with the smallest
watermark that a channel of the edge had, which none of its records can be behind. Each key group keeps its own
watermark as a floor, so that event time goes back for no key. The watermarks of splits move with their positions.

Watermarks in flight count for the key groups of the receiver that they were on their way to, and combine with those of
its other channels as they would have done there: the valves of former receivers come along (``InheritedInputs``).

Every subtask says once more how far it has come, or that it is idle, at the first event after the restore: receivers
that have another parallelism know only what was true of all channels of an edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from barrier_tck.reference_impl.ids import KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.key_groups import key_group_range
from barrier_tck.reference_impl.protocol.messages import SubtaskSnapshot
from barrier_tck.reference_impl.protocol.watermarks import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    EventTimeSnapshot,
    GroupFloor,
    InheritedInputs,
    InputWatermark,
)


def redistributed_event_time(
    former: Sequence[SubtaskSnapshot],
    index: int,
    parallelism: int,
    key_groups: int,
    senders_changed: bool,
    with_inherited: bool,
) -> EventTimeSnapshot | msgspec.UnsetType:
    """Return how far event time has come in one of ``parallelism`` subtasks, given a vertex's former parts, by index.

    ``senders_changed``: whether a vertex that sends to it has another parallelism now. ``with_inherited``: whether it
    takes over records in flight. Unset in a job that knows no event time.
    """
    known = {i: part.event_time for i, part in enumerate(former)}
    of = {i: one for i, one in known.items() if not isinstance(one, msgspec.UnsetType)}
    if not of:
        return msgspec.UNSET
    changed = len(former) != parallelism
    if not changed and not senders_changed:
        return msgspec.structs.replace(of[index], repeats=True)
    own = key_group_range(index, parallelism, key_groups)
    pool = list(of.values()) if changed else [of[index]]
    running = [one for one in pool if one.at_ms != END_OF_TIME] or pool
    inherited = _inherited(former, of, own, key_groups) if with_inherited else ()
    return EventTimeSnapshot(
        at_ms=min(one.at_ms for one in running),
        idle=all(one.idle for one in running),
        inputs=tuple(_by_edge([state for one in running for state in one.inputs])),
        floors=tuple(_floors(of, len(former), own, key_groups)),
        inherited=tuple(inherited),
        by_edge=True,
        repeats=True,
    )


def _by_edge(inputs: Sequence[InputWatermark]) -> Iterator[InputWatermark]:
    edges: dict[tuple[str, int], list[InputWatermark]] = {}
    for one in inputs:
        edges.setdefault((one.sender.vertex, one.edge), []).append(one)
    for (vertex, edge), states in edges.items():
        still_open = [one for one in states if not one.ended]
        active = [one.at_ms for one in still_open if not one.idle]
        reached = min(active or [one.at_ms for one in still_open or states], default=BEGINNING_OF_TIME)
        idle = bool(still_open) and not active
        yield InputWatermark(SubtaskId(vertex, 0), edge, reached, idle, not still_open)


def _floors(
    of: Mapping[int, EventTimeSnapshot], before: int, own: KeyGroupRange, key_groups: int
) -> Iterator[GroupFloor]:
    for i, one in of.items():
        held = key_group_range(i, before, key_groups).intersection(own)
        if len(held):
            yield GroupFloor(held, one.at_ms)
            for floor in one.floors:
                common = floor.key_groups.intersection(held)
                if len(common):
                    yield GroupFloor(common, floor.at_ms)


def _inherited(
    former: Sequence[SubtaskSnapshot],
    of: Mapping[int, EventTimeSnapshot],
    own: KeyGroupRange,
    key_groups: int,
) -> Iterator[InheritedInputs]:
    for i, one in of.items():
        held = key_group_range(i, len(former), key_groups).intersection(own)
        if not len(held):
            continue
        subtask = former[i].subtask
        if one.inputs:
            yield InheritedInputs((subtask,), held, one.inputs)
        for before in one.inherited:
            common = before.key_groups.intersection(held)
            if len(common):
                yield InheritedInputs((*before.receivers, subtask), common, before.inputs)
