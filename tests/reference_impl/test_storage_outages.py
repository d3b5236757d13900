"""What the runtime does while nobody can reach the storage of checkpoints, and afterwards; grain: parts and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_commands import (
    CoordinatorCommand,
    DiscardCheckpoint,
    FinishJob,
    SendTrigger,
    WriteMetadata,
)
from barrier_tck.reference_impl.protocol.coordinator_events import (
    AttemptFailed,
    AttemptStopped,
    MetadataFailed,
)
from barrier_tck.reference_impl.protocol.messages import (
    OperatorSnapshot,
    Savepoint,
    StateHandle,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.coordinator_driver import CoordinatorDriver
from barrier_tck.reference_impl.runtime_errors import StorageCause, StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.restore import RestoreReader
from tests.reference_impl.storage_fakes import FailingFileSystem, MemoryFileSystem, completed_checkpoint

GRAPH = StreamJob("job", 8).source(CollectionSource((), 1), 1, "read").sink(FileSink("out"), 1).build()
ONE, ATTEMPT = CheckpointId(1), AttemptNumber(1)
MONDAY = "savepoints/monday"


class Outage:
    """Files that can be reached, or not. The last rename before an outage is carried out, and its answer lost."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner
        self.down = False
        self.begins_with_rename_to = ""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def reached(*arguments: Any) -> Any:
            if self.down:
                raise StorageError(f"cannot {name} {arguments[0]}: nobody answers")
            done = getattr(self.inner, name)(*arguments)
            if name == "rename" and arguments[1] == self.begins_with_rename_to:
                self.down = True
                raise StorageError(f"cannot tell whether {arguments[1]} is there")
            return done

        return reached


@pytest.fixture
def outage() -> Outage:
    return Outage(MemoryFileSystem())


def test_a_savepoint_that_was_told_to_have_failed_does_not_look_complete_once_storage_is_back(
    outage: Outage,
) -> None:
    storage = FileCheckpointStorage(cast("FileSystem", outage), "job")
    storage.begin_savepoint(ONE, MONDAY)
    handle = storage.writer(ONE, ATTEMPT, SubtaskId("count", 0), "sum", MONDAY).write(
        "state", [b"state"], KeyGroupRange(0, 8)
    )
    outage.begins_with_rename_to = f"{MONDAY}/_metadata"
    with pytest.raises(StorageError) as told:
        storage.publish(replace(completed_checkpoint(1, [handle]), savepoint=Savepoint(MONDAY)))
    assert "left behind" in " ".join(told.value.__notes__)
    assert outage.inner.exists(f"{MONDAY}/_metadata"), "it looks complete, and nobody can change that now"
    with pytest.raises(StorageError):
        storage.discard_checkpoint(ONE)
    outage.down = False
    storage.discard_checkpoint(ONE)
    assert outage.inner.list_files(MONDAY) == [] and storage.incomplete() == ()


# --- the coordinator --------------------------------------------------------------------------------------


def coordinator(storage: object, *steps: tuple[CoordinatorCommand, ...]) -> tuple[CoordinatorDriver, Mock]:
    """Return a coordinator whose machine answers each event with the next of these commands, and its observer."""
    ports = Mock(storage=storage, clock=Mock(now_ms=lambda: 0.0))
    driver = CoordinatorDriver(GRAPH, JobConfig(checkpoints=CheckpointConfig(100)), ports, Components())
    answers = iter(steps)
    driver.machine = Mock(config=driver.machine.config, handle=Mock(side_effect=lambda *_: next(answers, ())))
    return driver, ports.observer


def test_what_could_not_be_deleted_is_deleted_in_the_end(outage: Outage) -> None:
    storage = FileCheckpointStorage(cast("FileSystem", outage), "job")
    storage.writer(ONE, ATTEMPT, SubtaskId("count", 0), "sum").write("state", [b"x"], KeyGroupRange(0, 8))
    driver, observer = coordinator(storage, (DiscardCheckpoint(ONE),), (FinishJob(ATTEMPT),))
    outage.down = True
    driver.feed(AttemptStopped(ATTEMPT))
    (told,) = observer.discard_failed.mock_calls
    assert told.args[0] == "checkpoint 1" and outage.inner.list_files("checkpoints")
    outage.down = False
    driver.feed(AttemptStopped(ATTEMPT))
    assert not outage.inner.list_files("checkpoints")


def test_a_savepoint_whose_id_cannot_be_reserved_is_refused(outage: Outage) -> None:
    outage.down = True
    storage = FileCheckpointStorage(cast("FileSystem", outage), "job")
    trigger = SendTrigger(ATTEMPT, ONE, 0, savepoint=Savepoint(MONDAY))
    driver, observer = coordinator(storage, (trigger,))
    driver.feed(AttemptStopped(ATTEMPT))
    (refused,) = observer.savepoint_refused.mock_calls
    assert refused.args[0] == Savepoint(MONDAY) and "nobody answers" in refused.args[1]
    event = cast("Mock", driver.machine.handle).mock_calls[-1].args[0]
    assert isinstance(event, AttemptFailed) and event.cause is Cause.STORAGE_FAILED


def test_a_checkpoint_whose_id_cannot_be_reserved_is_not_written_although_it_is_whole(
    outage: Outage,
) -> None:
    """All subtasks have finished, so nobody has to acknowledge it."""
    outage.down = True
    storage = FileCheckpointStorage(cast("FileSystem", outage), "job")
    whole = replace(completed_checkpoint(1), attempt=ATTEMPT)
    driver, observer = coordinator(storage, (SendTrigger(ATTEMPT, ONE, 0), WriteMetadata(whole)))
    driver.feed(AttemptStopped(ATTEMPT))
    failed, refused = (call.args[0] for call in cast("Mock", driver.machine.handle).mock_calls[1:])
    assert isinstance(failed, AttemptFailed) and failed.cause is Cause.STORAGE_FAILED
    assert refused == MetadataFailed(ONE, "its id could not be made durable")
    assert not observer.checkpoint_completed.mock_calls


@pytest.mark.parametrize("afterwards", [False, True], ids=["not carried out", "answer lost"])
@pytest.mark.parametrize("savepoint", [None, Savepoint(MONDAY)], ids=["checkpoint", "savepoint"])
def test_whichever_request_of_a_trigger_fails_nothing_is_begun_for_an_id_that_may_be_given_out_again(
    savepoint: Savepoint | None, afterwards: bool
) -> None:
    """A coordinator that dies then is followed by one that reads what is reserved."""
    began = failed = 0
    for number in range(1, 40):
        inner = MemoryFileSystem()
        files = FailingFileSystem(inner, number, afterwards)
        driver, observer = coordinator(
            FileCheckpointStorage(files, "job"), (SendTrigger(ATTEMPT, ONE, 0, savepoint=savepoint),)
        )
        driver.feed(AttemptStopped(ATTEMPT))
        left = FileCheckpointStorage(inner, "job")
        reserved = left.reserved()[0] >= ONE
        assert reserved or not left.incomplete(), f"request {number} failed"
        assert reserved or not observer.checkpoint_triggered.mock_calls, f"request {number} failed"
        began += reserved
        failed += not reserved
        if files.operations < number:
            break
    assert began and failed, "some requests come before it is durable, and some after"
    assert files.operations < number, "each request has failed once"


def test_a_trigger_that_was_decided_before_another_one_failed_is_not_sent(outage: Outage) -> None:
    storage = FileCheckpointStorage(cast("FileSystem", outage), "job")
    two = CheckpointId(2)
    first, second = SendTrigger(ATTEMPT, ONE, 0), SendTrigger(ATTEMPT, two, 0)
    later = SendTrigger(AttemptNumber(2), CheckpointId(3), 0)
    driver, observer = coordinator(storage)
    answers = iter([(first, second), (), (later,)])

    def back_again(event: object, *_: object) -> tuple[CoordinatorCommand, ...]:
        outage.down = not isinstance(event, AttemptFailed)
        return next(answers)

    outage.down = True
    driver.machine.handle = Mock(side_effect=back_again)  # type: ignore[method-assign]
    driver.feed(AttemptStopped(ATTEMPT))
    assert not observer.checkpoint_triggered.mock_calls, "storage is back, and the attempt is over"
    answers = iter([(later,)])
    driver.machine.handle = Mock(side_effect=lambda *_: next(answers, ()))  # type: ignore[method-assign]
    driver.feed(AttemptStopped(ATTEMPT))
    (triggered,) = observer.checkpoint_triggered.mock_calls
    assert triggered.args[0] == 3


# --- a restore --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "blamed"),
    [(StorageCause.FAILED, False), (StorageCause.MISSING, True), (StorageCause.WRONG_SIZE, True)],
)
def test_a_storage_that_does_not_answer_makes_no_checkpoint_unreadable(
    cause: StorageCause, blamed: bool
) -> None:
    """A job that took an older checkpoint then would commit again what is committed (REC-4)."""
    handle = StateHandle("job/chk-1/state", 5, "0", KeyGroupRange(0, 8))
    snapshot = SubtaskSnapshot(SubtaskId("count", 0), ATTEMPT, (OperatorSnapshot("sum", handles=(handle,)),))

    class Storage:
        """Gives nothing."""

        def read(self, handle: StateHandle) -> bytes:
            raise StorageError(f"cannot read {handle.path}", cause)

    reader = RestoreReader(Storage(), snapshot, ONE)
    with pytest.raises(StorageError):
        reader.read(handle)
    assert (reader.unreadable is not None) is blamed
