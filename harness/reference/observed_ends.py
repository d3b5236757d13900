"""Watches the output channels of subtasks, and notes who sends on a channel that has ended: a record behind the end of
input, or anything at all behind the end of the channel (BAR-6).

The notes are taken outside of everything that a planted bug can replace, below the driver where it sends. What a right
system does leaves none. A barrier that overtakes waiting batches does not pass here, and may overtake an end, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from barrier_tck.harness.record.operations import SentBehindEnd
from barrier_tck.harness.reference.instrumented import with_instruments
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.protocol.messages import ChannelControl, EndOfChannel, EndOfInput
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import ChannelOutput
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

KeepEnd = Callable[[SentBehindEnd], None]
"""Keeps a note."""


@dataclass
class Ends:
    """Which output channels of one subtask have ended; the first thing behind each end is noted."""

    deployment: SubtaskDeployment
    names: tuple[str, ...]
    keep: KeepEnd
    of_input: dict[int, None] = field(default_factory=dict)
    """The channels on which no record follows."""
    of_channel: dict[int, None] = field(default_factory=dict)
    """Those on which nothing follows."""
    noted: dict[int, None] = field(default_factory=dict)

    def note(self, channel: int, sent: str) -> None:
        """Take that something was sent behind the end of a channel; ``sent`` says what."""
        if channel not in self.noted:
            self.noted[channel] = None
            subtask = str(self.deployment.subtask)
            self.keep(SentBehindEnd(subtask, self.deployment.attempt, self.names[channel], sent))


@dataclass(frozen=True)
class WatchedOutput:
    """The output channels of one subtask, watched."""

    inner: ChannelOutput
    ends: Ends

    def send_data(self, channel: int, payload: Payload) -> None:
        if channel in self.ends.of_input:
            self.ends.note(channel, "records")
        self.inner.send_data(channel, payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        ends = self.ends
        if channel in ends.of_channel:
            ends.note(channel, "a barrier or another end")
        elif isinstance(element, EndOfInput):
            ends.of_input[channel] = None
        elif isinstance(element, EndOfChannel):
            ends.of_input[channel] = ends.of_channel[channel] = None
        self.inner.send_control(channel, element)


@dataclass(frozen=True)
class EndObservingDrivers:
    """Makes subtask drivers whose output channels are watched; takes the arguments of ``SubtaskDriver``."""

    make: Callable[..., SubtaskDriver]
    keep: KeepEnd

    def __call__(
        self,
        deployment: SubtaskDeployment,
        graph: Any,
        plane: Any,
        ports: SubtaskPorts,
        components: Components,
    ) -> SubtaskDriver:
        """Return a driver with watched outputs."""
        names = tuple(str(channel) for channel in graph.outputs_of(deployment.subtask))
        output = WatchedOutput(ports.output, Ends(deployment, names, self.keep))
        return self.make(deployment, graph, plane, replace(ports, output=output), components)


def ends_observed(components: Components, keep: KeepEnd) -> Components:
    """Return the components with drivers whose output channels are watched."""
    make = components.instruments.subtask_driver or SubtaskDriver
    return with_instruments(components, subtask_driver=EndObservingDrivers(make, keep))
