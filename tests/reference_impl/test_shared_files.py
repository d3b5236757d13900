"""Shared files of incremental snapshots: who uses which, and when they may be deleted; grain: registry and machine."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig, RestartConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol import coordinator_commands as do
from barrier_tck.reference_impl.protocol import coordinator_events as ev
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    OperatorSnapshot,
    SnapshotMetrics,
    StateHandle,
    SubtaskRunning,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.shared_files import SharedFiles
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from tests.reference_impl.storage_fakes import MemoryFileSystem

GROUPS = KeyGroupRange(0, 8)
COUNT, SINK = SubtaskId("count", 0), SubtaskId("sink", 0)


def shared(written_for: int, name: str = "x") -> StateHandle:
    path = f"job/shared/chk-{written_for}/{name}"
    return StateHandle(path, 1, "crc32:00000000", GROUPS, shared=written_for)


def part(*handles: StateHandle, subtask: SubtaskId = COUNT, attempt: int = 1) -> SubtaskSnapshot:
    return SubtaskSnapshot(subtask, AttemptNumber(attempt), (OperatorSnapshot("o", handles=handles),))


def completed(checkpoint: int, *handles: StateHandle) -> CompletedCheckpoint:
    return CompletedCheckpoint(CheckpointId(checkpoint), AttemptNumber(1), 0, 0, (part(*handles),))


def test_a_file_goes_with_its_last_user_and_not_before() -> None:
    files = SharedFiles()
    for checkpoint in (1, 2):
        files.use(CheckpointId(checkpoint), part(shared(1)))
    assert files.release(CheckpointId(1)) == (shared(1).path,), "checkpoint 2 uses it"
    assert files.take_unused() == ()
    assert files.release(CheckpointId(2)) == ()
    assert files.take_unused() == (shared(1).path,)
    assert files.take_unused() == (), "it is deleted once"


def test_what_storage_has_and_no_checkpoint_names_is_unused() -> None:
    stored = [shared(1).path, shared(2).path, shared(3).path]
    files = SharedFiles(stored, [completed(2, shared(1), shared(2))])
    assert files.take_unused() == (shared(3).path,)
    assert files.release(CheckpointId(2)) == ()


def test_a_checkpoint_may_not_reuse_what_nobody_uses() -> None:
    files = SharedFiles((), [completed(1, shared(1))])
    assert files.unknown(CheckpointId(3), part(shared(1), shared(3))) == ()
    assert files.unknown(CheckpointId(3), part(shared(2))) == (shared(2),)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.integers(1, 6)), max_size=40))
def test_users_are_counted_exactly(steps: list[tuple[int, int, int]]) -> None:
    """Against a model: a file is there from its first use until its last user is gone."""
    files, users, there = SharedFiles(), dict[str, set[int]](), set[str]()
    for kind, checkpoint, written_for in steps:
        handle = shared(written_for)
        if kind == 0:
            files.use(CheckpointId(checkpoint), part(handle))
            users.setdefault(handle.path, set()).add(checkpoint)
            there.add(handle.path)
        elif kind == 1:
            kept = files.release(CheckpointId(checkpoint))
            for of in users.values():
                of.discard(checkpoint)
            own = {path for path in there if f"/chk-{checkpoint}/" in path}
            assert set(kept) == {path for path in own if users[path]}
            there -= {path for path in own if not users[path]}
        else:
            unused = {path for path in there if not users[path]}
            assert set(files.take_unused()) == unused
            there -= unused
        assert not files.unused(CheckpointId(written_for), part(*[handle] * bool(users.get(handle.path))))


class Job:
    """A coordinator with two subtasks, of which one has files; checkpoints are incremental."""

    def __init__(self, max_concurrent: int = 3, retained: int = 1) -> None:
        config = CheckpointConfig(
            10, max_concurrent=max_concurrent, retained=retained, tolerated_failures=9, incremental=True
        )
        self.machine = CoordinatorMachine(
            JobConfig(checkpoints=config, restart=RestartConfig(9)), [COUNT, SINK], [SINK]
        )
        self.now = 0.0

    def tell(self, event: ev.CoordinatorEvent) -> list[do.CoordinatorCommand]:
        return list(self.machine.handle(event, self.now))

    def start(self, *stored: CompletedCheckpoint, shared: tuple[str, ...] = ()) -> None:
        last = max((one.checkpoint for one in stored), default=0)
        self.tell(ev.JobStarted(stored, last, 1 if stored else 0, shared=shared))
        self.run()

    def run(self) -> None:
        for subtask in (COUNT, SINK):
            self.tell(SubtaskRunning(self.machine.attempt, subtask))
        assert self.machine.state is JobState.RUNNING

    def trigger(self) -> do.SendTrigger:
        self.now += 10
        return next(one for one in self.tell(ev.TriggerDue()) if isinstance(one, do.SendTrigger))

    def ack(self, checkpoint: int, *handles: StateHandle) -> list[do.CoordinatorCommand]:
        snapshot = part(*handles, attempt=self.machine.attempt)
        number = CheckpointId(checkpoint)
        return self.tell(AcknowledgeCheckpoint(snapshot.attempt, number, COUNT, snapshot, SnapshotMetrics()))

    def finish(self, checkpoint: int) -> list[do.CoordinatorCommand]:
        snapshot = part(subtask=SINK, attempt=self.machine.attempt)
        number = CheckpointId(checkpoint)
        (write,) = self.tell(
            AcknowledgeCheckpoint(snapshot.attempt, number, SINK, snapshot, SnapshotMetrics())
        )
        assert isinstance(write, do.WriteMetadata)
        return self.tell(ev.MetadataWritten(write.completed))

    def complete(self, *handles: StateHandle) -> list[do.CoordinatorCommand]:
        checkpoint = self.trigger().checkpoint
        self.ack(checkpoint, *handles)
        return self.finish(checkpoint)


def test_a_trigger_names_the_oldest_checkpoint_whose_files_stay() -> None:
    job = Job(retained=2)
    job.start()
    assert job.trigger().reuse_from == 1, "there is none: nothing can be reused, and files are shared"
    job.ack(1, shared(1))
    job.finish(1)
    job.complete(shared(1), shared(2))
    job.complete(shared(1), shared(2), shared(3))
    assert job.trigger().reuse_from == 2


def test_without_increments_nothing_is_shared() -> None:
    machine = CoordinatorMachine(JobConfig(checkpoints=CheckpointConfig(10)), [COUNT, SINK], [SINK])
    machine.handle(ev.JobStarted((), 0, 0), 0)
    for subtask in (COUNT, SINK):
        machine.handle(SubtaskRunning(AttemptNumber(1), subtask), 0)
    (trigger, *_) = machine.handle(ev.TriggerDue(), 10)
    assert isinstance(trigger, do.SendTrigger) and trigger.reuse_from == 0


def test_a_subsumed_checkpoint_leaves_the_files_that_a_newer_one_uses() -> None:
    job = Job()
    job.start()
    job.complete(shared(1))
    assert do.DiscardCheckpoint(CheckpointId(1), (shared(1).path,)) in job.complete(shared(1), shared(2))
    commands = job.complete(shared(3))
    assert do.DiscardCheckpoint(CheckpointId(2), ()) in commands
    assert do.DiscardShared((shared(1).path,)) in commands


def test_an_aborted_checkpoint_takes_its_own_files_with_it_and_no_others() -> None:
    job = Job()
    job.start()
    job.complete(shared(1))
    checkpoint = job.trigger().checkpoint
    job.ack(checkpoint, shared(1), shared(2))
    commands = job.tell(ev.CheckpointExpired(checkpoint))
    assert do.DiscardCheckpoint(checkpoint, ()) in commands
    assert not [one for one in commands if isinstance(one, do.DiscardShared)]
    commands = job.complete(shared(1), shared(3))
    assert do.DiscardCheckpoint(CheckpointId(1), (shared(1).path,)) in commands


def test_a_completed_checkpoint_stays_while_one_that_may_build_on_it_is_under_way() -> None:
    job = Job(max_concurrent=2)
    job.start()
    job.complete(shared(1))
    second = job.trigger()
    third = job.trigger()
    assert (second.reuse_from, third.reuse_from) == (1, 1)
    job.ack(second.checkpoint, shared(2))
    commands = job.finish(second.checkpoint)
    assert not [one for one in commands if isinstance(one, do.DiscardCheckpoint)], "3 may have chosen file 1"
    assert [one.checkpoint for one in job.machine.completed] == [1, 2]
    job.ack(third.checkpoint, shared(1), shared(3))
    discarded = [one for one in job.finish(third.checkpoint) if isinstance(one, do.DiscardCheckpoint)]
    assert discarded == [
        do.DiscardCheckpoint(CheckpointId(1), (shared(1).path,)),
        do.DiscardCheckpoint(CheckpointId(2), ()),
    ]


def test_a_part_that_reuses_a_deleted_file_fails_its_checkpoint() -> None:
    job = Job()
    job.start()
    job.complete(shared(1))
    job.complete(shared(2))
    checkpoint = job.trigger().checkpoint
    (aborted, *_) = job.ack(checkpoint, shared(1))
    assert isinstance(aborted, do.NotifyAborted)
    assert aborted.cause is Cause.DECLINED and shared(1).path in aborted.reason


def test_a_late_repetition_deletes_nothing_that_is_used() -> None:
    job = Job()
    job.start()
    job.complete(shared(1))
    job.complete(shared(1), shared(2))
    assert job.ack(1, shared(1)) == [], "1 is gone, and 2 uses its file"
    (discard,) = job.ack(1, shared(1), shared(1, "other"))
    assert isinstance(discard, do.DiscardSnapshot) and discard.files == (shared(1, "other"),)


def test_a_new_coordinator_counts_what_is_kept_and_removes_the_rest_once_one_has_completed() -> None:
    job = Job()
    kept, left = shared(1), shared(2)
    job.start(completed(3, kept, shared(3)), shared=(kept.path, left.path, shared(3).path))
    commands = job.complete(kept, shared(4))
    assert do.DiscardShared((left.path,)) in commands or any(
        isinstance(one, do.DiscardShared) and left.path in one.paths for one in commands
    )
    for command in commands:
        paths = command.paths if isinstance(command, do.DiscardShared) else ()
        assert kept.path not in paths
    assert do.DiscardCheckpoint(CheckpointId(3), ()) in commands


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 5), max_size=3)), min_size=1, max_size=12),
    st.integers(1, 3),
)
def test_every_checkpoint_that_is_kept_has_its_files_whenever_a_new_coordinator_starts(
    steps: list[tuple[bool, set[int]]], retained: int
) -> None:
    """Each checkpoint writes one file and reuses some of the one before; the registry is made of what is kept."""
    job, there = Job(retained=retained), dict[str, None]()
    job.start()
    for restarted, reused in steps:
        kept = job.machine.completed
        if restarted:
            job = Job(retained=retained)
            job.start(*kept, shared=tuple(there))
        names = [handle for part in kept[-1].snapshots for handle in part.handles()] if kept else []
        own = shared(max((one.checkpoint for one in kept), default=0) + 1)
        there[own.path] = None
        for command in job.complete(
            *(names[number] for number in sorted(reused) if number < len(names)), own
        ):
            for path in deleted_by(command, there):
                del there[path]
        needed = {
            handle.path: None
            for one in job.machine.completed
            for part in one.snapshots
            for handle in part.handles()
        }
        assert sorted(there) == sorted(needed), "what is kept has its files, and there are no others"


def deleted_by(command: do.CoordinatorCommand, there: Iterable[str]) -> list[str]:
    """Return the shared files that storage deletes for a command."""
    match command:
        case do.DiscardCheckpoint(checkpoint=checkpoint, kept=kept):
            return [path for path in there if f"/chk-{checkpoint}/" in path and path not in kept]
        case do.DiscardShared(paths=paths):
            return [path for path in paths if path in there]
    return []


def test_storage_keeps_what_it_is_told_to_keep_and_lists_what_is_there() -> None:
    storage = FileCheckpointStorage(MemoryFileSystem(), "job")
    place = CheckpointId(1), AttemptNumber(1), COUNT, "o"
    first, second = (storage.shared_writer(*place).write(name, [b"1"], GROUPS) for name in ("a", "b"))
    assert (first.shared, storage.writer(*place).write("c", [b"1"], GROUPS).shared) == (1, 0)
    assert storage.shared_files() == (first.path, second.path)
    assert storage.completed() == () and storage.incomplete() == (1,)
    storage.discard_checkpoint(CheckpointId(1), (second.path,))
    assert storage.shared_files() == (second.path,)
    assert storage.read(second) == b"1"
    storage.discard_shared([second.path, second.path])
    assert storage.files() == []
    storage.shared_writer(*place).write("a", [b"1"], GROUPS)
    storage.discard_checkpoint(CheckpointId(1))
    assert storage.files() == []
