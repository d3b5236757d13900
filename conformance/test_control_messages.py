"""Messages that arrive twice, or are forged, are recognised. Failed checkpoints are tolerated up to a number."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from barrier_tck.conformance.plans import STATEFUL, kill_worker, varied, with_faults
from barrier_tck.conformance.trials import Trial, Trials, exactly_one, happened, require
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.forge_acknowledgement import ForgeAcknowledgement
from barrier_tck.faults.kinds.repeat_messages import RepeatMessages
from barrier_tck.faults.targets import Direction, Forgery
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, SavepointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptEnded,
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobStopped,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.needs(Capability.ATTEMPTS, Capability.CHECKPOINTS, Capability.SNAPSHOT_INSPECTION)

FAILING = 2
"""The number of checkpoints in a row that cannot be written."""

FORGED = tuple(
    (forgery, point)
    for forgery in Forgery
    for point in (ProtocolPoint.CHECKPOINT_TRIGGERED, ProtocolPoint.CHECKPOINT_COMPLETED)
)
"""What is wrong with a forged acknowledgement, and whether the newest checkpoint is pending or complete."""


@pytest.mark.needs(Capability.BARRIERS, Capability.REQUEST_LOG, Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("COO-1")
def test_every_subtask_learns_that_a_checkpoint_is_complete(trials: Trials) -> None:
    """Not only sinks, which commit then: others share files with it, and drop older copies."""
    plan = varied(workload=WorkloadPlan(batches=40, records_per_second=100))
    for trial in trials.all_valid(plan):
        happened(
            trial.finding("completions-learned").counts["judged"],
            "a checkpoint was complete long before another one was triggered",
            trial,
        )


@pytest.mark.needs(Capability.MESSAGE_FAULTS, Capability.BARRIERS)
@pytest.mark.clause("COO-3", "COO-1", "STA-3")
@pytest.mark.parametrize(
    "late_ms",
    [pytest.param(0, id="at-once"), pytest.param(12, id="later", marks=pytest.mark.nightly_on_clusters)],
)
def test_messages_that_come_twice_complete_nothing_and_delete_nothing(trials: Trials, late_ms: int) -> None:
    fault = RepeatMessages(STATEFUL, late_ms, duration_ms=300)
    plan = with_faults(
        ScheduledFault(fault, After(ProtocolPoint.ATTEMPT_RUNNING)),
        plan=varied(checkpoints=CheckpointPlan(interval_ms=12, max_concurrent=2)),
    )
    for trial in trials.all_valid(plan):
        came = Counter(
            (line.operation.checkpoint, line.operation.subtask) for line in trial.history.of(Acknowledged)
        )
        twice = [subtask for (_, subtask), times in came.items() if times > 1]
        happened(twice, "acknowledgements came twice", trial)
        require(set(twice) == {trial.subtask(STATEFUL)}, "only acknowledgements of one subtask did", trial)


@pytest.mark.needs(
    Capability.MESSAGE_FAULTS, Capability.BARRIERS, Capability.SAVEPOINTS, Capability.DETERMINISTIC_REPLAY
)
@pytest.mark.clause("COO-3", "STA-3", "COO-5")
def test_what_the_next_job_receives_again_about_an_older_checkpoint_takes_nothing_from_it(
    trials: Trials,
) -> None:
    """The next job starts from a savepoint, and the older checkpoint is kept until a newer one is complete.

    Only virtual time brings a message of the stopped job to the next one while it has no checkpoint of its own.
    """
    fault = RepeatMessages(STATEFUL, late_ms=90, duration_ms=1_000, direction=Direction.FORWARD)
    plan = with_faults(
        ScheduledFault(fault, After(ProtocolPoint.ATTEMPT_RUNNING)),
        plan=varied(checkpoints=CheckpointPlan(interval_ms=30, retained=3)),
    )
    stop = SavepointPlan(after_checkpoints=2, stop=True)
    for trial in trials.all_valid(msgspec.structs.replace(plan, savepoints=(stop,))):
        stopped = exactly_one(
            [line.operation.checkpoint for line in trial.history.of(JobStopped)], "the job was stopped", trial
        )
        own = [
            line
            for line in trial.history.of(CheckpointCompleted)
            if line.operation.checkpoint > (stopped or 0)
        ]
        restored = [line.index for line in trial.history.of(AttemptStarted)][-1]
        again = [
            line
            for line in trial.history.of(Acknowledged)
            if restored < line.index < own[0].index and line.operation.checkpoint < (stopped or 0)
        ]
        happened(again, "the next job heard of an older checkpoint before it had one", trial)


@pytest.mark.needs(Capability.MESSAGE_FAULTS, Capability.BARRIERS)
@pytest.mark.clause("COO-3", "COO-1")
@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(
            (forgery, point),
            id=f"{forgery.value}-{point.value}",
            marks=() if (forgery, point) == FORGED[0] else pytest.mark.nightly_on_clusters,
        )
        for forgery, point in FORGED
    ],
)
def test_a_forged_acknowledgement_completes_nothing_and_its_file_is_removed(
    trials: Trials, forged: tuple[Forgery, ProtocolPoint]
) -> None:
    forgery, point = forged
    plan = with_faults(ScheduledFault(ForgeAcknowledgement(STATEFUL, forgery), After(point, nth=2)))
    for trial in trials.all_valid(plan):
        triggered = {
            line.operation.checkpoint: line.operation.attempt
            for line in trial.history.of(CheckpointTriggered)
        }
        wrong = [
            line.operation
            for line in trial.history.of(Acknowledged)
            if triggered.get(line.operation.checkpoint) != line.operation.attempt
            or line.operation.subtask not in trial.record.subtasks
        ]
        require(len(wrong) == 1, f"one acknowledgement is wrong: {wrong}", trial)
        require(not any(trial.history.of(CheckpointAborted)), "no checkpoint fails", trial)
        storage = trial.history.storage
        require(storage is not None and not storage.orphans, "nothing that it wrote is left", trial)


@pytest.mark.needs(Capability.STORAGE_FAULTS)
@pytest.mark.clause("COO-1", "COO-2")
def test_a_checkpoint_whose_metadata_cannot_be_written_fails_and_later_ones_complete(trials: Trials) -> None:
    plan = with_faults(
        ScheduledFault(
            FailPrimaryWrites(STATEFUL, FAILING, metadata=True),
            After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2),
        )
    )
    for trial in trials.all_valid(plan):
        failed = [
            line.index
            for line in trial.history.of(CheckpointAborted)
            if line.operation.reason is Reason.STORAGE_FAILED
        ]
        _require_failed(len(failed), FAILING, trial)
        later = [line for line in trial.history.of(CheckpointCompleted) if line.index > failed[-1]]
        happened(bool(later), "a later one completes", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(
    Capability.STORAGE_FAULTS, Capability.WORKER_KILL, Capability.ATTEMPTS, Capability.SLOW_SNAPSHOTS
)
@pytest.mark.clause("COO-2", "REC-6")
def test_an_attempt_that_fails_while_a_publication_fails_is_followed_by_another(trials: Trials) -> None:
    """What died may be gone before the write of the metadata ends."""
    acknowledged = After(ProtocolPoint.ALL_ACKNOWLEDGED, nth=2)
    plan = with_faults(
        ScheduledFault(
            FailPrimaryWrites(STATEFUL, 1, metadata=True), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)
        ),
        kill_worker(STATEFUL, acknowledged),
        plan=varied(checkpoints=CheckpointPlan(interval_ms=15, async_ms_max=40)),
    )
    failed = 0
    for trial in trials.all_valid(plan):
        reasons = [line.operation.reason for line in trial.history.of(CheckpointAborted)]
        failed += Reason.STORAGE_FAILED in reasons
        require(len(trial.record.attempts) >= 2, "another attempt follows", trial)
        require(trial.record.end == "finished", "the job finishes", trial)
    happened(failed, "a publication failed")


@pytest.mark.needs(Capability.STORAGE_FAULTS)
@pytest.mark.uses("checkpoints.tolerated_failures")
@pytest.mark.clause("COO-2")
@pytest.mark.parametrize("tolerated", [FAILING - 1, FAILING], ids=["too-many", "tolerated"])
def test_the_attempt_ends_when_more_checkpoints_failed_in_a_row_than_are_tolerated(
    trials: Trials, tolerated: int
) -> None:
    for trial in trials.all_valid(_tolerating(tolerated, FailPrimaryWrites(STATEFUL, FAILING))):
        _require_failed(_failed(trial, Reason.DECLINED), FAILING, trial)
        gave_up = _gave_up(trial)
        require(gave_up == (tolerated < FAILING), f"{tolerated} are tolerated: {gave_up} attempts end", trial)
        require(trial.record.end == "finished", "the job finishes nevertheless", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.STORAGE_FAULTS)
@pytest.mark.uses("checkpoints.tolerated_failures")
@pytest.mark.clause("COO-2")
def test_a_checkpoint_whose_metadata_cannot_be_written_counts_as_failed(trials: Trials) -> None:
    fault = FailPrimaryWrites(STATEFUL, FAILING, metadata=True)
    for trial in trials.all_valid(_tolerating(FAILING - 1, fault)):
        _require_failed(_failed(trial, Reason.STORAGE_FAILED), FAILING, trial)
        require(_gave_up(trial) == 1, f"{FAILING - 1} are tolerated, so the attempt ends", trial)
        require(trial.record.end == "finished", "the job finishes nevertheless", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.STORAGE_FAULTS, Capability.MESSAGE_FAULTS, Capability.BARRIERS)
@pytest.mark.uses("checkpoints.tolerated_failures")
@pytest.mark.clause("COO-2", "COO-3")
def test_a_decline_that_comes_twice_is_one_failure(trials: Trials) -> None:
    plan = _tolerating(1, FailPrimaryWrites(STATEFUL, 1))
    twice = ScheduledFault(RepeatMessages(STATEFUL, 0, duration_ms=300), After(ProtocolPoint.ATTEMPT_RUNNING))
    for trial in trials.all_valid(msgspec.structs.replace(plan, faults=(twice, *plan.faults))):
        _require_failed(_failed(trial, Reason.DECLINED), 1, trial)
        require(_gave_up(trial) == 0, "one failure is tolerated, so no attempt ends", trial)


def _require_failed(failed: int, writes: int, trial: Trial) -> None:
    """As many checkpoints fail as writes do; if the job ends before, fewer."""
    require(failed <= writes, f"{writes} writes fail, and {failed} checkpoints", trial)
    happened(failed == writes, f"{writes} checkpoints fail, and not {failed}", trial)


def _tolerating(failures: int, fault: FailPrimaryWrites) -> TrialPlan:
    """Return a plan in which checkpoints from the second one on cannot be written, and so many may fail in a row."""
    plan = with_faults(ScheduledFault(fault, After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)))
    return varied(plan, checkpoints=msgspec.structs.replace(plan.checkpoints, tolerated_failures=failures))


def _failed(trial: Trial, reason: Reason) -> int:
    return sum(line.operation.reason is reason for line in trial.history.of(CheckpointAborted))


def _gave_up(trial: Trial) -> int:
    """Return how many attempts ended because too many checkpoints had failed."""
    return sum(line.operation.reason is Reason.CHECKPOINTS_FAILED for line in trial.history.of(AttemptEnded))
