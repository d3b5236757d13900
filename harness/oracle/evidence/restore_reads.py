"""Which copy really served a restore: derived from what was read, not from what the system says about itself (LOC-4).

A state file that was read in durable storage came from there. Otherwise it came from the host's disk, if a file with
exactly its bytes was read there; or, if local copies have another format, one with exactly its state (LOC-7). All
else that was read there, such as manifests or a copy that turned out to be damaged, served nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barrier_tck.harness.record.history import History, NamedFile
from barrier_tck.harness.record.operations import FileRead, ReadsObserved, Restored, ServedFrom


def reads_of(history: History, restored: Restored) -> ReadsObserved | None:
    """Return what was observed of a restore; None if it was not watched."""
    place = (restored.subtask, restored.attempt)
    found = [line.operation for line in history.of(ReadsObserved)]
    return next((reads for reads in found if (reads.subtask, reads.attempt) == place), None)


def contradictions(restored: Restored, reads: ReadsObserved, files: Sequence[NamedFile]) -> Iterator[str]:
    """Yield where a subtask's report of its restore differs from what it read; ``files`` are the checkpoint's."""
    named = {file.path: file for file in files}
    for served in restored.files:
        file = named.get(served.path)
        if file is None:
            continue  # it is not in the checkpoint, which was already reported
        came_from = _came_from(file, reads)
        if came_from is None:
            yield f"says that the {served.served_by.value} served {served.path}, but was not seen to read it anywhere"
        elif came_from is not served.served_by:
            yield (
                f"says that the {served.served_by.value} served {served.path}, but was seen to read the "
                f"{came_from.value}"
            )
    reported = [served.path for served in restored.files]
    for path in dict.fromkeys(read.path for read in reads.reads if read.place is ServedFrom.PRIMARY):
        if path not in reported:
            yield f"was seen to read {path} in durable storage, but does not report it"


def _came_from(file: NamedFile, reads: ReadsObserved) -> ServedFrom | None:
    """Return from where a file was read, None if it was not read."""
    found = [read for read in reads.reads if _same_bytes(file, read) or _same_state(file, read)]
    if any(read.place is ServedFrom.PRIMARY and read.path == file.path for read in found):
        return ServedFrom.PRIMARY
    return ServedFrom.SECONDARY if any(read.place is ServedFrom.SECONDARY for read in found) else None


def in_another_format(reads: ReadsObserved, files: Sequence[NamedFile]) -> int:
    """Return how many local files were read that hold the state of a checkpoint's file in other bytes (LOC-7)."""
    local = [read for read in reads.reads if read.place is ServedFrom.SECONDARY]
    return sum(
        any(_same_state(file, read) and not _same_bytes(file, read) for read in local) for file in files
    )


def _same_bytes(file: NamedFile, read: FileRead) -> bool:
    return (read.size, read.checksum) == (file.size, file.checksum)


def _same_state(file: NamedFile, read: FileRead) -> bool:
    return bool(file.state) and read.state == file.state
