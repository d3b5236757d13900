"""Puts instruments around the parts of a job: what observes them, or slows them down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


@dataclass(frozen=True, slots=True)
class DriverParts:
    """What a subtask driver is made of."""

    deployment: SubtaskDeployment
    graph: JobGraph
    plane: Any
    ports: SubtaskPorts
    components: Components

    def with_ports(self, **ports: Any) -> DriverParts:
        """Return the parts with some ports exchanged; the keywords are fields of ``SubtaskPorts``."""
        return replace(self, ports=replace(self.ports, **ports))


MakeDriver = Callable[[DriverParts], SubtaskDriver]
"""Makes a driver, with all instruments that were put in before."""


class DriverInstrument(Protocol):
    """Makes a driver of other parts, or does something to the driver that was made. It is sent to executors."""

    def __call__(self, parts: DriverParts, make: MakeDriver) -> SubtaskDriver: ...


@dataclass(frozen=True)
class _InstrumentedDrivers:
    """Makes subtask drivers with an instrument; takes the arguments of ``SubtaskDriver``."""

    inner: Callable[..., SubtaskDriver]
    instrument: DriverInstrument

    def __call__(
        self,
        deployment: SubtaskDeployment,
        graph: JobGraph,
        plane: Any,
        ports: SubtaskPorts,
        components: Components,
    ) -> SubtaskDriver:
        return self.instrument(DriverParts(deployment, graph, plane, ports, components), self._make)

    def _make(self, parts: DriverParts) -> SubtaskDriver:
        return self.inner(parts.deployment, parts.graph, parts.plane, parts.ports, parts.components)


def with_instruments(components: Components, **instruments: Any) -> Components:
    """Return the components with some instruments exchanged; the keywords are fields of ``Instruments``."""
    return replace(components, instruments=replace(components.instruments, **instruments))


def with_driver_instrument(components: Components, instrument: DriverInstrument) -> Components:
    """Return the components with one more instrument around their subtask drivers."""
    inner = components.instruments.subtask_driver or SubtaskDriver
    return with_instruments(components, subtask_driver=_InstrumentedDrivers(inner, instrument))
