"""Planted bugs of loops and of Chandy-Lamport: when a loop ends, and what of its channels a snapshot holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from barrier_tck.reference_impl.config import CheckpointMode, JobConfig
from barrier_tck.reference_impl.ids import CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.protocol.alignment import BarrierAligner
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.loop_termination import LoopTermination
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import ForwardBarrier, TakeSnapshot
from barrier_tck.reference_impl.protocol.subtask_states import SubtaskState
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker
from barrier_tck.reference_impl.runtime.ports import Buffer
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


class EndsAfterOneWave(LoopTermination):
    """One wave of counts ends the loop, whatever it says."""

    def is_over(self, before: tuple[int, int] | None, now: tuple[int, int]) -> bool:
        """End it."""
        return True


class ComparesNoWaves(LoopTermination):
    """LP-02: one wave ends the loop if as much was taken as was sent, whatever the wave before said."""

    def is_over(self, before: tuple[int, int] | None, now: tuple[int, int]) -> bool:
        """Look at one wave."""
        return now[0] == now[1]


class ForgetsTheBackEdge(SubtaskDriver):
    """What is under way on a feedback edge is not recorded."""

    def on_arrived(self, channel: int, buffer: Buffer, in_line: bool = False) -> None:
        """Record what comes on other channels."""
        if self._loop is None or channel not in self._loop.feedback:
            super().on_arrived(channel, buffer, in_line)


class _Recording(SubtaskMachine):
    """A machine with another recorder."""

    recorder_type: type[BarrierRecorder] = BarrierRecorder

    def new_aligner(
        self, channels: int, mode: CheckpointMode
    ) -> BarrierAligner | BarrierTracker | BarrierRecorder:
        """Return the other recorder instead of the product's."""
        aligner = super().new_aligner(channels, mode)
        if not isinstance(aligner, BarrierRecorder):
            return aligner
        return self.recorder_type(self.policies, self.name, aligner.patient)


class _LatestOnly(BarrierRecorder):
    def recorded_on(self, channel: int) -> tuple[CheckpointId, ...]:
        """Leave out all checkpoints but the newest."""
        return super().recorded_on(channel)[-1:]


class RecordsOneCheckpointAtATime(_Recording):
    """While two checkpoints overlap, only the newer one is recorded."""

    recorder_type = _LatestOnly


class _ClosesTooEarly(BarrierRecorder):
    def _on_late(self, event: Any) -> Any:
        cut = self._cuts[event.barrier.checkpoint]
        for channel in range(len(self.policies)):
            self._stop_recording(cut, channel)
        return super()._on_late(event)


class ClosesAtTheFirstMarker(_Recording):
    """The first marker that comes back ends the recording of every channel."""

    recorder_type = _ClosesTooEarly


class _ClosesTooLate(BarrierRecorder):
    def _stop_recording(self, cut: Any, channel: int) -> None:
        if all(cut.delivered(other) for other in range(len(self.policies))):
            for other in range(len(self.policies)):
                super()._stop_recording(cut, other)


class ClosesWithTheLastMarker(_Recording):
    """A channel goes on being recorded behind its marker, until the last channel has delivered its own."""

    recorder_type = _ClosesTooLate


class SendsMarkersLate(SubtaskDriver):
    """A subtask that recorded itself deals with one more batch before it sends the markers."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        """Start with no marker to send."""
        super().__init__(*arguments, **keywords)
        self._late: list[ForwardBarrier] = []

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Keep the marker."""
        self._late.append(command)

    def on_data(self, channel: int, payload: Payload) -> None:
        """Send the marker behind the batch."""
        super().on_data(channel, payload)
        self._send_late()

    def poll_source(self) -> float | None:
        """Send the marker behind the batch."""
        waits = super().poll_source()
        self._send_late()
        return waits

    def on_control(self, channel: int, element: Any) -> None:
        """Send an older marker at last, if no batch came."""
        self._send_late()
        super().on_control(channel, element)
        self._send_at_the_end()

    def on_message(self, message: Any) -> None:
        """Send an older marker at last, if no batch came."""
        self._send_late()
        super().on_message(message)
        self._send_at_the_end()

    def _send_at_the_end(self) -> None:
        if self.machine.state is SubtaskState.DRAINED:
            self._send_late()

    def _send_late(self) -> None:
        late, self._late = self._late, []
        for command in late:
            super().forward_barrier(command)


class MarkersOvertake(SubtaskDriver):
    """A source sends the markers first, then one more batch, and then records itself."""

    def take_snapshot(self, command: TakeSnapshot) -> None:
        """Let the marker overtake a batch."""
        if self.reader is not None and not self.exhausted:
            self._router.send_control(command.barrier)
            self.poll_source()
            self._ahead = command.barrier.checkpoint
        super().take_snapshot(command)

    _ahead = 0

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Send no marker twice."""
        if command.barrier.checkpoint != self._ahead:
            super().forward_barrier(command)


class InitiatesAtSources(CoordinatorMachine):
    """Whoever is to initiate a snapshot, the sources do."""

    def __init__(
        self, config: JobConfig, subtasks: Sequence[SubtaskId], terminal: Sequence[SubtaskId]
    ) -> None:
        """Leave the initiators out of the configuration."""
        if config.checkpoints is not None:
            config = replace(config, checkpoints=replace(config.checkpoints, initiators=()))
        super().__init__(config, subtasks, terminal)
