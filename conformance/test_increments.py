"""Incremental checkpoints: what they share is kept as long as a checkpoint needs it, whichever process dies meanwhile
(SNP-5).
"""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.conformance.plans import SINK, STATEFUL, crash_coordinator, kill_worker, varied, with_faults
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.kinds.lose_executor import LoseExecutor
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    RestartPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.operations import AttemptStarted, Narrowed
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = [
    pytest.mark.needs(Capability.ATTEMPTS, Capability.CHECKPOINTS, Capability.SNAPSHOT_INSPECTION),
    pytest.mark.uses("checkpoints.incremental"),
    pytest.mark.long_on_clusters,
]

MANY = varied(
    workload=WorkloadPlan("keyed-totals", batches=60, batch_records=3, keys=60, records_per_second=300),
    checkpoints=CheckpointPlan(incremental=True, interval_ms=10),
)
"""Many keys, of which few change between two checkpoints, so that most of a checkpoint is in files of earlier ones."""


def _assert_files_are_shared(trial: Trial) -> None:
    happened(trial.finding("shared-files").counts["reused"] > 0, "checkpoints shared files", trial)
    happened(len(trial.record.attempts) > 1, "the job was recovered", trial)


def _retaining(retained: int, fault: ScheduledFault) -> TrialPlan:
    checkpoints = msgspec.structs.replace(MANY.checkpoints, retained=retained)
    return with_faults(fault, plan=varied(MANY, checkpoints=checkpoints))


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("SNP-5", "COO-6")
def test_a_new_coordinator_deletes_nothing_that_is_shared(trials: Trials) -> None:
    for trial in trials.all_valid(
        _retaining(2, crash_coordinator(After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)))
    ):
        _assert_files_are_shared(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("SNP-5", "STA-3", "COO-6")
def test_a_new_coordinator_keeps_the_files_of_every_checkpoint_that_is_retained(trials: Trials) -> None:
    """The older ones are gone soon: whether they lack something is seen when the next one completes."""
    for trial in trials.all_valid(
        _retaining(3, crash_coordinator(After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=4)))
    ):
        _assert_files_are_shared(trial)


@pytest.mark.clause("SNP-5", "REC-1")
def test_after_a_recovery_shared_files_have_no_fewer_users(trials: Trials) -> None:
    killed = kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 5))
    for trial in trials.all_valid(_retaining(1, killed)):
        _assert_files_are_shared(trial)


@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("SNP-5", "REC-1")
def test_the_first_increment_after_a_restore_reuses_what_is_stored(trials: Trials) -> None:
    """Most entries are the same as in the restored checkpoint, whose files stay; so a full snapshot is a waste.

    In the scale of a cluster every entry changes between two checkpoints, so nothing could be reused.
    """
    killed = kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2))
    trial = trials.valid_until(
        _retaining(1, killed),
        lambda trial: trial.finding("increments-reuse").counts["increments"],
        "a subtask took an increment after a restore",
    )
    _assert_files_are_shared(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.SAVEPOINTS, Capability.WORKER_KILL)
@pytest.mark.clause("SNP-5", "COO-5")
def test_after_a_restore_of_a_savepoint_no_increment_builds_on_its_files(trials: Trials) -> None:
    """They belong to the user, who may delete them at any time."""
    killed = kill_worker(STATEFUL, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=5))
    plan = msgspec.structs.replace(
        varied(MANY, checkpoints=msgspec.structs.replace(MANY.checkpoints, interval_ms=20, retained=1)),
        savepoints=(SavepointPlan(after_checkpoints=4),),
    )
    trial = trials.valid_until(
        with_faults(killed, plan=plan), _increments_after_a_savepoint, "a savepoint was restored"
    )
    views = [view for view in trial.history.checkpoints if view.savepoint is not None]
    of_user = {file.path for view in views for files in view.files.values() for file in files}
    for view in trial.history.checkpoints:
        named = {file.path for files in view.files.values() for file in files}
        require(
            view.savepoint is not None or not named & of_user,
            f"checkpoint {view.checkpoint} needs no file of the savepoint",
            trial,
        )


def _increments_after_a_savepoint(trial: Trial) -> int:
    """Return how many checkpoints completed in attempts that had restored a savepoint."""
    savepoints = {view.checkpoint for view in trial.history.checkpoints if view.savepoint is not None}
    attempts = {
        line.operation.attempt
        for line in trial.history.of(AttemptStarted)
        if line.operation.restored_checkpoint in savepoints
    }
    return sum(view.attempt in attempts for view in trial.history.checkpoints)


@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY, Capability.REQUEST_LOG)
@pytest.mark.clause("SNP-5")
def test_each_increment_reuses_what_is_complete(trials: Trials) -> None:
    """Nothing fails: a subtask that knows of a complete checkpoint whose files stay names some of them again."""
    trial = trials.valid(MANY)
    compared = trial.finding("increments-reuse").counts["increments"]
    happened(compared > 5, f"{compared} parts of checkpoints could build on a complete one", trial)


@pytest.mark.clause("SNP-7", "SNP-5")
def test_the_bytes_of_an_increment_are_those_that_it_wrote_and_not_those_that_it_reuses(
    trials: Trials,
) -> None:
    reused = 0
    for trial in trials.all_valid(MANY):
        measured = {(part.checkpoint, part.subtask): part.bytes_written for part in trial.record.snapshots}
        known: dict[str, None] = {}
        for view in trial.history.checkpoints:
            for subtask, files in view.files.items():
                size = sum(file.size for file in files if file.path not in known)
                reused += sum(file.path in known for file in files)
                wrote = measured[view.checkpoint, subtask]
                require(
                    wrote == size, f"{subtask} wrote {size} bytes for {view.checkpoint}, not {wrote}", trial
                )
            known |= dict.fromkeys(file.path for files in view.files.values() for file in files)
    happened(reused, "checkpoints reused files of older ones")


@pytest.mark.uses("checkpoints.compression")
@pytest.mark.clause("SNP-5", "SNP-6")
def test_increments_are_compressed_as_configured(trials: Trials) -> None:
    """Those that are retained at the end are read, and each key group in them is unpacked."""
    killed = kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 3))
    compressed = msgspec.structs.replace(MANY.checkpoints, compression="zstd")
    for trial in trials.all_valid(with_faults(killed, plan=varied(MANY, checkpoints=compressed))):
        _assert_files_are_shared(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.long
@pytest.mark.needs(Capability.SLOW_SNAPSHOTS)
@pytest.mark.clause("SNP-5", "COO-3", "STA-3")
def test_what_several_pending_checkpoints_share_and_aborted_ones_uploaded_is_counted(trials: Trials) -> None:
    several = CheckpointPlan(incremental=True, interval_ms=6, max_concurrent=3, retained=1, async_ms_max=30)
    killed = kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 5))
    for trial in trials.all_valid(with_faults(killed, plan=varied(MANY, checkpoints=several))):
        _assert_files_are_shared(trial)


@pytest.mark.needs(Capability.SAVEPOINTS)
@pytest.mark.clause("SNP-5", "COO-5")
def test_a_job_that_starts_from_a_savepoint_shares_nothing_with_it(trials: Trials) -> None:
    stopped = msgspec.structs.replace(MANY, savepoints=(SavepointPlan(after_checkpoints=2, stop=True),))
    for trial in trials.all_valid(stopped):
        _assert_files_are_shared(trial)


@pytest.mark.needs(
    Capability.ELASTIC, Capability.EXECUTOR_LOSS, Capability.RESCALING, Capability.DETERMINISTIC_REPLAY
)
@pytest.mark.clause("SNP-5", "RSC-2", "REC-1", "REC-5")
def test_increments_that_were_taken_after_a_redistribution_can_be_redistributed_again(trials: Trials) -> None:
    """Chains of several subtasks come together and part again, each of another length.

    Only in virtual time are there so many executors that a vertex becomes narrower three times.
    """
    losses = [After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth) for nth in (10, 15, 20)]
    plan = msgspec.structs.replace(
        MANY,
        job=JobPlan("", {"source": 1, "totals": 5, "sink": 1}),
        workload=WorkloadPlan("keyed-totals", batches=250, batch_records=1, keys=80, records_per_second=300),
        checkpoints=CheckpointPlan(incremental=True, interval_ms=8, async_ms_max=2, retained=2),
        deployment=DeploymentPlan(max_parallelism=5, executors=7, slots_per_executor=1, elastic_wait_ms=5),
        restart=RestartPlan(attempts_max=6, delay_ms=5),
        faults=tuple(ScheduledFault(LoseExecutor(SINK), loss) for loss in losses),
    )
    trial = trials.valid(plan)
    _assert_files_are_shared(trial)
    widths = [line.operation.widths["totals"] for line in trial.history.of(Narrowed)]
    require(widths == [4, 3, 2], f"five subtasks became {widths}", trial)


@pytest.mark.needs(
    Capability.ELASTIC, Capability.EXECUTOR_LOSS, Capability.RESCALING, Capability.DETERMINISTIC_REPLAY
)
@pytest.mark.clause("SNP-5", "RSC-2", "REC-1")
def test_the_first_increment_behind_a_merge_of_key_groups_holds_all_of_them(trials: Trials) -> None:
    """Each of two subtasks takes over the whole key groups of two, and the checkpoint behind that is restored."""
    plan = msgspec.structs.replace(
        MANY,
        job=JobPlan("", {"source": 1, "totals": 4, "sink": 1}),
        workload=WorkloadPlan("keyed-totals", batches=120, batch_records=1, keys=30, records_per_second=300),
        checkpoints=CheckpointPlan(incremental=True, interval_ms=10, async_ms_max=2),
        deployment=DeploymentPlan(max_parallelism=16, executors=2, slots_per_executor=4, elastic_wait_ms=5),
        restart=RestartPlan(attempts_max=6, delay_ms=5),
        faults=(
            ScheduledFault(LoseExecutor(SINK), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=5)),
            kill_worker("totals[0]", After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=6)),
        ),
    )
    for trial in trials.all_valid(plan):
        _assert_files_are_shared(trial)
        widths = [line.operation.widths["totals"] for line in trial.history.of(Narrowed)]
        require(set(widths) == {2}, f"four subtasks became {widths}", trial)
