"""A vertex that takes longer for each batch than it has to, so that records queue up before it, in real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barrier_tck.harness.reference.instrumented import with_instruments
from barrier_tck.reference_impl.operators.api import DataPlane, Operator, Payload
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.runtime.components import Components


def _after_pause(process: Callable[..., Payload | None], pause_s: float) -> Callable[..., Payload | None]:
    """Return a method that pauses before each batch."""

    def slow(*arguments: Any) -> Payload | None:
        time.sleep(pause_s)
        return process(*arguments)

    return slow


@dataclass(frozen=True, slots=True)
class _SlowAt:
    """Builds operators, one of them slow; a value that executors can be sent."""

    build: Callable[[OperatorSpec, DataPlane], Operator]
    uid: str
    pause_s: float

    def __call__(self, spec: OperatorSpec, plane: DataPlane) -> Operator:
        operator = self.build(spec, plane)
        # The operator itself, and nothing around it: what else it can do (keep lists, set timers) is asked of it.
        for method in ("process", "process_input") if spec.uid == self.uid else ():
            if hasattr(operator, method):
                setattr(operator, method, _after_pause(getattr(operator, method), self.pause_s))
        return operator


def slowed_down(components: Components, vertex: str | None, batch_ms: int) -> Components:
    """Return the components with a vertex that takes so much longer for each batch; None, or 0: unchanged.

    The first operator of a vertex has the vertex's name.
    """
    if vertex is None or not batch_ms:
        return components
    return with_instruments(
        components, operator=_SlowAt(components.instruments.operator, vertex, batch_ms / 1000.0)
    )
