"""Opens completed checkpoints and durable storage of the reference runtime as neutral views for the oracle."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from barrier_tck.harness.record.history import (
    CheckpointProblem,
    SnapshotView,
    StateView,
    StorageView,
    Transaction,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.reference.translated_reasons import reason_of_error
from barrier_tck.reference_impl.ids import CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.aggregate import AGGREGATE_STATE, AggregateSpec
from barrier_tck.reference_impl.operators.encoding import decode_accumulator, decode_key
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, OperatorSnapshot, StateHandle
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.state.backend import StateReader, StateScope
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem

_COMMITTED = re.compile(r".*-chk(\d+)-a(\d+)-")
_key_text = msgspec.json.Encoder().encode


class _NotingReader:
    """Reads state files for a backend, and remembers which one it could not give; implements ``StateReader``."""

    def __init__(self, storage: StateReader) -> None:
        self._storage = storage
        self.failed: str | None = None

    def read(self, handle: StateHandle) -> bytes:
        try:
            return self._storage.read(handle)
        except Exception:
            self.failed = handle.path
            raise


def open_checkpoint(
    completed: CompletedCheckpoint, graph: JobGraph, storage: FileCheckpointStorage, components: Components
) -> SnapshotView:
    """Restore every keyed operator of a completed checkpoint into fresh stores and read them out.

    A checkpoint that cannot be opened is a finding, not an error: the view says why in ``problem``.
    """
    checkpoint = int(completed.checkpoint)
    positions = {
        position.split: position.offset
        for part in completed.snapshots
        for operator in part.operators
        for position in operator.positions
    }
    state: list[StateView] = []
    problem = None
    reader = _NotingReader(storage)
    try:
        for part in completed.snapshots:
            for spec in graph.vertex(part.subtask.vertex).operators:
                if not isinstance(spec, AggregateSpec):
                    continue
                snapshot = next((o for o in part.operators if o.operator == spec.uid), None)
                if snapshot is None:
                    missing = f"{part.subtask} has no snapshot of operator {spec.uid}"
                    problem = CheckpointProblem(checkpoint, Reason.INCOMPLETE, detail=missing)
                    continue
                entries = {
                    _key_text(list(decode_key(key))).decode(): list(decode_accumulator(value))
                    for key, value in _entries_of(graph, part.subtask, spec.uid, snapshot, reader, components)
                }
                state.append(StateView(spec.uid, str(part.subtask), AGGREGATE_STATE, entries))
    except Exception as error:  # noqa: BLE001 - also a backend that raises what it may not: a finding
        problem = problem_of(checkpoint, error, reader.failed)
    return SnapshotView(
        checkpoint=checkpoint,
        attempt=int(completed.attempt),
        positions=positions,
        state=tuple(state),
        subtasks=tuple(str(part.subtask) for part in completed.snapshots),
        problem=problem,
        files={
            str(part.subtask): tuple(handle.path for handle in part.handles())
            for part in completed.snapshots
            if part.handles()
        },
    )


def problem_of(checkpoint: int, error: Exception, file: str | None) -> CheckpointProblem:
    """Return why a checkpoint, or a file of it, could not be read, as a typed fact."""
    detail = str(error) if isinstance(error, RuntimeFailure) else f"{type(error).__name__}: {error}"
    return CheckpointProblem(checkpoint, reason_of_error(error), file, detail)


def open_restored(
    checkpoint: int, graph: JobGraph, storage: FileCheckpointStorage, components: Components
) -> SnapshotView:
    """Open a checkpoint by its number; one whose metadata cannot be read is a view with a ``problem``."""
    try:
        completed = storage.load(CheckpointId(checkpoint))
    except RuntimeFailure as error:
        return SnapshotView(checkpoint, None, {}, problem=problem_of(checkpoint, error, None))
    return open_checkpoint(completed, graph, storage, components)


def _entries_of(
    graph: JobGraph,
    subtask: SubtaskId,
    uid: str,
    snapshot: OperatorSnapshot,
    storage: StateReader,
    components: Components,
) -> list[tuple[bytes, bytes]]:
    """Read one operator's entries through the backend, as a restore would (ALN-2)."""
    backend, groups = components.state_backend(), graph.key_groups_of(subtask)
    working = WorkingDirectory(backend)
    try:
        scope = StateScope(
            graph.name, subtask.vertex, uid, subtask.index, 0, groups, working.of_operator(uid)
        )
        store = backend.open(scope, snapshot.handles, storage)
        try:
            return [entry for group in groups for entry in store.scan(AGGREGATE_STATE, group)]
        finally:
            store.close()
    finally:
        working.close()


def view_storage(storage: FileCheckpointStorage, files: FileSystem, root: str, output: str) -> StorageView:
    """Compare what durable storage holds with what its retained checkpoints need.

    ``root`` is the directory of checkpoint storage, ``output`` that of the committed output. Orphans are files
    that nothing refers to: of checkpoint storage, and of transactions that nobody will ever commit.
    """
    unreadable: list[CheckpointProblem] = []
    needed: list[str] = []
    retained = storage.completed()
    for checkpoint in retained:
        needed.append(f"/chk-{checkpoint}/_metadata")
        try:
            completed = storage.load(checkpoint)
        except RuntimeFailure as error:
            unreadable.append(problem_of(checkpoint, error, None))
            continue
        for handle in [handle for part in completed.snapshots for handle in part.handles()]:
            needed.append(f"{root}/{handle.path}")
            try:
                storage.read(handle)
            except RuntimeFailure as error:
                unreadable.append(problem_of(checkpoint, error, handle.path))
    orphans = [path for path in storage.files() if not _is_needed(path, needed)]
    written = files.list_files(output)
    orphans.extend(path for path in written if not _is_committed(path, output))
    return StorageView(
        tuple(int(checkpoint) for checkpoint in retained),
        tuple(unreadable),
        tuple(orphans),
        tuple(_transaction(path) for path in written if _is_committed(path, output)),
    )


def _transaction(path: str) -> Transaction:
    """Return what a committed file's name tells."""
    name = path.rpartition("/")[2]
    found = _COMMITTED.match(name)
    return (
        Transaction(name, int(found[1]), int(found[2]))
        if found is not None
        else Transaction(name, None, None)
    )


def _is_needed(path: str, needed: Sequence[str]) -> bool:
    return path.endswith(("/counters", *needed))


def _is_committed(path: str, output: str) -> bool:
    return path.removeprefix(output).lstrip("/").startswith("part-")
