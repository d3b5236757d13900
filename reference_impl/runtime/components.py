"""The parts of the runtime that a user may exchange, and those that an observer of the job wraps.

Everything of this kind that a world builds, it builds through a ``Components`` value.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from barrier_tck.reference_impl.operators.api import DataPlane, Operator, SourceReader
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.runtime.coordinator_ports import CoordinatorPorts
from barrier_tck.reference_impl.state.backend import StateBackend
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage, FileCheckpointStorage


def built(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build an operator as its spec says."""
    return spec.build(plane)


def unwrapped(reader: SourceReader) -> SourceReader:
    """Return the reader itself."""
    return reader


def unchanged(ports: CoordinatorPorts) -> CoordinatorPorts:
    """Return the ports themselves."""
    return ports


@dataclass(frozen=True)
class Instruments:
    """What is put around parts of a job to watch it or to slow it down; by default nothing."""

    subtask_driver: Callable[..., Any] | None = None
    """Takes and returns what ``runtime.subtask_driver.SubtaskDriver`` does; None: that class itself."""
    operator: Callable[[OperatorSpec, DataPlane], Operator] = built
    reader: Callable[[SourceReader], SourceReader] = unwrapped
    coordinator_ports: Callable[[CoordinatorPorts], CoordinatorPorts] = unchanged
    """Takes what a coordinator would use, and returns what it uses."""
    around_process: Callable[[], AbstractContextManager[None]] = nullcontext
    """Is entered in each process of an executor, around all that a subtask does there."""


@dataclass(frozen=True)
class Components:
    """Factories; each takes what its default takes."""

    state_backend: Callable[[], StateBackend] = HeapStateBackend
    checkpoint_storage: Callable[..., CheckpointStorage] = FileCheckpointStorage
    """Takes a file system, the job's name and the root directory; the coordinator and each subtask have their own."""
    instruments: Instruments = Instruments()
