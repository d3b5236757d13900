"""When faults strike: protocol points and their phases, triggers, and the lines of a fault schedule.

Whether a system exposes what a fault hits is asked before injecting; if not, the fault is recorded as skipped with the
reason, never silently. The faults themselves are in ``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Union

import msgspec

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.faults.fault import Fault


class ProtocolPoint(StrEnum):
    """Moments of a checkpointing protocol at which a fault may be aimed.

    The vocabulary is neutral: a system under test maps its own events to these and says which it can observe.
    """

    RECORDS_PROCESSED = "records_processed"
    BARRIER_RECEIVED = "barrier_received"
    ALIGNMENT_STARTED = "alignment_started"
    ALIGNMENT_COMPLETED = "alignment_completed"
    SNAPSHOT_TAKEN = "snapshot_taken"
    BARRIER_FORWARDED = "barrier_forwarded"
    SNAPSHOT_STORED = "snapshot_stored"
    ACKNOWLEDGED = "acknowledged"
    COMPLETION_NOTIFIED = "completion_notified"
    COMMIT_STEP = "commit_step"
    TRANSACTIONS_COMMITTED = "transactions_committed"
    RESTORE_STARTED = "restore_started"
    RESTORED = "restored"
    CLOSING = "closing"
    CHECKPOINT_TRIGGERED = "checkpoint_triggered"
    ALL_ACKNOWLEDGED = "all_acknowledged"
    PUBLICATION_STEP = "publication_step"
    CHECKPOINT_COMPLETED = "checkpoint_completed"
    CHECKPOINT_ABORTED = "checkpoint_aborted"
    COORDINATOR_STARTING = "coordinator_starting"
    WAITING_FOR_SLOTS = "waiting_for_slots"
    ATTEMPT_STARTED = "attempt_started"
    ATTEMPT_RUNNING = "attempt_running"
    ATTEMPT_FAILED = "attempt_failed"


COORDINATOR_POINTS = frozenset(
    {
        ProtocolPoint.CHECKPOINT_TRIGGERED,
        ProtocolPoint.ALL_ACKNOWLEDGED,
        ProtocolPoint.PUBLICATION_STEP,
        ProtocolPoint.CHECKPOINT_COMPLETED,
        ProtocolPoint.CHECKPOINT_ABORTED,
        ProtocolPoint.COORDINATOR_STARTING,
        ProtocolPoint.WAITING_FOR_SLOTS,
        ProtocolPoint.ATTEMPT_STARTED,
        ProtocolPoint.ATTEMPT_RUNNING,
        ProtocolPoint.ATTEMPT_FAILED,
    }
)
"""Points that the coordinator passes; all others are passed by a subtask."""


class Phase(StrEnum):
    """What a job is doing when a fault strikes it: the rows of the phase by fault matrix."""

    PROCESSING = "processing"
    """Records flow, or nothing happens, and no checkpoint is under way."""
    ALIGNMENT = "alignment"
    """Barriers travel, and a subtask that has some of them waits for the others."""
    SYNCHRONOUS_PART = "synchronous_part"
    """A snapshot is being taken, and the barrier is not yet forwarded."""
    ASYNCHRONOUS_PART = "asynchronous_part"
    """A snapshot that was taken is being stored and acknowledged."""
    COMMITTING = "committing"
    """All acknowledged: the checkpoint becomes durable, subtasks are notified, and sinks commit."""
    RESTORING = "restoring"
    """An attempt failed or begins: subtasks end, or are deployed and restore their state."""


PHASE_OF_POINT: dict[ProtocolPoint, Phase] = {
    ProtocolPoint.RECORDS_PROCESSED: Phase.PROCESSING,
    ProtocolPoint.CHECKPOINT_ABORTED: Phase.PROCESSING,
    ProtocolPoint.ATTEMPT_RUNNING: Phase.PROCESSING,
    ProtocolPoint.CHECKPOINT_TRIGGERED: Phase.ALIGNMENT,
    ProtocolPoint.BARRIER_RECEIVED: Phase.ALIGNMENT,
    ProtocolPoint.ALIGNMENT_STARTED: Phase.ALIGNMENT,
    ProtocolPoint.ALIGNMENT_COMPLETED: Phase.SYNCHRONOUS_PART,
    ProtocolPoint.SNAPSHOT_TAKEN: Phase.SYNCHRONOUS_PART,
    ProtocolPoint.BARRIER_FORWARDED: Phase.ASYNCHRONOUS_PART,
    ProtocolPoint.SNAPSHOT_STORED: Phase.ASYNCHRONOUS_PART,
    ProtocolPoint.ACKNOWLEDGED: Phase.ASYNCHRONOUS_PART,
    ProtocolPoint.ALL_ACKNOWLEDGED: Phase.COMMITTING,
    ProtocolPoint.PUBLICATION_STEP: Phase.COMMITTING,
    ProtocolPoint.CHECKPOINT_COMPLETED: Phase.COMMITTING,
    ProtocolPoint.COMPLETION_NOTIFIED: Phase.COMMITTING,
    ProtocolPoint.COMMIT_STEP: Phase.COMMITTING,
    ProtocolPoint.TRANSACTIONS_COMMITTED: Phase.COMMITTING,
    ProtocolPoint.CLOSING: Phase.RESTORING,
    ProtocolPoint.ATTEMPT_FAILED: Phase.RESTORING,
    ProtocolPoint.COORDINATOR_STARTING: Phase.RESTORING,
    ProtocolPoint.WAITING_FOR_SLOTS: Phase.RESTORING,
    ProtocolPoint.ATTEMPT_STARTED: Phase.RESTORING,
    ProtocolPoint.RESTORE_STARTED: Phase.RESTORING,
    ProtocolPoint.RESTORED: Phase.RESTORING,
}
"""The phase that a job is in while a process stands at a point."""


class At(msgspec.Struct, frozen=True, tag="at", forbid_unknown_fields=True):
    """Fire at a time after the first attempt began to run."""

    time_ms: int | float
    """In milliseconds. Drawn plans have whole ones; where time is virtual, a fraction lies between any two steps."""


class After(msgspec.Struct, frozen=True, tag="after", forbid_unknown_fields=True):
    """Fire when a subtask (or the coordinator) passes a protocol point for the nth time.

    The subtask stands still at the point until the fault was carried out, so the aim is exact. ``subtask`` None
    means any subtask. Occurrences are counted over all attempts, from 1.
    """

    point: ProtocolPoint
    subtask: str | None = None
    nth: int = 1


Trigger = At | After


if TYPE_CHECKING:
    _AnyFault = Fault
else:
    _AnyFault = Union[FAULTS]  # noqa: UP007 - of as many as there are; reading a plan chooses by tag


class ScheduledFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a fault schedule: what, and when."""

    fault: _AnyFault
    trigger: Trigger

    def renamed(self, rename: Callable[[str], str]) -> ScheduledFault:
        """Return it with every subtask replaced that fault and trigger name."""
        trigger = self.trigger
        if isinstance(trigger, After) and trigger.subtask is not None:
            trigger = msgspec.structs.replace(trigger, subtask=rename(trigger.subtask))
        return ScheduledFault(self.fault.renamed(rename), trigger)
