"""S(C_n) = f({r in R_i : index(r) < index(barrier_n)}): a snapshot is the fold of the records before barrier n (ALN-2).

Every completed checkpoint is checked, not only those that are restored.
"""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.conformance.plans import (
    AFTER_THE_FIRST_CHECKPOINT,
    CALM,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials, assert_valid, happened, require
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, DeploymentPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = [
    pytest.mark.needs(Capability.SNAPSHOT_INSPECTION),
    pytest.mark.clause("ALN-2"),
]


def _assert_every_checkpoint_is_its_prefix(trial: Trial) -> None:
    """Also fails if no checkpoint completed, because such a trial shows nothing."""
    _assert_right_checkpoints(trial)
    happened(trial.record.checkpoints_completed >= 1, "at least one checkpoint completed", trial)


def _assert_right_checkpoints(trial: Trial) -> None:
    assert_valid(trial)
    counts = trial.finding("snapshot-formula").counts
    completed = trial.record.checkpoints_completed
    require(counts["checkpoints"] == completed, f"all {completed} completed checkpoints were opened", trial)
    require(
        counts["wrong"] == counts["not_opened"] == 0, "every checkpoint was the fold of its prefix", trial
    )


@pytest.mark.clause("BAR-1", "SNP-1")
def test_every_checkpoint_is_the_fold_of_its_prefix_without_faults(trials: Trials) -> None:
    for trial in trials.several(CALM):
        _assert_every_checkpoint_is_its_prefix(trial)


@pytest.mark.needs(Capability.ATTEMPTS)
@pytest.mark.clause("REC-1", "SRC-1")
def test_checkpoints_after_a_recovery_are_the_fold_of_their_prefix_too(trials: Trials) -> None:
    for trial in trials.several(with_faults(AFTER_THE_FIRST_CHECKPOINT)):
        _assert_every_checkpoint_is_its_prefix(trial)
        later = [view.checkpoint for view in trial.history.checkpoints if (view.attempt or 0) > 1]
        happened(later, "a checkpoint of a later attempt was checked", trial)


@pytest.mark.needs(Capability.SLOW_SNAPSHOTS)
@pytest.mark.clause("SNP-1", "SNP-3", "BAR-5")
@pytest.mark.parametrize("write_through", [True, pytest.param(False, marks=pytest.mark.nightly_on_clusters)])
def test_changes_during_the_asynchronous_part_never_show(trials: Trials, write_through: bool) -> None:
    plan: TrialPlan = varied(
        deployment=DeploymentPlan(write_through=write_through),
        checkpoints=CheckpointPlan(interval_ms=10, async_ms_max=30),
    )
    for trial in trials.several(plan):
        _assert_every_checkpoint_is_its_prefix(trial)
        slowest = max(part.async_ms for part in trial.record.snapshots)
        happened(slowest > 0, "the asynchronous part took time", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.ATTEMPTS)
@pytest.mark.clause("SNP-6", "REC-1")
def test_a_job_goes_on_from_compressed_snapshots_too(trials: Trials) -> None:
    plan = with_faults(
        AFTER_THE_FIRST_CHECKPOINT, plan=varied(checkpoints=CheckpointPlan(compression="zstd"))
    )
    for trial in trials.several(plan):
        _assert_every_checkpoint_is_its_prefix(trial)
        later = [view.checkpoint for view in trial.history.checkpoints if (view.attempt or 0) > 1]
        happened(later, "a checkpoint of a later attempt was checked", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.ATTEMPTS)
@pytest.mark.clause("SNP-5", "REC-1")
def test_a_job_goes_on_from_increments_too(trials: Trials) -> None:
    plan = with_faults(AFTER_THE_FIRST_CHECKPOINT, plan=varied(checkpoints=CheckpointPlan(incremental=True)))
    for trial in trials.several(plan):
        _assert_every_checkpoint_is_its_prefix(trial)
        later = [view.checkpoint for view in trial.history.checkpoints if (view.attempt or 0) > 1]
        happened(later, "a checkpoint of a later attempt was checked", trial)


@pytest.mark.uses("deployment.cached_keys")
@pytest.mark.clause("SNP-1", "ALN-1")
@pytest.mark.nightly_on_clusters
@pytest.mark.parametrize("write_through", [True, False])
def test_keys_that_are_evicted_from_memory_lose_nothing(trials: Trials, write_through: bool) -> None:
    plan = varied(
        workload=msgspec.structs.replace(CALM.workload, keys=12),
        deployment=DeploymentPlan(write_through=write_through, cached_keys=3),
    )
    for trial in trials.several(plan):
        _assert_every_checkpoint_is_its_prefix(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("BAR-2", "BAR-3", "ALN-1")
def test_generated_jobs_without_faults_keep_the_formula(trials: Trials) -> None:
    # Whether a short job ends without a checkpoint is the system's affair.
    ran: list[Trial] = []

    def check(trial: Trial) -> None:
        ran.append(trial)
        _assert_right_checkpoints(trial)

    trials.generated("faultless", check)
    with_checkpoints = sum(trial.record.checkpoints_completed > 0 for trial in ran)
    happened(
        2 * with_checkpoints >= len(ran), "a checkpoint completed in half of the generated jobs", *ran[:1]
    )
