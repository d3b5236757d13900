"""What durable storage holds: what is retained can be read, ids grow, and nothing else is left."""

from __future__ import annotations

from itertools import pairwise

import pytest

from barrier_tck.conformance.plans import (
    AFTER_THE_FIRST_CHECKPOINT,
    CALM,
    SIX_AIMS,
    UNACKNOWLEDGED,
    crash_coordinator,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan
from barrier_tck.harness.record.operations import Acknowledged, CheckpointTriggered
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.needs(Capability.SNAPSHOT_INSPECTION)


def _assert_retained_can_be_read(trial: Trial) -> None:
    storage = trial.history.storage
    happened(storage is not None and storage.retained, "checkpoints are retained", trial)
    assert storage is not None
    require(not storage.unreadable, f"every retained file can be read, but {storage.unreadable}", trial)
    require(not storage.orphans, f"nothing else is left, but {storage.orphans}", trial)


def _assert_ids_grow(trial: Trial) -> None:
    triggered = [line.operation.checkpoint for line in trial.history.of(CheckpointTriggered)]
    happened(triggered, "checkpoints were triggered", trial)
    require(all(a < b for a, b in pairwise(triggered)), f"ids grow strictly: {triggered}", trial)


@pytest.mark.clause("STA-3")
def test_retained_checkpoints_can_be_read_at_the_end(trials: Trials) -> None:
    for trial in trials.all_valid(CALM):
        _assert_retained_can_be_read(trial)


@pytest.mark.clause("STA-3", "BAR-1")
def test_a_checkpoint_holds_the_position_of_every_split_and_a_part_of_every_subtask(trials: Trials) -> None:
    trial = trials.valid(CALM)
    happened(trial.history.checkpoints, "a checkpoint completed", trial)
    splits = sorted(trial.history.checkpoints[-1].positions)
    require(splits, "a checkpoint holds positions", trial)
    for view in trial.history.checkpoints:
        require(view.problem is None, f"checkpoint {view.checkpoint} can be opened: {view.problem}", trial)
        require(sorted(view.positions) == splits, f"checkpoint {view.checkpoint} knows {splits}", trial)
        parts = sorted(view.subtasks)
        require(parts == sorted(trial.record.subtasks), f"{parts} are all subtasks", trial)


@pytest.mark.long
@pytest.mark.uses("checkpoints.retained")
@pytest.mark.clause("COO-4")
@pytest.mark.parametrize("retained", [1, 2])
def test_the_newest_completed_checkpoints_are_retained_and_no_others(trials: Trials, retained: int) -> None:
    checkpoints = CheckpointPlan(interval_ms=CALM.checkpoints.interval_ms, retained=retained)
    for trial in trials.all_valid(varied(checkpoints=checkpoints)):
        completed = [c.checkpoint for c in trial.record.checkpoints if c.status == "completed"]
        storage = trial.history.storage
        kept = storage.retained if storage is not None else ()
        newest = tuple(sorted(completed)[-retained:])
        require(kept == newest, f"{newest} are retained, not {kept}", trial)


@pytest.mark.needs(Capability.ATTEMPTS)
@pytest.mark.clause("COO-4", "REC-2")
def test_ids_grow_over_a_recovery(trials: Trials) -> None:
    for trial in trials.all_valid(with_faults(AFTER_THE_FIRST_CHECKPOINT)):
        _assert_ids_grow(trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("COO-4", "COO-6")
def test_ids_grow_over_a_crash_of_the_coordinator(trials: Trials) -> None:
    crash = crash_coordinator(After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2))
    for trial in trials.all_valid(with_faults(crash)):
        _assert_ids_grow(trial)


@pytest.mark.needs(Capability.ATTEMPTS)
@pytest.mark.clause("COO-2", "SNP-2")
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(SIX_AIMS["between-sync-and-async"], id="begun", marks=pytest.mark.nightly_on_clusters),
        pytest.param(UNACKNOWLEDGED, id="stored"),
    ],
)
def test_a_part_that_a_kill_cut_off_leaves_nothing(trials: Trials, plan: TrialPlan) -> None:
    for trial in trials.all_valid(plan):
        aborted = [c for c in trial.record.checkpoints if c.status == "aborted"]
        happened(aborted, "the checkpoint that lacks a part is aborted", trial)
        _assert_retained_can_be_read(trial)


@pytest.mark.needs(
    Capability.DETERMINISTIC_REPLAY,  # an acknowledgement crosses the abort on its way only if the network is simulated
    Capability.SLOW_SNAPSHOTS,
)
@pytest.mark.clause("COO-2", "COO-3", "SNP-2")
def test_what_late_acknowledgements_of_expired_checkpoints_wrote_is_removed(trials: Trials) -> None:
    plan = varied(checkpoints=CheckpointPlan(interval_ms=20, timeout_ms=45, async_ms_max=80))
    late = 0
    for trial in trials.all_valid(plan):
        ended = {c.checkpoint: c for c in trial.record.checkpoints}
        expired = {number for number, c in ended.items() if c.status == "aborted"}
        late += sum(
            line.operation.checkpoint in expired
            and line.time_ms > ended[line.operation.checkpoint].ended_at_ms
            for line in trial.history.of(Acknowledged)
        )
        _assert_retained_can_be_read(trial)
        happened(trial.record.checkpoints_completed >= 1, "a later checkpoint completes", trial)
    happened(late, "an acknowledgement came after its checkpoint had expired")
