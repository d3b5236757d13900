"""What must have happened in a trial before a clause could be violated: the preconditions that checkers share."""

from __future__ import annotations

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
    FaultFired,
)
from barrier_tck.harness.system.system_under_test import Capability


def _started_again(context: TrialContext) -> bool:
    return sum(1 for _ in context.history.of(AttemptStarted)) > 1


def _survived(context: TrialContext) -> bool:
    """Return whether processes were killed, and the system went on without another attempt.

    Some systems replace killed processes within an attempt. To show that they went on, something must be committed
    that had not begun when the fault struck: work that was under way already may not have needed the killed process
    any more.
    """
    history = context.history
    kills = [
        fired.time_ms
        for fired in history.of(FaultFired)
        if 0 <= fired.operation.fault < len(context.planned_faults)
        and context.planned_faults[fired.operation.fault].fault.ends is not None
    ]
    if not kills:
        return False
    begun = {line.operation.checkpoint: line.time_ms for line in history.of(CheckpointTriggered)}
    return any(
        begun.get(line.operation.checkpoint, line.time_ms) > kills[0]
        if line.operation.checkpoint is not None
        else line.time_ms > kills[0]
        for line in history.of(Committed)
    )


def _aborted(context: TrialContext) -> bool:
    return any(context.history.of(CheckpointAborted))


def _acknowledged_wrongly(context: TrialContext) -> bool:
    """Return whether an acknowledgement may have come late, again, or forged."""
    messages = any(
        record.outcome == "fired" and context.planned_faults[record.index].fault.needs is TargetKind.MESSAGES
        for record in context.faults
    )
    return messages or _aborted(context)


def _completed(context: TrialContext) -> bool:
    return any(context.history.of(CheckpointCompleted))


def _coordinator_crashed(context: TrialContext) -> bool:
    return any(
        record.outcome == "fired" and context.planned_faults[record.index].fault.ends is Ends.COORDINATOR
        for record in context.faults
    )


STARTED_AGAIN = Precondition("a second attempt started", _started_again)
RECOVERED = Precondition(
    "a second attempt started; for checkers of output it is enough that output was begun and committed after a kill",
    _started_again,
    or_in_output=_survived,
)
COMPLETED = Precondition("a checkpoint completed", _completed)
COMPLETED_BY_BARRIERS = Precondition(
    "a checkpoint completed, in a system with barriers", _completed, mechanism=Capability.BARRIERS
)
ABORTED = Precondition("a checkpoint was aborted", _aborted)
ACKNOWLEDGED_WRONGLY = Precondition(
    "a checkpoint was aborted, or a fault repeated or forged messages", _acknowledged_wrongly
)
COORDINATOR_CRASHED = Precondition("the coordinator crashed", _coordinator_crashed)
