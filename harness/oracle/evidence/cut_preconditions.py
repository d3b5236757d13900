"""What must have happened for opened checkpoints to show a violation: what they held, and what went on around them.

A checkpoint that holds nothing, has nothing in flight and is followed by nothing is right whatever a system does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.in_flight import edge_of
from barrier_tck.harness.oracle.evidence.recoveries import attempts_that_ran, restored_checkpoints
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.plan.job_graph import EdgePlan, Spread
from barrier_tck.harness.record.history import InFlight, SnapshotView
from barrier_tck.harness.record.operations import Acknowledged, CheckpointCompleted
from barrier_tck.harness.system.system_under_test import Capability


def _opened(context: TrialContext) -> list[SnapshotView]:
    views = (view for view in context.history.checkpoints if view.problem is None)
    return sorted(views, key=lambda view: view.checkpoint)


def _moving(context: TrialContext, view: SnapshotView) -> Iterator[tuple[EdgePlan, InFlight]]:
    """Yield the channels of a checkpoint on which records are in flight."""
    job = context.plan_of(view.attempt).job
    for channel in view.in_flight:
        edge = edge_of(job, channel)
        if channel.rows and edge is not None:
            yield edge, channel


# --- state --------------------------------------------------------------------------------------------------


def _held_state(context: TrialContext) -> bool:
    return any(part.entries for view in _opened(context) for part in view.state)


def _changed_state(context: TrialContext) -> bool:
    """Return whether an attempt changed state after a snapshot of it, by what its next checkpoint holds."""
    newest: dict[int | None, SnapshotView] = {}
    for view in _opened(context):
        before = newest.get(view.attempt)
        newest[view.attempt] = view
        if before is not None and _kept(before, view.finished) != _kept(view, view.finished):
            return True
    return False


def _kept(
    view: SnapshotView, without: Collection[str]
) -> dict[tuple[str, str, str], dict[str, list[object]]]:
    """Return what subtasks keep, but for some: that a checkpoint has no state of one that finished is no change."""
    return {
        (part.operator, part.subtask, part.name): part.entries
        for part in view.state
        if part.entries and part.subtask not in without
    }


# --- records in flight ----------------------------------------------------------------------------------------


def _overtaken(context: TrialContext) -> bool:
    moving = (edge for view in _opened(context) for edge, _ in _moving(context, view))
    return any(not edge.feedback for edge in moving)


def _in_a_loop(context: TrialContext) -> bool:
    for view in _opened(context):
        loops = context.plan_of(view.attempt).job.loops
        for edge, _ in _moving(context, view):
            if any(edge.source in loop and edge.target in loop for loop in loops):
                return True
    return False


def _recorded(context: TrialContext) -> bool:
    """Return whether a snapshot had something to get wrong: messages in its channels, or input before and behind it."""
    views = _opened(context)
    if any(channel.rows for view in views for channel in view.in_flight):
        return True
    start = context.plan.workload.start_offset
    begun = [view for view in views if any(position > start for position in view.positions.values())]
    return any(before.positions != after.positions for before, after in pairwise(begun))


def _still_replayed(context: TrialContext) -> bool:
    """Return whether a checkpoint still holds in flight, on the same edge, what its attempt was restored with."""
    views = {view.checkpoint: view for view in _opened(context)}
    restored = restored_checkpoints(context.history)
    for view in views.values():
        before = views.get(restored.get(view.attempt) or 0) if view.attempt is not None else None
        if before is None or not view.in_flight:
            continue
        rows = [(edge, row) for edge, channel in _moving(context, before) for row in channel.rows]
        if any((edge, row) in rows for edge, channel in _moving(context, view) for row in channel.rows):
            return True
    return False


def _overtaken_beside_a_broadcast(context: TrialContext) -> bool:
    for view in _opened(context):
        job = context.plan_of(view.attempt).job
        broadcast = any(
            edge.by is Spread.BROADCAST and not edge.feedback and job.vertex(edge.target).parallelism > 1
            for edge in job.edges
        )
        if broadcast and any(not edge.feedback for edge, _ in _moving(context, view)):
            return True
    return False


def _several_barriers(context: TrialContext) -> bool:
    start = context.plan.workload.start_offset
    return any(
        context.plan_of(view.attempt).job.shuffles
        and any(position > start for position in view.positions.values())
        for view in _opened(context)
    )


# --- alignment ------------------------------------------------------------------------------------------------


def _held_back(context: TrialContext) -> dict[int, None]:
    """Return the completed checkpoints for which a subtask held back a channel on which something had arrived.

    Of a system that does not report it, these are all of a job in which some subtask reads several channels.
    """
    history = context.history
    completed = [line.operation.checkpoint for line in history.of(CheckpointCompleted)]
    reports = [line.operation for line in history.of(Acknowledged) if line.operation.held_bytes is not None]
    if not reports and not context.plan.job.shuffles:
        return {}
    held = [report.checkpoint for report in reports if report.held_bytes] if reports else completed
    return dict.fromkeys(checkpoint for checkpoint in held if checkpoint in completed)


def _held_back_and_restored(context: TrialContext) -> bool:
    held, ran = _held_back(context), attempts_that_ran(context.history)
    restored = restored_checkpoints(context.history)
    return any(restored[attempt] in held for attempt in ran if attempt in restored)


STATE_HELD = Precondition("an opened checkpoint holds state", _held_state)
STATE_CHANGED = Precondition(
    "of two opened checkpoints of an attempt the later one holds other state", _changed_state
)
OVERTAKEN = Precondition("an opened checkpoint holds records in flight that no loop put there", _overtaken)
IN_A_LOOP = Precondition("an opened checkpoint holds records in flight within a loop", _in_a_loop)
RECORDED = Precondition(
    "an opened checkpoint holds messages in channels, or lies behind some input and another one behind more",
    _recorded,
)
STILL_REPLAYED = Precondition(
    "an opened checkpoint still holds records in flight with which its attempt was restored", _still_replayed
)
OVERTAKEN_BESIDE_A_BROADCAST = Precondition(
    "an opened checkpoint holds records in flight, in a job with a broadcast to several subtasks",
    _overtaken_beside_a_broadcast,
)
SEVERAL_BARRIERS = Precondition(
    "an opened checkpoint lies behind some input, in a job with a subtask that reads several channels, in a system "
    "with barriers",
    _several_barriers,
    mechanism=Capability.BARRIERS,
)
HELD_BACK = Precondition(
    "records arrived in a channel that was held back for a checkpoint that completed, in a system with barriers",
    lambda context: bool(_held_back(context)),
    mechanism=Capability.BARRIERS,
)
HELD_BACK_AND_RESTORED = Precondition(
    "an attempt that ran was restored from a checkpoint for which records were held back in a channel",
    _held_back_and_restored,
    mechanism=Capability.BARRIERS,
)
