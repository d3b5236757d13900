"""A vertex that is slowed down in real time: just that vertex, and nothing else about it changes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from barrier_tck.harness.reference.slow_vertex import slowed_down
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.runtime.components import Components


class Spec:
    """An operator that returns what it is given."""

    def __init__(self, uid: str) -> None:
        self.uid = uid

    def build(self, plane: Any) -> Any:
        return Spec(self.uid)

    def process(self, payload: Any) -> Any:
        return payload

    def process_input(self, payload: Any, number: int) -> Any:
        return payload, number


def built(components: Components, uid: str) -> Any:
    spec: OperatorSpec = Spec(uid)  # type: ignore[assignment]
    plane: Any = None
    return components.instruments.operator(spec, plane)


def test_only_the_named_vertex_pauses_and_it_does_the_same() -> None:
    components = slowed_down(Components(), "sink", 30)
    fast = built(components, "totals")
    assert type(fast) is Spec, "nothing stands between the runtime and another vertex"
    slow = built(components, "sink")
    started = time.monotonic()
    assert slow.process("x") == "x"
    assert slow.process_input("x", 1) == ("x", 1)
    assert time.monotonic() - started >= 0.06
    assert slow.uid == "sink"


@pytest.mark.parametrize(("vertex", "batch_ms"), [(None, 30), ("sink", 0)])
def test_without_a_slow_vertex_nothing_is_wrapped(vertex: str | None, batch_ms: int) -> None:
    components = Components()
    assert slowed_down(components, vertex, batch_ms) is components
