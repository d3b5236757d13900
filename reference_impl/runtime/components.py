"""The parts of the runtime that can be exchanged: a third party's backend, and the planted bugs of the suite.

Everything that a world builds, it builds through a ``Components`` value. The default is the product.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from barrier_tck.reference_impl.operators.api import DataPlane, Operator, SourceReader
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.heartbeats import FailureDetector
from barrier_tck.reference_impl.protocol.loop_termination import LoopTermination
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.protocol.narrowing import narrowed
from barrier_tck.reference_impl.protocol.rescale import NewJob, redistributed
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.runtime.elasticity import Elasticity
from barrier_tck.reference_impl.runtime.rescaling import Rerouting
from barrier_tck.reference_impl.state.backend import StateBackend
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage, FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.local_copies import LocalScope, TaskLocalStateStore
from barrier_tck.reference_impl.storage.restore import RestoreReader


def build_operator(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build an operator as its spec says."""
    return spec.build(plane)


def as_it_is(reader: SourceReader) -> SourceReader:
    """Return the reader unchanged."""
    return reader


@dataclass(frozen=True)
class Components:
    """Factories; each takes what its default takes."""

    state_backend: Callable[[], StateBackend] = HeapStateBackend
    subtask_machine: Callable[..., SubtaskMachine] = SubtaskMachine
    coordinator_machine: Callable[..., CoordinatorMachine] = CoordinatorMachine
    loop_termination: Callable[..., LoopTermination] = LoopTermination
    failure_detector: Callable[[float], FailureDetector] = FailureDetector
    subtask_driver: Callable[..., Any] | None = None
    """None: ``runtime.subtask_driver.SubtaskDriver`` (not named here, because it imports this module)."""
    build_operator: Callable[[OperatorSpec, DataPlane], Operator] = build_operator
    wrap_reader: Callable[[SourceReader], SourceReader] = as_it_is
    local_state: Callable[[FileSystem, LocalScope], TaskLocalStateStore] = TaskLocalStateStore
    """Keeps secondary copies, with local recovery on (LOC-1)."""
    restore_reader: Callable[..., RestoreReader] = RestoreReader
    """Reads the state files of one restore, from the copy that serves (LOC-4)."""
    redistribute: Callable[[CompletedCheckpoint, NewJob], CompletedCheckpoint] = redistributed
    """Gives each subtask its part of a checkpoint that is restored (RSC-2)."""
    rerouting: Callable[..., Rerouting] = Rerouting
    """Gives a subtask the records in flight that it takes over (RSC-3)."""
    narrow: Callable[..., dict[str, int] | None] = narrowed
    """Says how parallel an elastic job is with fewer slots than it wants."""
    elasticity: Callable[..., Elasticity] = Elasticity
    """Says how parallel the next attempt of an elastic job is, once slots have been missing for long enough."""
    around_process: Callable[[], AbstractContextManager[None]] = nullcontext
    """Is entered in each process of an executor, around all that a subtask does there."""
    checkpoint_storage: Callable[..., CheckpointStorage] = FileCheckpointStorage
    """Takes a file system, the job's name and the root directory; the coordinator and each subtask have their own."""
