"""Which slot runs which subtask: a pure decision, spread over hosts.

A *slot* is one Spark task of the attempt, waiting for work in a Python worker. Subtasks of one vertex go to
different hosts as far as possible, so that the death of a host takes as little of each vertex as it can. A subtask
whose state has a copy on a host goes back there if it can (LOC-9). The same slots, subtasks and copies always give
the same assignment.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, LocalCopy
from barrier_tck.reference_impl.runtime_errors import JobUsageError


class Slot(msgspec.Struct, frozen=True, order=True):
    """A place where one subtask can run."""

    host: str
    executor: str
    number: int
    """Unique among the slots of an attempt."""


class Placement(msgspec.Struct, frozen=True):
    """A placement as observers see it."""

    hosts: Mapping[SubtaskId, str]
    """Where each subtask goes."""
    capacity: Mapping[str, int]
    """How many slots each host offered."""
    homes: Mapping[SubtaskId, Sequence[str]]
    """The hosts that hold a copy of what a subtask restores; subtasks without one are left out."""


def placement_of(
    slots: Sequence[Slot],
    chosen: Mapping[SubtaskId, Slot],
    homes: Mapping[SubtaskId, Sequence[str]],
) -> Placement:
    """Return what observers see of an assignment."""
    capacity = Counter(slot.host for slot in slots)
    return Placement(
        {subtask: slot.host for subtask, slot in chosen.items()},
        {host: capacity[host] for host in sorted(capacity)},
        dict(homes),
    )


def assign(
    slots: Sequence[Slot],
    subtasks: Sequence[SubtaskId],
    homes: Mapping[SubtaskId, Sequence[str]] | None = None,
) -> dict[SubtaskId, Slot]:
    """Return a slot for every subtask, each slot used at most once, in the order of ``subtasks``.

    ``homes`` are the hosts that hold a copy of a subtask's state. As many subtasks as possible get a slot of such a
    host; the others come after them, so none of them evicts one that could return (LOC-9). Each of the others takes
    the host with the fewest subtasks of its own vertex, among these the one with the most free slots, among these
    the first by name. Raises JobUsageError if there are too few slots or one is listed twice.
    """
    if len(slots) < len(subtasks):
        raise JobUsageError(f"{len(subtasks)} subtasks need as many slots, and there are {len(slots)}")
    numbers = Counter(slot.number for slot in slots)
    twice = sorted(number for number, times in numbers.items() if times > 1)
    if twice:
        raise JobUsageError(f"slot {twice[0]} is listed twice")
    free: dict[str, list[Slot]] = defaultdict(list)
    for slot in sorted(slots, reverse=True):
        free[slot.host].append(slot)
    placed: Counter[tuple[str, str]] = Counter()
    chosen: dict[SubtaskId, Slot] = {}
    for subtask, host in returning(Counter(slot.host for slot in slots), subtasks, homes or {}).items():
        placed[subtask.vertex, host] += 1
        chosen[subtask] = free[host].pop()
    for subtask in subtasks:
        if subtask in chosen:
            continue
        open_hosts = sorted(host for host, left in free.items() if left)
        host = min(open_hosts, key=lambda name: (placed[subtask.vertex, name], -len(free[name]), name))
        placed[subtask.vertex, host] += 1
        chosen[subtask] = free[host].pop()
    return {subtask: chosen[subtask] for subtask in subtasks}


def returning(
    capacity: Mapping[str, int], subtasks: Sequence[SubtaskId], homes: Mapping[SubtaskId, Sequence[str]]
) -> dict[SubtaskId, str]:
    """Return which subtasks go back to which of their homes: as many as possible (a maximum matching).

    If the homes of a subtask are full, another subtask frees a slot there by moving to a different home of its own that
    has a free slot. Among equals the earlier subtask returns.
    """
    residents: dict[str, list[SubtaskId]] = {host: [] for host in capacity}

    def admit(subtask: SubtaskId, tried: dict[str, None]) -> bool:
        for host in homes.get(subtask, ()):
            if host in tried or not capacity.get(host):
                continue
            tried[host] = None
            here = residents[host]
            if len(here) < capacity[host]:
                here.append(subtask)
                return True
            for position, resident in enumerate(here):
                if admit(resident, tried):
                    here[position] = subtask
                    return True
        return False

    for subtask in subtasks:
        admit(subtask, {})
    found = {subtask: host for host, here in residents.items() for subtask in here}
    return {subtask: found[subtask] for subtask in subtasks if subtask in found}


def homes_of(
    restored: CompletedCheckpoint | None, copies: Mapping[str, Sequence[LocalCopy]]
) -> dict[SubtaskId, tuple[str, ...]]:
    """Return the hosts that hold the copy of each subtask's part of the checkpoint that is restored.

    ``copies`` is what every host reports, by its name. A copy of another checkpoint, or by another attempt than the
    part's, is no home.
    """
    if restored is None:
        return {}
    homes: dict[SubtaskId, tuple[str, ...]] = {}
    for part in restored.snapshots:
        wanted = LocalCopy(part.subtask, restored.checkpoint, part.attempt)
        hosts = tuple(host for host in sorted(copies) if wanted in copies[host])
        if hosts:
            homes[part.subtask] = hosts
    return homes
