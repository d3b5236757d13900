"""The vocabulary of histories: one frozen struct per kind of operation, whichever system left it.

An adapter emits the operations that its system has; an oracle asks for those that it knows, and reads their fields.
Words are for people: ``detail`` is free text that no oracle reads. Nothing here assumes barriers or a fixed topology:
subtasks are names, and what a system does not know is None.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from barrier_tck.harness.record.reasons import Reason


def _tag(name: str) -> str:
    """Return a class name as files write it: ``attempt_started`` for ``AttemptStarted``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class _Kind(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=_tag):
    """What all operations have in common: a tag that says which kind a line is."""


# --- attempts -----------------------------------------------------------------------------------------------


class Narrowed(_Kind, frozen=True):
    """An attempt is about to start that is narrower than the job is meant to be, because slots are missing (RSC-2)."""

    attempt: int
    slots: int
    """How many there are."""
    widths: dict[str, int]
    """Vertex -> parallelism, of every vertex."""


class SlotsChanged(_Kind, frozen=True):
    """The executors that are there have room for another number of subtasks from now on, as observed at the executors;
    reported at changes only. Where nothing but the cluster knows how many there are at first, that is reported, too."""

    slots: int
    seen_ms_ago: float = 0.0
    """How long before the time of this line it was seen."""


class HeldUp(_Kind, frozen=True):
    """What has held the job up on a real machine since the trial began, though the job is not to blame; reported
    whenever it has grown by some tenths of a second."""

    processor_ms: float
    """For how long at least one process of the job was waiting for a processor, at the most."""
    disk_ms: float = 0.0
    """For how long at least one process of the machine was waiting for a disk."""
    harness_ms: float = 0.0
    """For how long the coordinator was waiting until the harness had taken its reports, at the most: the harness opens
    a completed checkpoint first, injects a fault, or stands still itself."""


class AttemptStarted(_Kind, frozen=True):
    """A deployment of the dataflow begins."""

    attempt: int
    restored_checkpoint: int | None = None
    """The checkpoint that it starts from; None if it starts at the beginning of the input."""


class AttemptRunning(_Kind, frozen=True):
    """Every subtask of an attempt has its state and runs."""

    attempt: int


class AttemptEnded(_Kind, frozen=True):
    """An attempt is over."""

    attempt: int
    reason: Reason
    """``FINISHED``, or why the attempt failed."""
    detail: str = ""


class Crashed(_Kind, frozen=True):
    """A process of the system died of an exception of its own: one that stands for no failure of its world (REC-6)."""

    process: str
    """A subtask, or the coordinator."""
    attempt: int | None
    error: str
    """The exception, as one line."""
    place: str = ""
    """Where it was raised."""
    of_harness: bool = False
    """Whether it was code of the harness that raised it, so that it says nothing about the system."""
    behind_loop: str = ""
    """The loop round which something was to go although it had ended, if that is why (CHL-5)."""


# --- checkpoints --------------------------------------------------------------------------------------------


class CheckpointTriggered(_Kind, frozen=True):
    """A checkpoint of an attempt begins."""

    checkpoint: int
    attempt: int
    final: bool = False
    """Whether all input had been consumed; then it commits the last output, and the job is over after it."""
    savepoint: str | None = None
    """Where the savepoint is kept, if it is one (COO-5)."""
    stops: bool = False
    """Whether the job is to be stopped with this savepoint."""
    reserving_ms: float = 0.0
    """For how long its id was made durable before. The checkpoint has had its timeout since the beginning of that."""


class SavepointRequested(_Kind, frozen=True, tag="savepoint_asked"):
    """The coordinator was asked for a savepoint. It is triggered or refused before the job ends."""

    savepoint: str
    stops: bool = False


class SavepointRefused(_Kind, frozen=True):
    """A savepoint was asked for, and will not be taken."""

    savepoint: str
    stops: bool = False
    detail: str = ""


class LocalCopyReported(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a subtask reports about the copies on its own host (LOC-2, LOC-3)."""

    kept: bool
    """Whether the copy of the acknowledged checkpoint is complete."""
    confirmed: int | None
    """The newest checkpoint that the subtask knows to be complete; None if it knows of none."""
    held: tuple[int, ...]
    """The checkpoints of which it still has any files, in ascending order."""
    host: str
    reason: Reason | None = None
    """Why the copy was not kept; None if it was, or if there was nothing to copy."""
    detail: str = ""


class Acknowledged(_Kind, frozen=True):
    """A subtask's acknowledgement arrived, whether it counts or not."""

    checkpoint: int
    attempt: int
    subtask: str
    local: LocalCopyReported | None = None
    """None without local recovery."""
    prepared: int = 0
    """Number of records that become visible with this checkpoint; 0 if the system does not report it."""
    held_bytes: int | None = None
    """Bytes that waited in channels that were held back for the snapshot; None if the subtask reads fewer than two
    channels, or if the system does not report it.
    """
    forged: bool = False
    """Whether a fault made it, so that the subtask never gave it."""


class CheckpointCompleted(_Kind, frozen=True):
    """A checkpoint is complete and durable."""

    checkpoint: int
    attempt: int | None = None
    """The attempt that took it; None if the system does not say."""


class CheckpointAborted(_Kind, frozen=True):
    """A checkpoint was given up."""

    checkpoint: int
    attempt: int | None
    reason: Reason
    detail: str = ""


class AbortLearned(_Kind, frozen=True):
    """A subtask learned that a checkpoint was aborted, and has released everything that it held for it."""

    checkpoint: int
    attempt: int
    """The subtask's attempt; the same for the fields below."""
    subtask: str
    recorded: tuple[int, ...] = ()
    """The checkpoints for which it still keeps records in flight in memory, in ascending order."""
    passed_over_for: int | None = None
    """A newer checkpoint whose snapshot it had taken without ever taking this one's; None if it reports none."""
    under_way: tuple[int, ...] | None = None
    """The checkpoints for which its alignment or its snapshot is still under way, in ascending order; None if it does
    not say."""


class SourcesAligned(_Kind, frozen=True):
    """From here on the sources of a group may read up to another watermark (EVT-6)."""

    attempt: int
    group: str
    largest_ms: int
    active: dict[str, int]
    """Subtask -> the watermark (ms) that it has reported, of those that others wait for."""
    idle: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


class Committed(_Kind, frozen=True):
    """A sink made output visible."""

    subtask: str
    checkpoint: int | None = None
    """The checkpoint, or the batch, that covers it; None if the system commits without either."""
    attempt: int | None = None


class Finished(_Kind, frozen=True):
    """A subtask says that it has done and committed all that it ever will: checkpoints complete without it (BAR-6)."""

    subtask: str
    attempt: int


# --- placement and restores ---------------------------------------------------------------------------------


class Placed(_Kind, frozen=True):
    """Where the subtasks of an attempt were placed, and where they could have been placed (LOC-9)."""

    attempt: int
    hosts: dict[str, str]
    """Subtask -> its host."""
    slots: dict[str, int]
    """Host -> how many slots it offered."""
    homes: dict[str, tuple[str, ...]]
    """Subtask -> the hosts that hold a copy of what it restores; subtasks without such hosts are left out."""


class CopySeen(msgspec.Struct, frozen=True):
    """A copy of a subtask's state, whole or not, that lay on a host."""

    host: str
    subtask: str
    checkpoint: int
    attempt: int
    """The attempt that wrote it."""


class CopiesSeen(_Kind, frozen=True):
    """What lay where hosts keep local copies, as the adapter found it there (LOC-3)."""

    copies: tuple[CopySeen, ...]


class ServedFrom(StrEnum):
    """Which copy of a state file a restore used."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


class ServedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One state file of a restore (LOC-4)."""

    operator: str
    path: str
    """The name of the file in durable storage, whichever copy was used."""
    key_groups: tuple[int, int]
    """The first key group, and the first one after the range."""
    served_by: ServedFrom
    copy_of: int | None = None
    """The checkpoint to which the secondary copy says it belongs; None if the primary served the file."""
    reason: Reason | None = None
    """Why the secondary copy did not serve the file; None if it did."""
    detail: str = ""


class FileRead(msgspec.Struct, frozen=True):
    """One file that was read in full."""

    place: ServedFrom
    """Durable storage, or the host's own disk."""
    path: str
    """In durable storage, the name that checkpoints use; on a host's disk, the path there."""
    size: int
    """Number of bytes that were read."""
    checksum: str
    """Checksum of these bytes."""
    state: str = ""
    """A digest of the state in them, whatever its format; empty if copies have the bytes of the primary (LOC-7)."""


class ReadsObserved(_Kind, frozen=True):
    """What a subtask really read while it restored its state, as observed at its file systems."""

    subtask: str
    attempt: int
    reads: tuple[FileRead, ...]
    """In order, including repeated reads; files that could not be read are left out."""


class StorageAsked(_Kind, frozen=True):
    """What a subtask or the coordinator has asked of checkpoint storage since it started, as counted there when the
    subtask acknowledged a checkpoint, or the coordinator completed it (SNP-8)."""

    subtask: str
    """Its name, or ``coordinator``."""
    attempt: int
    checkpoint: int
    requests: dict[str, int]
    """Kind (``write``, ``sync``, ``read``, ``list``, ``exists``, ``delete``) -> number; what never was is left out."""
    reusable: int | None = None
    """The checkpoint whose files it could have named again: when it took its snapshot it knew that this one was
    complete, and that its files stay. None: there is none, or the checkpoint shares no files."""
    completed: int | None = None
    """The newest checkpoint of its attempt that it knew to be complete, 0 if it knew of none. None: it is not known
    what it knew, or it is the coordinator."""


class ClockCompared(_Kind, frozen=True):
    """How a subtask's clock differed from the coordinator's when it started; logged if a plan lets clocks differ."""

    subtask: str
    attempt: int
    host: str
    ahead_ms: int
    """How far it was ahead; negative: behind."""


class Restored(_Kind, frozen=True):
    """A subtask has its state, and says which copies it came from."""

    subtask: str
    attempt: int
    checkpoint: int
    files: tuple[ServedFile, ...]


class InputRead(_Kind, frozen=True):
    """The record from which an attempt began to read a split, as observed between the source and its reader."""

    subtask: str
    attempt: int
    split: str
    offset: int
    """The number of the first record that was read."""


class InputLeft(_Kind, frozen=True):
    """Up to which record an attempt had read a split when it ended, as observed at the reader; logged in trials with
    savepoints."""

    subtask: str
    attempt: int
    split: str
    offset: int
    """The number of the first record that was not read."""


class ReadBehindStop(_Kind, frozen=True):
    """A subtask took records from a channel behind the barrier of a savepoint with which the job was to be stopped, as
    observed at its channels. If the savepoint failed before, that is right."""

    subtask: str
    attempt: int
    checkpoint: int


class SentBehindStop(_Kind, frozen=True):
    """A subtask sent records after it had passed the barrier of a savepoint on with which the job was to be stopped, as
    observed at its outputs. If the savepoint failed before, that is right."""

    subtask: str
    attempt: int
    checkpoint: int


class SentBehindEnd(_Kind, frozen=True):
    """A subtask sent something on a channel that it had ended, as observed at its outputs: records behind the end of
    input, or anything behind the end of the channel (BAR-6)."""

    subtask: str
    attempt: int
    channel: str
    """``sender->receiver``, followed by ``#edge`` for a second or later edge between the two."""
    sent: str
    """What it was, for readers."""


class ConsumedAll(_Kind, frozen=True):
    """A subtask at the end of the job told the coordinator that all its input was consumed, as observed at its
    connection."""

    subtask: str
    attempt: int


class TookBehindEnd(_Kind, frozen=True):
    """A subtask at the end of the job processed records after it had said that all its input was consumed, as observed
    at its operators (BAR-6)."""

    subtask: str
    attempt: int


class SnapshotTooEarly(_Kind, frozen=True):
    """A subtask took its snapshot of a checkpoint before the barrier had come from all its inputs, as observed at its
    channels (BAR-3)."""

    subtask: str
    attempt: int
    checkpoint: int
    missing: str
    """The channels from which it had not come, for readers."""
    ended: str = ""
    """The channels that had ended (BAR-6), for readers."""


class SnapshotLeftOut(_Kind, frozen=True):
    """A subtask had read the barrier of a checkpoint from all its inputs and took no snapshot, although it did not know
    the checkpoint to be over, as observed at its channels (BAR-3)."""

    subtask: str
    attempt: int
    checkpoint: int
    ended: str = ""
    """The channels that had ended without that barrier (BAR-6), for readers."""


class LocalEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a process did: it sent or took a message, took a marker, or recorded itself for a checkpoint."""

    kind: str
    """``sent``, ``taken``, ``marked``, ``closed`` (nothing comes on the channel any more) or ``recorded``."""
    channel: str = ""
    """``sender->receiver``, followed by ``#edge`` for a second or later edge between the two."""
    rows: tuple[str, ...] = ()
    """The message, row by row, as JSON."""
    checkpoint: int = 0


class MessagesObserved(_Kind, frozen=True):
    """What one process of one attempt was seen to do, in its own order (CHL-2)."""

    subtask: str
    attempt: int
    events: tuple[LocalEvent, ...]


# --- micro-batches of a query ---------------------------------------------------------------------------------


class SinkCalled(_Kind, frozen=True):
    """A micro-batch has begun, and the sink is about to be called; its offsets are noted."""

    micro_batch: int
    attempt: int


class SinkStood(_Kind, frozen=True):
    """The sink passed a point of its own, between two of its actions."""

    point: str
    attempt: int


class SinkReturned(_Kind, frozen=True):
    """The sink has returned from a micro-batch, which is not committed yet."""

    micro_batch: int
    attempt: int


class TaskBegan(_Kind, frozen=True, omit_defaults=True):
    """A task of a micro-batch began to compute rows of the query."""

    micro_batch: int
    attempt: int
    stage: int
    partition: int
    run: int
    """A number that no other run of any task of this attempt has."""
    retry: int = 0
    """How often the task had failed before in this run of its stage."""


class RowsPassed(_Kind, frozen=True, omit_defaults=True):
    """A task of a micro-batch has passed rows on to the sink."""

    micro_batch: int
    attempt: int
    stage: int
    partition: int
    run: int
    rows: int
    """How many by now."""
    all: bool = False
    """Whether these are all of its rows. A function of the sink that writes them has then done so."""


# --- the job ------------------------------------------------------------------------------------------------


class JobFinished(_Kind, frozen=True):
    """All input was consumed and all output committed."""


class JobStopped(_Kind, frozen=True):
    """The job was stopped with a savepoint, and all output before its barrier is committed (COO-5)."""

    checkpoint: int | None = None
    """The savepoint's; None if none was triggered."""
    claimed: bool = False
    """Whether the job that follows takes the savepoint over, to delete it."""


class StartedFromSavepoint(_Kind, frozen=True):
    """The job is started again from a savepoint and not from its latest checkpoint, after its coordinator was lost."""

    checkpoint: int
    """The savepoint's."""
    savepoint: str
    """Its directory."""


class JobFailed(_Kind, frozen=True):
    """The job gave up."""

    reason: Reason
    detail: str = ""


class JobCut(_Kind, frozen=True):
    """The trial ended the job, which had not ended by itself."""

    reason: Reason
    """``OUT_OF_TIME`` or ``NOTHING_LEFT``."""
    detail: str = ""


# --- faults, reported by the nemesis ------------------------------------------------------------------------


class FaultStarted(_Kind, frozen=True):
    """The nemesis starts to inject a fault of the plan."""

    fault: int
    """Position in the plan's schedule; the same in the structs below."""


class FaultFired(_Kind, frozen=True):
    """The fault is proved to have fired."""

    fault: int
    target: str = ""
    """What was hit, in words."""
    files: tuple[str, ...] = ()
    """The files of durable storage that were hit, by the names that the system's own operations use."""


class FaultUnclear(_Kind, frozen=True):
    """The injector failed: it is unknown whether the fault fired."""

    fault: int
    detail: str = ""


class HealingStarted(_Kind, frozen=True):
    """The nemesis starts to undo a fault."""

    fault: int


class FaultHealed(_Kind, frozen=True):
    """A lasting fault was undone."""

    fault: int


class HealingUnclear(_Kind, frozen=True):
    """Undoing the fault failed: it is unknown whether it still lasts."""

    fault: int
    detail: str = ""


Operation = (
    Narrowed
    | SlotsChanged
    | HeldUp
    | AttemptStarted
    | AttemptRunning
    | AttemptEnded
    | Crashed
    | CheckpointTriggered
    | SavepointRequested
    | SavepointRefused
    | Acknowledged
    | CheckpointCompleted
    | CheckpointAborted
    | AbortLearned
    | SourcesAligned
    | Committed
    | Finished
    | Placed
    | CopiesSeen
    | ReadsObserved
    | StorageAsked
    | ClockCompared
    | Restored
    | InputRead
    | InputLeft
    | ReadBehindStop
    | SentBehindStop
    | SentBehindEnd
    | TookBehindEnd
    | ConsumedAll
    | SnapshotTooEarly
    | SnapshotLeftOut
    | MessagesObserved
    | SinkCalled
    | SinkStood
    | SinkReturned
    | TaskBegan
    | RowsPassed
    | JobFinished
    | JobStopped
    | StartedFromSavepoint
    | JobFailed
    | JobCut
    | FaultStarted
    | FaultFired
    | FaultUnclear
    | HealingStarted
    | FaultHealed
    | HealingUnclear
)
"""Every kind of operation."""
