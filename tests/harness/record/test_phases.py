"""The record shows in which phase a fault fired; grain: tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import PHASE_OF_POINT, After, Phase, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.phases import Course, phase_of
from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, FaultRecord, SnapshotRecord
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial

COURSE = Course(
    attempts=(
        AttemptRecord(1, 0.0, 10.0, 300.0, "failed"),
        AttemptRecord(2, 320.0, 400.0, 500.0, "finished"),
    ),
    checkpoints=(
        CheckpointRecord(1, 1, "completed", 100.0, 200.0),
        CheckpointRecord(2, 1, "aborted", 250.0, 300.0),
    ),
    snapshots=(
        SnapshotRecord(1, 1, "source[0]", 105.0, 0.0, 0, 5.0, 60.0, 9),
        SnapshotRecord(1, 1, "totals[0]", 120.0, 20.0, 0, 10.0, 30.0, 9),
    ),
)


def fired(at_ms: float | None, point: ProtocolPoint | None = None) -> FaultRecord:
    outcome = "not_fired" if at_ms is None else "fired"
    return FaultRecord(0, "kill", "kill_worker", "then", point, outcome, fired_at_ms=at_ms)


@pytest.mark.parametrize(
    ("at_ms", "phase"),
    [
        (5.0, Phase.RESTORING),
        (50.0, Phase.PROCESSING),
        (102.0, Phase.ALIGNMENT),
        (130.0, Phase.ALIGNMENT),
        (145.0, Phase.SYNCHRONOUS_PART),
        (155.0, Phase.ASYNCHRONOUS_PART),
        (190.0, Phase.COMMITTING),
        (230.0, Phase.PROCESSING),
        (270.0, Phase.ALIGNMENT),
        (310.0, Phase.RESTORING),
        (450.0, Phase.PROCESSING),
    ],
)
def test_a_timed_fault_struck_what_the_job_was_doing(at_ms: float, phase: Phase) -> None:
    assert phase_of(fired(at_ms), ("totals[0]",), COURSE) is phase


def test_the_activity_of_the_struck_subtask_counts_before_that_of_others() -> None:
    assert phase_of(fired(130.0), ("source[0]",), COURSE) is Phase.ASYNCHRONOUS_PART
    assert phase_of(fired(130.0), ("totals[0]",), COURSE) is Phase.ALIGNMENT


def test_an_aimed_fault_struck_in_the_phase_of_its_point_and_one_that_did_not_fire_in_none() -> None:
    assert phase_of(fired(50.0, ProtocolPoint.RESTORED), (), COURSE) is Phase.RESTORING
    assert phase_of(fired(None, ProtocolPoint.RESTORED), (), COURSE) is None


def test_every_protocol_point_has_a_phase_and_every_phase_a_point() -> None:
    assert list(PHASE_OF_POINT) != [] and set(PHASE_OF_POINT) == set(ProtocolPoint)
    assert set(PHASE_OF_POINT.values()) == set(Phase)


def test_a_trials_record_says_in_which_phase_its_faults_fired() -> None:
    fault = ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.SNAPSHOT_STORED, "totals[0]"))
    record = run_trial(TrialPlan(faults=(fault,)), ReferenceSimulated(), Path())
    assert [booked.phase for booked in record.faults] == ["asynchronous_part"]
