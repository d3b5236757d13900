"""The parts of the runtime that can be exchanged: a third party's backend, and the planted bugs of the suite.

Everything that a world builds, it builds through a ``Components`` value. The default is the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reference_impl.operators.api import Operator, SourceReader
from reference_impl.protocol.coordinator import CoordinatorMachine
from reference_impl.protocol.subtask import SubtaskMachine
from reference_impl.state.backend import StateBackend
from reference_impl.state.heap import HeapStateBackend


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Components:
    """Factories. Each takes what the default takes; wrappers get the built part and return its replacement."""

    state_backend: Callable[[], StateBackend] = HeapStateBackend
    subtask_machine: Callable[..., SubtaskMachine] = SubtaskMachine
    coordinator_machine: Callable[..., CoordinatorMachine] = CoordinatorMachine
    subtask_driver: Callable[..., Any] | None = None
    """None: ``runtime.subtask_driver.SubtaskDriver`` (named late, for it needs this module)."""
    wrap_operator: Callable[[Operator], Operator] = field(default=_as_it_is)
    wrap_reader: Callable[[SourceReader], SourceReader] = field(default=_as_it_is)
