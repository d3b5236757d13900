"""Which slot runs which subtask: a pure decision, spread over hosts.

A *slot* is one Spark task of the attempt, waiting for work in a Python worker. Subtasks of one vertex go to
different hosts as far as possible, so that the death of a host takes as little of each vertex as it can. The
same slots and subtasks always give the same assignment.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from reference_impl.errors import UsageError
from reference_impl.ids import SubtaskId


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A place where one subtask can run."""

    host: str
    executor: str
    number: int
    """Unique among the slots of an attempt."""


def assign(slots: Sequence[Slot], subtasks: Sequence[SubtaskId]) -> dict[SubtaskId, Slot]:
    """Return a slot for every subtask, each slot used at most once, in the order of ``subtasks``.

    Each subtask takes the host with the fewest subtasks of its own vertex, among these the one with the most
    free slots, among these the first by name. Raises UsageError if there are too few slots or one is listed
    twice.
    """
    if len(slots) < len(subtasks):
        raise UsageError(f"{len(subtasks)} subtasks need as many slots, and there are {len(slots)}")
    numbers = Counter(slot.number for slot in slots)
    twice = sorted(number for number, times in numbers.items() if times > 1)
    if twice:
        raise UsageError(f"slot {twice[0]} is listed twice")
    free: dict[str, list[Slot]] = defaultdict(list)
    for slot in sorted(slots, reverse=True):
        free[slot.host].append(slot)
    placed: Counter[tuple[str, str]] = Counter()
    chosen: dict[SubtaskId, Slot] = {}
    for subtask in subtasks:
        open_hosts = sorted(host for host, left in free.items() if left)
        host = min(open_hosts, key=lambda name: (placed[subtask.vertex, name], -len(free[name]), name))
        placed[subtask.vertex, host] += 1
        chosen[subtask] = free[host].pop()
    return chosen
