"""A vertex that takes longer for each batch than it has to, so that records queue up before it, in real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from barrier_tck.reference_impl.operators.api import DataPlane, Operator, Payload
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.runtime.components import Components


class _SlowOperator:
    """An operator that pauses before each batch; everything else is the operator's own."""

    def __init__(self, operator: Any, pause_s: float) -> None:
        self._operator = operator
        self._pause_s = pause_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def process(self, payload: Payload) -> Payload | None:
        time.sleep(self._pause_s)
        return self._operator.process(payload)

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        time.sleep(self._pause_s)
        return self._operator.process_input(payload, number)


@dataclass(frozen=True, slots=True)
class _SlowAt:
    """Builds operators, one of them slow; a value that executors can be sent."""

    build: Callable[[OperatorSpec, DataPlane], Operator]
    uid: str
    pause_s: float

    def __call__(self, spec: OperatorSpec, plane: DataPlane) -> Operator:
        operator = self.build(spec, plane)
        slow: Any = _SlowOperator(operator, self.pause_s) if spec.uid == self.uid else operator
        return slow  # type: ignore[no-any-return]


def slowed_down(components: Components, vertex: str | None, batch_ms: int) -> Components:
    """Return the components with a vertex that takes so much longer for each batch; None, or 0: unchanged.

    The first operator of a vertex has the vertex's name.
    """
    if vertex is None or not batch_ms:
        return components
    return replace(components, build_operator=_SlowAt(components.build_operator, vertex, batch_ms / 1000.0))
