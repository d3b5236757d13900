"""What subtasks ask of checkpoint storage is counted, and what they could have named again is noted (SNP-8)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, DeploymentPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.operations import CheckpointCompleted, CheckpointTriggered, StorageAsked
from barrier_tck.harness.reference.notes_directory import NotesDirectory
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute

PLAN = TrialPlan(
    workload=WorkloadPlan("keyed-totals", batches=20, batch_records=3, keys=40, records_per_second=300),
    checkpoints=CheckpointPlan(incremental=True, interval_ms=15),
)


def test_each_acknowledgement_is_counted_with_the_newest_checkpoint_known_to_be_complete(
    tmp_path: Path,
) -> None:
    history = execute(PLAN, ReferenceSimulated(), tmp_path).history
    assert history is not None
    completed: list[int] = []
    before: dict[str, StorageAsked] = {}
    reusable = 0
    for line in history.operations:
        if isinstance(line.operation, CheckpointCompleted):
            completed.append(line.operation.checkpoint)
        if isinstance(line.operation, StorageAsked):
            asked = line.operation
            if asked.reusable is not None:
                assert asked.reusable in completed and asked.reusable < asked.checkpoint
                reusable += 1
            for kind, number in before.get(asked.subtask, asked).requests.items():
                assert asked.requests[kind] >= number
            before[asked.subtask] = asked
    assert reusable > 3
    # The coordinator makes an id durable for each checkpoint, and for each attempt, and then the metadata.
    coordinator, triggered = before.pop(COORDINATOR), sum(1 for _ in history.of(CheckpointTriggered))
    assert coordinator.checkpoint == completed[-1]
    assert triggered + len(completed) <= coordinator.requests["write"] <= triggered + len(completed) + 4
    # Sources and sinks write no state files; of each file of the others the bytes and the name are made durable, and
    # the names of the directories of shared files, with those of the three above them in a new process.
    for subtask, asked in before.items():
        named = {file.path for view in history.checkpoints for file in view.files.get(subtask, ())}
        directories = len({path.rpartition("/")[0] for path in named if "/shared/" in path})
        synced = len(named) + directories + (3 if directories else 0)
        assert asked.requests == ({"write": len(named), "sync": synced} if named else {})


def test_counts_pass_from_one_process_to_another_in_order(tmp_path: Path) -> None:
    notes = [
        StorageAsked("totals[0]", attempt, checkpoint, {"write": 1}, 9)
        for attempt, checkpoint in ((2, 3), (1, 2))
    ]
    for note in notes:
        NotesDirectory(str(tmp_path))(note)
    assert NotesDirectory(str(tmp_path)).take_all() == tuple(reversed(notes))


def test_a_disk_that_refuses_costs_the_count_only(tmp_path: Path) -> None:
    NotesDirectory(str(tmp_path / "missing"))(StorageAsked("totals[0]", 1, 1, {}))


def test_what_the_harness_reads_for_its_pictures_is_not_counted(tmp_path: Path) -> None:
    """Cut diagrams show the records in flight, which are read from what subtasks have stored."""
    plan = msgspec.structs.replace(
        PLAN,
        checkpoints=CheckpointPlan(mode="unaligned", interval_ms=15),
        deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=5),
    )
    result = execute(plan, ReferenceSimulated(traces_messages=True), tmp_path)
    assert result.history is not None and result.trace_events
    assert any(view.in_flight for view in result.history.checkpoints)
    assert not [line for line in result.history.of(StorageAsked) if "read" in line.operation.requests]
