"""State backends by the names that a plan gives them. Nothing is imported here: a plan is read without its backend."""

from __future__ import annotations

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.outside import is_target, shown
from barrier_tck.harness.support.strict_input import nearest

SHIPPED_BACKENDS = {
    "heap": "barrier_tck.reference_impl.state.heap:HeapStateBackend",
    "rocksdb": "barrier_tck.reference_impl.state.rocksdb:RocksDBStateBackend",
}
"""Short name -> target of the backends that come with the project."""


def backend_target(name: str) -> str:
    """Return the target of a short name or of a target, ``package.module:Factory`` (STA-2).

    Raises UsageProblem, with the nearest name, if it is neither.
    """
    target = SHIPPED_BACKENDS.get(name, name)
    if not is_target(target):
        raise UsageProblem(
            f"state_backend is {shown(name)}{nearest(name, SHIPPED_BACKENDS)} "
            "(another backend is named package.module:Factory)"
        )
    return target
