"""Where the subtasks of an attempt are placed in the simulated world."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedExecutor
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.protocol.slots import Placement, Slot, assign, homes_of, placement_of
from barrier_tck.reference_impl.storage.local_copies import copies_on


def placed_on(
    executors: Sequence[SimulatedExecutor],
    subtasks: Sequence[SubtaskId],
    restore: CompletedCheckpoint | None,
    local_recovery: bool,
) -> tuple[dict[SubtaskId, SimulatedExecutor], Placement | None]:
    """Return where subtasks are placed, and with local recovery the placement that is reported to the observer."""
    if not local_recovery:
        return in_turn(subtasks, executors), None
    return near_their_copies(subtasks, executors, restore)


def in_turn(
    subtasks: Sequence[SubtaskId], executors: Sequence[SimulatedExecutor]
) -> dict[SubtaskId, SimulatedExecutor]:
    """Place the subtasks on the executors in turn."""
    return {subtask: executors[position % len(executors)] for position, subtask in enumerate(subtasks)}


def near_their_copies(
    subtasks: Sequence[SubtaskId], executors: Sequence[SimulatedExecutor], restore: CompletedCheckpoint | None
) -> tuple[dict[SubtaskId, SimulatedExecutor], Placement]:
    """Place each subtask near its own copy, as the Spark deployment does (LOC-9); every executor gets an equal share.

    Returns where they are placed, and the placement that is reported to the observer.
    """
    share = -(-len(subtasks) // len(executors))
    slots = [
        Slot(executor.host.name, str(executor.number), position * share + number)
        for position, executor in enumerate(executors)
        for number in range(share)
    ]
    copies = {executor.host.name: copies_on(executor.host.local, subtasks) for executor in executors}
    homes = homes_of(restore, copies)
    chosen = assign(slots, subtasks, homes)
    placed = {subtask: executors[slot.number // share] for subtask, slot in chosen.items()}
    return placed, placement_of(slots, chosen, homes)
