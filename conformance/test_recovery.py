"""Recovery: after a kill at every aim, twice in a row, during a recovery, and when no restart is left."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from barrier_tck.conformance.plans import (
    AFTER_THE_FIRST_CHECKPOINT,
    CALM,
    OTHER_STATEFUL,
    SINK,
    SIX_AIMS,
    SOURCE,
    STATEFUL,
    UNACKNOWLEDGED,
    crash_coordinator,
    kill_worker,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.kinds.throttle_object_store import ThrottleObjectStore
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import LimitsPlan, RestartPlan, WhenUnreadable
from barrier_tck.harness.record.operations import AttemptStarted, CheckpointCompleted, Committed, FaultFired
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.barrier_jobs import STEPS_OF_A_START

recovers = pytest.mark.needs(Capability.ATTEMPTS, Capability.CHECKPOINTS)

TWICE = with_faults(
    AFTER_THE_FIRST_CHECKPOINT,
    kill_worker(SOURCE, After(ProtocolPoint.RESTORED, SOURCE)),
)
"""The second kill hits the second attempt: only a later attempt restores anything."""

LONG = msgspec.structs.replace(CALM, workload=msgspec.structs.replace(CALM.workload, batches=40))
"""The standard job with enough input for checkpoints after several recoveries."""

REFUSED_MS = 1
"""For how long storage refuses requests. In the simulator no time passes while they are repeated, so all fail."""


def _assert_restored_what_was_complete(trial: Trial) -> None:
    """Every attempt after the first begins at the newest checkpoint that had completed by then."""
    for attempt in trial.record.attempts[1:]:
        done = [
            c.checkpoint
            for c in trial.record.checkpoints
            if c.status == "completed" and c.ended_at_ms <= attempt.started_at_ms
        ]
        newest = max(done, default=None)
        restored = attempt.restored_checkpoint
        require(restored == newest, f"attempt {attempt.attempt} restores {newest}, not {restored}", trial)


@pytest.mark.long_on_clusters
@pytest.mark.long
@recovers
@pytest.mark.clause("REC-1", "REC-2", "REC-6", "COO-1")
@pytest.mark.parametrize(
    "aim",
    # On clusters the same plans are judged before every merge by ``test_exactly_once``.
    [
        pytest.param(aim, marks=() if aim == "during-restore" else pytest.mark.nightly_on_clusters)
        for aim in SIX_AIMS
    ],
)
def test_after_a_kill_the_latest_complete_checkpoint_is_restored(trials: Trials, aim: str) -> None:
    for trial in trials.all_valid(SIX_AIMS[aim]):
        require(trial.record.end == "finished", "the job finishes", trial)
        happened(trial.record.recoveries >= 1, "the job recovered", trial)
        _assert_restored_what_was_complete(trial)


@recovers
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("REC-1")
def test_of_two_complete_checkpoints_the_newer_one_is_restored(trials: Trials) -> None:
    killed = kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2))
    for trial in trials.all_valid(with_faults(killed)):
        _assert_restored_what_was_complete(trial)
        restored = trial.record.attempts[1].restored_checkpoint
        older = [
            line.operation.checkpoint
            for line in trial.history.of(CheckpointCompleted)
            if restored is not None and line.operation.checkpoint < restored
        ]
        happened(older, "an older checkpoint was complete, too", trial)


@recovers
@pytest.mark.clause("REC-1")
def test_a_kill_before_the_first_checkpoint_starts_from_the_beginning(trials: Trials) -> None:
    for trial in trials.all_valid(SIX_AIMS["before-the-first-barrier"]):
        _assert_restored_what_was_complete(trial)
        restored = trial.record.attempts[1].restored_checkpoint
        happened(restored is None, "nothing was there to restore", trial)


@recovers
@pytest.mark.clause("SNK-1", "REC-1")
def test_what_was_prepared_in_a_complete_checkpoint_is_committed_after_its_restore(trials: Trials) -> None:
    for trial in trials.all_valid(SIX_AIMS["complete-not-committed"]):
        restored = trial.record.attempts[1].restored_checkpoint
        require(restored is not None, "the complete checkpoint is restored", trial)
        commits = [line.operation for line in trial.history.of(Committed)]
        happened(commits, "a sink committed", trial)
        by_the_dead = [commit for commit in commits if commit.attempt == 1]
        require(not by_the_dead, f"the sink died before its commit, yet {by_the_dead}", trial)


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("COO-1", "SNP-3", "COO-2")
def test_a_subtask_that_dies_before_it_acknowledged_is_neither_waited_for_nor_counted(
    trials: Trials,
) -> None:
    for trial in trials.all_valid(UNACKNOWLEDGED):
        first = min(trial.record.checkpoints, key=lambda c: c.checkpoint)
        require(first.status == "aborted", "the checkpoint that lacks its part is aborted", trial)
        happened(trial.record.checkpoints_completed >= 1, "a later one completes", trial)


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("REC-5", "REC-2")
def test_two_failures_in_a_row(trials: Trials) -> None:
    for trial in trials.all_valid(TWICE):
        happened(len(trial.record.attempts) >= 3, "each kill costs an attempt", trial)
        _assert_restored_what_was_complete(trial)


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("REC-5", "REC-6")
def test_recover_fail_again_recover_checkpoint_and_recover_from_that(trials: Trials) -> None:
    plan = with_faults(
        AFTER_THE_FIRST_CHECKPOINT,
        kill_worker(OTHER_STATEFUL, After(ProtocolPoint.ATTEMPT_RUNNING, nth=2)),
        kill_worker(SINK, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),
    )
    for trial in trials.all_valid(plan):
        restored = [attempt.restored_checkpoint for attempt in trial.record.attempts[1:]]
        happened(len(restored) >= 3, "each kill is followed by a recovery", trial)
        happened(None not in restored, "each recovery restores a checkpoint", trial)
        happened(restored[-1] != restored[0], "the last restores one taken after the first recovery", trial)
        _assert_restored_what_was_complete(trial)


@pytest.mark.long_on_clusters
@recovers
@pytest.mark.clause("REC-3", "REC-6")
def test_without_a_restart_strategy_a_kill_ends_the_job_as_failed(trials: Trials) -> None:
    plan = msgspec.structs.replace(
        with_faults(kill_worker(STATEFUL, After(ProtocolPoint.SNAPSHOT_TAKEN, STATEFUL, nth=2))),
        restart=RestartPlan("none"),
    )
    for trial in trials.all_valid(plan):
        require(trial.record.end == "failed", "the job gives up", trial)
        require(trial.record.end_reason, "it says why", trial)
        require(len(trial.record.attempts) == 1, "nothing is deployed again", trial)
        happened(trial.record.checkpoints_completed >= 1, "what had completed before stays complete", trial)
        storage = trial.history.storage
        if trials.can(Capability.SNAPSHOT_INSPECTION):
            require(storage is not None and storage.retained, "and is retained", trial)


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.uses("restart.delay_ms")
@pytest.mark.clause("REC-3")
def test_a_fixed_delay_is_kept_before_every_restart(trials: Trials) -> None:
    for trial in trials.all_valid(TWICE):
        delay_ms = trial.record.plan.restart.delay_ms
        for earlier, later in pairwise(trial.record.attempts):
            waited = later.started_at_ms - earlier.ended_at_ms
            require(waited >= delay_ms * 0.99, f"{later} comes {delay_ms} ms after the failure", trial)


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("REC-3")
def test_when_its_restarts_are_used_up_the_job_fails_and_invents_no_output(trials: Trials) -> None:
    plan = msgspec.structs.replace(
        with_faults(
            kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK)),
            kill_worker(STATEFUL, After(ProtocolPoint.RESTORE_STARTED, STATEFUL)),
        ),
        restart=RestartPlan(attempts_max=1),
    )
    for trial in trials.all_valid(plan):
        require(trial.record.end == "failed", "the job gives up", trial)
        require(len(trial.record.attempts) == 2, "after one restart", trial)


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("REC-3")
def test_a_job_that_fails_too_often_within_the_interval_is_given_up(trials: Trials) -> None:
    plan = msgspec.structs.replace(
        with_faults(
            kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK)),
            kill_worker(STATEFUL, After(ProtocolPoint.RESTORE_STARTED, STATEFUL)),
        ),
        restart=RestartPlan("failure_rate", attempts_max=1, interval_ms=5_000),
    )
    for trial in trials.all_valid(plan):
        require(trial.record.end == "failed", "the job gives up", trial)
        require(len(trial.record.attempts) == 2, "after one restart", trial)


@recovers
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("REC-3")
def test_failures_that_lie_longer_ago_than_the_interval_do_not_count(trials: Trials) -> None:
    plan = msgspec.structs.replace(
        LONG,
        faults=(
            kill_worker(STATEFUL, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=1)),
            kill_worker(STATEFUL, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=4)),
        ),
        restart=RestartPlan("failure_rate", attempts_max=1, interval_ms=25),
    )
    for trial in trials.all_valid(plan):
        require(trial.record.end == "finished", "the job is never given up", trial)
        require(len(trial.record.attempts) == 3, "after two restarts", trial)


@recovers
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("REC-3")
def test_a_delay_grows_with_failures_in_a_row_and_begins_anew_after_a_long_run(trials: Trials) -> None:
    plan = msgspec.structs.replace(
        LONG,
        faults=(
            AFTER_THE_FIRST_CHECKPOINT,
            kill_worker(SOURCE, After(ProtocolPoint.RESTORED, SOURCE)),
            kill_worker(STATEFUL, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=4)),
        ),
        # As many restarts as there are failures in a row: after the long run, all are there again.
        restart=RestartPlan(
            "exponential_delay", 2, delay_ms=10, factor=10, delay_ms_max=90, reset_after_ms=25
        ),
    )
    for trial in trials.all_valid(plan):
        first, longest = trial.record.plan.restart.delay_ms, trial.record.plan.restart.delay_ms_max
        attempts = trial.record.attempts
        waited = [later.started_at_ms - earlier.ended_at_ms for earlier, later in pairwise(attempts)]
        require(len(waited) == 3, "each kill costs an attempt", trial)
        require(first * 0.99 <= waited[0] < longest, f"the first delay is {first} ms, not {waited}", trial)
        require(waited[1] >= longest * 0.99, f"the second delay is {longest} ms, not {waited}", trial)
        require(first * 0.99 <= waited[2] < longest, f"the third is the first again, not {waited}", trial)


@recovers
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("REC-3")
def test_a_delay_grows_with_attempts_that_never_ran_however_long_their_deployment_took(
    trials: Trials,
) -> None:
    """Messages are slow, and a good run is a short one: in virtual time a deployment surely takes longer."""
    plan = msgspec.structs.replace(
        LONG,
        network=msgspec.structs.replace(LONG.network, latency_ms_max=30),
        faults=(
            AFTER_THE_FIRST_CHECKPOINT,
            kill_worker(SOURCE, After(ProtocolPoint.RESTORED, SOURCE, 1)),
            kill_worker(SOURCE, After(ProtocolPoint.RESTORED, SOURCE, 2)),
        ),
        restart=RestartPlan(
            "exponential_delay", 3, delay_ms=10, factor=4, delay_ms_max=160, reset_after_ms=2
        ),
    )
    for trial in trials.all_valid(plan):
        attempts = trial.record.attempts
        waited = [later.started_at_ms - earlier.ended_at_ms for earlier, later in pairwise(attempts)]
        grown = [delay_ms <= waited_ms for delay_ms, waited_ms in zip((10, 40, 160), waited, strict=True)]
        require(all(grown), f"the delays are 10, 40 and 160 ms, not {waited}", trial)


@pytest.mark.long_on_clusters
@recovers
@pytest.mark.clause("COO-6", "COO-1", "REC-1", "REC-2")
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(ProtocolPoint.ATTEMPT_RUNNING, marks=pytest.mark.nightly_on_clusters),
        pytest.param(ProtocolPoint.CHECKPOINT_TRIGGERED, marks=pytest.mark.nightly_on_clusters),
        ProtocolPoint.ALL_ACKNOWLEDGED,
        pytest.param(ProtocolPoint.CHECKPOINT_COMPLETED, marks=pytest.mark.nightly_on_clusters),
    ],
    ids=lambda point: point.value,
)
def test_a_coordinator_that_crashes_is_resumed_from_durable_storage(
    trials: Trials, point: ProtocolPoint
) -> None:
    for trial in trials.all_valid(with_faults(crash_coordinator(After(point)))):
        require(trial.record.end == "finished", "the job finishes", trial)


@recovers
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("COO-6", "COO-1", "REC-1")
@pytest.mark.parametrize("step", range(1, STEPS_OF_A_START + 1), ids=["before it reads", "after it has read"])
def test_a_coordinator_that_crashes_while_it_starts_is_resumed_too(trials: Trials, step: int) -> None:
    """The first start passes these points, too. Only in virtual time is the process of one that starts known."""
    starting = After(ProtocolPoint.COORDINATOR_STARTING, nth=STEPS_OF_A_START + step)
    completed = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)
    for trial in trials.all_valid(with_faults(crash_coordinator(completed), crash_coordinator(starting))):
        require(trial.record.end == "finished", "the job finishes", trial)
        fired = [line.index for line in trial.history.of(FaultFired)]
        attempts = [line.index for line in trial.history.of(AttemptStarted)]
        happened(len(fired) == 2, "the second coordinator crashed, too", trial)
        require(not any(fired[0] < index < fired[1] for index in attempts), "it had deployed nothing", trial)
        require(any(index > fired[1] for index in attempts), "the third one deploys the job", trial)
        _assert_restored_what_was_complete(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.begun_first
@recovers
@pytest.mark.clause("COO-6", "REC-2", "COO-3")
def test_a_zombie_of_a_dead_coordinator_gets_nothing_in(trials: Trials) -> None:
    """It is frozen between its snapshot and the acknowledgement, and wakes up when another coordinator has its job."""
    at = After(ProtocolPoint.SNAPSHOT_STORED, SINK, 2)
    plan = msgspec.structs.replace(
        with_faults(ScheduledFault(PauseWorker(SINK, 200), at), crash_coordinator(at), plan=LONG),
        limits=LimitsPlan(
            progress_ms=60_000
        ),  # on a real cluster, another driver needs other executors first
    )
    for trial in trials.all_valid(plan):
        require(trial.record.end == "finished", "the job finishes", trial)
        numbers = [attempt.attempt for attempt in trial.record.attempts]
        require(numbers == sorted(set(numbers)) and len(numbers) >= 2, "each attempt has a new number", trial)
        _assert_restored_what_was_complete(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.begun_first
@recovers
@pytest.mark.clause("COO-6", "COO-1", "COO-4")
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(ProtocolPoint.ALL_ACKNOWLEDGED, marks=pytest.mark.nightly_on_clusters),
        ProtocolPoint.CHECKPOINT_COMPLETED,
    ],
    ids=lambda point: point.value,
)
def test_a_coordinator_whose_host_loses_unsynced_writes_loses_nothing_complete(
    trials: Trials, point: ProtocolPoint
) -> None:
    trials.all_valid(with_faults(crash_coordinator(After(point), lose_unsynced=True)))


@pytest.mark.long_on_clusters
@pytest.mark.clause("SNK-1", "REC-1", "STA-3")
@pytest.mark.parametrize(
    "aim",
    [
        pytest.param(After(ProtocolPoint.SNAPSHOT_TAKEN, SINK, 4), marks=pytest.mark.nightly_on_clusters),
        pytest.param(
            After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2), marks=pytest.mark.nightly_on_clusters
        ),
        After(ProtocolPoint.SNAPSHOT_TAKEN, STATEFUL, 4),
    ],
    ids=["committed", "prepared", "state"],
)
def test_a_host_that_loses_unsynced_writes_loses_nothing_that_was_acknowledged(
    trials: Trials, aim: After
) -> None:
    """What is acknowledged, and what is committed, has to be synced, contents and names."""
    assert aim.subtask is not None
    trials.all_valid(with_faults(ScheduledFault(KillExecutor(aim.subtask, lose_unsynced=True), aim)))


@recovers
@pytest.mark.needs(Capability.STORAGE_OUTAGE)
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("COO-6", "REC-4")
def test_a_coordinator_that_cannot_read_storage_for_a_time_deletes_nothing(trials: Trials) -> None:
    crash = crash_coordinator(After(ProtocolPoint.CHECKPOINT_COMPLETED), unreadable_ms=40)
    for trial in trials.all_valid(with_faults(crash)):
        _assert_restored_what_was_complete(trial)


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("REC-1", "REC-2", "REC-5", "REC-6")
def test_generated_jobs_with_several_faults_each(trials: Trials) -> None:
    trials.generated("heavy")


FIRST_FAILURES = {
    "another process": kill_worker(STATEFUL, After(ProtocolPoint.ALL_ACKNOWLEDGED, nth=2)),
    "the coordinator": crash_coordinator(After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),
}
"""What fails when a checkpoint is as good as complete, and its sink has not committed yet: all others close."""


@recovers
@pytest.mark.needs(Capability.WORKER_KILL)
@pytest.mark.clause("REC-1", "REC-2", "SNK-1")
@pytest.mark.parametrize("first", FIRST_FAILURES.values(), ids=FIRST_FAILURES)
@pytest.mark.parametrize("step", [1, 2])
def test_a_process_that_dies_while_it_closes_takes_nothing_with_it(
    trials: Trials, first: ScheduledFault, step: int
) -> None:
    """It dies in its own finaliser: before it gives up what is under way, or before it releases what it holds.

    On Spark no process can be stopped there: its connection with the driver, by which it stands still at a point and
    the harness learns of it, is closed by then. So the reference on Spark passes no such point, and this is skipped.
    """
    dies = kill_worker(SINK, After(ProtocolPoint.CLOSING, SINK, nth=step))
    for trial in trials.all_valid(with_faults(first, dies, plan=LONG)):
        require(trial.record.end == "finished", "the job finishes", trial)
        happened(len(trial.record.attempts) == 2, "one attempt failed, and of both deaths", trial)


@pytest.mark.needs(Capability.ATTEMPTS, Capability.CHECKPOINTS, Capability.DETERMINISTIC_REPLAY)
@pytest.mark.uses("checkpoints.storage")
@pytest.mark.clause("REC-4", "REC-5")
@pytest.mark.parametrize("on_unreadable", ["fail", "older"])
@pytest.mark.parametrize("storage", ["hdfs", "s3"])
def test_a_storage_that_refuses_reads_for_a_moment_makes_no_checkpoint_unreadable(
    trials: Trials, storage: str, on_unreadable: WhenUnreadable
) -> None:
    plan = msgspec.structs.replace(
        varied(LONG, checkpoints=msgspec.structs.replace(LONG.checkpoints, storage=storage)),
        on_unreadable=on_unreadable,
        faults=(
            kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2)),
            ScheduledFault(ThrottleObjectStore(REFUSED_MS), After(ProtocolPoint.RESTORE_STARTED, STATEFUL)),
        ),
    )
    for trial in trials.all_valid(plan):
        happened(trial.record.faults[1].outcome == "fired", "the storage refused requests", trial)
        tried = [attempt.restored_checkpoint for attempt in trial.record.attempts[1:]]
        happened(len(tried) > 1, "an attempt failed while it restored", trial)
        require(None not in tried and len({*tried}) == 1, f"{tried}: the same one is restored", trial)
