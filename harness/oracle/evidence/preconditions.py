"""What must have happened in a trial before a clause could be violated: the preconditions that checkers share."""

from __future__ import annotations

from collections.abc import Callable

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.survived_kills import survived_kills
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import End, SnapshotView
from barrier_tck.harness.record.operations import (
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
)
from barrier_tck.harness.system.system_under_test import Capability


def _started_again(context: TrialContext) -> bool:
    return sum(1 for _ in context.history.of(AttemptStarted)) > 1


def _ran_again(context: TrialContext) -> bool:
    """Return whether an attempt after the first came to run: one that only started has restored nothing that counts.

    Where the system never says that an attempt runs, one that started in a job that finished has run.
    """
    started = [line.operation.attempt for line in context.history.of(AttemptStarted)]
    ran = [line.operation.attempt for line in context.history.of(AttemptRunning)]
    if not ran:
        return len(started) > 1 and context.history.end is End.FINISHED
    return any(attempt in ran for attempt in started[1:])


def _rescaled(context: TrialContext) -> bool:
    """Return whether an attempt at another parallelism came to run with state that was redistributed.

    A plan may rescale a job that ends before; and a savepoint without state or records in flight shows nothing.
    """
    restored = {
        line.operation.attempt: line.operation.restored_checkpoint
        for line in context.history.of(AttemptStarted)
    }
    views = {view.checkpoint: view for view in context.history.checkpoints if view.problem is None}
    for line in context.history.of(AttemptRunning):
        number = context.job_number(line.operation.attempt)
        checkpoint = restored.get(line.operation.attempt)
        if not number or checkpoint is None:
            continue
        before, now = (context.jobs.plans[each].job for each in (number - 1, number))
        view = views.get(checkpoint)
        held = view is None or any(part.entries for part in view.state) or bool(view.in_flight)
        if held and before != now:
            return True
    return False


def _ran_from(kind: Callable[[SnapshotView], bool]) -> Callable[[TrialContext], bool]:
    """Return whether an attempt ran that was restored from an opened checkpoint of a kind."""

    def holds(context: TrialContext) -> bool:
        ran = {line.operation.attempt: None for line in context.history.of(AttemptRunning)}
        restored = {
            line.operation.restored_checkpoint: None
            for line in context.history.of(AttemptStarted)
            if line.operation.attempt in ran
        }
        return any(view.checkpoint in restored and kind(view) for view in context.history.checkpoints)

    return holds


def _has_increments(view: SnapshotView) -> bool:
    return any(file.shared for files in view.files.values() for file in files)


def _is_savepoint(view: SnapshotView) -> bool:
    return view.savepoint is not None


def of_restores(plan: TrialPlan) -> tuple[str, ...]:
    """Return the clauses of ``OF_RESTORES`` that a plan's trial can break."""
    increments = ("SNP-5",) if plan.checkpoints.incremental else ()
    return (*increments, *(("COO-5",) if plan.savepoints else ()))


def _request_failed(context: TrialContext) -> bool:
    """Return whether a request to the storage service got no answer, while all others did."""
    return any(
        record.outcome == "fired" and context.planned_faults[record.index].fault.waits_for_request
        for record in context.faults
    )


def _shown(context: TrialContext) -> bool:
    """Return whether sinks showed any rows."""
    query = context.history.output_query
    return bool(context.history.output) or (
        query is not None and query.counts is not None and query.counts.committed > 0
    )


def _completed(context: TrialContext) -> bool:
    return any(context.history.of(CheckpointCompleted))


STARTED_AGAIN = Precondition("a second attempt started", _started_again)
RAN_AGAIN = Precondition("a second attempt came to run", _ran_again)
RECOVERED = Precondition(
    "a second attempt came to run; for checkers of output it is enough that work was begun and committed after a kill",
    _ran_again,
    or_in_output=survived_kills,
)
RESCALED = Precondition(
    "a job came to run at another parallelism, from a savepoint with state or records in flight", _rescaled
)
FROM_INCREMENTS = Precondition(
    "an attempt came to run that was restored from a checkpoint with shared files", _ran_from(_has_increments)
)
FROM_A_SAVEPOINT = Precondition(
    "an attempt came to run that was started from a savepoint", _ran_from(_is_savepoint)
)
OF_RESTORES = {"SNP-5": FROM_INCREMENTS, "COO-5": FROM_A_SAVEPOINT}
"""Clauses for which whoever compares state or output with the input speaks, too: what an attempt is restored from shows
in all that comes after it."""
COMPLETED = Precondition("a checkpoint completed", _completed)
COMPLETED_BY_BARRIERS = Precondition(
    "a checkpoint completed, in a system with barriers", _completed, mechanism=Capability.BARRIERS
)
SHOWN = Precondition("sinks showed rows", _shown)
REQUEST_FAILED = Precondition("one request to the storage service got no answer", _request_failed)
