"""What is done to a checkpoint storage, in the candidate's process, to find out whether it has its properties.

Each check has the name of its property, with underscores. It raises ``Broken`` with the clause that is broken.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from barrier_tck.harness.certify.storage.candidate import killed_process
from barrier_tck.harness.certify.storage.candidate.bench import (
    ATTEMPT,
    COMPLETE,
    COUNT,
    COUNTERS,
    DELETED,
    FAILS,
    FILES,
    GROUPS,
    ONCE,
    SAVEPOINTS,
    Broken,
    StorageBench,
    checksum,
    chunked,
    complete,
    completed_of,
    content_of,
    handles_of,
    write,
)
from barrier_tck.harness.certify.storage.candidate.churn import constant_data_never_fills_it
from barrier_tck.harness.certify.storage.candidate.drawn_jobs import what_is_needed_stays_and_nothing_else
from barrier_tck.harness.certify.storage.candidate.failed_requests import (
    a_failed_request_leaves_all_with_the_same,
)
from barrier_tck.harness.certify.storage.candidate.kills import (
    killed_in_the_middle_of_a_write,
    killed_while_discarding,
    killed_while_publishing,
    what_was_published_survives_a_kill,
    what_was_written_survives_a_kill,
)
from barrier_tck.harness.certify.storage.candidate.observations import (
    SHORT_BYTES,
    is_there,
    look_while,
    read_whole,
    require_savepoint,
    require_whole,
    short_files,
)
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import Savepoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError, StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

_SIZES = ((0, 1), (1, 1), (1000, 7), (100_000, 4096), (9 * 1024 * 1024, 1024 * 1024))
_POLLED_FILES = (60, 120, 240)
"""How many files are deleted while another thread looks; the next number is tried if no look came in between."""


class _Torn(Exception):
    """What the chunks of a write fail with."""


def state_files_are_read_as_written(bench: StorageBench) -> None:
    """Write files of many sizes; read them with another instance."""
    storage = bench.open()
    storage.reserve(CheckpointId(1), ATTEMPT)
    for size, piece in _SIZES:
        content = content_of(size)
        writer = storage.writer(CheckpointId(1), ATTEMPT, COUNT, "aggregate")
        handle = writer.write(f"state-{size}", chunked(content, piece), GROUPS)
        bench.require(FILES, handle.size == size, f"the handle of {size} bytes says {handle.size}")
        message = f"the handle of {size} bytes has the checksum {handle.checksum}, not {checksum(content)}"
        bench.require(FILES, handle.checksum == checksum(content), message)
        bench.require(
            FILES, handle.key_groups == GROUPS, f"the handle names {handle.key_groups}, not {GROUPS}"
        )
        read = read_whole(bench.open(), handle, FILES, f"a file of {size} bytes, right after it was written,")
        bench.require(FILES, read == content, f"a file of {size} bytes is read with {len(read)}, or others")


def another_content_is_refused(bench: StorageBench) -> None:
    """Read with handles that say something else."""
    storage = bench.open()
    storage.reserve(CheckpointId(1), ATTEMPT)
    handle = write(storage, 1, content_of(1000))
    for changed, what in (
        (replace(handle, size=999), "a file that has a byte more than its handle says"),
        (replace(handle, checksum=checksum(b"other")), "a file with another checksum than its handle says"),
    ):
        bench.refused(FILES, CorruptStateError, partial(storage.read, changed), what)
    storage.discard([handle])
    bench.refused(FILES, StorageError, partial(storage.read, handle), "to read a file that is gone")


def a_failed_write_leaves_nothing(bench: StorageBench) -> None:
    """Let the chunks of a write fail, sooner or later."""
    storage = bench.open()
    storage.reserve(CheckpointId(1), ATTEMPT)
    write(storage, 1)
    before = storage.files()
    for good in (0, 1, 1000, killed_process.LONG_BYTES):

        def chunks(good: int = good) -> Iterator[bytes]:
            yield content_of(good)
            raise _Torn

        writer = storage.writer(CheckpointId(1), ATTEMPT, COUNT, "aggregate")
        bench.refused(
            FAILS,
            _Torn,
            partial(writer.write, f"torn-{good}", chunks(), GROUPS),
            f"a write whose chunks failed after {good} bytes",
        )
        left = [path for path in storage.files() if path not in before]
        bench.require(FAILS, not left, f"a write that failed after {good} bytes left {left}")
    read_whole(
        storage, write(storage, 1, name="afterwards"), FAILS, "a file that was written after a failure"
    )


def a_full_disk_fails_the_write(bench: StorageBench) -> None:
    """Let local files be no longer than some bytes; storage that writes none of them may succeed."""
    storage = bench.open()
    storage.reserve(CheckpointId(1), ATTEMPT)
    write(storage, 1)
    before = storage.files()
    content, handle = content_of(SHORT_BYTES * 4), None
    with short_files():
        try:
            handle = write(storage, 1, content, "long")
        except StorageError:
            bench.shown[FAILS] = bench.shown.get(FAILS, 0) + 1
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise Broken(
                FAILS, f"a write to a full disk raises {error!r}, which is no StorageError"
            ) from error
    if handle is not None:
        read = read_whole(bench.open(), handle, FAILS, "a file that was written to a full disk")
        bench.require(FAILS, read == content, "a write to a full disk gave a handle for something else")
        return
    left = [path for path in storage.files() if path not in before]
    bench.require(FAILS, not left, f"a write to a full disk left {left}")


def files_do_not_meet(bench: StorageBench) -> None:
    """Write files whose names a careless encoding takes for the same."""
    names = [
        (job, checkpoint, attempt, subtask, operator, name)
        for job in ("job", "job-1", "job/1")
        for checkpoint, attempt in ((1, 1), (1, 11), (11, 1))
        for subtask in (SubtaskId("v", 1), SubtaskId("v-1", 1), SubtaskId("v", 11))
        for operator, name in (("a", "b-c"), ("a-b", "c"), ("a/b", "c"), ("", "a-b-c"), (".", ".."))
    ]
    handles = []
    storages = {job: bench.open(job) for job in dict.fromkeys(name[0] for name in names)}
    for number, (job, checkpoint, attempt, subtask, operator, name) in enumerate(names):
        storage = storages[job]
        storage.reserve(CheckpointId(checkpoint), AttemptNumber(attempt))
        writer = storage.writer(CheckpointId(checkpoint), AttemptNumber(attempt), subtask, operator)
        handles.append(writer.write(name, [content_of(50, number)], GROUPS))
        again = partial(writer.write, name, [b"again"], GROUPS)
        if number % 10 == 0:
            bench.refused(ONCE, JobUsageError, again, f"to write {name!r} twice with one writer")
    readers = {job: bench.open(job) for job in storages}
    for number, (handle, (job, *rest)) in enumerate(zip(handles, names, strict=True)):
        read = read_whole(readers[job], handle, ONCE, f"the file of {rest} of the job {job!r}")
        same = read == content_of(50, number)
        bench.require(ONCE, same, f"the file of {rest} of the job {job!r} has another one's content")


def an_id_is_published_once(bench: StorageBench) -> None:
    """Publish the same id again."""
    storage = bench.open()
    first = complete(storage, 1)
    for instance in (storage, bench.open()):
        other = completed_of(1, [write(instance, 1, b"other", name="other")], splits=3)
        bench.refused(
            ONCE,
            (JobUsageError, StorageError),
            partial(instance.publish, other),
            "to publish checkpoint 1 twice",
        )
        require_whole(bench, first, ONCE, "after it was published twice")


def complete_means_published(bench: StorageBench) -> None:
    """Compare what is listed with what was published."""
    storage = bench.open()
    empty = (storage.completed(), storage.incomplete())
    bench.require(COMPLETE, empty == ((), ()), f"a new job has the checkpoints {empty}")
    for checkpoint in (2, 9, 10):
        storage.reserve(CheckpointId(checkpoint), ATTEMPT)
        handle = write(storage, checkpoint)
        found = (bench.open().completed(), bench.open().incomplete())
        known = (2, 9)[: (2, 9, 10).index(checkpoint)]
        wrong = f"while {checkpoint} is written, {found[0]} are listed as complete and {found[1]} are not"
        bench.require(COMPLETE, found == (known, (checkpoint,)), wrong)
        unpublished = partial(bench.open().load, CheckpointId(checkpoint))
        bench.refused(COMPLETE, StorageError, unpublished, f"to load {checkpoint}, which was not published,")
        completed = completed_of(checkpoint, [handle])
        storage.publish(completed)
        require_whole(bench, completed, COMPLETE, "right after it was published")
    found = (bench.open().completed(), bench.open().incomplete())
    bench.require(COMPLETE, found == ((2, 9, 10), ()), f"2, 9 and 10 were published; listed are {found}")


def readers_see_all_or_nothing(bench: StorageBench) -> None:
    """Look while checkpoints with much metadata are published."""
    storage, reader = bench.open(), bench.open()
    storage.reserve(CheckpointId(20), ATTEMPT)
    checkpoints = [completed_of(each, [write(storage, each)], 5000) for each in range(1, 6)]

    def look() -> None:
        for checkpoint in reader.completed():
            require_whole(bench, checkpoints[checkpoint - 1], COMPLETE, "while others are published", reader)

    def publish() -> None:
        for completed in checkpoints:
            storage.publish(completed)

    look_while(publish, look)
    look()
    bench.require(
        COMPLETE, len(reader.completed()) == len(checkpoints), "not all that was published is listed"
    )


def counters_never_fall(bench: StorageBench) -> None:
    """Reserve more, and less, with several instances one after the other."""
    storage = bench.open()
    found: tuple[int, int] = storage.reserved()
    bench.require(COUNTERS, found == (0, 0), f"a new job has reserved {found}")
    highest = (0, 0)
    for given in ((4, 2), (3, 2), (4, 1), (5, 3), (1, 1), (5, 4), (70_000, 4)):
        storage.reserve(CheckpointId(given[0]), AttemptNumber(given[1]))
        highest = (max(highest[0], given[0]), max(highest[1], given[1]))
        for instance in (storage, bench.open()):
            found = instance.reserved()
            bench.require(COUNTERS, found == highest, f"{highest} were reserved, and {found} are found")
        storage = bench.open()
    other: tuple[int, int] = bench.open("another").reserved()
    bench.require(COUNTERS, other == (0, 0), f"a job finds {other}, which another one has reserved")


def a_discarded_checkpoint_is_gone(bench: StorageBench) -> None:
    """Discard complete and incomplete checkpoints among others."""
    storage = bench.open()
    storage.reserve(CheckpointId(12), ATTEMPT)
    before = storage.files()
    kept = complete(storage, 11)
    with_kept = storage.files()
    complete(storage, 1, files=3)
    write(storage, 2)
    for checkpoint in (1, 2, 1, 3):
        bench.open().discard_checkpoint(CheckpointId(checkpoint))
        require_whole(bench, kept, DELETED, f"after {checkpoint} was discarded")
    found = (bench.open().completed(), bench.open().incomplete())
    bench.require(DELETED, found == ((11,), ()), f"1 and 2 were discarded, 11 was kept; listed are {found}")
    left = [path for path in bench.open().files() if path not in with_kept]
    bench.require(DELETED, not left, f"discarded checkpoints left {left}")
    storage.discard_checkpoint(CheckpointId(11))
    left = [path for path in bench.open().files() if path not in before]
    bench.require(DELETED, not left, f"discarded checkpoints left {left}")
    bench.require(COUNTERS, bench.open().reserved() == (12, 1), "what was reserved went with a checkpoint")


def metadata_goes_first(bench: StorageBench) -> None:
    """Look while a checkpoint with many files is discarded, and then a savepoint that the job has claimed."""
    storage, reader = bench.open(), bench.open()
    for checkpoint, files in enumerate(_POLLED_FILES, start=1):
        handles = handles_of(complete(storage, checkpoint, files=files))
        gone_first = _GoneFirst(
            reader, handles, lambda: bool(reader.completed()), f"checkpoint {checkpoint} is complete"
        )
        look_while(partial(storage.discard_checkpoint, CheckpointId(checkpoint)), gone_first.look)
        bench.require(DELETED, reader.completed() == (), "a discarded checkpoint is listed as complete")
        if gone_first.fell_between:
            break
    for number, files in enumerate(_POLLED_FILES):
        if _metadata_of_a_claimed_savepoint_goes_first(bench, f"-{number}" if number else "", files):
            break


class _GoneFirst:
    """Looks at some files while they are deleted, and then whether what they belong to is still complete."""

    def __init__(
        self,
        reader: CheckpointStorage,
        handles: Sequence[StateHandle],
        complete: Callable[[], bool],
        what: str,
    ) -> None:
        self._reader, self._complete, self._what = reader, complete, what
        self._looked = (handles[0], handles[len(handles) // 2], handles[-1])
        self.fell_between = False
        """Whether it was asked for between the deletions of these files."""

    def look(self) -> None:
        there = [is_there(self._reader, handle) for handle in self._looked]
        if all(there):
            return
        # Asked after the files: metadata that goes first is gone by now.
        if self._complete():
            gone = self._looked[there.index(False)].path
            raise Broken(DELETED, f"{self._what} while {gone} of it is deleted already")
        self.fell_between |= any(is_there(self._reader, handle) for handle in self._looked)


def _metadata_of_a_claimed_savepoint_goes_first(bench: StorageBench, name: str, files: int) -> bool:
    """Return whether a look came between the deletions."""
    directory = f"savepoints/claimed{name}"
    origin = bench.open(f"origin{name}")
    origin.reserve(CheckpointId(8), ATTEMPT)
    origin.begin_savepoint(CheckpointId(8), directory)
    handles = [
        write(origin, 8, content_of(10, number), f"f{number}", savepoint=directory) for number in range(files)
    ]
    origin.publish(completed_of(8, handles, savepoint=Savepoint(directory)))
    storage, reader = bench.open(f"claims{name}"), bench.open(f"another{name}")
    storage.start_from(storage.load_savepoint(directory), claim=True)

    def is_complete() -> bool:
        try:
            reader.load_savepoint(directory)
        except StorageError:
            return False
        return True

    gone_first = _GoneFirst(reader, handles, is_complete, f"{directory} is complete")
    look_while(lambda: storage.discard_checkpoint(CheckpointId(8)), gone_first.look)
    bench.require(DELETED, reader.is_free(directory), "a claimed savepoint that was discarded has left files")
    return gone_first.fell_between


def files_are_deleted_one_by_one(bench: StorageBench) -> None:
    """Discard files."""
    storage = bench.open()
    storage.reserve(CheckpointId(3), ATTEMPT)
    handles = [write(storage, 1, content_of(10, number), f"f{number}") for number in range(3)]
    storage.discard([handles[0], handles[2]])
    storage.discard([handles[0]])
    there = [is_there(bench.open(), handle) for handle in handles]
    bench.require(DELETED, there == [False, True, False], f"files 0 and 2 were discarded; there are {there}")
    other = bench.open("another")
    other.reserve(CheckpointId(1), ATTEMPT)
    foreign = write(other, 1)
    with contextlib.suppress(JobUsageError, StorageError):
        storage.discard([foreign])
    bench.require(DELETED, is_there(other, foreign), "a job deletes a state file of another one")


def shared_files_stay_while_they_are_needed(bench: StorageBench) -> None:
    """Discard a checkpoint whose shared files are needed in part."""
    storage = bench.open()
    storage.reserve(CheckpointId(12), ATTEMPT)
    before = storage.files()
    writer = storage.shared_writer(CheckpointId(1), ATTEMPT, COUNT, "aggregate")
    shared = [writer.write(name, [content_of(20, number)], GROUPS) for number, name in enumerate("ab")]
    storage.publish(completed_of(1, [write(storage, 1), *shared]))
    other = storage.shared_writer(CheckpointId(11), ATTEMPT, COUNT, "aggregate").write("a", [b"11"], GROUPS)
    listed = bench.open().shared_files()
    names = tuple(sorted(handle.path for handle in (*shared, other)))
    bench.require(DELETED, listed == names, f"the shared files are {names}, and {listed} are listed")
    bench.open().discard_checkpoint(CheckpointId(1), (shared[1].path,))
    there = [is_there(bench.open(), handle) for handle in (*shared, other)]
    message = f"of three shared files the first is not needed any more; there are {there}"
    bench.require(DELETED, there == [False, True, True], message)
    bench.require(DELETED, bench.open().completed() == (), "a discarded checkpoint is complete")
    for _ in range(2):
        bench.open().discard_shared([shared[1].path, other.path])
    left = [path for path in bench.open().files() if path not in before]
    bench.require(DELETED, not left, f"discarded shared files left {left}")


def a_savepoint_belongs_to_the_user(bench: StorageBench) -> None:
    """Take savepoints, and discard what the job knows of them."""
    storage = bench.open()
    storage.reserve(CheckpointId(9), ATTEMPT)
    directory = "savepoints/monday"
    bench.require(SAVEPOINTS, storage.is_free(directory), "a directory that nothing has used is not free")
    storage.begin_savepoint(CheckpointId(8), directory)
    handle = write(storage, 8, savepoint=directory)
    completed = completed_of(8, [handle], savepoint=Savepoint(directory))
    storage.publish(completed)
    bench.require(SAVEPOINTS, not bench.open().is_free(directory), "the directory of a savepoint is free")
    require_savepoint(bench, directory, SAVEPOINTS, "after it was published")
    bench.open().discard([handle])
    require_savepoint(bench, directory, SAVEPOINTS, "after its files were discarded")
    bench.open().discard_checkpoint(CheckpointId(8))
    require_savepoint(bench, directory, SAVEPOINTS, "after its checkpoint was discarded")
    bench.require(SAVEPOINTS, bench.open().completed() == (), "a discarded savepoint is still the job's")
    storage.begin_savepoint(CheckpointId(9), "savepoints/half")
    write(storage, 9, savepoint="savepoints/half")
    found = bench.open().incomplete()
    bench.require(SAVEPOINTS, found == (9,), f"savepoint 9 is not complete; listed as incomplete are {found}")
    bench.open().discard_checkpoint(CheckpointId(9))
    free = bench.open().is_free("savepoints/half")
    bench.require(SAVEPOINTS, free, "files of an incomplete savepoint are left when it is discarded")
    nothing = partial(bench.open().load_savepoint, "savepoints/half")
    bench.refused(SAVEPOINTS, StorageError, nothing, "to load a savepoint that is not there")
    _a_claimed_savepoint_takes_nothing_along(bench)


def _a_claimed_savepoint_takes_nothing_along(bench: StorageBench) -> None:
    """Put another savepoint below the directory of one that a job claims and deletes."""
    outer, inner = "savepoints/outer", "savepoints/outer/inner"
    for job, directory in (("first", outer), ("second", inner)):
        origin = bench.open(job)
        origin.reserve(CheckpointId(8), ATTEMPT)
        origin.begin_savepoint(CheckpointId(8), directory)
        handle = write(origin, 8, savepoint=directory)
        origin.publish(completed_of(8, [handle], savepoint=Savepoint(directory)))
    storage = bench.open("claims")
    storage.start_from(storage.load_savepoint(outer), claim=True)
    storage.discard_checkpoint(CheckpointId(8))
    gone = partial(bench.open().load_savepoint, outer)
    bench.refused(SAVEPOINTS, StorageError, gone, "to load a savepoint that was claimed and discarded")
    require_savepoint(
        bench, inner, SAVEPOINTS, f"below {outer}, which a job had claimed, after that was deleted"
    )


def a_start_from_a_savepoint_is_remembered(bench: StorageBench) -> None:
    """Start a job from another job's savepoint."""
    origin = bench.open()
    origin.reserve(CheckpointId(8), ATTEMPT)
    origin.begin_savepoint(CheckpointId(8), "savepoints/one")
    handle = write(origin, 8, savepoint="savepoints/one")
    origin.publish(completed_of(8, [handle], savepoint=Savepoint("savepoints/one")))
    storage = bench.open("new")
    savepoint = storage.load_savepoint("savepoints/one")
    above = storage.start_from(savepoint)
    bench.require(SAVEPOINTS, above == 8, f"checkpoints up to {above} are older than the start, not up to 8")
    found = bench.open("new").reserved()
    bench.require(SAVEPOINTS, found == (8, 1), f"after a start from (8, 1), {found} are reserved")
    storage.reserve(CheckpointId(12), ATTEMPT)
    for instance in (storage, bench.open("new")):
        again = instance.start_from(savepoint)
        bench.require(
            SAVEPOINTS, again == 8, f"the second start from a savepoint is above {again}, not above 8"
        )
        bench.require(SAVEPOINTS, instance.reserved()[0] == 12, "a second start lowers what was reserved")


CHECKS: dict[str, Callable[[StorageBench], None]] = {
    check.__name__.replace("_", "-"): check
    for check in (
        state_files_are_read_as_written,
        another_content_is_refused,
        a_failed_write_leaves_nothing,
        a_full_disk_fails_the_write,
        files_do_not_meet,
        an_id_is_published_once,
        complete_means_published,
        readers_see_all_or_nothing,
        counters_never_fall,
        a_discarded_checkpoint_is_gone,
        metadata_goes_first,
        files_are_deleted_one_by_one,
        shared_files_stay_while_they_are_needed,
        a_savepoint_belongs_to_the_user,
        a_start_from_a_savepoint_is_remembered,
        what_is_needed_stays_and_nothing_else,
        constant_data_never_fills_it,
        a_failed_request_leaves_all_with_the_same,
        what_was_written_survives_a_kill,
        what_was_published_survives_a_kill,
        killed_in_the_middle_of_a_write,
        killed_while_publishing,
        killed_while_discarding,
    )
}
"""Name of the property -> what is done."""
