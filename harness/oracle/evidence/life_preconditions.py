"""What must have happened for the lives of attempts and checkpoints to show a violation: what was left over of them,
and what came at the wrong time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import (
    AttemptLife,
    CheckpointLife,
    coordinator_crashes,
    lives_of,
)
from barrier_tck.harness.oracle.evidence.failed_checkpoints import COUNTED
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Finished,
    JobStopped,
)
from barrier_tck.harness.record.reasons import Reason


def ended_channels(attempt: AttemptLife, life: CheckpointLife, context: TrialContext) -> bool:
    """Return whether some subtasks of the attempt, but not all, had finished before a checkpoint ended: no barrier came
    on the channels from them, and it could have waited for one (BAR-6)."""
    over_ms = attempt.ended_ms if life.ended_ms is None else life.ended_ms
    finished = {
        line.operation.subtask
        for line in context.history.of(Finished)
        if line.operation.attempt == attempt.number and line.time_ms <= over_ms
    }
    return 0 < len(finished) < len(context.subtasks_of(attempt.number))


# --- what an attempt leaves -----------------------------------------------------------------------------------


def _left_behind(context: TrialContext) -> bool:
    """Return whether something of an attempt was still under way when the next one started.

    It is a checkpoint that had neither completed nor failed by itself, or an acknowledgement that came later. A job
    that stops leaves nothing: its successor begins anew.
    """
    pending: dict[int, None] = {}
    newest = 0
    for line in context.history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=checkpoint):
                pending[checkpoint] = None
            case CheckpointCompleted(checkpoint=checkpoint):
                pending.pop(checkpoint, None)
            case CheckpointAborted(checkpoint=checkpoint, reason=reason) if (
                reason is not Reason.ATTEMPT_FAILED
            ):
                pending.pop(checkpoint, None)
            case JobStopped():
                pending.clear()
            case AttemptStarted(attempt=attempt):
                if pending:
                    return True
                newest = attempt
            case Acknowledged(attempt=attempt, forged=False) if 0 < attempt < newest:
                return True
            case _:
                continue
    return False


def _resumed_after_a_crash(context: TrialContext) -> bool:
    """Return whether an attempt started after the coordinator had crashed, with a checkpoint that it had to know of."""
    crashes = coordinator_crashes(context)
    if not crashes or (context.plan.on_unreadable == "older" and primaries_damaged(context)):
        return False
    completed_ms = min((line.time_ms for line in context.history.of(CheckpointCompleted)), default=None)
    started = [line.time_ms for line in context.history.of(AttemptStarted)]
    return completed_ms is not None and any(
        completed_ms <= crash_ms <= started_ms for crash_ms in crashes for started_ms in started
    )


# --- checkpoints that fail ------------------------------------------------------------------------------------


def _failed(context: TrialContext) -> bool:
    return any(life.failed in COUNTED for attempt in lives_of(context) for life in attempt.checkpoints)


def _wrong_acknowledgements(context: TrialContext) -> Iterator[Acknowledged]:
    """Yield the acknowledgements that must not count: forged, late, unknown, or not the first of a subtask."""
    taken_by: dict[int, int] = {}
    counted: dict[tuple[int, str], None] = {}
    subtasks = frozenset(context.every_subtask)
    for line in context.history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=checkpoint, attempt=attempt):
                taken_by[checkpoint] = attempt
            case CheckpointCompleted(checkpoint=checkpoint) | CheckpointAborted(checkpoint=checkpoint):
                taken_by.pop(checkpoint, None)
            case Acknowledged() as ack:
                part = ack.checkpoint, ack.subtask
                known = not subtasks or ack.subtask in subtasks
                if ack.forged or not known or taken_by.get(ack.checkpoint) != ack.attempt or part in counted:
                    yield ack
                else:
                    counted[part] = None
            case _:
                continue


def _stored(context: TrialContext, unwanted: Iterable[Acknowledged]) -> bool:
    """Return whether one of these acknowledgements stands for files: of state, or of prepared output."""
    writers = {subtask for view in context.history.checkpoints for subtask in view.files}
    return any(ack.prepared or ack.subtask in writers for ack in unwanted)


def _stored_in_vain(context: TrialContext) -> bool:
    completed = {line.operation.checkpoint for line in context.history.of(CheckpointCompleted)}
    triggered = {line.operation.checkpoint for line in context.history.of(CheckpointTriggered)} - completed
    acks = (line.operation for line in context.history.of(Acknowledged))
    return _stored(context, (entry for entry in acks if not entry.forged and entry.checkpoint in triggered))


def _stored_late(context: TrialContext) -> bool:
    completed = {line.operation.checkpoint for line in context.history.of(CheckpointCompleted)}
    late = (ack for ack in _wrong_acknowledgements(context) if not ack.forged)
    return _stored(context, (ack for ack in late if ack.checkpoint not in completed))


LEFT_BEHIND = Precondition(
    "an attempt started after one that had left a checkpoint pending, or whose acknowledgements still came",
    _left_behind,
)
FAILED = Precondition("a checkpoint was declined, expired, or could not be stored", _failed)
ACKNOWLEDGED_WRONGLY = Precondition(
    "an acknowledgement came late, again, for something unknown, or forged",
    lambda context: any(True for _ in _wrong_acknowledgements(context)),
)
STORED_IN_VAIN = Precondition(
    "a subtask that stores files had acknowledged a checkpoint that never completed", _stored_in_vain
)
STORED_LATE = Precondition(
    "a subtask that stores files acknowledged a checkpoint that was over, or that was not its attempt's",
    _stored_late,
)
RESUMED_AFTER_A_CRASH = Precondition(
    "an attempt started after the coordinator had crashed, and a checkpoint had completed before",
    _resumed_after_a_crash,
)
