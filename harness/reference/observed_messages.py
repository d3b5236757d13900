"""Notes what each subtask sends to others, takes from them, and when it records its state, in its own order.

The notes are made at the subtask's doors, not by the protocol: where data goes out to a channel, where it is taken
from one, and where the synchronous part of a snapshot ends. From them an oracle computes what a global snapshot must
hold (CHL-2), without believing what the system says about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from barrier_tck.harness.record.operations import LocalEvent, MessagesObserved
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import ChannelControl
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import ChannelOutput, Probe, RuntimePoint
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass
class SubtaskLog:
    """The events of one subtask of one attempt."""

    subtask: str
    attempt: int
    to_rows: Callable[[Payload], Sequence[dict[str, Any]]]
    events: list[LocalEvent] = field(default_factory=list)

    def note(self, kind: str, channel: str, payload: Payload) -> None:
        """Note that a batch was sent or taken."""
        rows = tuple(_encode(row).decode() for row in self.to_rows(payload))
        self.events.append(LocalEvent(kind, channel, rows))

    def observed(self) -> MessagesObserved:
        """Return the notes so far."""
        return MessagesObserved(self.subtask, self.attempt, tuple(self.events))


class _NotingOutput:
    """An output that notes what is sent."""

    def __init__(self, inner: ChannelOutput, channels: Sequence[str], log: SubtaskLog) -> None:
        self._inner = inner
        self._channels = channels
        self._log = log

    def send_data(self, channel: int, payload: Payload) -> None:
        """Note a batch, and send it."""
        self._log.note("sent", self._channels[channel], payload)
        self._inner.send_data(channel, payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        """Send a control element."""
        self._inner.send_control(channel, element)


class _NotingProbe:
    """A probe that notes when the subtask's state is recorded."""

    def __init__(self, inner: Probe, log: SubtaskLog) -> None:
        self._inner = inner
        self._log = log

    def reach(self, point: RuntimePoint, checkpoint: Any = None, attempt: int = 0) -> None:
        """Note a snapshot, and pass the point on."""
        if point is RuntimePoint.SNAPSHOT_TAKEN:
            self._log.events.append(LocalEvent("recorded", checkpoint=int(checkpoint)))
        self._inner.reach(point, checkpoint, attempt)


@dataclass(frozen=True)
class MessageObservingDrivers:
    """Makes subtask drivers whose messages are noted; takes the arguments of ``SubtaskDriver``."""

    make: Callable[..., SubtaskDriver]
    logs: list[SubtaskLog]

    def __call__(
        self, deployment: SubtaskDeployment, graph: JobGraph, plane: Any, ports: Any, components: Components
    ) -> SubtaskDriver:
        """Return a driver that is observed at its doors."""
        log = SubtaskLog(str(deployment.subtask), deployment.attempt, plane.to_rows)
        self.logs.append(log)
        outputs = [str(channel) for channel in graph.outputs_of(deployment.subtask)]
        inputs = [str(channel) for channel in graph.inputs_of(deployment.subtask)]
        noted = replace(
            ports, output=_NotingOutput(ports.output, outputs, log), probe=_NotingProbe(ports.probe, log)
        )
        driver = self.make(deployment, graph, plane, noted, components)
        take = driver.on_data

        def on_data(channel: int, payload: Payload) -> None:
            log.note("taken", inputs[channel], payload)
            take(channel, payload)

        driver.on_data = on_data  # type: ignore[method-assign]
        return driver


def messages_observed(components: Components, logs: list[SubtaskLog]) -> Components:
    """Return the components with drivers whose messages are noted in ``logs``, one for each subtask and attempt."""
    make = components.subtask_driver or SubtaskDriver
    return replace(components, subtask_driver=MessageObservingDrivers(make, logs))
