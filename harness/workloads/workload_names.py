"""Workloads by the name that a plan uses."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from barrier_tck.harness.support.errors import UsageError
from barrier_tck.harness.workloads.flights import Flights
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.passthrough import Passthrough
from barrier_tck.harness.workloads.workload import Workload

_FACTORIES: dict[str, Callable[[], Workload]] = {
    KeyedTotals.name: KeyedTotals,
    Flights.name: Flights,
    Passthrough.name: Passthrough,
}


def workload_names() -> tuple[str, ...]:
    """Return every name, sorted."""
    return tuple(sorted(_FACTORIES))


def register(name: str, factory: Callable[[], Workload]) -> None:
    """Add a workload of one's own; raises UsageError if the name is taken."""
    if name in _FACTORIES:
        raise UsageError(f"a workload named {name!r} exists already; choose another name")
    _FACTORIES[name] = factory


def workload_named(name: str) -> Workload:
    """Return the workload of that name; raises UsageError, with the nearest name, if there is none."""
    factory = _FACTORIES.get(name)
    if factory is None:
        nearest = difflib.get_close_matches(name, workload_names(), n=1, cutoff=0.0)
        known = ", ".join(workload_names())
        raise UsageError(f"there is no workload {name!r}; did you mean {nearest[0]!r}? Known: {known}")
    return factory()
