"""Which copy served the restore of a job that has another parallelism than the one that took the checkpoint (LOC-4).

A subtask may then read files of several former ones. A local copy is of use only to the subtask that wrote it, and
only if that still owns the same key groups.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.record_routes import key_groups_of
from barrier_tck.harness.oracle.evidence.restore_reads import contradictions, reads_of
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import Restored, ServedFrom


def problems_of(context: TrialContext, view: SnapshotView, restored: Restored) -> Iterator[str]:
    """Yield what is wrong with the restore of one subtask from a checkpoint of a former job."""
    former = {file.path: subtask for subtask, files in view.files.items() for file in files}
    before = key_groups_of(restored.subtask, context.job_of(view.attempt))
    own = key_groups_of(restored.subtask, context.job_of(restored.attempt))
    paths = [file.path for file in restored.files]
    for path in sorted({path for path in paths if paths.count(path) > 1}):
        yield f"read {path} {paths.count(path)} times"
    for file in restored.files:
        start, end = file.key_groups
        if file.path not in former:
            yield f"read {file.path}, which the checkpoint does not name"
        elif file.served_by is ServedFrom.SECONDARY and former[file.path] != restored.subtask:
            yield f"took {file.path} from a local copy, which {former[file.path]} wrote"
        elif file.served_by is ServedFrom.SECONDARY and before != own:
            yield f"took {file.path} from a local copy, although its key groups were {before} and are {own}"
        if own is not None and start < end and not (start < own.stop and own.start < end):
            yield f"read key groups {start} to {end}, and owns {own.start} to {own.stop}"
    reads = reads_of(context.history, restored)
    if reads is not None:
        yield from contradictions(restored, reads, [file for files in view.files.values() for file in files])
