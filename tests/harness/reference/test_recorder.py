"""What the recorder makes of reports: each is about the job of its attempt, whatever job runs when it comes."""

from __future__ import annotations

import pytest

from barrier_tck.harness.record.operations import Acknowledged, ReadsObserved, SourcesAligned
from barrier_tck.harness.reference.recorder import RunRecorder
from barrier_tck.harness.reference.snapshot_views import CheckpointOpener
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.functions import Emission, Sum
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning, Vertex
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    SnapshotMetrics,
    SourceWatermark,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.storage.filesystem import FileSystem

JOB = JobGraph(
    "job",
    (
        Vertex("read", 2, CollectionSource((), 1)),
        Vertex(
            "totals", 3, None, (AggregateSpec("totals", ("key",), {"sum": Sum("value")}, Emission.FINAL),)
        ),
    ),
    (Edge("read", "totals", Partitioning.HASH, ("key",)),),
    max_parallelism=8,
)


class Books(RunRecorder):
    """A recorder in a world where no time passes."""

    def now_ms(self) -> float:
        return 0.0

    def reads_of(self, subtask: str, attempt: int) -> ReadsObserved | None:
        return None


def no_files() -> FileSystem:
    raise AssertionError("no checkpoint is opened here")


def books() -> Books:
    return Books(CheckpointOpener(JOB, {"totals": "totals"}, Components(), no_files, "checkpoints", "output"))


def acknowledgement(subtask: SubtaskId, attempt: int) -> AcknowledgeCheckpoint:
    part = SubtaskSnapshot(subtask, AttemptNumber(attempt), ())
    metrics = SnapshotMetrics(alignment_buffered_bytes=7)
    return AcknowledgeCheckpoint(AttemptNumber(attempt), CheckpointId(1), subtask, part, metrics)


@pytest.mark.parametrize("widths", [{"read": 1, "totals": 3}, {"read": 2, "totals": 2}])
def test_what_comes_late_from_a_wider_attempt_is_recorded_as_that_of_its_job(widths: dict[str, int]) -> None:
    recorder = books()
    recorder.attempt_started(1, None)
    recorder.checkpoint_triggered(1, 1, False, None, 0.0)
    recorder.attempt_narrowed(2, 4, widths)
    recorder.attempt_started(2, None)
    recorder.acknowledged(acknowledgement(SubtaskId("totals", 2), 1))
    assert [one.subtask for one in recorder.snapshots] == ["totals[2]"]
    (told,) = (line.operation for line in recorder.operations if isinstance(line.operation, Acknowledged))
    assert told.held_bytes == 7


def test_a_narrower_attempt_has_no_part_of_a_subtask_that_only_the_wider_one_had() -> None:
    recorder = books()
    recorder.attempt_started(1, None)
    recorder.attempt_narrowed(2, 4, {"read": 1, "totals": 2})
    recorder.attempt_started(2, None)
    recorder.checkpoint_triggered(1, 2, False, None, 0.0)
    recorder.acknowledged(acknowledgement(SubtaskId("totals", 2), 2))
    assert not recorder.snapshots
    recorder.acknowledged(acknowledgement(SubtaskId("totals", 1), 2))
    assert [one.subtask for one in recorder.snapshots] == ["totals[1]"]
    (first, second) = (
        line.operation for line in recorder.operations if isinstance(line.operation, Acknowledged)
    )
    assert first.held_bytes is None and second.held_bytes is None, (
        "with one reader, nobody waits for barriers"
    )


def test_an_attempt_after_a_narrower_one_is_as_parallel_as_it_is_meant_to_be() -> None:
    recorder = books()
    recorder.attempt_narrowed(1, 4, {"read": 1, "totals": 2})
    recorder.attempt_started(1, None)
    recorder.attempt_started(2, None)
    recorder.checkpoint_triggered(1, 2, False, None, 0.0)
    recorder.acknowledged(acknowledgement(SubtaskId("totals", 2), 2))
    assert [one.subtask for one in recorder.snapshots] == ["totals[2]"]


def test_what_a_group_of_sources_may_read_is_recorded_with_the_reports_that_it_follows_from() -> None:
    recorder, attempt = books(), AttemptNumber(2)
    reports = (
        SourceWatermark(attempt, SubtaskId("read", 0), 70),
        SourceWatermark(attempt, SubtaskId("read", 1), 10, idle=True),
        SourceWatermark(attempt, SubtaskId("other", 0), 20, ended=True),
    )
    recorder.sources_aligned("both", 90, reports)
    (operation,) = (line.operation for line in recorder.operations)
    assert operation == SourcesAligned(2, "both", 90, {"read[0]": 70}, ("read[1]",), ("other[0]",))
