"""The life of each checkpoint, attempt by attempt, as the history shows it: when it began, and how it ended.

Nothing is judged here. A checkpoint without a reported end ended with its attempt at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barrier_tck.faults.fault import Ends
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    FaultFired,
    FaultUnclear,
    Finished,
)
from barrier_tck.harness.record.reasons import Reason


@dataclass(slots=True)
class CheckpointLife:
    """One checkpoint. Times in milliseconds of the trial's clock."""

    number: int
    attempt: int
    triggered_ms: float
    triggered_at: int
    """Position of the operation in the history; the same for the fields below."""
    final: bool
    """Whether it was triggered after all input had been consumed."""
    savepoint: str | None = None
    """Where the savepoint is kept, if it is one."""
    stops: bool = False
    """Whether the job is stopped with this savepoint."""
    reserving_ms: float = 0.0
    """For how long its id was made durable before; its timeout has begun already."""
    ended_ms: float | None = None
    ended_at: int | None = None
    failed: Reason | None = None
    """Why it was aborted; None if it completed, or if its end was not reported."""
    acknowledged: dict[str, float] = field(default_factory=dict)
    """Subtask -> when its first acknowledgement arrived, or else the news that it has finished (BAR-6)."""

    @property
    def begun_ms(self) -> float:
        """When its coordinator began with it: to make its id durable, or else to trigger it."""
        return self.triggered_ms - self.reserving_ms

    @property
    def completed(self) -> bool:
        """Whether it is known to have completed."""
        return self.ended_ms is not None and self.failed is None

    def end(self, time_ms: float, index: int, failed: Reason | None) -> None:
        """Take its end from the history."""
        self.ended_ms, self.ended_at, self.failed = time_ms, index, failed

    def ended_before(self, other: CheckpointLife) -> bool:
        """Return whether it had ended when another one was triggered."""
        return self.ended_at is not None and self.ended_at < other.triggered_at

    def acknowledged_by(self, time_ms: float, subtasks: int) -> bool:
        """Return whether this number of subtasks had acknowledged it by then; the rest is up to the coordinator."""
        return sum(when <= time_ms for when in self.acknowledged.values()) >= subtasks


@dataclass(slots=True)
class AttemptLife:
    """One attempt and its checkpoints, in the order in which they were triggered."""

    number: int
    started_ms: float
    restored: int | None = None
    """The checkpoint that it started from, if any."""
    running_ms: float | None = None
    """When every subtask ran; None if that was not reported."""
    ended_ms: float = float("inf")
    """When it failed or finished, or when its coordinator died."""
    reason: Reason | None = None
    finished: list[str] = field(default_factory=list)
    """The subtasks that have finished."""
    checkpoints: list[CheckpointLife] = field(default_factory=list)


def lives_of(context: TrialContext) -> tuple[AttemptLife, ...]:
    """Return the attempts of a trial in order, with the checkpoints that each of them triggered; do not change them."""
    return context.once(_lives_of)


def _lives_of(context: TrialContext) -> tuple[AttemptLife, ...]:
    attempts: dict[int, AttemptLife] = {}
    checkpoints: dict[int, CheckpointLife] = {}
    subtasks = frozenset(context.every_subtask)
    for line in context.history.operations:
        match line.operation:
            case AttemptStarted(attempt=number, restored_checkpoint=restored):
                attempts.setdefault(number, AttemptLife(number, line.time_ms, restored))
            case AttemptRunning(attempt=number) if number in attempts:
                attempts[number].running_ms = line.time_ms
            case AttemptEnded(attempt=number, reason=reason) if number in attempts:
                attempts[number].ended_ms, attempts[number].reason = line.time_ms, reason
            case CheckpointTriggered(checkpoint=number, attempt=attempt) as begins:
                begun = CheckpointLife(
                    *(number, attempt, line.time_ms, line.index),
                    *(begins.final, begins.savepoint, begins.stops, begins.reserving_ms),
                )
                checkpoints[number] = begun
                life = attempts.setdefault(attempt, AttemptLife(attempt, line.time_ms))
                life.checkpoints.append(begun)
                begun.acknowledged.update(dict.fromkeys(life.finished, line.time_ms))
            case Finished(attempt=number, subtask=subtask) if number in attempts:
                attempts[number].finished.append(subtask)
                for pending in attempts[number].checkpoints:
                    if pending.ended_ms is None:
                        pending.acknowledged.setdefault(subtask, line.time_ms)
            case Acknowledged(checkpoint=number, attempt=attempt, subtask=subtask, forged=False):
                known = checkpoints.get(number)
                # An acknowledgement of a subtask that the job does not have does not count (COO-3), nor does one
                # that a fault forged.
                if known is not None and known.attempt == attempt and subtask in subtasks:
                    known.acknowledged.setdefault(subtask, line.time_ms)
            case CheckpointCompleted(checkpoint=number) if number in checkpoints:
                checkpoints[number].end(line.time_ms, line.index, None)
            case CheckpointAborted(checkpoint=number, reason=reason) if number in checkpoints:
                checkpoints[number].end(line.time_ms, line.index, reason)
    lives = tuple(attempts.values())
    crashes = coordinator_crashes(context)
    nexts = [*(life.started_ms for life in lives), float("inf")][1:]
    for life, next_ms in zip(lives, nexts, strict=True):
        over = [crash for crash in crashes if crash >= life.started_ms]
        life.ended_ms = min([life.ended_ms, next_ms, *over])
    return lives


def coordinator_crashes(context: TrialContext) -> tuple[float, ...]:
    """Return when the nemesis crashed the coordinator, which then could not record which checkpoints it aborted."""
    crashes = [
        index for index, entry in enumerate(context.plan.faults) if entry.fault.ends is Ends.COORDINATOR
    ]
    if not crashes:
        return ()
    return tuple(
        line.time_ms
        for line in context.history.operations
        if isinstance(line.operation, (FaultFired, FaultUnclear)) and line.operation.fault in crashes
    )


def end_of(history: History) -> float:
    """Return the time of the last operation; 0 for an empty history."""
    return history.operations[-1].time_ms if history.operations else 0.0
