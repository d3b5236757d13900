"""An operator of the reference on Arrow batches, opened in this process as a subtask opens it, to be measured alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.api import OperatorContext
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.state.backend import StateWriter
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem

SUBTASK, GROUPS = SubtaskId("v", 0), KeyGroupRange(0, 128)
"""It is the only subtask, and has all key groups."""


@contextlib.contextmanager
def opened_operator(
    spec: OperatorSpec,
    directory: Path,
    name: str,
    backend: str,
    restored: OperatorSnapshot | None = None,
    cached_keys: int | None = None,
) -> Iterator[Any]:
    """Return the operator of a spec, with what is restored; it is closed at exit.

    Operators with one ``directory`` share its checkpoint storage; ``name`` is that of the operator's own directory.
    """
    state_backend = require_state_backend(backend)()
    storage = FileCheckpointStorage(LocalFileSystem(directory / "storage"), "bench")
    working = WorkingDirectory(state_backend, str(directory / name))
    operator = spec.build(ArrowPlane())
    context = OperatorContext(
        job="bench",
        subtask=SUBTASK,
        parallelism=1,
        attempt=AttemptNumber(1),
        key_groups=GROUPS,
        max_parallelism=len(GROUPS),
        state_backend=state_backend,
        reader=storage,
        writers=_Writers(storage),
        output_files=LocalFileSystem(directory / "output"),
        cached_keys=cached_keys,
        working_directory=working.of_operator,
    )
    operator.open(context, restored)
    try:
        yield operator
    finally:
        operator.close()
        working.close()


class _Writers:
    """Writes into checkpoint storage."""

    def __init__(self, storage: FileCheckpointStorage) -> None:
        self._storage = storage

    def writer(self, checkpoint: CheckpointId, operator: str) -> StateWriter:
        return self._storage.writer(checkpoint, AttemptNumber(1), SUBTASK, operator)
