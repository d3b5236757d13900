"""The fault vocabulary: what can be done to a system, as frozen values that read as sentences.

A fault names its target by role, never by process id. Whether a system exposes such a target is asked before
injecting; if not, the fault is recorded as skipped with the reason, never silently. Every fault says in its
docstring what a correct system must survive (its contract).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


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
    TRANSACTIONS_COMMITTED = "transactions_committed"
    RESTORE_STARTED = "restore_started"
    RESTORED = "restored"
    CHECKPOINT_TRIGGERED = "checkpoint_triggered"
    ALL_ACKNOWLEDGED = "all_acknowledged"
    CHECKPOINT_COMPLETED = "checkpoint_completed"
    CHECKPOINT_ABORTED = "checkpoint_aborted"
    ATTEMPT_STARTED = "attempt_started"
    ATTEMPT_RUNNING = "attempt_running"
    ATTEMPT_FAILED = "attempt_failed"


COORDINATOR_POINTS = frozenset(
    {
        ProtocolPoint.CHECKPOINT_TRIGGERED,
        ProtocolPoint.ALL_ACKNOWLEDGED,
        ProtocolPoint.CHECKPOINT_COMPLETED,
        ProtocolPoint.CHECKPOINT_ABORTED,
        ProtocolPoint.ATTEMPT_STARTED,
        ProtocolPoint.ATTEMPT_RUNNING,
        ProtocolPoint.ATTEMPT_FAILED,
    }
)
"""Points that the coordinator passes; all others are passed by a subtask."""


class KillExecutor(msgspec.Struct, frozen=True, tag="kill_executor", forbid_unknown_fields=True):
    """Kill the executor that hosts a subtask, with SIGKILL: every subtask on it dies, its memory is gone.

    Contract: the job recovers from the last completed checkpoint and the output stays as promised.
    ``lose_unsynced`` (simulator only): the whole host dies, and with it what it wrote and did not sync.
    """

    subtask: str
    """The subtask whose executor is hit, as ``vertex[index]``."""
    lose_unsynced: bool = False


class KillWorker(msgspec.Struct, frozen=True, tag="kill_worker", forbid_unknown_fields=True):
    """Kill the one process that runs a subtask (a Python worker), with SIGKILL; its executor lives on.

    Contract: as for ``KillExecutor``.
    """

    subtask: str


class CrashCoordinator(msgspec.Struct, frozen=True, tag="crash_coordinator", forbid_unknown_fields=True):
    """Kill the coordinator and start a new one from durable storage.

    Contract (COO-6): the job resumes from the last completed checkpoint. ``lose_unsynced`` as above.
    """

    lose_unsynced: bool = False


Fault = KillExecutor | KillWorker | CrashCoordinator
"""Every fault there is. A new one needs an injector, a target kind and a place in the simulator."""


class At(msgspec.Struct, frozen=True, tag="at", forbid_unknown_fields=True):
    """Fire at a time after the first attempt began to run."""

    time_ms: int


class After(msgspec.Struct, frozen=True, tag="after", forbid_unknown_fields=True):
    """Fire when a subtask (or the coordinator) passes a protocol point for the nth time.

    The subtask stands still at the point until the fault was carried out, so the aim is exact. ``subtask`` None
    means any subtask. Occurrences are counted over all attempts, from 1.
    """

    point: ProtocolPoint
    subtask: str | None = None
    nth: int = 1


Trigger = At | After


class ScheduledFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a fault schedule: what, and when."""

    fault: Fault
    trigger: Trigger


def label(fault: Fault) -> str:
    """Return the fault as a short phrase for reports, for instance ``kill executor of count[0]``."""
    match fault:
        case KillExecutor(subtask=subtask, lose_unsynced=lose):
            return f"kill executor of {subtask}" + (", unsynced writes lost" if lose else "")
        case KillWorker(subtask=subtask):
            return f"kill worker of {subtask}"
        case CrashCoordinator(lose_unsynced=lose):
            return "crash coordinator" + (", unsynced writes lost" if lose else "")
