"""What is done to a checkpoint storage by processes that are killed, and what must be there afterwards.

Each check has the name of its property, with underscores. It raises ``Broken`` with the clause that is broken.
"""

from __future__ import annotations

from msgspec.structs import replace

from barrier_tck.harness.certify.storage.candidate import killed_process
from barrier_tck.harness.certify.storage.candidate.bench import (
    ATTEMPT,
    COMPLETE,
    COUNTERS,
    DELETED,
    FILES,
    Broken,
    StorageBench,
    complete,
    completed_of,
    content_of,
    handles_of,
    write,
)
from barrier_tck.harness.certify.storage.candidate.observations import read_whole, require_whole
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.runtime_errors import StorageError


def what_was_written_survives_a_kill(bench: StorageBench) -> None:
    """Kill a process after it has written and reserved; write the same elsewhere to know the handle."""
    bench.run_until_killed(killed_process.write_and_reserve.__name__)
    storage = bench.open()
    content = content_of(killed_process.WRITTEN_BYTES)
    handle = write(bench.open("twin"), 3, content)
    lost = replace(handle, path=handle.path.replace("twin/", "job/", 1))
    bench.require(
        COUNTERS, storage.reserved() == (3, 2), f"(3, 2) were reserved, found are {storage.reserved()}"
    )
    read = read_whole(storage, lost, FILES, "a file whose process was killed after it had the handle")
    bench.require(FILES, read == content, "a file whose process was killed has another content")


def what_was_published_survives_a_kill(bench: StorageBench) -> None:
    """Kill a process after it has published."""
    bench.run_until_killed(killed_process.publish.__name__)
    twin = complete(bench.open("twin"), 3)
    found = bench.open().completed()
    bench.require(
        COMPLETE, found == (3,), f"3 was published before its process was killed; listed are {found}"
    )
    loaded = bench.open().load(CheckpointId(3))
    same = loaded.snapshots[0] == twin.snapshots[0] and len(handles_of(loaded)) == len(handles_of(twin))
    bench.require(COMPLETE, same, "what was published before a kill is loaded as something else")
    for handle in handles_of(loaded):
        read_whole(bench.open(), handle, COMPLETE, "a file of a checkpoint whose process was killed")


def killed_in_the_middle_of_a_write(bench: StorageBench) -> None:
    """Kill a process between two chunks of a file."""
    storage = bench.open()
    kept = complete(storage, 1)
    before = storage.files()
    bench.run_until_killed(killed_process.write_half.__name__)
    found = (bench.open().completed(), bench.open().incomplete())
    bench.require(COMPLETE, found == ((1,), (4,)), f"4 was being written, 1 is complete; listed are {found}")
    bench.open().discard_checkpoint(CheckpointId(4))
    left = [path for path in bench.open().files() if path not in before]
    bench.require(DELETED, not left, f"a process that was killed while it wrote left {left}")
    _killed_while_writing_a_shared_file(bench)
    _killed_while_writing_a_savepoint(bench)
    require_whole(bench, kept, DELETED, "after others were discarded")


def _killed_while_writing_a_shared_file(bench: StorageBench) -> None:
    """What was whole before is needed by another checkpoint."""
    storage = bench.open()
    before = storage.files()
    bench.run_until_killed(killed_process.write_half_shared.__name__)
    handle = killed_process.write_base(bench.open("twin"))
    base = replace(handle, path=handle.path.replace("twin/", "job/", 1))
    with_half = bench.open().files()
    storage = bench.open()
    storage.reserve(CheckpointId(6), ATTEMPT)
    user = completed_of(6, [write(storage, 6), base])
    storage.publish(user)
    of_user = [path for path in storage.files() if path not in with_half]
    bench.open().discard_checkpoint(CheckpointId(5), (base.path,))
    left = [path for path in bench.open().files() if path not in before and path not in of_user]
    message = f"a process that was killed while it wrote a shared file left {left}, and {base.path} is needed"
    bench.require(DELETED, len(left) == 1, message)
    require_whole(bench, user, DELETED, "after the checkpoint was discarded whose shared file it needs")
    bench.open().discard_checkpoint(CheckpointId(6))
    bench.open().discard_shared([base.path])
    left = [path for path in bench.open().files() if path not in before]
    bench.require(DELETED, not left, f"a process that was killed while it wrote a shared file left {left}")


def _killed_while_writing_a_savepoint(bench: StorageBench) -> None:
    directory = "savepoints/half"
    before = bench.open().files()
    bench.run_until_killed(killed_process.write_half_savepoint.__name__, directory)
    bench.refused(
        COMPLETE, StorageError, lambda: bench.open().load_savepoint(directory), "to load half a savepoint"
    )
    bench.open().discard_checkpoint(CheckpointId(7))
    left = [path for path in bench.open().files() if path not in before]
    bench.require(DELETED, not left, f"a process that was killed while it wrote a savepoint left {left}")
    free = bench.open().is_free(directory)
    bench.require(DELETED, free, f"a process that was killed while it wrote a savepoint left {directory}")


def killed_while_publishing(bench: StorageBench) -> None:
    """Kill processes at several moments."""
    for number, after_s in enumerate((0.0, 0.005, 0.03, 0.1)):
        first = 10 * number + 1
        bench.run_until_killed(killed_process.publish_many.__name__, str(first), after_s=after_s)
        reader = bench.open()
        found = sorted([*reader.completed(), *reader.incomplete()])
        begun = [*range(first, first + killed_process.PUBLISHED)]
        message = f"{begun} were begun before the process was killed; listed are {found}"
        bench.require(COMPLETE, [each for each in found if each >= first] == begun, message)
        for checkpoint in reader.completed():
            try:
                loaded = reader.load(checkpoint)
            except StorageError as error:
                raise Broken(COMPLETE, f"{checkpoint} is complete, but cannot be loaded: {error}") from error
            for handle in handles_of(loaded):
                read_whole(reader, handle, COMPLETE, f"a file of {checkpoint}, which is complete")
        for checkpoint in reader.incomplete():
            reader.discard_checkpoint(checkpoint)


def killed_while_discarding(bench: StorageBench) -> None:
    """Kill processes at several moments."""
    before = bench.open().files()
    for number, after_s in enumerate((0.0, 0.001, 0.003, 0.01)):
        storage = bench.open()
        completed = complete(storage, number + 1, killed_process.MANY_FILES)
        bench.run_until_killed(killed_process.discard.__name__, str(number + 1), after_s=after_s)
        if bench.open().completed():
            require_whole(bench, completed, DELETED, "after a process was killed that discarded it")
        bench.open().discard_checkpoint(CheckpointId(number + 1))
        left = [path for path in bench.open().files() if f"chk-{number + 1}/" in path and path not in before]
        bench.require(DELETED, not left, f"a checkpoint that was discarded twice left {left}")
