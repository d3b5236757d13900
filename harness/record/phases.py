"""In which phase of the protocol a fault fired, derived only from what a trial recorded.

An aimed fault fired at its protocol point, and the point has a phase. For a timed fault the phase is what the
subtasks that it names were doing at that moment; if that is not known, what any other subtask was doing. The times of
a snapshot are known if it was acknowledged. Of a checkpoint that was lost together with its snapshots only the
coordinator's times are known; a fault within these times counts as striking the alignment, with which a checkpoint
begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from barrier_tck.faults.vocabulary import PHASE_OF_POINT, Phase, ProtocolPoint, ScheduledFault
from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, FaultRecord, SnapshotRecord


@dataclass(frozen=True, slots=True)
class Course:
    """What happened in a trial, as it was recorded."""

    attempts: tuple[AttemptRecord, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    snapshots: tuple[SnapshotRecord, ...] = ()


def with_phases(
    faults: Sequence[FaultRecord], schedule: Sequence[ScheduledFault], course: Course
) -> tuple[FaultRecord, ...]:
    """Return the fault records with the phase of each fault that fired."""
    return tuple(
        msgspec.structs.replace(fault, phase=phase_of(fault, schedule[fault.index].fault.subtasks, course))
        for fault in faults
    )


def phase_of(fault: FaultRecord, subtasks: Sequence[str], course: Course) -> Phase | None:
    """Return the phase in which a fault fired, None if it did not; ``subtasks`` are the subtasks that it names."""
    if fault.outcome != "fired" or fault.fired_at_ms is None:
        return None
    if fault.point is not None:
        return PHASE_OF_POINT[ProtocolPoint(fault.point)]
    return _phase_at(fault.fired_at_ms, subtasks, course)


def _phase_at(time_ms: float, subtasks: Sequence[str], course: Course) -> Phase:
    if not any(_runs(attempt, time_ms) for attempt in course.attempts):
        return Phase.RESTORING
    own = [part for part in course.snapshots if part.subtask in subtasks]
    others = [part for part in course.snapshots if part.subtask not in subtasks]
    for part in own + others:
        phase = _part_at(part, time_ms)
        if phase is not None:
            return phase
    return _pending_at(time_ms, course)


def _runs(attempt: AttemptRecord, time_ms: float) -> bool:
    return attempt.running_at_ms is not None and attempt.running_at_ms <= time_ms <= attempt.ended_at_ms


def _part_at(part: SnapshotRecord, time_ms: float) -> Phase | None:
    """Return the part of a snapshot into which a time falls, None if it falls into no part."""
    aligned = part.alignment_started_ms + part.alignment_ms
    taken = aligned + part.sync_ms
    if not part.alignment_started_ms <= time_ms < taken + part.async_ms:
        return None
    if time_ms < aligned:
        return Phase.ALIGNMENT
    return Phase.SYNCHRONOUS_PART if time_ms < taken else Phase.ASYNCHRONOUS_PART


def _pending_at(time_ms: float, course: Course) -> Phase:
    """Return the phase of a job in which no snapshot is known to be under way."""
    for checkpoint in course.checkpoints:
        if checkpoint.triggered_at_ms <= time_ms <= checkpoint.ended_at_ms:
            parts = [part for part in course.snapshots if part.checkpoint == checkpoint.checkpoint]
            done = checkpoint.status == "completed" and all(_end_ms(part) <= time_ms for part in parts)
            return Phase.COMMITTING if done else Phase.ALIGNMENT
    return Phase.PROCESSING


def _end_ms(part: SnapshotRecord) -> float:
    return part.alignment_started_ms + part.alignment_ms + part.sync_ms + part.async_ms
