"""Savepoints in the coordinator's tables, in storage, and at a coordinator that starts from one (COO-5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from barrier_tck.reference_impl.config import CheckpointMode, JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol import coordinator_commands as do
from barrier_tck.reference_impl.protocol import coordinator_events as ev
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    ChannelsClosed,
    CheckpointBarrier,
    CompletedCheckpoint,
    InputConsumed,
    NotifyCheckpointAborted,
    Savepoint,
    StateHandle,
    TransactionsCommitted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import (
    ForwardBarrier,
    HoldInput,
    ReleaseInput,
    StoreSnapshot,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import BarrierArrived, SnapshotTaken
from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem
from tests.reference_impl.storage_fakes import FailingFileSystem, MemoryFileSystem
from tests.reference_impl.storage_fakes import completed_checkpoint as completed_of
from tests.reference_impl.test_coordinator_machine import COUNT, SOURCE, Job, kinds

MONDAY = Savepoint("savepoints/monday")
STOP = Savepoint("savepoints/last", stop=True)


def ask(job: Job, savepoint: Savepoint) -> Any:
    return job.tell(ev.SavepointRequested(savepoint))


def running(**checkpoints: Any) -> Job:
    job = Job(**checkpoints)
    job.start()
    job.run()
    return job


def acknowledge(job: Job, checkpoint: int) -> CompletedCheckpoint:
    job.ack(checkpoint, SOURCE)
    (write,) = job.ack(checkpoint, COUNT)
    assert isinstance(write, do.WriteMetadata)
    return write.completed


def commit(job: Job, checkpoint: int) -> Any:
    return job.tell(TransactionsCommitted(job.machine.attempt, COUNT, CheckpointId(checkpoint)))


def triggered(commands: Any) -> list[tuple[int, Savepoint | None]]:
    return [(one.checkpoint, one.savepoint) for one in commands if isinstance(one, do.SendTrigger)]


# --- the coordinator ----------------------------------------------------------------------------------------


def test_a_savepoint_waits_for_no_slot_and_no_pause_and_takes_none() -> None:
    job = running(max_concurrent=1, min_pause_ms=30)
    assert triggered(job.tick(10)) == [(1, None)]
    assert triggered(ask(job, MONDAY)) == [(2, MONDAY)]
    job.tell(ev.MetadataWritten(acknowledge(job, 2)))
    assert 1 not in job.machine.pending, "an ordinary checkpoint is subsumed by a newer savepoint"
    assert triggered(job.tick(31)) == [(3, None)]


def test_a_newer_checkpoint_does_not_end_a_savepoint_and_retention_keeps_only_a_recovery_point() -> None:
    job = running(max_concurrent=1, retained=1)
    ask(job, MONDAY)
    assert triggered(job.tick(10)) == [(2, None)]
    said = job.tell(ev.MetadataWritten(acknowledge(job, 2)))
    assert list(job.machine.pending) == [1] and "NotifyAborted" not in kinds(said)
    said = job.tell(ev.MetadataWritten(acknowledge(job, 1)))
    assert kinds(said)[:2] == ["NotifyComplete", "DiscardCheckpoint"] and said[1].checkpoint == 1
    assert [one.checkpoint for one in job.machine.completed] == [2]


def test_a_recovery_starts_from_a_savepoint_as_long_as_it_is_the_newest() -> None:
    job = running(retained=2)
    ask(job, MONDAY)
    job.tell(ev.MetadataWritten(acknowledge(job, 1)))
    job.fail(SOURCE)
    job.tell(ev.AttemptStopped(job.machine.attempt))
    (deploy,) = job.tick(7, ev.RestartDue())
    assert deploy.restore.checkpoint == 1 and deploy.restore.savepoint == MONDAY


def test_a_failed_savepoint_is_not_counted_and_the_job_goes_on() -> None:
    job = running(tolerated_failures=0)
    ask(job, MONDAY)
    said = job.tick(50, ev.CheckpointExpired(CheckpointId(1)))
    assert isinstance(said[0], do.NotifyAborted) and said[0].cause is Cause.EXPIRED
    assert job.machine.state is JobState.RUNNING


def test_a_stop_waits_until_nothing_is_pending_and_nothing_follows_it() -> None:
    job = running(max_concurrent=2)
    job.tick(10)
    assert ask(job, STOP) == ()
    assert triggered(job.tick(10)) == [], "no checkpoint begins while a stop waits"
    assert triggered(job.tell(ev.MetadataWritten(acknowledge(job, 1)))) == [(2, STOP)]
    said = ask(job, MONDAY)
    assert kinds(said) == ["RefuseSavepoint"] and "about to end" in said[0].reason
    job.tell(ev.MetadataWritten(acknowledge(job, 2)))
    assert job.machine.state is JobState.FINISHING
    (finish,) = commit(job, 2)
    assert finish == do.FinishJob(job.machine.attempt, STOP)
    assert str(job.machine.state) == "stopped"


@pytest.mark.parametrize("fails", ["expires", "loses its attempt"])
def test_if_the_last_savepoint_fails_the_job_is_not_stopped(fails: str) -> None:
    job = running(retained=1)
    ask(job, STOP)
    if fails == "expires":
        said = job.tick(50, ev.CheckpointExpired(CheckpointId(1)))
        assert triggered(said) == [(2, None)], "the next checkpoint is due"
        return
    job.fail(SOURCE)
    job.tell(ev.AttemptStopped(job.machine.attempt))
    job.tick(7, ev.RestartDue())
    assert triggered(job.run()) == [] and triggered(job.tick(10)) == [(2, None)]


def test_a_stop_that_waits_outlives_the_failure_of_a_savepoint() -> None:
    job = running()
    ask(job, MONDAY)
    assert ask(job, STOP) == ()
    assert triggered(job.tick(50, ev.CheckpointExpired(CheckpointId(1)))) == [(2, STOP)]


CROSSING = {"mode": CheckpointMode.CHANDY_LAMPORT, "initiators": ((SOURCE,), (COUNT,))}
"""Snapshots that different subtasks initiate: markers of two of them may cross."""


def test_a_savepoint_whose_markers_might_cross_others_is_taken_alone() -> None:
    job = running(max_concurrent=2, **CROSSING)
    job.tick(10)
    assert triggered(ask(job, MONDAY)) == [], "a checkpoint is in flight"
    assert triggered(job.tick(10)) == [], "no checkpoint begins while a savepoint waits"
    assert triggered(job.complete(1)) == [(2, MONDAY)]
    assert triggered(job.tick(10)) == [], "nor beside it"
    assert triggered(job.complete(2)) == [(3, None)]


def test_savepoints_that_are_taken_alone_follow_each_other_also_when_one_fails() -> None:
    job, tuesday = running(**CROSSING), Savepoint("savepoints/tuesday")
    assert triggered(ask(job, MONDAY)) == [(1, MONDAY)]
    assert triggered(ask(job, tuesday)) == [] == triggered(ask(job, STOP))
    said = job.tick(50, ev.CheckpointExpired(CheckpointId(1)))
    assert triggered(said) == [(2, STOP)], "a stop goes first, as nothing may follow it"
    said = job.tick(50, ev.CheckpointExpired(CheckpointId(2)))
    assert triggered(said) == [(3, tuesday)]


@pytest.mark.parametrize("ends", ["fails", "is stopped"])
def test_a_savepoint_that_waits_is_refused_when_its_attempt_ends(ends: str) -> None:
    job = running(**CROSSING)
    if ends == "fails":
        job.tick(10)
        ask(job, MONDAY)
        said = job.fail(SOURCE)
    else:
        job.tick(10)
        ask(job, MONDAY)
        ask(job, STOP)
        assert triggered(job.complete(1)) == [(2, STOP)]
        said = job.complete(2)
    refused = [one.savepoint for one in said if isinstance(one, do.RefuseSavepoint)]
    assert refused == [MONDAY]


def test_who_is_reached_by_no_barrier_any_more_is_told_which_savepoint_it_is() -> None:
    job = running()
    ask(job, MONDAY)
    (late,) = job.tell(ChannelsClosed(job.machine.attempt, COUNT))
    assert (late.checkpoint, late.savepoint) == (1, MONDAY)


def test_a_job_is_over_when_its_sinks_have_committed_for_the_last_savepoint_not_for_an_earlier_checkpoint() -> (
    None
):
    job = running(max_concurrent=2)
    job.tick(10)
    job.tell(ev.MetadataWritten(acknowledge(job, 1)))
    ask(job, STOP)
    job.tell(ev.MetadataWritten(acknowledge(job, 2)))
    assert commit(job, 1) == () and job.machine.state is JobState.FINISHING
    assert kinds(commit(job, 2)) == ["FinishJob"]


def test_a_stop_that_was_never_triggered_is_refused_when_the_attempt_fails() -> None:
    job = running()
    job.tick(10)
    ask(job, STOP)
    assert "RefuseSavepoint" in kinds(job.fail(SOURCE))


def test_an_attempt_after_a_complete_stop_only_finishes_its_commits() -> None:
    job = running()
    ask(job, STOP)
    job.tell(ev.MetadataWritten(acknowledge(job, 1)))
    job.fail(COUNT)
    job.tell(ev.AttemptStopped(job.machine.attempt))
    (deploy,) = job.tick(7, ev.RestartDue())
    assert deploy.restore.stops_the_job
    assert kinds(job.run()) == ["NotifyComplete"]
    assert kinds(commit(job, 1)) == ["FinishJob"] and job.machine.state is JobState.STOPPED


def test_the_end_of_all_input_does_not_overtake_a_stop() -> None:
    job = running()
    ask(job, STOP)
    assert job.tell(InputConsumed(job.machine.attempt, COUNT)) == ()
    job.tell(ev.MetadataWritten(acknowledge(job, 1)))
    commit(job, 1)
    assert job.machine.state is JobState.STOPPED


# --- a subtask ----------------------------------------------------------------------------------------------


def test_behind_a_terminal_barrier_every_input_is_held_until_the_savepoint_is_aborted() -> None:
    machine = SubtaskMachine("count[0]", 2)
    barrier = CheckpointBarrier(CheckpointId(4), 0, savepoint=STOP)
    machine.handle(BarrierArrived(0, barrier))
    machine.handle(BarrierArrived(1, barrier))
    said = machine.handle(SnapshotTaken(barrier))
    assert [type(one) for one in said] == [ForwardBarrier, StoreSnapshot, HoldInput]
    assert str(machine.state) == "held" and machine.blocked == [True, True]
    machine.handle(NotifyCheckpointAborted(CheckpointId(3), "late"))
    assert str(machine.state) == "held"
    said = machine.handle(NotifyCheckpointAborted(CheckpointId(4), "expired"))
    assert ReleaseInput() in said
    assert str(machine.state) == "running" and machine.blocked == [False, False]


def test_a_source_takes_its_savepoint_from_the_trigger() -> None:
    machine = SubtaskMachine("source[0]", 0)
    (take,) = machine.handle(TriggerCheckpoint(CheckpointId(1), 0, STOP))
    assert isinstance(take, TakeSnapshot)
    said = machine.handle(SnapshotTaken(take.barrier))
    assert take.barrier.is_terminal and HoldInput() in said
    assert machine.handle(TriggerCheckpoint(CheckpointId(1), 0, STOP)) == (), "it came twice"


# --- storage ------------------------------------------------------------------------------------------------


def taken(files: Any, checkpoint: int = 8, directory: str = MONDAY.directory) -> CompletedCheckpoint:
    storage = FileCheckpointStorage(files, "job")
    storage.begin_savepoint(CheckpointId(checkpoint), directory)
    writer = storage.writer(
        CheckpointId(checkpoint), AttemptNumber(1), SubtaskId("count", 0), "sum", directory
    )
    handle = writer.write("state", [b"sta", b"te"], KeyGroupRange(0, 8))
    assert handle.savepoint == directory and "/" not in handle.path
    completed = replace(completed_of(checkpoint, [handle]), savepoint=Savepoint(directory))
    storage.publish(completed)
    return completed


def handle_of(completed: CompletedCheckpoint) -> StateHandle:
    return next(handle for part in completed.snapshots for handle in part.handles())


def test_a_savepoint_shares_no_file_with_checkpoints_and_stays_when_the_job_discards_everything() -> None:
    files = MemoryFileSystem()
    completed, storage = taken(files), FileCheckpointStorage(files, "job")
    assert storage.load(CheckpointId(8)) == completed and storage.read(handle_of(completed)) == b"state"
    storage.discard_checkpoint(CheckpointId(8))
    storage.discard([handle_of(completed)])
    assert not [path for path in storage.files() if "/chk-" in path]
    assert storage.load_savepoint(MONDAY.directory) == completed


def test_one_lookup_says_of_all_files_of_a_part_whether_their_savepoint_is_complete() -> None:
    files = MemoryFileSystem()
    handle = handle_of(taken(files))
    asked: list[str] = []

    class Noting(MemoryFileSystem):
        def exists(self, path: str) -> bool:
            asked.append(path)
            return files.exists(path)

        def delete(self, path: str) -> None:
            files.delete(path)

    storage = FileCheckpointStorage(Noting(), "job")
    others = [replace(handle, savepoint="savepoints/gone", path=f"{number}") for number in range(5)]
    storage.discard([handle, *others, handle])
    assert len(asked) == 2, asked
    assert FileCheckpointStorage(files, "job").read(handle) == b"state"


def test_a_savepoint_can_be_copied_elsewhere_and_used_without_the_rest() -> None:
    files, other = MemoryFileSystem(), MemoryFileSystem()
    taken(files)
    for path in files.list_files(MONDAY.directory):
        stream = other.create(path.replace("savepoints/monday", "archive/one"))
        stream.write(files.read(path))
        stream.sync()
        stream.close()
    found = FileCheckpointStorage(other, "another").load_savepoint("archive/one")
    assert handle_of(found).name.startswith("archive/one/count-0")
    assert FileCheckpointStorage(other, "another").read(handle_of(found)) == b"state"


def test_a_savepoint_that_failed_leaves_nothing_even_if_another_coordinator_removes_it() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    storage.begin_savepoint(CheckpointId(3), MONDAY.directory)
    storage.writer(CheckpointId(3), AttemptNumber(1), SubtaskId("count", 0), "sum", MONDAY.directory).write(
        "state", [b"half"], KeyGroupRange(0, 8)
    )
    again = FileCheckpointStorage(files, "job")
    assert again.incomplete() == (3,)
    again.discard_checkpoint(CheckpointId(3))
    assert files.list_files(MONDAY.directory) == [] and again.incomplete() == ()


@pytest.mark.parametrize("fail_at", range(1, 30))
def test_a_disk_that_fails_leaves_no_savepoint_that_the_job_does_not_know(fail_at: int) -> None:
    files = MemoryFileSystem()
    failing = FailingFileSystem(files, fail_at)
    try:
        taken(failing)
    except StorageError:
        assert FileCheckpointStorage(files, "job").completed() == ()
        assert not files.exists("savepoints/monday/_metadata")
    assert failing.failed or FileCheckpointStorage(files, "job").completed() == (8,)


@pytest.mark.parametrize("directory", ["", "/tmp/x", "a/../b", "x/"])
def test_a_directory_that_leaves_the_job_s_files_is_refused(directory: str) -> None:
    with pytest.raises(JobUsageError, match="a savepoint needs a directory below the job's files"):
        FileCheckpointStorage(MemoryFileSystem(), "job").is_free(directory)


def test_a_directory_with_anything_in_it_is_not_free() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    assert storage.is_free(MONDAY.directory) and not storage.is_free("checkpoints/job/mine")
    taken(files)
    assert not storage.is_free(MONDAY.directory)


def test_a_job_goes_on_with_ids_above_those_of_its_savepoint_and_knows_what_is_older() -> None:
    files = MemoryFileSystem()
    completed = taken(files)
    anew = FileCheckpointStorage(files, "new")
    assert anew.start_from(completed) == 8
    assert anew.reserved() == (8, completed.attempt)
    anew.reserve(CheckpointId(11), AttemptNumber(5))
    assert FileCheckpointStorage(files, "new").start_from(completed) == 8, "it was started from it before"
    same = FileCheckpointStorage(files, "job")
    same.reserve(CheckpointId(20), AttemptNumber(7))
    assert same.start_from(completed) == 20, "the job's own checkpoints up to 20 are older than this start"
    assert same.reserved() == (20, 7)


# --- claims -------------------------------------------------------------------------------------------------


def claimed(files: FileSystem, job: str = "new") -> FileCheckpointStorage:
    """Return the storage of a job that has claimed savepoint 8 and has a newer checkpoint."""
    completed = taken(files)
    storage = FileCheckpointStorage(files, job)
    assert storage.start_from(completed, claim=True) == 8
    storage.reserve(CheckpointId(9), AttemptNumber(2))
    storage.publish(completed_of(9))
    return storage


def test_a_claimed_savepoint_is_deleted_with_its_id_and_its_files_with_it() -> None:
    files = MemoryFileSystem()
    storage = claimed(files)
    assert storage.claimed() == FileCheckpointStorage(files, "new").claimed() == (8,)
    storage.discard_checkpoint(CheckpointId(8))
    assert files.list_files("savepoints") == []
    assert storage.claimed() == FileCheckpointStorage(files, "new").claimed() == ()
    assert FileCheckpointStorage(files, "new").has_outgrown(MONDAY.directory) == 8


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_else_lies_in_the_directory_of_a_claimed_savepoint_stays(interrupted: bool) -> None:
    files = MemoryFileSystem()
    storage = claimed(files)
    own = files.list_files(MONDAY.directory)
    others = [f"{MONDAY.directory}/README", f"{MONDAY.directory}/notes/count-0-a1-sum-state"]
    for path in others:
        stream = files.create(path)
        stream.write(b"mine")
        stream.close()
    if interrupted:
        files.delete(f"{MONDAY.directory}/_metadata")
        storage = FileCheckpointStorage(files, "new")
    storage.discard_checkpoint(CheckpointId(8))
    assert len(own) == 2 and files.list_files("savepoints") == others
    assert storage.claimed() == ()
    assert not storage.is_free(MONDAY.directory)


def test_the_empty_directory_of_a_claimed_savepoint_goes_with_it(tmp_path: Path) -> None:
    files = LocalFileSystem(tmp_path)
    storage = claimed(files)
    assert (tmp_path / MONDAY.directory).is_dir()
    storage.discard_checkpoint(CheckpointId(8))
    assert not (tmp_path / MONDAY.directory).exists()


def test_a_savepoint_that_nobody_claimed_is_not_deleted() -> None:
    files = MemoryFileSystem()
    completed = taken(files)
    storage = FileCheckpointStorage(files, "new")
    storage.start_from(completed)
    before = files.list_files("savepoints")
    storage.discard_checkpoint(CheckpointId(8))
    assert storage.claimed() == ()
    assert before and files.list_files("savepoints") == before


def test_a_claim_survives_a_deletion_that_was_interrupted() -> None:
    files = MemoryFileSystem()
    claimed(files)
    files.delete(f"{MONDAY.directory}/_metadata")
    anew = FileCheckpointStorage(files, "new")
    assert anew.has_outgrown(MONDAY.directory) == 8
    assert anew.claimed() == (8,)
    anew.discard_checkpoint(CheckpointId(8))
    assert files.list_files("savepoints") == [] and anew.claimed() == ()


def test_a_start_whose_savepoint_is_gone_before_anything_newer_is_complete_is_refused() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "new")
    storage.start_from(taken(files), claim=True)
    files.delete_tree(MONDAY.directory)
    assert storage.has_outgrown(MONDAY.directory) is None
    with pytest.raises(StorageError):
        storage.load_savepoint(MONDAY.directory)


def test_a_claim_of_an_earlier_start_is_not_forgotten_at_the_next_one() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "new")
    storage.start_from(taken(files), claim=True)
    last = taken(files, 12, STOP.directory)
    storage.start_from(last)
    assert storage.claimed() == (8,)


def test_a_job_claims_only_what_it_starts_from() -> None:
    with pytest.raises(JobUsageError, match="start_from names no savepoint"):
        JobConfig(claim_savepoint=True)
