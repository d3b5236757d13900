"""What the reference runtime knows of a kind of operator: how it is made, and how its state is read in a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import JobPlan, OperatorPlan
from barrier_tck.harness.plan.trial_plan import DeploymentPlan
from barrier_tck.harness.workloads.workload import Workload
from barrier_tck.reference_impl.operators.graph import OperatorSpec


@dataclass(frozen=True, slots=True)
class Site:
    """Where an operator stands: in which job, its plan, how the inputs of its vertex are keyed, for which workload."""

    job: JobPlan
    deployment: DeploymentPlan
    operator: OperatorPlan
    keys: tuple[tuple[str, ...], ...]
    """The key columns of each input of the vertex."""
    workload: Workload

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns of the first input."""
        return self.keys[0]


@dataclass(frozen=True, slots=True)
class KeptState:
    """One keyed state of a kind of operator, as the state SPI shows it."""

    name: str
    read: Callable[[bytes], list[Any]] = msgspec.msgpack.decode
    """Turns an entry's bytes into JSON types."""


def single_value(entry: bytes) -> list[Any]:
    """Read the entry of a state that holds one value for a key."""
    return [msgspec.msgpack.decode(entry)]


@dataclass(frozen=True, slots=True)
class ReferenceKind:
    """A kind of operator in the reference runtime."""

    make: Callable[[Site], OperatorSpec]
    """Makes an operator of the runtime."""
    states: tuple[KeptState, ...] = ()
    """Its keyed states."""
    read_listed: Callable[[bytes], tuple[str, list[Any]]] | None = None
    """How to read an entry of its lists without keys: a key, and what the state of ``keep`` would hold for it.

    None if it keeps no lists.
    """
