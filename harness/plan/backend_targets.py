"""The names of state backends in a plan. Nothing is imported here, so a plan can be read without its backend."""

from __future__ import annotations

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import is_target, shown

SHIPPED_BACKENDS = {
    "heap": "barrier_tck.reference_impl.state.heap:HeapStateBackend",
    "rocksdb": "barrier_tck.reference_impl.state.rocksdb:RocksDBStateBackend",
}
"""Short name -> target, for the backends that come with the project."""


def backend_target(name: str) -> str:
    """Return the target, ``package.module:Factory``, for a short name; a target is returned as it is (STA-2).

    Raises UsageProblem, with the nearest name, if the name is neither.
    """
    target = SHIPPED_BACKENDS.get(name, name)
    if not is_target(target):
        raise UsageProblem(
            f"state_backend is {shown(name)}{nearest(name, SHIPPED_BACKENDS)} "
            "(another backend is named package.module:Factory)"
        )
    return target
