"""Records in flight in the snapshots of one subtask: what is recorded, how it is stored, and how it comes back.

A checkpoint's channel state is collected while the subtask goes on (UNA-1, CHL-1): what lay unread in the input
buffers when the snapshot was taken, what came on channels that are still open, and what the barrier overtook in the
output buffers. When every channel is closed, it is encoded and written as one file, elsewhere. A restore puts it
back before anything else flows: then it is ordinary content of the buffers, and the next checkpoint takes what is
left of it, once, without knowing where it came from (UNA-4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import ChannelId, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.elements import encode_element
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph
from barrier_tck.reference_impl.protocol.alignment_states import ChannelPolicy
from barrier_tck.reference_impl.protocol.messages import (
    CHANNEL_STATE,
    ChannelState,
    CheckpointBarrier,
    ReroutedChannel,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime.ports import Buffer, ChannelOutput, InputBuffers, OutputBuffers
from barrier_tck.reference_impl.runtime.rescaling import Rerouting
from barrier_tck.reference_impl.runtime_errors import CorruptStateError
from barrier_tck.reference_impl.state.backend import StateReader, StateWriter
from barrier_tck.reference_impl.storage import channel_state
from barrier_tck.reference_impl.storage.channel_state import Fragment

OPERATOR = "~channels"
"""What stands for an operator in the name of the file; no operator should have this name."""
FILE = "records"
"""The name of the file."""


def policy_of(edge: Edge, mode: CheckpointMode) -> ChannelPolicy:
    """Return what barriers do on the channels of an edge; recorded edges have theirs after the snapshot."""
    if edge.feedback or mode is CheckpointMode.CHANDY_LAMPORT:
        return ChannelPolicy.RECORD
    return ChannelPolicy.OVERTAKE if mode.overtakes and edge.is_overtaken else ChannelPolicy.ALIGN


def policies_of(graph: JobGraph, subtask: SubtaskId, mode: CheckpointMode) -> tuple[ChannelPolicy, ...]:
    """Return the policy of each input channel of a subtask."""
    return tuple(policy_of(graph.edge_of(channel), mode) for channel in graph.inputs_of(subtask))


@dataclass(slots=True)
class _Recorded:
    """The channel state of one checkpoint so far."""

    inputs: dict[int, list[Buffer]] = field(default_factory=dict)
    outputs: dict[int, list[Buffer]] = field(default_factory=dict)
    first: dict[ChannelId, int] = field(default_factory=dict)
    """Input channel -> how many of its buffers come before everything on other channels."""


class ChannelSnapshots:
    """The channel state of one subtask's snapshots under way."""

    def __init__(
        self,
        graph: JobGraph,
        subtask: SubtaskId,
        plane: DataPlane,
        output: ChannelOutput,
        input_buffers: InputBuffers | None,
        output_buffers: OutputBuffers | None,
    ) -> None:
        self._graph = graph
        self._subtask = subtask
        self._inputs = graph.inputs_of(subtask)
        self._outputs = graph.outputs_of(subtask)
        self._overtaken = [graph.edge_of(channel).is_overtaken for channel in self._outputs]
        self._plane = plane
        self._output = output
        self._input_buffers = input_buffers
        self._output_buffers = output_buffers
        self._recorded: dict[CheckpointId, _Recorded] = {}
        self.recovered: dict[ChannelId, int] = {}
        """Channel -> how many batches were put back; a batch that lay at both ends counts where its end was."""
        self._in_line: dict[CheckpointId, CheckpointBarrier] = {}
        """Barriers that may wait in line in output buffers in which they could overtake."""

    def begin(self, checkpoint: CheckpointId) -> None:
        """Begin with nothing in flight."""
        self._recorded[checkpoint] = _Recorded()

    def overtake_input(self, checkpoint: CheckpointId, channel: int) -> None:
        """Record what is unread on an input channel ahead of the barrier."""
        assert self._input_buffers is not None, "only a world with input buffers lets barriers overtake"
        found = self._input_buffers.overtake(channel, checkpoint)
        if found:
            recorded = self._recorded[checkpoint]
            recorded.inputs.setdefault(channel, []).extend(found)
            recorded.first[self._inputs[channel]] = self._input_buffers.before_all(channel)

    def arrived(self, channel: int, buffer: Buffer, checkpoints: Iterable[CheckpointId]) -> None:
        """Record what came on a channel that is open, for every checkpoint for which it is."""
        for checkpoint in checkpoints:
            self._recorded[checkpoint].inputs.setdefault(channel, []).append(buffer)

    def send_ahead(self, barrier: CheckpointBarrier) -> None:
        """Send a barrier ahead of what waits in output buffers, and record that (UNA-1); else in line (UNA-5)."""
        for channel, overtaken in enumerate(self._overtaken):
            if overtaken:
                self._overtake_output(channel, barrier)
            else:
                self._output.send_control(channel, barrier)

    def sent_in_line(self, barrier: CheckpointBarrier) -> None:
        """A barrier was sent in line which may overtake later (UNA-2)."""
        self._in_line[barrier.checkpoint] = barrier

    def has_passed(self, checkpoint: CheckpointId) -> bool:
        """Tell, once, that a barrier that was sent in line has left every buffer in which it could overtake."""
        barrier = self._in_line.get(checkpoint)
        if barrier is None or self._holding(barrier):
            return False
        del self._in_line[checkpoint]
        return True

    def move_ahead(self, checkpoint: CheckpointId) -> None:
        """Move a barrier that waits in line ahead of what is before it, and record that (UNA-2)."""
        barrier = replace(self._in_line.pop(checkpoint), ahead=True)
        for channel in self._holding(barrier):
            self._overtake_output(channel, barrier)

    def _holding(self, barrier: CheckpointBarrier) -> list[int]:
        buffers = self._output_buffers
        assert buffers is not None, "only a world with output buffers lets barriers overtake"
        return [
            channel
            for channel, overtaken in enumerate(self._overtaken)
            if overtaken and buffers.holds(channel, barrier.checkpoint)
        ]

    def _overtake_output(self, channel: int, barrier: CheckpointBarrier) -> None:
        assert self._output_buffers is not None, "only a world with output buffers lets barriers overtake"
        found = self._output_buffers.send_ahead(channel, barrier)
        if found:
            self._recorded[barrier.checkpoint].outputs.setdefault(channel, []).extend(found)

    def drop(self, checkpoint: CheckpointId) -> None:
        self._recorded.pop(checkpoint, None)
        self._in_line.pop(checkpoint, None)

    @property
    def kept(self) -> tuple[CheckpointId, ...]:
        """Return the checkpoints for which anything is kept in memory, in ascending order."""
        return tuple(sorted({**self._recorded, **self._in_line}))

    def is_empty(self, checkpoint: CheckpointId) -> bool:
        """Return whether no record is in flight."""
        recorded = self._recorded[checkpoint]
        return not recorded.inputs and not recorded.outputs

    def encoded(self, checkpoint: CheckpointId) -> EncodedChannels:
        """Return the channel state of a checkpoint as it is written, and forget it; batches are encoded later."""
        recorded = self._recorded.pop(checkpoint)
        return EncodedChannels(
            self._plane,
            {self._inputs[channel]: found for channel, found in sorted(recorded.inputs.items())},
            {self._outputs[channel]: found for channel, found in sorted(recorded.outputs.items())},
            recorded.first,
        )

    def restore(self, snapshot: SubtaskSnapshot, reader: StateReader) -> None:
        """Put what was in flight back, before anything is read or sent (UNA-1).

        Raises StorageError if the file cannot be read, CorruptStateError if it names a channel that does not exist.
        """
        if snapshot.rerouted:
            self._take_over(snapshot.rerouted, reader)
        state = snapshot.channels
        if state is None:
            return
        content = reader.read(state.file)
        found = channel_state.decode(content, self._plane.name, state.file.path)
        assert self._input_buffers is not None and self._output_buffers is not None, "there are no buffers"
        for channel, fragments in (*found.outputs.items(), *found.inputs.items()):
            self.recovered[channel] = self.recovered.get(channel, 0) + sum(not one.more for one in fragments)
        for channel, fragments in found.outputs.items():
            self._output_buffers.recover(self._number(self._outputs, channel, state), fragments)
        first = {one.channel: one.first for one in state.inputs}
        for channel, fragments in found.inputs.items():
            number = self._number(self._inputs, channel, state)
            self._input_buffers.recover(number, fragments, first.get(channel, 0))

    def _take_over(self, rerouted: Sequence[ReroutedChannel], reader: StateReader) -> None:
        """Put in what the job as it was had in flight. Where senders or receivers were others, it comes before anything
        on any channel (RSC-3)."""
        assert self._input_buffers is not None, "there are no buffers"
        found = Rerouting(self._graph, self._subtask, self._plane, reader).taken_over(rerouted)
        for channel, taken in found.items():
            self.recovered[channel] = self.recovered.get(channel, 0) + len(taken.fragments)
            self._input_buffers.recover(self._inputs.index(channel), taken.fragments, taken.before_all)

    @staticmethod
    def _number(channels: Sequence[ChannelId], channel: ChannelId, state: ChannelState) -> int:
        if channel not in channels:
            raise CorruptStateError(
                f"{state.file.path} holds records of {channel}, and there is no such channel"
            )
        return channels.index(channel)


@dataclass(frozen=True, slots=True)
class EncodedChannels:
    """The channel state of one checkpoint on its way to storage."""

    plane: DataPlane
    inputs: Mapping[ChannelId, Sequence[Buffer]]
    outputs: Mapping[ChannelId, Sequence[Buffer]]
    first: Mapping[ChannelId, int]

    def write(self, writer: StateWriter) -> ChannelState:
        """Encode the batches and write the file; raises what the writer raises."""
        inputs, outputs = self._fragments(self.inputs), self._fragments(self.outputs)
        chunks = channel_state.encode(inputs, outputs, self.plane.name)
        handle = replace(writer.write(FILE, chunks, KeyGroupRange(0, 0)), kind=CHANNEL_STATE)
        held = tuple(
            replace(one, first=self.first.get(one.channel, 0)) for one in channel_state.contents(inputs)
        )
        return ChannelState(handle, held, channel_state.contents(outputs))

    def _fragments(self, channels: Mapping[ChannelId, Sequence[Buffer]]) -> dict[ChannelId, list[Fragment]]:
        return {
            channel: [
                buffer if isinstance(buffer, Fragment) else Fragment(encode_element(self.plane, buffer))
                for buffer in found
            ]
            for channel, found in channels.items()
        }
