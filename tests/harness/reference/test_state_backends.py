"""State backends by name: which names work, and which are refused; grain: a call."""

from __future__ import annotations

from typing import Any

import pytest

from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.reference_impl.state.heap import HeapStateBackend

HERE = __name__


class Nameless:
    capabilities: frozenset[Any] = frozenset()

    def open(self) -> None: ...


class Closed:
    name = "closed"
    capabilities: frozenset[Any] = frozenset()


class Undeclared:
    name = "undeclared"

    def open(self) -> None: ...


class Boastful(Undeclared):
    capabilities = frozenset({"fast"})


def broken() -> None:
    raise RuntimeError("no licence")


def test_shipped_backends_are_found_by_their_names() -> None:
    assert require_state_backend("heap") is HeapStateBackend
    assert {name: require_state_backend(name)().name for name in SHIPPED_BACKENDS} == {
        name: name for name in SHIPPED_BACKENDS
    }
    assert require_state_backend("barrier_tck.reference_impl.state.heap:HeapStateBackend") is HeapStateBackend


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("heep", "did you mean 'heap'"),
        ("redis", "known: heap, rocksdb"),
        ("", "package.module:Factory"),
        ("a b:c", "package.module:Factory"),
        ("no_such_module_anywhere:Backend", "No module named 'no_such_module_anywhere'"),
        ("barrier_tck.reference_impl.state.heap:HeapStateBakend", "did you mean 'HeapStateBackend'"),
        (
            "barrier_tck.reference_impl.state.heap:_CAPABILITIES",
            "is a frozenset, which makes no state backend",
        ),
        (f"{HERE}:broken", r"RuntimeError: no licence \(test_state_backends\.py, line \d+\)"),
        (f"{HERE}:Nameless", "it has no name"),
        (f"{HERE}:Closed", "it has no open"),
        (f"{HERE}:Undeclared", "capabilities"),
        (f"{HERE}:Boastful", "'fast'"),
    ],
)
def test_a_target_that_is_no_backend_is_refused_with_a_reason(name: str, message: str) -> None:
    with pytest.raises(UsageProblem, match=message):
        require_state_backend(name)
