"""Which failed attempts of a trial its faults explain, and whether its job was right to give up."""

from __future__ import annotations

from barrier_tck.faults.fault import OnProgress
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import lives_of
from barrier_tck.harness.oracle.evidence.failed_checkpoints import rows_of_failures
from barrier_tck.harness.oracle.evidence.slots import attempts_without_capacity
from barrier_tck.harness.oracle.evidence.storage_damage import attempts_damaged, primaries_damaged
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.operations import AttemptEnded, AttemptStarted, FaultFired, FaultHealed
from barrier_tck.harness.record.reasons import Reason


def faults_fired(context: TrialContext) -> int:
    """Return how many faults fired, according to the nemesis's records or, without them, to the history."""
    if context.faults:
        return sum(fault.outcome == "fired" for fault in context.faults)
    return sum(1 for _ in context.history.of(FaultFired))


def attempts_failed(context: TrialContext) -> int:
    """Return how many attempts ended without finishing the job, including those that a crash cut off, and those whose
    number could not be made durable, which never started."""
    ended = [line.operation for line in context.history.of(AttemptEnded)]
    began = [line.operation.attempt for line in context.history.of(AttemptStarted)]
    started = dict.fromkeys((*began, *(operation.attempt for operation in ended)))
    stopped = sum(operation.reason is Reason.STOPPED for operation in ended)
    return len(started) - stopped - (1 if context.history.end is End.FINISHED and started else 0)


def declined_cleanly(context: TrialContext) -> bool:
    """Return whether a job was right to give up.

    It was if it used up its restarts and each failed attempt had its own fault. The second condition matters: one fault
    that makes every restart fail is a bug, not a used-up budget (SI-02).
    """
    if context.history.end is not End.FAILED:
        return False
    if primaries_damaged(context) and context.history.reason is Reason.CHECKPOINT_UNREADABLE:
        return True
    restart = context.plan.restart
    allowed = 0 if restart.strategy == "none" else restart.attempts_max
    failed = attempts_failed(context)
    return failed > allowed and failures_explained(context) >= failed


def failures_explained(context: TrialContext) -> int:
    """Return how many failed attempts can be explained.

    A fault explains one attempt, a lasting fault every attempt that ran while it lasted, and more failed checkpoints in
    a row than the plan tolerates explain an attempt, too. A file that was damaged explains every attempt that started
    from a checkpoint that shares it. One that never had room needs no other explanation.
    """
    healed = {line.operation.fault: line.time_ms for line in context.history.of(FaultHealed)}
    fired = {line.operation.fault: line.time_ms for line in context.history.of(FaultFired)}
    harmless = [
        fault
        for fault, planned in enumerate(context.planned_faults)
        if planned.fault.on_progress is OnProgress.NOTHING
    ]
    lasting = [
        (fired[fault], until + context.planned_faults[fault].fault.lingers_ms)
        for fault, until in healed.items()
        if fault in fired and fault not in harmless
    ]
    taken = sum(fault in harmless for fault in fired)
    return (
        faults_fired(context)
        - taken
        - len(lasting)
        + _ended_by_failed_checkpoints(context)
        + len(attempts_without_capacity(context))
        + max(0, attempts_damaged(context) - primaries_damaged(context))
        + sum(
            any(began <= until and since <= ended for since, until in lasting)
            for began, ended in _attempts(context.history)
        )
    )


def _ended_by_failed_checkpoints(context: TrialContext) -> int:
    """Return how many attempts ended, as the plan says, because too many checkpoints in a row had failed (COO-2)."""
    tolerated = context.plan.checkpoints.tolerated_failures
    return sum(
        attempt.reason is Reason.CHECKPOINTS_FAILED and max(rows_of_failures(attempt), default=0) > tolerated
        for attempt in lives_of(context)
    )


def _attempts(history: History) -> list[tuple[float, float]]:
    """Return when each deployment began and ended; one without a reported end ended with the next one, or never.

    One that never started, because its number could not be made durable, ended when it was to begin.
    """
    began = [(line.operation.attempt, line.time_ms) for line in history.of(AttemptStarted)]
    ended = {line.operation.attempt: line.time_ms for line in history.of(AttemptEnded)}
    nexts = [*(time_ms for _, time_ms in began), float("inf")][1:]
    started = dict(began)
    return [
        *(
            (time_ms, ended.get(attempt, following))
            for (attempt, time_ms), following in zip(began, nexts, strict=True)
        ),
        *((time_ms, time_ms) for attempt, time_ms in ended.items() if attempt not in started),
    ]
