"""Which broken recoveries a trial would have shown, derived from its history: whether its VALID means anything.

A trial that restored nothing says nothing about restores. So for each way to break recovery
(``harness.system.broken_recovery``) there is a condition here that is *sufficient* for the break to show: if a trial
meets the condition and its recovery is broken in that way, it must be INVALID. Control trials are chosen by these
conditions, and test whether the checkers find the break.

* *Records are read again, state is dropped*: an attempt that reached running was restored from a checkpoint in the
  middle of the input. Records were read before the checkpoint, and had an effect (for dropped state: on state). More
  records were read after it, and a later checkpoint of this or a newer attempt holds them. If nothing was left to
  read, what was restored was never used.
* *A transaction is committed early*: a sink had prepared records for a checkpoint that did not complete, and the next
  attempt starts from before it. In at-least-once mode no attempt may have gone back behind a complete checkpoint: what
  that had committed may come twice, and what was committed early right behind it looks the same.
* *An attempt is not fenced*: a checkpoint was pending when its attempt failed, and a later attempt reached running. A
  crashed coordinator could not report what became of its checkpoints, so such a trial does not count.

A system that reports neither checkpoints nor restores is judged by what its faults did. What that does not show is not
known, and is called so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from barrier_tck.faults.fault import Ends
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.recoveries import fell_back
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.evidence.survived_kills import (
    kills_fired,
    reports_progress,
    survived_kills,
)
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptRunning,
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import EXERCISED, Finding
from barrier_tck.harness.system.broken_recovery import BrokenRecovery, Vacuity
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.money import Money
from barrier_tck.harness.workloads.payments import OPENING
from barrier_tck.harness.workloads.workload_names import workload_named

_SHOWN_WITH = {
    BrokenRecovery.READ_AGAIN: Capability.SNAPSHOT_INSPECTION,
    BrokenRecovery.STATE_DROPPED: Capability.SNAPSHOT_INSPECTION,
    BrokenRecovery.COMMITTED_EARLY: Capability.BARRIERS,
    BrokenRecovery.UNFENCED: Capability.BARRIERS,
}
"""With which capability the history shows whether a break would show: what was restored is known of checkpoints that
can be opened, and what was prepared or pending of those with the life cycle of barriers."""


def vacuity_reasons(context: TrialContext, findings: Sequence[Finding]) -> dict[str, str]:
    """Return, for each ``BrokenRecovery``, an empty text if the trial would have shown it, else a ``Vacuity``.

    ``findings`` are those of the checkers that judged the trial, because what no checker compares does not show. Nor
    does it show if the checker says itself that nothing could have been wrong.
    """
    story = _story_of(context)
    covered = {
        clause for finding in findings if finding.counts.get(EXERCISED) != 0 for clause in finding.clauses
    }
    reasons = {broken: _vacuity(broken, context, story, covered) for broken in BrokenRecovery}
    return {broken.value: reason.value if reason is not None else "" for broken, reason in reasons.items()}


def _vacuity(
    broken: BrokenRecovery, context: TrialContext, story: _Story, covered: set[str]
) -> Vacuity | None:
    if not story.reports_recovery or _SHOWN_WITH[broken].name not in context.capabilities:
        return _by_its_faults(broken, context, covered)
    if len(story.started) < 2 or not any(attempt in story.ran for attempt in list(story.started)[1:]):
        return Vacuity.NOT_RECOVERED
    if context.plan.on_unreadable == "older" and primaries_damaged(context):
        return Vacuity.EXCUSED
    match broken:
        case BrokenRecovery.READ_AGAIN | BrokenRecovery.STATE_DROPPED:
            reason = _of_restores(broken, context, story)
        case BrokenRecovery.COMMITTED_EARLY:
            reason = None if any(_uncovered(story)) else Vacuity.NOTHING_PREPARED
            if reason is None and context.plan.checkpoints.mode == "at_least_once" and fell_back(context):
                reason = Vacuity.EXCUSED
        case BrokenRecovery.UNFENCED:
            reason = None if _left_pending(context, story) else Vacuity.NOTHING_PENDING
    if reason is None and not covered.intersection(broken.clauses):
        return Vacuity.NOT_COMPARED
    return reason


def _by_its_faults(broken: BrokenRecovery, context: TrialContext, covered: set[str]) -> Vacuity | None:
    """Return why a trial of a system that does not show what it recovers from would not have shown a break.

    What its faults did is known. If it was killed and went on, then it read on from some place, and committed what it
    had not committed before: the output shows whether both were right.
    """
    if not kills_fired(context):
        return Vacuity.NOT_RECOVERED
    if broken not in (BrokenRecovery.READ_AGAIN, BrokenRecovery.COMMITTED_EARLY):
        return Vacuity.NOT_REPORTED
    if survived_kills(context):
        return None if covered.intersection(broken.clauses) else Vacuity.NOT_COMPARED
    return Vacuity.NOT_RECOVERED if reports_progress(context) else Vacuity.NOT_REPORTED


@dataclass(slots=True)
class _Story:
    """What a history shows about attempts and checkpoints."""

    started: dict[int, int | None] = field(default_factory=dict)
    """Attempt -> the checkpoint from which it was restored, in order."""
    ran: dict[int, None] = field(default_factory=dict)
    triggered: dict[int, int] = field(default_factory=dict)
    """Checkpoint -> the attempt that took it."""
    completed: dict[int, None] = field(default_factory=dict)
    aborted: dict[int, Reason] = field(default_factory=dict)
    prepared: list[tuple[int, int]] = field(default_factory=list)
    """(checkpoint, attempt) of every acknowledgement that reported prepared records."""

    @property
    def reports_recovery(self) -> bool:
        """Whether the system reports what it recovers from: its checkpoints, or where an attempt began."""
        restored = any(checkpoint is not None for checkpoint in self.started.values())
        return bool(restored or self.triggered or self.completed)


def _story_of(context: TrialContext) -> _Story:
    story = _Story()
    for line in context.history.operations:
        match line.operation:
            case Acknowledged(checkpoint=checkpoint, attempt=attempt, prepared=prepared):
                if prepared:
                    story.prepared.append((checkpoint, attempt))
            case CheckpointTriggered(checkpoint=checkpoint, attempt=attempt):
                story.triggered[checkpoint] = attempt
            case CheckpointCompleted(checkpoint=checkpoint):
                story.completed[checkpoint] = None
            case CheckpointAborted(checkpoint=checkpoint, reason=reason):
                story.aborted[checkpoint] = reason
            case AttemptStarted(attempt=attempt, restored_checkpoint=restored):
                story.started[attempt] = restored
            case AttemptRunning(attempt=attempt):
                story.ran[attempt] = None
    return story


# --- restores ---------------------------------------------------------------------------------------------


def _of_restores(broken: BrokenRecovery, context: TrialContext, story: _Story) -> Vacuity | None:
    """Return why no restore of the trial would have shown a break; None if one would have.

    If there are several reasons, the one that came closest to showing it counts.
    """
    restores = [
        (attempt, checkpoint)
        for attempt, checkpoint in list(story.started.items())[1:]
        if checkpoint is not None and attempt in story.ran
    ]
    views = {view.checkpoint: view for view in context.history.checkpoints if view.problem is None}
    reasons = [
        _of_restore(broken, context, attempt, views[checkpoint], list(views.values()))
        for attempt, checkpoint in restores
        if checkpoint in views
    ]
    if None in reasons:
        return None
    if restores and not reasons:
        return Vacuity.NOT_COMPARED  # the restored checkpoint was not opened
    order = (Vacuity.NOTHING_KEPT, Vacuity.INPUT_WAS_READ, Vacuity.NOT_COMPARED)
    return next((reason for reason in order if reason in reasons), Vacuity.TOO_EARLY)


def _of_restore(
    broken: BrokenRecovery,
    context: TrialContext,
    attempt: int,
    restored: SnapshotView,
    views: Sequence[SnapshotView],
) -> Vacuity | None:
    start = context.plan.workload.start_offset
    if not any(position > start for position in restored.positions.values()):
        return Vacuity.TOO_EARLY
    later = [
        view
        for view in views
        if view.checkpoint > restored.checkpoint and (view.attempt is None or view.attempt >= attempt)
    ]
    if not later:
        return Vacuity.NOT_COMPARED
    if not any(_reads_on(restored, view) for view in later):
        return Vacuity.INPUT_WAS_READ
    # What is not keyed (lists) stays when keyed state is dropped.
    wanted = [part for part in restored.state if part.keyed or broken is not BrokenRecovery.STATE_DROPPED]
    # An account that is forgotten is opened once more, with the balance with which all begin.
    of_money = context.plan.workload.name == Money.name and broken is BrokenRecovery.STATE_DROPPED
    begun = [OPENING] if of_money else None
    if any(entry != begun for part in wanted for entry in part.entries.values()):
        return None
    if broken is BrokenRecovery.STATE_DROPPED:
        return Vacuity.NOTHING_KEPT
    # A sequential model gives a row of output for every record.
    in_output = restored.reached_sinks or workload_named(context.plan.workload.name).spec is not None
    return None if in_output else Vacuity.NOTHING_KEPT


def _reads_on(before: SnapshotView, after: SnapshotView) -> bool:
    return any(position > before.positions.get(split, 0) for split, position in after.positions.items())


# --- what a failed attempt leaves -------------------------------------------------------------------------


def _uncovered(story: _Story) -> Iterator[int]:
    """Yield the checkpoints for which a sink had prepared records, if the next attempt starts from before them."""
    attempts = list(story.started)
    after = dict(pairwise(attempts))
    for checkpoint, attempt in story.prepared:
        following = after.get(attempt)
        if following is None or checkpoint in story.completed:
            continue
        restored = story.started[following]
        if restored is None or restored < checkpoint:
            yield checkpoint


def _left_pending(context: TrialContext, story: _Story) -> bool:
    crashed = any(
        record.outcome == "fired" and context.planned_faults[record.index].fault.ends is Ends.COORDINATOR
        for record in context.faults
    )
    newest = max(story.ran)
    return not crashed and any(
        attempt < newest
        and checkpoint not in story.completed
        and story.aborted.get(checkpoint, Reason.ATTEMPT_FAILED) is Reason.ATTEMPT_FAILED
        for checkpoint, attempt in story.triggered.items()
    )
