"""Watches the output channels of subtasks, and notes who sends on a channel that has ended: a record behind the end of
input, or anything at all behind the end of the channel (BAR-6).

The notes are taken outside of everything that a planted bug can replace, below the driver where it sends. What a right
system does leaves none. A barrier that overtakes waiting batches does not pass here, and may overtake an end, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from barrier_tck.harness.record.operations import SentBehindEnd
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.protocol.messages import ChannelControl, EndOfChannel, EndOfInput
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import ChannelOutput
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
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


def _with_watched_output(parts: DriverParts, make: MakeDriver, keep: KeepEnd) -> SubtaskDriver:
    names = tuple(str(channel) for channel in parts.graph.outputs_of(parts.deployment.subtask))
    return make(
        parts.with_ports(output=WatchedOutput(parts.ports.output, Ends(parts.deployment, names, keep)))
    )


def ends_observed(components: Components, keep: KeepEnd) -> Components:
    """Return the components with drivers whose output channels are watched."""
    return with_driver_instrument(components, partial(_with_watched_output, keep=keep))
