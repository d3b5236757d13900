"""Notes what each subtask sends to others, takes from them, and when it records its state, in its own order.

The notes are made at the subtask's ports, not by the protocol: where data goes out to a channel, where it is taken
from one, and where the synchronous part of a snapshot ends. From them an oracle computes what a global snapshot must
hold (CHL-2), without believing what the system says about it.

Every note is made before what it is about: a process that is killed has logged all that others may have got from it.
In the simulator the notes stay in memory; on Spark each process appends them to a file of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from barrier_tck.harness.record.operations import LocalEvent, MessagesObserved
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.protocol.messages import ChannelControl, CheckpointBarrier, EndOfChannel
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import ChannelOutput, Probe, RuntimePoint
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

_encode = msgspec.json.Encoder(order="sorted").encode


KeepEvent = Callable[[LocalEvent], None]
"""Keeps what one subtask of one attempt did next."""

OpenLog = Callable[[str, int], KeepEvent]
"""Opens the log of a subtask in an attempt."""


@dataclass
class MemoryLogs:
    """The logs of processes that share their memory with the recorder."""

    logs: list[tuple[str, int, list[LocalEvent]]] = field(default_factory=list)

    def __call__(self, subtask: str, attempt: int) -> KeepEvent:
        """Open a log."""
        events: list[LocalEvent] = []
        self.logs.append((subtask, attempt, events))
        return events.append

    def observed(self) -> tuple[MessagesObserved, ...]:
        """Return all that was logged, in the order in which the logs were opened."""
        return tuple(
            MessagesObserved(subtask, attempt, tuple(events)) for subtask, attempt, events in self.logs
        )


class _LogHeader(msgspec.Struct, frozen=True):
    """The first line of a file."""

    subtask: str
    attempt: int


@dataclass(frozen=True)
class MessagesDirectory:
    """The logs of processes that may be killed: a file for each, which grows line by line.

    A line is with the operating system before the process goes on, so that a kill loses none. A disk that refuses a
    line ends the subtask: a log with a gap would accuse the others.
    """

    path: str
    """A directory that all reach."""

    def __call__(self, subtask: str, attempt: int) -> KeepEvent:
        """Open a log; raises OSError if the disk refuses."""
        name = f"{attempt:06d}-{quote(subtask, safe='')}-{os.getpid()}.jsonl"
        file = (Path(self.path) / name).open("xb", buffering=0)

        def keep(line: msgspec.Struct) -> None:
            left = memoryview(msgspec.json.encode(line) + b"\n")
            while left:
                left = left[file.write(left) or 0 :]

        keep(_LogHeader(subtask, attempt))
        return keep

    def observed(self) -> tuple[MessagesObserved, ...]:
        """Return all that was logged, by attempt and subtask; half a line, as a kill leaves it, is left out."""
        found = []
        for file in sorted(Path(self.path).glob("*.jsonl")):
            whole = file.read_bytes().rpartition(b"\n")[0].splitlines()
            if not whole:
                continue  # it was killed before it did anything
            header = msgspec.json.decode(whole[0], type=_LogHeader)
            events = tuple(map(msgspec.json.Decoder(LocalEvent).decode, whole[1:]))
            found.append(MessagesObserved(header.subtask, header.attempt, events))
        return tuple(found)


class _Notes:
    """What one subtask of one attempt does, as it is reported."""

    def __init__(self, keep: KeepEvent, to_rows: Callable[[Payload], Sequence[dict[str, Any]]]) -> None:
        self._keep = keep
        self._to_rows = to_rows

    def message(self, kind: str, channel: str, payload: Payload) -> None:
        """Note that a batch is sent or taken."""
        rows = (
            [f"watermark {payload.at_ms}"]
            if isinstance(payload, Watermark)
            else [_encode(row).decode() for row in self._to_rows(payload)]
        )
        self._keep(LocalEvent(kind, channel, tuple(rows)))

    def control(self, channel: str, element: ChannelControl) -> None:
        """Note that a marker is taken, or that a channel is closed."""
        if isinstance(element, CheckpointBarrier):
            self._keep(LocalEvent("marked", channel, checkpoint=int(element.checkpoint)))
        elif isinstance(element, EndOfChannel):
            self._keep(LocalEvent("closed", channel))

    def recorded(self, checkpoint: int) -> None:
        """Note that the subtask recorded itself."""
        self._keep(LocalEvent("recorded", checkpoint=checkpoint))


class _NotingOutput:
    """An output that logs what is sent."""

    def __init__(self, inner: ChannelOutput, channels: Sequence[str], notes: _Notes) -> None:
        self._inner = inner
        self._channels = channels
        self._notes = notes

    def send_data(self, channel: int, payload: Payload) -> None:
        """Note a batch, and send it."""
        self._notes.message("sent", self._channels[channel], payload)
        self._inner.send_data(channel, payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        self._inner.send_control(channel, element)


class _NotingProbe:
    """A probe that notes when the subtask's state is recorded."""

    def __init__(self, inner: Probe, notes: _Notes) -> None:
        self._inner = inner
        self._notes = notes

    def reach(self, point: RuntimePoint, checkpoint: Any = None, attempt: int = 0) -> None:
        """Note a snapshot, and pass the point on."""
        if point is RuntimePoint.SNAPSHOT_TAKEN:
            self._notes.recorded(int(checkpoint))
        self._inner.reach(point, checkpoint, attempt)


def _with_logged_messages(parts: DriverParts, make: MakeDriver, open_log: OpenLog) -> SubtaskDriver:
    """Return a driver that is observed at its ports."""
    subtask, ports = parts.deployment.subtask, parts.ports
    notes = _Notes(open_log(str(subtask), int(parts.deployment.attempt)), parts.plane.to_rows)
    outputs = [str(channel) for channel in parts.graph.outputs_of(subtask)]
    inputs = [str(channel) for channel in parts.graph.inputs_of(subtask)]
    output, probe = _NotingOutput(ports.output, outputs, notes), _NotingProbe(ports.probe, notes)
    driver = make(parts.with_ports(output=output, probe=probe))
    take, obey = driver.on_data, driver.on_control

    def on_data(channel: int, payload: Payload) -> None:
        notes.message("taken", inputs[channel], payload)
        take(channel, payload)

    def on_control(channel: int, element: ChannelControl) -> None:
        notes.control(inputs[channel], element)
        obey(channel, element)

    driver.on_data, driver.on_control = on_data, on_control  # type: ignore[method-assign]
    return driver


def messages_observed(components: Components, open_log: OpenLog) -> Components:
    """Return the components with drivers whose messages are logged, in a log for each subtask and attempt."""
    return with_driver_instrument(components, partial(_with_logged_messages, open_log=open_log))
