"""Opens the operators of one subtask on either plane, with state in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, StateHandle
from barrier_tck.reference_impl.protocol.watermarks import EventTimeSnapshot
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from tests.reference_impl.storage_fakes import MemoryFileSystem

GROUPS = 8
PLANES: list[DataPlane] = [RowPlane(), ArrowPlane()]


class Storage:
    """Checkpoint storage in memory, which also makes the writers of one subtask."""

    def __init__(self) -> None:
        self._storage = FileCheckpointStorage(MemoryFileSystem(), "job")

    def writer(self, checkpoint: CheckpointId, operator: str) -> Any:
        return self._storage.writer(checkpoint, AttemptNumber(1), SubtaskId("joined", 1), operator)

    def read(self, handle: StateHandle) -> bytes:
        return self._storage.read(handle)


def opened(
    spec: Any,
    plane: DataPlane,
    storage: Storage | None = None,
    restored: OperatorSnapshot | None = None,
    event_time: EventTimeSnapshot | None = None,
    aside: Callable[[str, Any], None] = lambda _output, _payload: None,
    now_ms: Callable[[], float] = lambda: 0.0,
    write_through: bool = False,
) -> Any:
    operator, storage = spec.build(plane), storage or Storage()
    context = OperatorContext(
        "job", SubtaskId("joined", 1), 3, AttemptNumber(2), KeyGroupRange(0, GROUPS), GROUPS,
        HeapStateBackend(), storage, storage, MemoryFileSystem(), now_ms=now_ms, event_time=event_time,
        emit_aside=aside, write_through=write_through,
    )  # fmt: skip
    operator.open(context, restored)
    return operator


def listed(payload: Any) -> list[Row]:
    return [] if payload is None else list(payload if isinstance(payload, list) else payload.to_pylist())
