"""Watches the ends of subtasks, and notes what comes behind them (BAR-6).

That is a record behind the end of input on a channel, anything at all behind the end of the channel, and a record that
a subtask at the end of the job processes after it has said that all its input is consumed.

The notes are taken below the driver where it sends, and where it gives batches to its operators. A right system leaves
only those of subtasks at the end of the job that have said, once in each attempt, that all is consumed. A barrier that
overtakes waiting batches does not pass here, and may overtake an end, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from barrier_tck.harness.record.operations import ConsumedAll, SentBehindEnd, TookBehindEnd
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.protocol.messages import (
    ChannelControl,
    EndOfChannel,
    EndOfInput,
    InputConsumed,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import ChannelOutput, CoordinatorLink
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

KeepEnd = Callable[[SentBehindEnd | TookBehindEnd | ConsumedAll], None]
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
    consumed: bool = False
    """Whether it has said that all its input is consumed."""
    took: bool = False
    """Whether it is noted that it took records after that."""

    def note(self, channel: int, sent: str) -> None:
        """Take that something was sent behind the end of a channel; ``sent`` says what."""
        if channel not in self.noted:
            self.noted[channel] = None
            subtask = str(self.deployment.subtask)
            self.keep(SentBehindEnd(subtask, self.deployment.attempt, self.names[channel], sent))

    def processed(self, payload: Payload | None) -> None:
        """Take that operators are given a batch, or none."""
        if self.consumed and payload is not None and not self.took:
            self.took = True
            self.keep(TookBehindEnd(str(self.deployment.subtask), self.deployment.attempt))

    def watch(self, driver: SubtaskDriver) -> None:
        """Look at what a driver gives to its operators; the driver does not come to hold itself by that."""
        kind, reference = type(driver), weakref.ref(driver)

        def watched(start: int, payload: Payload | None) -> None:
            self.processed(payload)
            own = reference()
            assert own is not None, "it is called by who holds it"
            kind.run_chain(own, start, payload)

        vars(driver).update(run_chain=watched)


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
class WatchedLink:
    """The connection to the coordinator of a subtask at the end of the job, watched."""

    inner: CoordinatorLink
    ends: Ends

    def send(self, message: Any) -> None:
        if isinstance(message, InputConsumed) and not self.ends.consumed:
            self.ends.consumed = True
            deployment = self.ends.deployment
            self.ends.keep(ConsumedAll(str(deployment.subtask), deployment.attempt))
        self.inner.send(message)


def _with_watched_ends(parts: DriverParts, make: MakeDriver, keep: KeepEnd) -> SubtaskDriver:
    """Return a driver with watched outputs or, where there are none, watched input."""
    names = tuple(str(channel) for channel in parts.graph.outputs_of(parts.deployment.subtask))
    ends = Ends(parts.deployment, names, keep)
    if names:
        return make(parts.with_ports(output=WatchedOutput(parts.ports.output, ends)))
    driver = make(parts.with_ports(coordinator=WatchedLink(parts.ports.coordinator, ends)))
    ends.watch(driver)
    return driver


def ends_observed(components: Components, keep: KeepEnd) -> Components:
    """Return the components with drivers whose ends are watched."""
    return with_driver_instrument(components, partial(_with_watched_ends, keep=keep))
