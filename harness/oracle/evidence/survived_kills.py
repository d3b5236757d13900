"""Whether a trial's kills were survived: processes were killed, and work went on that had not begun before.

This is what is known of a system that reports little: the harness killed its processes, and saw that it went on.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.operations import CheckpointTriggered, Committed, FaultFired


def kills_fired(context: TrialContext) -> list[float]:
    """Return when processes were killed, in order."""
    return sorted(
        fired.time_ms
        for fired in context.history.of(FaultFired)
        if 0 <= fired.operation.fault < len(context.planned_faults)
        and context.planned_faults[fired.operation.fault].fault.ends is not None
    )


def reports_progress(context: TrialContext) -> bool:
    """Return whether it would be known if work had gone on: commits are reported, or it was seen at a point."""
    return any(context.history.of(Committed)) or went_on_at_a_point(context)


def went_on_at_a_point(context: TrialContext) -> bool:
    """Return whether a subtask that was killed was seen to process records later, in a job that finished."""
    return context.history.end is End.FINISHED and any(record.went_on for record in context.faults)


def survived_kills(context: TrialContext) -> bool:
    """Return whether processes were killed, and output was committed later that had not begun at the first kill.

    Work that was under way already may not have needed the killed process any more. Of a system that reports no
    commits, it is enough that a killed subtask processed records again, and the job finished.
    """
    kills = kills_fired(context)
    if not kills:
        return False
    history = context.history
    begun = {line.operation.checkpoint: line.time_ms for line in history.of(CheckpointTriggered)}
    committed = [
        begun.get(line.operation.checkpoint, line.time_ms)
        if line.operation.checkpoint is not None
        else line.time_ms
        for line in history.of(Committed)
    ]
    if committed:
        return max(committed) > kills[0]
    return went_on_at_a_point(context)
