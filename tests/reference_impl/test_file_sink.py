"""The transactional file sink: each record is visible exactly once, whatever fails and whenever it fails."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext
from barrier_tck.reference_impl.operators.sinks import FileSink, TransactionalFileSink
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError, StorageError
from barrier_tck.reference_impl.state.backend import SnapshotFuture
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.storage.filesystem import FileSystem, OutputStream
from tests.reference_impl.storage_fakes import FailingFileSystem, MemoryFileSystem
from tests.waiting import PATIENCE_S


class FakeEncoder:
    """Writes a footer at the end, so that a file without ``finish`` can be recognised as cut off."""

    def __init__(self, stream: OutputStream) -> None:
        self._stream = stream

    def write(self, payload: list[int]) -> None:
        self._stream.write("".join(f"{record}\n" for record in payload).encode())

    def finish(self) -> None:
        self._stream.write(b"end\n")


class FakePlane:
    """The part of a data plane that a sink uses."""

    name = "fake"
    file_suffix = ".txt"

    def length(self, payload: list[int]) -> int:
        return len(payload)

    def encoder(self, stream: OutputStream) -> FakeEncoder:
        return FakeEncoder(stream)


PLANE = cast("DataPlane", FakePlane())


def context(files: FileSystem, attempt: int = 1, index: int = 0, vertex: str = "count") -> OperatorContext:
    nothing = cast("Any", None)
    return OperatorContext(
        job="job",
        subtask=SubtaskId(vertex, index),
        parallelism=2,
        attempt=AttemptNumber(attempt),
        key_groups=KeyGroupRange(0, 4),
        max_parallelism=8,
        state_backend=HeapStateBackend(),
        reader=nothing,
        writers=nothing,
        output_files=files,
    )


def opened(
    files: FileSystem,
    attempt: int = 1,
    restored: OperatorSnapshot | None = None,
    *,
    index: int = 0,
    vertex: str = "count",
    buffer_records: int = 1,
) -> TransactionalFileSink:
    sink = FileSink("out", buffer_records=buffer_records).build(PLANE)
    sink.open(context(files, attempt, index, vertex), restored)
    return sink


def visible(files: FileSystem) -> list[int]:
    """Return the records that a reader sees: those of complete files whose names do not begin with ``_``."""
    records: list[int] = []
    for path in files.list_files("out"):
        if not path.startswith("out/_"):
            *lines, end = files.read(path).decode().splitlines()
            assert end == "end", f"{path} is cut off"
            records.extend(int(line) for line in lines)
    return records


def pending(files: FileSystem) -> list[str]:
    return files.list_files("out/_pending")


def take(sink: TransactionalFileSink, checkpoint: int) -> OperatorSnapshot:
    return sink.snapshot(CheckpointId(checkpoint)).run()


def completed(sink: TransactionalFileSink, checkpoint: int) -> None:
    assert sink.checkpoint_completed(CheckpointId(checkpoint)) is True


@pytest.fixture
def files() -> MemoryFileSystem:
    return MemoryFileSystem()


def test_output_is_visible_after_completion_and_not_before(files: MemoryFileSystem) -> None:
    sink = opened(files, buffer_records=100)
    sink.process([1, 2])
    sink.process([3])
    snapshot = take(sink, 1)
    assert visible(files) == []
    assert [file.records for file in snapshot.transactions[0].files] == [3]
    completed(sink, 1)
    assert visible(files) == [1, 2, 3]
    assert files.list_files("out") == ["out/part-count-0-chk1-a1-0.txt"]


def test_a_prepared_transaction_survives_a_crash_and_so_does_a_commit(files: MemoryFileSystem) -> None:
    sink = opened(files, buffer_records=100)
    sink.process([1, 2])
    snapshot = take(sink, 1)
    files.crash()
    restored = opened(files, 2, snapshot)
    assert visible(files) == [1, 2]
    restored.process([3])
    take(restored, 2)
    completed(restored, 2)
    files.crash()
    assert visible(files) == [1, 2, 3]


def test_restoring_again_and_again_from_the_same_checkpoint_commits_once(files: MemoryFileSystem) -> None:
    sink = opened(files)
    sink.process([1])
    snapshot = take(sink, 1)
    for attempt in range(2, 6):
        sink = opened(files, attempt, snapshot)
        sink.process([2])
        if attempt % 2:
            take(sink, attempt)
        files.crash() if attempt == 4 else sink.close()
    assert visible(files) == [1]
    opened(files, 6, snapshot)
    assert pending(files) == []


def test_a_transaction_that_is_nowhere_is_an_error_that_names_it(files: MemoryFileSystem) -> None:
    sink = opened(files)
    sink.process([1])
    snapshot = take(sink, 1)
    files.delete(pending(files)[0])
    with pytest.raises(StorageError, match=r"count-0-a1-0 of checkpoint 1 is lost.*_pending/.*part-count"):
        completed(sink, 1)
    with pytest.raises(StorageError, match="is lost"):
        opened(files, 2, snapshot)


@pytest.mark.parametrize("place", ["out/_pending/count-0-a1-0.txt", "out/part-count-0-chk1-a1-0.txt"])
def test_a_transaction_with_another_size_is_not_taken_for_committed(
    files: MemoryFileSystem, place: str
) -> None:
    sink = opened(files)
    sink.process([1])
    snapshot = take(sink, 1)
    files.rename("out/_pending/count-0-a1-0.txt", place)
    files.damage(place, b"cut")
    with pytest.raises((CorruptStateError, StorageError), match="count-0-a1-0"):
        opened(files, 2, snapshot)
    assert files.read(place) == b"cut"


def test_notifications_may_be_lost_and_late(files: MemoryFileSystem) -> None:
    sink = opened(files)
    for checkpoint in (1, 2, 3):
        sink.process([checkpoint])
        take(sink, checkpoint)
    completed(sink, 2)
    assert visible(files) == [1, 2]
    assert [transaction.checkpoint for transaction in sink.prepared] == [3]
    completed(sink, 1)
    assert visible(files) == [1, 2]
    completed(sink, 3)
    assert visible(files) == [1, 2, 3]


def test_output_of_an_aborted_checkpoint_is_committed_with_the_next(files: MemoryFileSystem) -> None:
    sink = opened(files)
    sink.process([1])
    take(sink, 1)
    sink.checkpoint_aborted(CheckpointId(1))
    assert visible(files) == []
    sink.process([2])
    snapshot = take(sink, 2)
    assert [transaction.checkpoint for transaction in snapshot.transactions] == [1, 2]
    completed(sink, 2)
    assert visible(files) == [1, 2]


def test_a_snapshot_prepares_in_its_asynchronous_part_what_the_barrier_ended(files: MemoryFileSystem) -> None:
    sink = opened(files)
    sink.process([1])
    future = sink.snapshot(CheckpointId(1))
    assert not future.done and sink.prepared == ()
    sink.process([2])
    assert [one.checkpoint for one in future.run().transactions] == [1]
    completed(sink, 1)
    assert visible(files) == [1]


def test_a_snapshot_prepares_what_earlier_ones_did_not_and_these_list_nothing_of_it(
    files: MemoryFileSystem,
) -> None:
    sink = opened(files)
    futures = []
    for checkpoint in (1, 2, 3):
        sink.process([checkpoint])
        futures.append(sink.snapshot(CheckpointId(checkpoint)))
    futures[0].cancel()
    assert [one.checkpoint for one in futures[2].run().transactions] == [1, 2, 3]
    assert [one.checkpoint for one in futures[1].run().transactions] == [1, 2]
    completed(sink, 2)
    assert visible(files) == [1, 2]
    assert [one.checkpoint for one in take(sink, 4).transactions] == [3]


def test_what_could_not_be_prepared_is_covered_by_no_later_checkpoint() -> None:
    inner = MemoryFileSystem()
    sink = opened(FailingFileSystem(inner, fail_at=4))
    sink.process([1])
    future = sink.snapshot(CheckpointId(1))
    with pytest.raises(StorageError, match="injected"):
        future.run()
    for again in (lambda: sink.process([2]), lambda: take(sink, 2)):
        with pytest.raises(StorageError, match="restart from the last completed checkpoint"):
            again()
    sink.close()
    assert inner.list_files("out") == []


def test_close_abandons_what_was_ended_and_not_prepared(files: MemoryFileSystem) -> None:
    sink = opened(files)
    sink.process([1])
    future = sink.snapshot(CheckpointId(1))
    sink.process([2])
    future.cancel()
    sink.close()
    assert pending(files) == []


class _InNoHurry(TransactionalFileSink):
    """Waits in the middle of preparing until it is told to go on."""

    def __init__(self, spec: FileSink, plane: Any) -> None:
        super().__init__(spec, plane)
        self.stands, self.goes_on = threading.Event(), threading.Event()

    def _pre_commit(self, checkpoint: CheckpointId, ended: Any) -> Any:
        self.stands.set()
        assert self.goes_on.wait(PATIENCE_S)
        return super()._pre_commit(checkpoint, ended)


def test_a_subtask_goes_on_and_may_end_while_another_thread_prepares(files: MemoryFileSystem) -> None:
    sink = _InNoHurry(FileSink("out", buffer_records=1), PLANE)
    sink.open(context(files, 1), None)
    sink.process([1])
    with ThreadPoolExecutor(1) as thread:
        prepared = thread.submit(sink.snapshot(CheckpointId(1)).run)
        assert sink.stands.wait(PATIENCE_S)
        sink.process([2])
        late = sink.snapshot(CheckpointId(2))
        sink.process([3])
        completed(sink, 0)
        sink.close()
        sink.goes_on.set()
        assert [one.checkpoint for one in prepared.result(PATIENCE_S).transactions] == [1]
    with pytest.raises(StorageError, match="closed before its output was prepared"):
        late.run()
    assert pending(files) == ["out/_pending/count-0-a1-0.txt"], "what is in a snapshot stays"


def test_a_file_that_could_not_be_prepared_is_closed_though_the_sink_was_closed_before() -> None:
    inner = MemoryFileSystem()
    sink = _InNoHurry(FileSink("out", buffer_records=1), PLANE)
    sink.open(context(FailingFileSystem(inner, fail_at=4), 1), None)
    sink.process([1])
    with ThreadPoolExecutor(1) as thread:
        prepared = thread.submit(sink.snapshot(CheckpointId(1)).run)
        assert sink.stands.wait(PATIENCE_S)
        (one,) = sink._ended
        sink.close()
        sink.goes_on.set()
        with pytest.raises(StorageError, match="injected"):
            prepared.result(PATIENCE_S)
    assert one.open.stream.closed


def test_without_checkpoints_the_output_of_a_savepoint_that_was_given_up_is_committed_too(
    files: MemoryFileSystem,
) -> None:
    sink = opened(files)
    sink.process([1])
    sink.snapshot(CheckpointId(7)).cancel()
    sink.process([2])
    sink.end_of_input()
    sink.commit_without_checkpoints()
    assert sorted(visible(files)) == [1, 2]


def test_an_interval_without_records_makes_no_file(files: MemoryFileSystem) -> None:
    sink = opened(files)
    sink.process([])
    assert take(sink, 1).transactions == ()
    completed(sink, 1)
    assert files.list_files("out") == []


def test_close_leaves_what_is_prepared_and_nothing_else(files: MemoryFileSystem) -> None:
    sink = opened(files)
    sink.process([1])
    take(sink, 1)
    sink.process([2])
    assert len(pending(files)) == 2
    sink.close()
    sink.close()
    assert pending(files) == ["out/_pending/count-0-a1-0.txt"]


def test_leftovers_of_older_attempts_of_this_subtask_alone_are_removed(files: MemoryFileSystem) -> None:
    others = [(1, 1, "count"), (3, 0, "count"), (1, 0, "count-0-a1"), (1, 0, "other")]
    for attempt, index, vertex in [*others, (1, 0, "count")]:
        opened(files, attempt, index=index, vertex=vertex).process([1])
    assert len(pending(files)) == 5
    opened(files, 2)
    assert len(pending(files)) == 4
    assert "out/_pending/count-0-a1-0.txt" not in pending(files)


def test_a_late_older_attempt_takes_nothing_from_its_successor(files: MemoryFileSystem) -> None:
    new = opened(files, 2)
    new.process([1])
    snapshot = take(new, 1)
    opened(files, 1)
    opened(files, 3, snapshot)
    assert visible(files) == [1]


def test_a_failed_write_is_never_covered_by_a_later_checkpoint() -> None:
    inner = MemoryFileSystem()
    # Operation 1 lists the leftovers, 2 creates the file, 3 writes.
    sink = opened(FailingFileSystem(inner, fail_at=3))
    with pytest.raises(StorageError, match="injected"):
        sink.process([1])
    for again in (lambda: sink.process([2]), lambda: take(sink, 1), sink.commit_without_checkpoints):
        with pytest.raises(StorageError, match="restart from the last completed checkpoint"):
            again()
    sink.close()
    assert inner.list_files("out") == []


def test_without_checkpoints_everything_is_committed_at_the_end(files: MemoryFileSystem) -> None:
    sink = opened(files, buffer_records=2)
    for record in range(5):
        sink.process([record])
    sink.end_of_input()
    assert visible(files) == []
    sink.commit_without_checkpoints()
    sink.close()
    files.crash()
    assert visible(files) == [0, 1, 2, 3, 4]


def test_the_end_of_input_is_part_of_the_snapshot(files: MemoryFileSystem) -> None:
    sink = opened(files)
    assert not take(sink, 1).input_ended
    sink.end_of_input()
    snapshot = take(sink, 2)
    assert snapshot.input_ended
    assert take(opened(files, 2, snapshot), 3).input_ended


@dataclass
class Job:
    """A source of numbers, a sink, and a coordinator that survives everything.

    ``script`` has one character for each step: ``r`` record, ``b`` barrier, ``c`` completion of the newest checkpoint
    and its notification, ``C`` completion whose notification is lost, ``x`` crash of the host. ``B`` is a barrier
    whose snapshot has its asynchronous part later: ``a`` runs the oldest such part, ``A`` the newest, ``z`` cancels the
    oldest.
    """

    script: str
    files: MemoryFileSystem
    world: FileSystem
    crash_on_failure: bool
    attempt: int = 0
    latest: tuple[int, int, OperatorSnapshot | None] = (0, 0, None)
    events: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run the script to its end, restarting from the latest completed checkpoint, then finish cleanly."""
        steps = iter(self.script)
        total = self.script.count("r")
        checkpoint = 0
        while True:
            self.attempt += 1
            _, position, restored = self.latest
            sink = FileSink("out", buffer_records=2).build(PLANE)
            try:
                sink.open(context(self.world, self.attempt), restored)
                taken: list[tuple[int, int, OperatorSnapshot]] = []
                begun: list[tuple[int, int, SnapshotFuture[OperatorSnapshot]]] = []
                for step in steps:
                    if step == "r" and position < total:
                        sink.process([position])
                        position += 1
                    elif step == "b":
                        checkpoint += 1
                        taken.append((checkpoint, position, take(sink, checkpoint)))
                    elif step == "B":
                        checkpoint += 1
                        begun.append((checkpoint, position, sink.snapshot(CheckpointId(checkpoint))))
                    elif step in "aA" and begun:
                        number, at, future = begun.pop(0 if step == "a" else -1)
                        taken.append((number, at, future.run()))
                    elif step == "z" and begun:
                        begun.pop(0)[2].cancel()
                    elif step in "cC" and taken:
                        self.latest = max(taken, key=itemgetter(0))
                        # Older ones are subsumed: no restore goes back behind the newest one.
                        taken = []
                        begun = [one for one in begun if one[0] > self.latest[0]]
                        if step == "c":
                            completed(sink, self.latest[0])
                    elif step == "x":
                        raise StorageError("the host died")
                for record in range(position, total):
                    sink.process([record])
                checkpoint += 1
                self.latest = (checkpoint, total, take(sink, checkpoint))
                completed(sink, checkpoint)
                sink.close()
                return
            except StorageError as error:
                self.events.append(str(error))
                if self.attempt == 20:
                    raise AssertionError("the job restarts for ever") from error
                if self.crash_on_failure or "host died" in str(error):
                    self.files.crash()
                else:
                    sink.close()


def check_exactly_once(script: str, fail_at: int = 0, afterwards: bool = False, crash: bool = False) -> bool:
    """Run a job and check its output; return whether the planned failure happened."""
    inner = MemoryFileSystem()
    world = FailingFileSystem(inner, fail_at, afterwards)
    job = Job(script, inner, world, crash)
    job.run()
    story = json.dumps(job.events)
    assert sorted(visible(inner)) == list(range(script.count("r"))), story
    # A crash may bring back the old name of a committed file. This is harmless, because ``_pending`` is not read.
    assert pending(inner) == [], story
    inner.crash()
    assert sorted(visible(inner)) == list(range(script.count("r"))), story
    return world.failed


@pytest.mark.parametrize("afterwards", [False, True])
@pytest.mark.parametrize("crash", [False, True])
def test_output_is_exactly_once_whichever_operation_fails(afterwards: bool, crash: bool) -> None:
    script = "rrrbcrrbrCxrrbcrrrbbcxrrBrBrAcrrBrzrbcrBraxr"
    fail_at = 1
    while check_exactly_once(script, fail_at, afterwards, crash):
        fail_at += 1
    assert fail_at > 40, "the run has more operations than this"


@settings(max_examples=150, deadline=None)
@given(st.text("rrrrbBBaAzcCx", max_size=20), st.integers(0, 60), st.booleans(), st.booleans())
def test_output_is_exactly_once_in_any_order_of_events(
    script: str, fail_at: int, afterwards: bool, crash: bool
) -> None:
    check_exactly_once(script, fail_at, afterwards, crash)


class _WithoutFlush(TransactionalFileSink):
    """SI-04: forgets its buffer at the barrier."""

    def snapshot(self, checkpoint: CheckpointId) -> Any:
        flush, self._flush_buffer = self._flush_buffer, lambda: None  # type: ignore[method-assign]
        try:
            return super().snapshot(checkpoint)
        finally:
            self._flush_buffer = flush  # type: ignore[method-assign]


class _NotIdempotent(TransactionalFileSink):
    """SI-02: treats a transaction that is already committed as an error."""

    def _is_committed(self, file: Any) -> bool:
        return False


class _Swallowing(TransactionalFileSink):
    """SI-02, second form: treats every error of a recovery as 'already committed'."""

    def _recover_and_commit(self, transactions: Any) -> None:
        try:
            super()._recover_and_commit(transactions)
        except StorageError:
            return


class _GoesOnWithTheFile(TransactionalFileSink):
    """Records behind the barrier belong to the transaction that it ended."""

    def _end_transaction(self, checkpoint: CheckpointId) -> None:
        current = self._current
        super()._end_transaction(checkpoint)
        self._current = current


class _ForgetsWhatWasCancelled(TransactionalFileSink):
    """What was ended for a snapshot that was cancelled is in no later one."""

    def _next_to_prepare(self, checkpoint: CheckpointId | None) -> Any:
        self._ended = [one for one in self._ended if checkpoint is None or one.checkpoint >= checkpoint]
        return super()._next_to_prepare(checkpoint)


@pytest.mark.parametrize(
    "variant", [_WithoutFlush, _NotIdempotent, _Swallowing, _GoesOnWithTheFile, _ForgetsWhatWasCancelled]
)
def test_these_checks_notice_a_planted_bug(variant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSink, "build", lambda spec, plane: variant(spec, plane))
    with pytest.raises(AssertionError):
        _try_every_failure()


def _try_every_failure() -> None:
    for fail_at in range(1, 60):
        for afterwards in (False, True):
            check_exactly_once("rrrbcrrbrCxrrbcrrrbbCxrxrrBrrBrAcxrrBrzrrbcxrr", fail_at, afterwards)


@pytest.mark.parametrize("path", ["", "/", "/out", "out/"])
def test_a_path_that_is_no_relative_directory_is_refused(path: str) -> None:
    with pytest.raises(JobUsageError, match="relative directory"):
        FileSink(path)


def test_a_buffer_of_no_records_is_refused() -> None:
    with pytest.raises(JobUsageError, match="not 0"):
        FileSink("out", buffer_records=0)


def test_a_sink_that_was_replaced_abandons_what_no_restore_will_ever_commit(files: MemoryFileSystem) -> None:
    sink = opened(files)
    for checkpoint in (1, 2):
        sink.process([checkpoint])
        take(sink, checkpoint)
    assert len(pending(files)) == 2
    sink.abandon_prepared(lambda transaction: transaction.checkpoint <= 1)
    assert pending(files) == ["out/_pending/count-0-a1-0.txt"]
    assert [transaction.checkpoint for transaction in sink.prepared] == [1]
