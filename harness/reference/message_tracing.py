"""Stands between a subtask's driver and its world, and logs what passes its channels around barriers, and where its
snapshots cut that. A cut diagram is drawn from these notes.

The notes are taken outside of everything that a planted bug can replace: below the driver where it sends, above it
where the world hands it what was read. Only the batches nearest to a snapshot are kept, ``WINDOW`` on each side and
channel; all are counted. In the simulator the notes go to a list; on Spark each process appends to a file, so that
those of a process that was killed are there.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from barrier_tck.harness.record.message_trace import (
    CutTaken,
    InFlightKept,
    Sent,
    Taken,
    TraceEvent,
    What,
    in_order,
)
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, Payload
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    ChannelControl,
    CheckpointBarrier,
    EndOfInput,
)
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import (
    Buffer,
    ChannelOutput,
    CoordinatorLink,
    InputBuffers,
    OutputBuffers,
    Probe,
    RuntimePoint,
)
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.storage.channel_state import Fragment, decode

WINDOW = 200
"""How many batches are kept on each side of a snapshot, for each channel and each of its ends."""

_AT_A_CHECKPOINT = (RuntimePoint.BARRIER_RECEIVED, RuntimePoint.SNAPSHOT_TAKEN)

_log = logging.getLogger(__name__)

KeepMessageTrace = Callable[[list[TraceEvent]], None]
"""Keeps notes of one subtask of one attempt; there is at least one."""


class _End:
    """One end of one channel: how many batches passed it, and the notes of those that a diagram may need."""

    __slots__ = ("left", "name", "passed", "recent")

    def __init__(self, name: str) -> None:
        self.name = name
        self.passed = 0
        self.recent: deque[TraceEvent] = deque(maxlen=WINDOW)
        """What passed last, not kept yet."""
        self.left = 0
        """How many more notes are kept at once, because a snapshot was just taken."""


class _Notes:
    """The notes of one subtask of one attempt."""

    def __init__(
        self,
        deployment: SubtaskDeployment,
        graph: JobGraph,
        plane: DataPlane,
        ports: SubtaskPorts,
        keep: KeepMessageTrace,
        together: int,
    ) -> None:
        self._subtask = str(deployment.subtask)
        self._attempt = int(deployment.attempt)
        self._plane = plane
        self._length = plane.length
        self._now_ms = ports.clock.now_ms
        # One of its own: what is asked of the subtask's is counted as the subtask's requests.
        self._storage = copy(ports.storage)
        self._keep = keep
        self._together = together
        self._pending: list[TraceEvent] = []
        self._outputs = [_End(str(channel)) for channel in graph.outputs_of(deployment.subtask)]
        self._inputs = [_End(str(channel)) for channel in graph.inputs_of(deployment.subtask)]

    def sent(self, channel: int, payload: Payload) -> None:
        """Note a batch before it is sent."""
        self._batch(Sent, self._outputs[channel], payload)

    def taken(self, channel: int, payload: Payload) -> None:
        """Note a batch before it is processed."""
        self._batch(Taken, self._inputs[channel], payload)

    def sent_control(self, channel: int, element: ChannelControl) -> None:
        """Note a barrier or an end before it is sent."""
        self._control(Sent, self._outputs[channel], element)

    def sent_ahead(self, channel: int, barrier: CheckpointBarrier, overtaken: Sequence[Buffer]) -> None:
        """Note a barrier that was sent ahead of what waited in an output buffer."""
        end = self._outputs[channel]
        self._note(end, Sent, What.BARRIER, 0, int(barrier.checkpoint), end.passed - _ends_in(overtaken))

    def restored_output(self, channel: int, fragments: Sequence[Fragment]) -> None:
        """Note batches in flight that are sent first; if the first is the rest of one, its receiver has the rest."""
        end = self._outputs[channel]
        for _ in range(_ends_in(fragments)):
            self._note(end, Sent, What.BATCH, 0, None)
            end.passed += 1

    def restored_input(self, channel: int, fragments: Sequence[Fragment]) -> None:
        """Number batches in flight that are read first."""
        self._inputs[channel].passed -= _ends_in(fragments)

    def taken_control(self, channel: int, element: ChannelControl) -> None:
        """Note a barrier or an end before the driver handles it."""
        self._control(Taken, self._inputs[channel], element)

    def cut(self, checkpoint: CheckpointId) -> None:
        """Note a snapshot."""
        self._keep(
            [
                CutTaken(
                    self._attempt,
                    self._subtask,
                    self._now_ms(),
                    int(checkpoint),
                    {end.name: end.passed for end in self._outputs},
                    {end.name: end.passed for end in self._inputs},
                )
            ]
        )

    def acknowledged(self, message: AcknowledgeCheckpoint) -> None:
        """Note what the subtask's part of a checkpoint holds of its channels, as its file says."""
        state = message.snapshot.channels
        if state is None:
            return
        counted = True
        try:
            found = decode(self._storage.read(state.file), self._plane.name)
            inputs, outputs = (
                {str(channel): _ends_in(fragments) for channel, fragments in held.items()}
                for held in (found.inputs, found.outputs)
            )
        except RuntimeFailure as error:  # for instance because a fault damaged the file
            _log.debug("the channel state of %s could not be counted: %s", self._subtask, error)
            inputs, outputs = (
                {str(content.channel): content.buffers for content in held}
                for held in (state.inputs, state.outputs)
            )
            counted = False
        number, now_ms = int(message.checkpoint), self._now_ms()
        self._keep([InFlightKept(self._attempt, self._subtask, now_ms, number, inputs, outputs, counted)])

    def keep_recent(self) -> None:
        """Keep what passed last and what passes next: a checkpoint has come."""
        notes, self._pending = self._pending, []
        for end in (*self._outputs, *self._inputs):
            notes += end.recent
            end.recent.clear()
            end.left = WINDOW
        if notes:
            self._keep(notes)

    def finish(self) -> None:
        """Keep what waits to be kept."""
        notes, self._pending = self._pending, []
        if notes:
            self._keep(notes)

    def _batch(self, kind: type[Sent | Taken], end: _End, payload: Payload) -> None:
        if isinstance(payload, Watermark):
            self._keep_note(end, self._watermark(kind, end, payload))
        else:
            self._note(end, kind, What.BATCH, self._length(payload), None)
        end.passed += 1

    def _watermark(self, kind: type[Sent | Taken], end: _End, passed: Watermark) -> TraceEvent:
        """Return the note of a watermark, which has its place among the batches, and no record."""
        return kind(
            self._attempt,
            self._subtask,
            self._now_ms(),
            end.name,
            end.passed,
            watermark_ms=passed.at_ms,
            idle=passed.idle,
        )

    def _control(self, kind: type[Sent | Taken], end: _End, element: ChannelControl) -> None:
        if isinstance(element, CheckpointBarrier):
            self._note(end, kind, What.BARRIER, 0, int(element.checkpoint))
        elif isinstance(element, EndOfInput):
            self._note(end, kind, What.END, 0, None)

    def _note(
        self,
        end: _End,
        kind: type[Sent | Taken],
        what: What,
        records: int,
        checkpoint: int | None,
        position: int | None = None,
    ) -> None:
        at = end.passed if position is None else position
        note = kind(self._attempt, self._subtask, self._now_ms(), end.name, at, what, records, checkpoint)
        self._keep_note(end, note)

    def _keep_note(self, end: _End, note: TraceEvent) -> None:
        if not end.left:
            end.recent.append(note)
            return
        end.left -= 1
        self._pending.append(note)
        if len(self._pending) >= self._together:
            self.finish()


def _ends_in(buffers: Sequence[Buffer]) -> int:
    """Count whole batches, and ends of batches; the beginning of a batch counts where its end is."""
    return sum(not (isinstance(buffer, Fragment) and buffer.more) for buffer in buffers)


@dataclass(frozen=True, slots=True)
class _ObservedOutput:
    """The output channels, with notes of what is sent."""

    inner: ChannelOutput
    notes: _Notes

    def send_data(self, channel: int, payload: Payload) -> None:
        self.notes.sent(channel, payload)
        self.inner.send_data(channel, payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        self.notes.sent_control(channel, element)
        self.inner.send_control(channel, element)


@dataclass(frozen=True, slots=True)
class _ObservedOutputBuffers:
    """The output buffers, with notes of barriers that overtake and of what is restored."""

    inner: OutputBuffers
    notes: _Notes

    def send_ahead(self, channel: int, barrier: CheckpointBarrier) -> tuple[Buffer, ...]:
        overtaken = self.inner.send_ahead(channel, barrier)
        self.notes.sent_ahead(channel, barrier, overtaken)
        return overtaken

    def holds(self, channel: int, checkpoint: CheckpointId) -> bool:
        return self.inner.holds(channel, checkpoint)

    def recover(self, channel: int, fragments: Sequence[Fragment]) -> None:
        self.notes.restored_output(channel, fragments)
        self.inner.recover(channel, fragments)


@dataclass(frozen=True, slots=True)
class _ObservedInputBuffers:
    """The input buffers, with notes of what is restored."""

    inner: InputBuffers
    notes: _Notes

    def overtake(self, channel: int, checkpoint: CheckpointId) -> tuple[Buffer, ...]:
        return self.inner.overtake(channel, checkpoint)

    def recover(self, channel: int, fragments: Sequence[Fragment], before_all: int = 0) -> None:
        self.notes.restored_input(channel, fragments)
        self.inner.recover(channel, fragments, before_all)

    def hold(self, held: bool) -> None:
        self.inner.hold(held)

    def before_all(self, channel: int) -> int:
        return self.inner.before_all(channel)


@dataclass(frozen=True, slots=True)
class _ObservedLink:
    """The connection to the coordinator, with notes of what a checkpoint holds."""

    inner: CoordinatorLink
    notes: _Notes

    def send(self, message: Any) -> None:
        if isinstance(message, AcknowledgeCheckpoint):
            self.notes.acknowledged(message)
        self.inner.send(message)


@dataclass(frozen=True, slots=True)
class _ObservedProbe:
    """The probe, with notes of snapshots."""

    inner: Probe
    notes: _Notes

    def reach(self, point: RuntimePoint, checkpoint: CheckpointId | None = None, attempt: int = 0) -> None:
        if point in _AT_A_CHECKPOINT and checkpoint is not None:
            self.notes.keep_recent()
            if point is RuntimePoint.SNAPSHOT_TAKEN:
                self.notes.cut(checkpoint)
        self.inner.reach(point, checkpoint, attempt)


def _with_observed_channels(
    parts: DriverParts, make: MakeDriver, keep: KeepMessageTrace, together: int
) -> SubtaskDriver:
    """Return a driver whose ports and entry points are watched."""
    ports = parts.ports
    notes = _Notes(parts.deployment, parts.graph, parts.plane, ports, keep, together)
    into, out = ports.input_buffers, ports.output_buffers
    observed = parts.with_ports(
        output=_ObservedOutput(ports.output, notes),
        input_buffers=None if into is None else _ObservedInputBuffers(into, notes),
        output_buffers=None if out is None else _ObservedOutputBuffers(out, notes),
        coordinator=_ObservedLink(ports.coordinator, notes),
        probe=_ObservedProbe(ports.probe, notes),
    )
    driver = make(observed)
    _traced_first(driver, "on_data", notes.taken)
    _traced_first(driver, "on_control", notes.taken_control)
    _traced_first(driver, "on_announced", notes.taken_control)
    _traced_first(driver, "close", notes.finish)
    return driver


def _traced_first(driver: SubtaskDriver, method: str, note: Callable[..., None]) -> None:
    """Have a driver log what one of its methods receives before it acts on it."""
    inner = getattr(driver, method)

    def watched(*content: Any) -> None:
        note(*content)
        inner(*content)

    setattr(driver, method, watched)


def with_message_trace(components: Components, keep: KeepMessageTrace, together: int = 1) -> Components:
    """Return the components with drivers whose channels are observed.

    After a barrier, ``together`` notes are kept at a time; those that wait are lost if the process is killed.
    """
    return with_driver_instrument(components, partial(_with_observed_channels, keep=keep, together=together))


@dataclass(frozen=True)
class MessageTraceDirectory:
    """Passes notes from processes to the driver: a file for each process, which grows line by line."""

    path: str
    """A directory that all reach."""

    def __call__(self, notes: list[TraceEvent]) -> None:
        """Append the notes of one subtask. A disk that refuses costs the diagram, and nothing of the run."""
        first = notes[0]
        name = f"{quote(first.subtask, safe='')}-a{first.attempt}-{os.getpid()}.jsonl"
        lines = b"".join(msgspec.json.encode(note) + b"\n" for note in notes)
        try:
            with (Path(self.path) / name).open("ab") as file:
                file.write(lines)
        except OSError as error:
            _log.warning(
                "what passed through the channels of %s could not be saved: %s", first.subtask, error
            )

    def take_all(self, epoch_ms: float) -> tuple[TraceEvent, ...]:
        """Return all that was logged, in time since ``epoch_ms``; half a line, as a kill leaves it, is left out."""
        decoder = msgspec.json.Decoder(TraceEvent)
        notes: list[TraceEvent] = []
        for file in sorted(Path(self.path).glob("*.jsonl")):
            whole = file.read_bytes().rpartition(b"\n")[0]
            notes += [decoder.decode(line) for line in whole.splitlines()]
        moved = [msgspec.structs.replace(note, at_ms=round(note.at_ms - epoch_ms, 4)) for note in notes]
        return in_order(moved)
