"""The fault vocabulary: what can be done to a system, as frozen values that read as sentences.

A fault names its target by role, never by process id. Whether a system exposes such a target is asked before
injecting; if not, the fault is recorded as skipped with the reason, never silently. Every fault says in its
docstring what a correct system must survive (its contract).
"""

from __future__ import annotations

from collections.abc import Callable
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


class Phase(StrEnum):
    """What a job is doing when a fault strikes it: the rows of the phase by fault matrix."""

    PROCESSING = "processing"
    """Records flow, or nothing happens, and no checkpoint is under way."""
    ALIGNMENT = "alignment"
    """Barriers travel, and who has some of them waits for the others."""
    SYNCHRONOUS_PART = "synchronous_part"
    """A snapshot is being taken, and the barrier is not yet forwarded."""
    ASYNCHRONOUS_PART = "asynchronous_part"
    """A snapshot that was taken is being stored and acknowledged."""
    COMMITTING = "committing"
    """All acknowledged: the checkpoint becomes durable, subtasks are told, and sinks commit."""
    RESTORING = "restoring"
    """An attempt failed or begins: subtasks are deployed and restore their state."""


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
    ProtocolPoint.CHECKPOINT_COMPLETED: Phase.COMMITTING,
    ProtocolPoint.COMPLETION_NOTIFIED: Phase.COMMITTING,
    ProtocolPoint.TRANSACTIONS_COMMITTED: Phase.COMMITTING,
    ProtocolPoint.ATTEMPT_FAILED: Phase.RESTORING,
    ProtocolPoint.ATTEMPT_STARTED: Phase.RESTORING,
    ProtocolPoint.RESTORE_STARTED: Phase.RESTORING,
    ProtocolPoint.RESTORED: Phase.RESTORING,
}
"""The phase in which a job is when somebody stands at a point."""


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


class LoseHost(msgspec.Struct, frozen=True, tag="lose_host", forbid_unknown_fields=True):
    """Kill the executor that hosts a subtask and wipe its host's local disk, as if the machine were gone.

    Contract (LOC-8): as for ``KillExecutor``; its subtasks restore from durable storage, others from their own copies.
    """

    subtask: str


class PauseWorker(msgspec.Struct, frozen=True, tag="pause_worker", forbid_unknown_fields=True):
    """Stop the process of one subtask (SIGSTOP) for a time, and let it go on (SIGCONT).

    Contract (REC-2): if it was replaced meanwhile, it is a zombie: nothing that it still does may count.
    """

    subtask: str
    duration_ms: int


class PauseExecutor(msgspec.Struct, frozen=True, tag="pause_executor", forbid_unknown_fields=True):
    """Stop the executor that hosts a subtask, and all of its subtasks' processes, for a time.

    Contract: as for ``PauseWorker``.
    """

    subtask: str
    duration_ms: int


class Direction(StrEnum):
    """Which way of a connection is disturbed, seen from the endpoint that a fault names first."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"


COORDINATOR = "coordinator"
"""Names the coordinator as a ``receiver``: the connection is then the subtask's control connection."""


class DelayChannel(msgspec.Struct, frozen=True, tag="delay_channel", forbid_unknown_fields=True):
    """Make everything on a connection late by ``latency_ms``, give or take up to ``jitter_ms``, for a time.

    Contract: order within the connection stays (BAR-2); the output stays as promised.
    """

    sender: str
    receiver: str
    latency_ms: int
    duration_ms: int
    jitter_ms: int = 0
    direction: Direction = Direction.FORWARD


class ThrottleChannel(msgspec.Struct, frozen=True, tag="throttle_channel", forbid_unknown_fields=True):
    """Let no more than so many bytes a second through a connection, for a time.

    Contract: as for ``DelayChannel``; backpressure, not loss.
    """

    sender: str
    receiver: str
    bytes_per_second: int
    duration_ms: int
    direction: Direction = Direction.FORWARD


class CutChannel(msgspec.Struct, frozen=True, tag="cut_channel", forbid_unknown_fields=True):
    """Close a connection, as a reset does; it cannot be opened again until ``duration_ms`` have passed.

    Contract: both ends notice; the job recovers from the last completed checkpoint.
    """

    sender: str
    receiver: str
    duration_ms: int


class BlackHoleChannel(msgspec.Struct, frozen=True, tag="black_hole_channel", forbid_unknown_fields=True):
    """Keep a connection open and let nothing through, for a time; what was swallowed never arrives.

    Contract: once it heals, the connection is closed: a stream with a hole must not go on. The job recovers.
    """

    sender: str
    receiver: str
    duration_ms: int
    direction: Direction = Direction.BOTH


class Peers(StrEnum):
    """From whom an executor is cut off by a partition."""

    EXECUTORS = "executors"
    """From the other executors; its control connections still work."""
    COORDINATOR = "coordinator"
    """From the driver; its data channels still work."""
    EVERYONE = "everyone"


class PartitionExecutor(msgspec.Struct, frozen=True, tag="partition_executor", forbid_unknown_fields=True):
    """Black-hole all connections between the executor of a subtask and its peers, for a time.

    Contract (REC-2): the partitioned processes live on as zombies; nothing that they do may count. Healing is
    total, and the job makes progress again.
    """

    subtask: str
    peers: Peers
    duration_ms: int
    direction: Direction = Direction.BOTH


class PartitionHalves(msgspec.Struct, frozen=True, tag="partition_halves", forbid_unknown_fields=True):
    """Black-hole all connections between two halves of the executors, for a time.

    The first half has the executors that host ``subtasks``; the driver stays with the second. Contract: as for
    ``PartitionExecutor``.
    """

    subtasks: tuple[str, ...]
    duration_ms: int


class Damage(StrEnum):
    """What is wrong with a copy of a subtask's state."""

    MISSING = "missing"
    """All of it is gone."""
    TRUNCATED = "truncated"
    """Every state file lacks its end."""
    BIT_FLIPPED = "bit_flipped"
    """In every state file one bit is another."""
    OLDER_CHECKPOINT = "older_checkpoint"
    """It says, in good form, that it is the copy of an earlier checkpoint."""
    OLDER_ATTEMPT = "older_attempt"
    """It says, in good form, that an earlier attempt wrote it."""
    PARTIAL = "partial"
    """One state file is missing, the others are intact."""


class DamageLocalCopy(msgspec.Struct, frozen=True, tag="damage_local_copy", forbid_unknown_fields=True):
    """Damage every local copy of a subtask's state that there is now, on whichever host.

    Contract (LOC-4, LOC-6): the restore takes from durable storage what the copy cannot serve, and nothing fails.
    """

    subtask: str
    damage: Damage


class DamagePrimary(msgspec.Struct, frozen=True, tag="damage_primary", forbid_unknown_fields=True):
    """Damage a subtask's state files of the latest completed checkpoint in durable storage.

    Contract (LOC-5, REC-4): an intact local copy serves; without one an older checkpoint is restored or the job
    fails with what was tried, as configured. ``damage`` is missing, truncated, bit_flipped or partial.
    """

    subtask: str
    damage: Damage = Damage.BIT_FLIPPED


class FailLocalWrites(msgspec.Struct, frozen=True, tag="fail_local_writes", forbid_unknown_fields=True):
    """Leave no room on the local disks for further copies of a subtask's state.

    Contract (LOC-2): no checkpoint fails for it.
    """

    subtask: str


class FailPrimaryWrites(msgspec.Struct, frozen=True, tag="fail_primary_writes", forbid_unknown_fields=True):
    """Let a subtask's writes to durable storage fail, for its next so many checkpoints.

    Contract (LOC-2): those checkpoints fail, whatever became of the local copies; processing goes on, and later ones
    complete.
    """

    subtask: str
    checkpoints: int = 1


ProcessFault = KillExecutor | KillWorker | CrashCoordinator | LoseHost
"""Faults that end a process; nothing heals."""
PauseFault = PauseWorker | PauseExecutor
ChannelFault = DelayChannel | ThrottleChannel | CutChannel | BlackHoleChannel
PartitionFault = PartitionExecutor | PartitionHalves
HealingFault = PauseFault | ChannelFault | PartitionFault
"""Faults that last for their ``duration_ms``."""
StorageFault = DamageLocalCopy | DamagePrimary | FailLocalWrites | FailPrimaryWrites
"""Faults of copies and of disks; nothing heals: later copies are written anew."""
Fault = ProcessFault | HealingFault | StorageFault
"""Every fault there is. A new one needs an injector, a target kind and a place in the simulator."""


def subtasks_of(fault: Fault) -> tuple[str, ...]:
    """Return the subtasks that a fault names, the coordinator left out, in the order of its fields."""
    match fault:
        case CrashCoordinator():
            return ()
        case DelayChannel() | ThrottleChannel() | CutChannel() | BlackHoleChannel():
            return tuple(name for name in (fault.sender, fault.receiver) if name != COORDINATOR)
        case PartitionHalves(subtasks=subtasks):
            return subtasks
        case _:
            return (fault.subtask,)


def duration_of(fault: Fault) -> int | None:
    """Return after how many milliseconds a fault heals, None if nothing of it can."""
    match fault:
        case KillExecutor() | KillWorker() | CrashCoordinator() | LoseHost():
            return None
        case DamageLocalCopy() | DamagePrimary() | FailLocalWrites() | FailPrimaryWrites():
            return None
        case _:
            return fault.duration_ms


def loses_unsynced(fault: Fault) -> bool:
    """Tell whether a fault takes a host's unsynced writes with it."""
    return isinstance(fault, KillExecutor | CrashCoordinator) and fault.lose_unsynced


def renamed(fault: Fault, rename: Callable[[str], str]) -> Fault:
    """Return the fault with every subtask that it names replaced; the coordinator stays what it is."""
    match fault:
        case CrashCoordinator():
            return fault
        case DelayChannel() | ThrottleChannel() | CutChannel() | BlackHoleChannel():
            receiver = fault.receiver if fault.receiver == COORDINATOR else rename(fault.receiver)
            return msgspec.structs.replace(fault, sender=rename(fault.sender), receiver=receiver)
        case PartitionHalves(subtasks=subtasks):
            return msgspec.structs.replace(fault, subtasks=tuple(dict.fromkeys(map(rename, subtasks))))
        case _:
            return msgspec.structs.replace(fault, subtask=rename(fault.subtask))


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
        case LoseHost(subtask=subtask):
            return f"lose host of {subtask}"
        case DamageLocalCopy(subtask=subtask, damage=damage):
            return f"local copy of {subtask} {_PHRASES[damage]}"
        case DamagePrimary(subtask=subtask, damage=damage):
            return f"primary copy of {subtask} {_PHRASES[damage]}"
        case FailLocalWrites(subtask=subtask):
            return f"no local room for copies of {subtask}"
        case FailPrimaryWrites(subtask=subtask, checkpoints=checkpoints):
            return f"primary writes of {subtask} fail for {checkpoints} checkpoints"
        case PauseWorker(subtask=subtask):
            return f"pause worker of {subtask} for {fault.duration_ms} ms"
        case PauseExecutor(subtask=subtask):
            return f"pause executor of {subtask} for {fault.duration_ms} ms"
        case _:
            return _network_label(fault)


_PHRASES = {
    Damage.MISSING: "missing",
    Damage.TRUNCATED: "truncated",
    Damage.BIT_FLIPPED: "with flipped bits",
    Damage.OLDER_CHECKPOINT: "of an older checkpoint",
    Damage.OLDER_ATTEMPT: "of an older attempt",
    Damage.PARTIAL: "partial",
}


def _network_label(fault: ChannelFault | PartitionFault) -> str:
    time = f"for {fault.duration_ms} ms"
    match fault:
        case DelayChannel(latency_ms=latency, jitter_ms=jitter):
            spread = f" ± {jitter}" if jitter else ""
            return f"delay {_connection(fault.sender, fault.receiver, fault.direction)} by {latency}{spread} ms {time}"
        case ThrottleChannel(bytes_per_second=rate):
            connection = _connection(fault.sender, fault.receiver, fault.direction)
            return f"throttle {connection} to {rate} bytes/s {time}"
        case CutChannel():
            return f"cut {_connection(fault.sender, fault.receiver, Direction.BOTH)} {time}"
        case BlackHoleChannel():
            return f"black-hole {_connection(fault.sender, fault.receiver, fault.direction)} {time}"
        case PartitionExecutor(subtask=subtask, peers=peers, direction=direction):
            way = "" if direction is Direction.BOTH else f", {direction.value} only"
            return f"partition executor of {subtask} from {peers.value}{way} {time}"
        case PartitionHalves(subtasks=subtasks):
            return f"partition executors of {', '.join(subtasks)} from the others {time}"


_ARROWS = {Direction.FORWARD: "→", Direction.BACKWARD: "←", Direction.BOTH: "↔"}


def _connection(sender: str, receiver: str, direction: Direction) -> str:
    return f"{sender} {_ARROWS[direction]} {receiver}"
