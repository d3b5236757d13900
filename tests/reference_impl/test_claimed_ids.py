"""A job that claims a savepoint whose id its own checkpoints and other savepoints have: each stays until its time."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, Savepoint
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.coordinator_driver import CoordinatorDriver
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from tests.reference_impl.storage_fakes import MemoryFileSystem, completed_checkpoint

GRAPH = StreamJob("job", 8).source(CollectionSource((), 1), 1, "read").sink(FileSink("out"), 1).build()
EIGHT, ATTEMPT = CheckpointId(8), AttemptNumber(1)


def stored(files: MemoryFileSystem, job: str, complete: bool, directory: str = "") -> CompletedCheckpoint:
    """Write checkpoint 8 of a job, or savepoint 8 if there is a directory."""
    storage = FileCheckpointStorage(files, job)
    storage.reserve(EIGHT, ATTEMPT)
    if directory:
        storage.begin_savepoint(EIGHT, directory)
    writer = storage.writer(EIGHT, ATTEMPT, SubtaskId("count", 0), "sum", directory)
    handle = writer.write("state", [b"state"], KeyGroupRange(0, 8))
    savepoint = Savepoint(directory) if directory else None
    completed = replace(completed_checkpoint(8, [handle]), savepoint=savepoint, job=GRAPH.shape)
    if complete:
        storage.publish(completed)
    return completed


@pytest.mark.parametrize("complete", [False, True])
def test_a_claimed_savepoint_does_not_go_with_an_own_checkpoint_that_has_its_id(complete: bool) -> None:
    files = MemoryFileSystem()
    stored(files, "job", complete)
    origin = stored(files, "another", True, "savepoints/one")
    config = JobConfig(checkpoints=CheckpointConfig(100), start_from="savepoints/one", claim_savepoint=True)
    storage = FileCheckpointStorage(files, "job")
    ports = Mock(storage=storage, clock=Mock(now_ms=lambda: 0.0), deployer=Mock(slots=lambda: None))
    driver = CoordinatorDriver(GRAPH, config, ports, Components())
    driver.start()
    assert [one.checkpoint for one in driver.machine.completed] == [8]
    assert storage.load_savepoint("savepoints/one") == origin
    assert storage.claimed() == (8,)
    storage.discard_checkpoint(EIGHT)
    assert storage.completed() == storage.incomplete() == storage.claimed() == ()
    assert files.list_files("savepoints") == []


def test_of_two_claimed_savepoints_with_one_id_none_counts_as_claimed_when_both_are_deleted() -> None:
    """A claim that stayed would delete what somebody puts into that directory later."""
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    for job in ("one", "two"):
        storage.start_from(stored(files, job, True, f"savepoints/{job}"), claim=True)
    assert storage.claimed() == (8, 8)
    storage.discard_checkpoint(EIGHT)
    assert storage.claimed() == FileCheckpointStorage(files, "job").claimed() == ()
    again = stored(files, "three", True, "savepoints/one")
    storage.discard_checkpoint(EIGHT)
    assert storage.load_savepoint("savepoints/one") == again
