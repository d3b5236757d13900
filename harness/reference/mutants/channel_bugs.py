"""Planted bugs of records in flight: recording, restoring, and barriers that overtake what they must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, Payload
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning
from barrier_tck.reference_impl.protocol.alignment import AlignmentCommands, BarrierAligner
from barrier_tck.reference_impl.protocol.alignment_states import RecordingState
from barrier_tck.reference_impl.protocol.messages import ChannelControl, CheckpointBarrier, EndOfInput
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from barrier_tck.reference_impl.protocol.subtask import SubtaskCommands, SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import RecordInput
from barrier_tck.reference_impl.protocol.subtask_events import BarrierAnnounced, RecordingEvent
from barrier_tck.reference_impl.protocol.subtask_states import SubtaskState
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import Buffer, InputBuffers
from barrier_tck.reference_impl.runtime.snapshotting import SnapshotInProgress
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.storage.channel_state import Fragment


class AsksTheFirstInputOnly(SubtaskDriver):
    """UC-01: only the channels of the first input are asked for what is queued in them."""

    def __init__(self, deployment: SubtaskDeployment, graph: JobGraph, *arguments: Any) -> None:
        """Learn to which input each channel belongs."""
        super().__init__(deployment, graph, *arguments)
        self._input_of = graph.input_numbers_of(deployment.subtask)

    def record_input(self, command: RecordInput) -> None:
        """Leave out the channels of other inputs."""
        if self._input_of[command.channel] == 0:
            super().record_input(command)


class ReadsOnBeforeTheSnapshot(SubtaskDriver):
    """UC-13, which is UC-03 without alignment: while the snapshot waits in a queue, two batches are read, also from
    behind the barrier.
    """

    BATCHES = 2

    def __init__(self, *arguments: Any) -> None:
        """Start with nothing put off."""
        super().__init__(*arguments)
        self._put_off: list[tuple[int, CheckpointBarrier]] = []
        self._left = 0

    def on_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Put a barrier off as long as batches come."""
        if any(one.checkpoint != barrier.checkpoint for _, one in self._put_off):
            self._catch_up()
        if not self._put_off:
            self._left = self.BATCHES
        self._put_off.append((channel, barrier))
        if self.machine.state is SubtaskState.DRAINED:
            self._catch_up()

    def on_data(self, channel: int, payload: Payload) -> None:
        """Read a batch more, then catch up."""
        super().on_data(channel, payload)
        self._left -= 1
        if self._left <= 0:
            self._catch_up()

    def on_control(self, channel: int, element: ChannelControl) -> None:
        """Pass a barrier that is put off without holding its channel back."""
        if (channel, element) in self._put_off:
            return
        super().on_control(channel, element)
        if isinstance(element, EndOfInput):
            self._catch_up()

    def _catch_up(self) -> None:
        waiting, self._put_off = self._put_off, []
        for channel, barrier in waiting:
            super().on_announced(channel, barrier)


class KeepsWhatWasRecorded(SubtaskDriver):
    """UC-14: what was recorded for a snapshot stays in memory when the snapshot is given up."""

    def cancel(self, snapshot: SnapshotInProgress) -> None:
        """Give up the files only."""
        self.copies.cancel(snapshot)


class _ClosesForAnyBarrier(BarrierRecorder):
    """Takes a barrier of an older checkpoint for the one that is missing."""

    def handle(self, event: RecordingEvent) -> AlignmentCommands:
        commands = super().handle(event)
        if isinstance(event, BarrierAnnounced):
            for number, cut in list(self._cuts.items()):
                if number > event.barrier.checkpoint and cut.state is RecordingState.RECORDING:
                    self._stop_recording(cut, event.channel)
                    self._close_if_whole(cut)
        return commands


class ClosesForAnOldBarrier(SubtaskMachine):
    """UC-04: a barrier of an aborted checkpoint that comes late ends the recording of its channel for a newer one."""

    def new_aligner(
        self, channels: int, mode: CheckpointMode
    ) -> BarrierAligner | BarrierTracker | BarrierRecorder:
        """Return a recorder that looks at no id."""
        if not mode.overtakes:
            return super().new_aligner(channels, mode)
        return _ClosesForAnyBarrier(self.policies, self.name, patient=mode is CheckpointMode.ALIGNED_TIMEOUT)


class LeavesOlderBarriersBehind(SubtaskMachine):
    """UC-15: older barriers go along with one that goes ahead in the output buffer, and nobody records for them."""

    def _overtake_outputs(self, newest: int) -> SubtaskCommands:
        """Move older barriers after their own timeout only, and not together with a newer one."""
        return () if self._taking is not None else super()._overtake_outputs(newest)


class Recovered:
    """The unread input of a subtask, and which of it was restored."""

    def __init__(self, inner: InputBuffers) -> None:
        """Take the input buffers."""
        self._inner = inner
        self.restored: dict[int, list[Fragment]] = {}
        self.leave_out = False
        """Whether what was restored is left out when the input is asked for."""

    def recover(self, channel: int, fragments: Sequence[Fragment], before_all: int = 0) -> None:
        """Remember what is put back."""
        self.restored[channel] = list(fragments)
        self._inner.recover(channel, fragments, before_all)

    def hold(self, held: bool) -> None:
        """Pass it on."""
        self._inner.hold(held)

    def before_all(self, channel: int) -> int:
        """Pass it on."""
        return self._inner.before_all(channel)

    def overtake(self, channel: int, checkpoint: CheckpointId) -> tuple[Buffer, ...]:
        """Return what is unread, perhaps without what was restored."""
        found = self._inner.overtake(channel, checkpoint)
        if not self.leave_out:
            return found
        restored = self.restored.get(channel, ())
        return tuple(buffer for buffer in found if not any(buffer is one for one in restored))


class _KnowsWhatWasRestored(SubtaskDriver):
    """Looks at the unread input through a list of what was restored."""

    def __init__(
        self,
        deployment: SubtaskDeployment,
        graph: JobGraph,
        plane: DataPlane,
        ports: SubtaskPorts,
        components: Components,
    ) -> None:
        """Put the list before the input buffers."""
        self.recovered: Recovered | None = None
        if ports.input_buffers is not None:
            self.recovered = Recovered(ports.input_buffers)
            ports = replace(ports, input_buffers=self.recovered)
        super().__init__(deployment, graph, plane, ports, components)
        self.batches_left: dict[int, int] = {}
        """Channel -> how many restored batches are not processed yet."""

    def open(self) -> None:
        """Count what was restored."""
        super().open()
        if self.recovered is not None:
            for channel, fragments in self.recovered.restored.items():
                self.batches_left[channel] = sum(not one.more for one in fragments)

    def on_data(self, channel: int, payload: Payload) -> None:
        """Process a batch; the restored ones come first."""
        super().on_data(channel, payload)
        self.batches_left[channel] = max(0, self.batches_left.get(channel, 0) - 1)

    @property
    def is_recovering(self) -> bool:
        """Tell whether a restored batch is not processed yet."""
        return any(self.batches_left.values())


class ForgetsWhatWasRestored(_KnowsWhatWasRestored):
    """UC-05: a snapshot does not look into the queue of restored records."""

    def drops(self, channel: int) -> bool:
        """Tell whether restored records of a channel are left out now."""
        return True

    def record_input(self, command: RecordInput) -> None:
        """Leave out what was restored."""
        if self.recovered is not None:
            self.recovered.leave_out = self.drops(command.channel)
        super().record_input(command)


class LosesTheRaceOfRecovery(ForgetsWhatWasRestored):
    """UR-01: if a broadcast barrier is the last to come while a keyed channel is halfway through its restored records,
    nobody takes the other half: who feeds them believes them fed, and who takes the snapshot believes them processed.
    """

    def __init__(self, *arguments: Any) -> None:
        """Start before any barrier."""
        super().__init__(*arguments)
        self._reached_last = False
        self._begun: dict[int, int] = {}

    def open(self) -> None:
        """Note how much was restored."""
        super().open()
        self._begun = dict(self.batches_left)

    def on_control(self, channel: int, element: ChannelControl) -> None:
        """Note that a barrier on an aligned channel is what the snapshot waited for."""
        self._reached_last = isinstance(element, CheckpointBarrier)
        super().on_control(channel, element)
        self._reached_last = False

    def drops(self, channel: int) -> bool:
        """Only in this interleaving."""
        left = self.batches_left.get(channel, 0)
        return self._reached_last and 0 < left < self._begun.get(channel, 0)


class LeavesRecoveryTooEarly(_KnowsWhatWasRestored):
    """UR-02: barriers that come between the feeding of restored records and their processing are answered by nobody."""

    def ignores(self, barrier: CheckpointBarrier) -> bool:
        """Tell whether nobody is there for a barrier."""
        return self.is_recovering

    def on_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Lose it, if so."""
        if not self.ignores(barrier):
            super().on_announced(channel, barrier)

    def on_control(self, channel: int, element: ChannelControl) -> None:
        """Lose it, if so."""
        if not isinstance(element, CheckpointBarrier) or not self.ignores(element):
            super().on_control(channel, element)


class IgnoresAlignedBarriersInRecovery(LeavesRecoveryTooEarly):
    """UR-03: while restored records are queued, an aligned barrier is neither taken nor declined."""

    def ignores(self, barrier: CheckpointBarrier) -> bool:
        """Only an unaligned one is looked at."""
        return self.is_recovering and not barrier.ahead


class _OvertakenEdge(Edge):
    """An edge on which barriers overtake, whatever it is."""

    @property
    def is_overtaken(self) -> bool:
        return True


class OvertakesBroadcasts(SubtaskDriver):
    """UR-04: barriers overtake the records of broadcast edges too."""

    def __init__(self, deployment: SubtaskDeployment, graph: JobGraph, *arguments: Any) -> None:
        """Take the broadcasts of the job for ordinary edges."""
        edges = tuple(
            _OvertakenEdge(**{one.name: getattr(edge, one.name) for one in fields(edge)})
            if edge.partitioning is Partitioning.BROADCAST
            else edge
            for edge in graph.edges
        )
        super().__init__(deployment, replace(graph, edges=edges), *arguments)
