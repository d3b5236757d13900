"""What must have happened in a trial before a clause could be violated: the preconditions that checkers share."""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.survived_kills import survived_kills
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.record.history import End
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
COMPLETED = Precondition("a checkpoint completed", _completed)
COMPLETED_BY_BARRIERS = Precondition(
    "a checkpoint completed, in a system with barriers", _completed, mechanism=Capability.BARRIERS
)
SHOWN = Precondition("sinks showed rows", _shown)
REQUEST_FAILED = Precondition("one request to the storage service got no answer", _request_failed)
