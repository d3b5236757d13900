"""Local recovery: which copy served what, whatever is wrong with the nearer one; and what follows if both are gone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.conformance.plans import CALM, kill_executor, kill_worker, varied, with_faults
from barrier_tck.conformance.trials import Trial, Trials, require
from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.fail_local_writes import FailLocalWrites
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.targets import Damage
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.needs(
    Capability.LOCAL_RECOVERY,
    Capability.STORAGE_FAULTS,
    Capability.WORKER_KILL,
    Capability.PROTOCOL_POINTS,
    Capability.SNAPSHOT_INSPECTION,
)

LOCAL = msgspec.structs.replace(
    varied(
        CALM,
        workload=WorkloadPlan("keyed-totals", batches=30, batch_records=3, keys=20, records_per_second=600),
        job=JobPlan(shape="chained"),
        deployment=DeploymentPlan(executors=3),
        checkpoints=CheckpointPlan(interval_ms=15, retained=3),
    ),
    local_recovery=True,
)
"""Two stateful operators in each keyed subtask, and copies of their state on the hosts."""

VICTIM, OTHER = "totals[0]", "totals[1]"
COMMITTING = After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", 2)
"""The second checkpoint is complete: the one that is restored."""
PRIMARY, SECONDARY = "primary", "secondary"


def _on_failure(fault: Fault) -> ScheduledFault:
    """Strike between the failure and the restore."""
    return ScheduledFault(fault, After(ProtocolPoint.ATTEMPT_FAILED))


def _served(trial: Trial, subtask: str) -> list[str]:
    """Return which copy served each state file of a subtask's last restore."""
    reports = [o for o in trial.history.operations if o.operation == "restore" and o.process == subtask]
    require(reports, f"{subtask} told what it restored", trial)
    files: list[dict[str, Any]] = reports[-1].value["files"]
    return [file["served_by"] for file in files]


def _local(plan: TrialPlan, *faults: ScheduledFault) -> TrialPlan:
    return with_faults(*faults, plan=plan)


@pytest.mark.clause("LOC-1", "LOC-4", "LOC-9")
def test_subtasks_that_return_to_their_hosts_restore_from_their_own_copies(trials: Trials) -> None:
    for trial in trials.all_valid(_local(LOCAL, kill_worker(VICTIM, COMMITTING))):
        counts = trial.finding("local-recovery").counts
        require(
            counts["copies_kept"] > 0 and counts["placements"] > 0, "copies are kept, and looked for", trial
        )
        served = _served(trial, VICTIM) + _served(trial, OTHER)
        require(SECONDARY in served, "a copy on a host served", trial)


@pytest.mark.clause("LOC-1")
def test_local_recovery_is_off_unless_asked_for(trials: Trials) -> None:
    plan = msgspec.structs.replace(_local(LOCAL, kill_worker(VICTIM, COMMITTING)), local_recovery=False)
    for trial in trials.all_valid(plan):
        told = [o for o in trial.history.operations if o.operation in ("restore", "placement")]
        require(not told, "nobody speaks of local copies", trial)


@pytest.mark.clause("LOC-4", "LOC-5")
@pytest.mark.parametrize(
    "damage", [damage for damage in Damage if damage is not Damage.PARTIAL], ids=lambda damage: damage.value
)
def test_whatever_is_wrong_with_the_copy_the_primary_serves(trials: Trials, damage: Damage) -> None:
    plan = _local(LOCAL, kill_worker(VICTIM, COMMITTING), _on_failure(DamageLocalCopy(VICTIM, damage)))
    for trial in trials.all_valid(plan):
        require(set(_served(trial, VICTIM)) == {PRIMARY}, "every file comes from the primary", trial)


@pytest.mark.clause("LOC-4", "LOC-5", "REC-5")
def test_a_copy_found_damaged_is_not_believed_by_the_next_restore(trials: Trials) -> None:
    plan = _local(
        LOCAL,
        kill_worker(VICTIM, COMMITTING),
        _on_failure(DamageLocalCopy(VICTIM, Damage.BIT_FLIPPED)),
        kill_worker(VICTIM, After(ProtocolPoint.RESTORED, VICTIM)),
    )
    for trial in trials.all_valid(plan):
        require(trial.record.end == "finished", "the job finishes", trial)


@pytest.mark.clause("LOC-4", "LOC-5", "REC-5")
def test_a_restore_that_was_interrupted_is_repeated_in_full(trials: Trials) -> None:
    # Only some interruptions come while a neighbour is still to restore: there are several in each trial.
    started = [After(ProtocolPoint.RESTORE_STARTED, "source[1]", nth) for nth in range(1, 5)]
    for seed in (0, 20):
        plan = _local(
            msgspec.structs.replace(LOCAL, seed=seed, network=NetworkPlan(latency_ms_max=10)),
            kill_worker(VICTIM, COMMITTING),
            _on_failure(DamageLocalCopy(VICTIM, Damage.MISSING)),
            *[kill_worker("source[1]", point) for point in started],
        )
        for trial in trials.all_valid(plan):
            require(trial.record.end == "finished", "the job finishes", trial)


@pytest.mark.clause("LOC-6")
def test_a_partial_copy_serves_what_it_has_and_the_primary_the_rest(trials: Trials) -> None:
    plan = _local(
        LOCAL, kill_worker(VICTIM, COMMITTING), _on_failure(DamageLocalCopy(VICTIM, Damage.PARTIAL))
    )
    for trial in trials.all_valid(plan):
        hosts = [o.value for o in trial.history.operations if o.operation == "placement"]
        returned = hosts[1]["hosts"][VICTIM] in hosts[1]["homes"].get(VICTIM, ())
        wanted = {PRIMARY, SECONDARY} if returned else {PRIMARY}
        require(set(_served(trial, VICTIM)) == wanted, "both copies serve, if the subtask returned", trial)


@pytest.mark.needs(Capability.EXECUTOR_KILL)
@pytest.mark.clause("LOC-9", "REC-1")
def test_after_the_death_of_an_executor_the_others_restore_locally(trials: Trials) -> None:
    for trial in trials.all_valid(_local(LOCAL, kill_executor(VICTIM, COMMITTING))):
        require(trial.finding("local-recovery").counts["secondary"] > 0, "a copy on a host served", trial)


@pytest.mark.needs(Capability.HOST_LOSS)
@pytest.mark.clause("LOC-8")
def test_a_lost_host_takes_its_copies_along_and_the_others_restore_locally(trials: Trials) -> None:
    plan = _local(LOCAL, ScheduledFault(LoseHost(VICTIM), COMMITTING))
    for trial in trials.all_valid(plan):
        require(set(_served(trial, VICTIM)) == {PRIMARY}, "nothing local was left of it", trial)


@pytest.mark.clause("LOC-2")
def test_a_full_local_disk_fails_no_checkpoint(trials: Trials) -> None:
    plan = _local(
        LOCAL,
        ScheduledFault(FailLocalWrites(VICTIM), After(ProtocolPoint.CHECKPOINT_COMPLETED)),
        kill_worker(VICTIM, After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", 3)),
    )
    for trial in trials.all_valid(plan):
        counts = trial.finding("local-recovery").counts
        require(counts["completed_without_copy"] > 0, "a checkpoint completes without the copy", trial)


@pytest.mark.clause("LOC-2", "COO-2")
def test_a_primary_that_cannot_be_written_fails_the_checkpoint_and_processing_goes_on(trials: Trials) -> None:
    plan = _local(
        LOCAL,
        ScheduledFault(FailPrimaryWrites(VICTIM), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)),
        kill_worker(VICTIM, COMMITTING),
    )
    for trial in trials.all_valid(plan):
        declined = [c for c in trial.record.checkpoints if "declined" in c.reason]
        require(declined, "the checkpoint is declined", trial)
        later = [c for c in trial.record.checkpoints if c.checkpoint > declined[0].checkpoint]
        require(any(c.status == "completed" for c in later), "a later one completes", trial)


@pytest.mark.clause("LOC-3")
def test_only_the_newest_copy_is_kept(trials: Trials) -> None:
    for trial in trials.all_valid(_local(LOCAL, kill_worker(VICTIM, COMMITTING))):
        reports = [
            o.value["local"] for o in trial.history.operations if o.operation == "ack" and "local" in o.value
        ]
        require(any(report["confirmed"] for report in reports), "completions are heard of", trial)
        for report in reports:
            require(
                all(n >= report["confirmed"] for n in report["held"]), f"{report} keeps no older one", trial
            )


@pytest.mark.clause("LOC-5", "LOC-4")
def test_where_only_the_primary_is_damaged_the_copy_serves(trials: Trials) -> None:
    """The job gives up where a subtask could not return to its copy; nothing else can save it then."""
    plan = _local(LOCAL, kill_worker(VICTIM, COMMITTING), _on_failure(DamagePrimary(VICTIM)))
    for trial in trials.several(plan):
        if trial.record.end == "finished":
            require(trial.record.verdict.value == "valid", "the output is right", trial)
            require(set(_served(trial, VICTIM)) == {SECONDARY}, "the copy served all of it", trial)
        else:
            require("no checkpoint can be restored" in trial.record.end_reason, "it says why", trial)


BOTH = (
    _on_failure(DamageLocalCopy(VICTIM, Damage.BIT_FLIPPED)),
    _on_failure(DamagePrimary(VICTIM, Damage.BIT_FLIPPED)),
)


@pytest.mark.clause("REC-4", "LOC-5")
def test_if_no_copy_can_be_read_an_older_checkpoint_is_restored_where_configured(trials: Trials) -> None:
    # The sink dies before it commits the checkpoint that nobody can read: so its output is still exact.
    dies = kill_worker("sink[0]", After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2))
    plan = msgspec.structs.replace(_local(LOCAL, dies, *BOTH), on_unreadable="older")
    for trial in trials.all_valid(plan):
        tried = [attempt.restored_checkpoint for attempt in trial.record.attempts[1:]]
        require(
            tried[-1] is not None and tried[0] is not None and tried[-1] < tried[0],
            f"{tried} goes back",
            trial,
        )


@pytest.mark.clause("REC-4", "LOC-5")
def test_if_no_copy_can_be_read_the_job_fails_where_configured_and_says_what_was_tried(
    trials: Trials,
) -> None:
    plan = _local(LOCAL, kill_worker(VICTIM, COMMITTING), *BOTH)
    for trial in trials.all_valid(plan):
        require(trial.record.end == "failed", "the job gives up", trial)
        reason = trial.record.end_reason
        require(
            VICTIM in reason and "checkpoint 2" in reason and "local copy" in reason, f"{reason} tells", trial
        )
        storage = trial.history.storage
        require(storage is not None and len(storage.retained) >= 2, "nothing is deleted", trial)
