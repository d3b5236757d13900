"""What the author of a state backend needs from the runtime: the interface, its values, its errors, and small helpers.

It re-exports the runtime's own names, so that ``barrier_tck.harness`` can offer them without importing the runtime.
"""

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    SnapshotCancelled,
    StorageError,
)
from barrier_tck.reference_impl.state.backend import (
    BatchedStateStore,
    KeyedStateStore,
    LinkingStateWriter,
    LocalStateReader,
    SharingStateWriter,
    SnapshotFuture,
    StateBackend,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
    TwoFormatStateWriter,
)
from barrier_tck.reference_impl.state.checks import refuse_overlaps, require_in_range, require_same_length
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot, FinishedSnapshot

__all__ = [
    "BatchedStateStore",
    "CheckpointId",
    "CorruptStateError",
    "DeferredSnapshot",
    "FinishedSnapshot",
    "JobUsageError",
    "KeyGroupRange",
    "KeyedStateStore",
    "LinkingStateWriter",
    "LocalStateReader",
    "SharingStateWriter",
    "SnapshotCancelled",
    "SnapshotFuture",
    "StateBackend",
    "StateCapability",
    "StateHandle",
    "StateReader",
    "StateScope",
    "StateWriter",
    "StorageError",
    "TwoFormatStateWriter",
    "refuse_overlaps",
    "require_in_range",
    "require_same_length",
]
