"""What a subtask does for the loop that it is part of: it counts what goes round, and knows what ends with the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, SubtaskId
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.loops import Loop
from barrier_tck.reference_impl.protocol.messages import (
    ChannelControl,
    CountLoop,
    EndLoop,
    LoopCounted,
    LoopInputEnded,
)
from barrier_tck.reference_impl.protocol.subtask_events import InputEnded
from barrier_tck.reference_impl.runtime.ports import ChannelOutput, CoordinatorLink
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime_errors import ElementBehindLoop, RecordBehindLoop


class LoopMember:
    """One subtask of a loop; also its output port, because it counts what is sent."""

    def __init__(
        self,
        graph: JobGraph,
        loop: Loop,
        subtask: SubtaskId,
        attempt: AttemptNumber,
        output: ChannelOutput,
        coordinator: CoordinatorLink,
    ) -> None:
        self.loop = loop.name
        self.sent = 0
        """Elements put into channels to members in this attempt, recovered ones among them."""
        self.taken = 0
        """Elements taken from channels of members and dealt with."""
        self._subtask = subtask
        self._vertices = loop.vertices
        self._attempt = attempt
        self._output = output
        self._coordinator = coordinator
        inputs = list(enumerate(graph.inputs_of(subtask)))
        outputs = list(enumerate(graph.outputs_of(subtask)))
        self.feedback = tuple(number for number, channel in inputs if graph.edge_of(channel).feedback)
        """The input channels that end with the loop."""
        self._inside = frozenset(n for n, channel in inputs if channel.sender.vertex in loop.vertices)
        self._to_members = frozenset(n for n, channel in outputs if channel.receiver.vertex in loop.vertices)
        self._back = frozenset(n for n, channel in outputs if graph.edge_of(channel).feedback)
        self._fed_by = [number for number, _ in inputs if number not in self._inside]
        if graph.vertex(subtask.vertex).source is not None:
            self._fed_by.append(len(inputs))  # its own input
        self.ended = False
        """Whether the loop has ended."""

    @classmethod
    def of(cls, graph: JobGraph, deployment: SubtaskDeployment, ports: SubtaskPorts) -> LoopMember | None:
        """Return a subtask as part of its loop; None if it is part of none."""
        loop = graph.loop_of(deployment.subtask.vertex)
        if loop is None:
            return None
        return cls(graph, loop, deployment.subtask, deployment.attempt, ports.output, ports.coordinator)

    def take(self, channel: int) -> None:
        """Count an element that is dealt with now, if it came from a member.

        Raises ElementBehindLoop for an element of a channel that has ended with the loop.
        """
        if self.ended and channel in self.feedback:
            raise ElementBehindLoop(
                f"{self._subtask} got an element round the loop {self.loop!r} after the loop had ended; it has sent "
                f"{self.sent} elements to members and taken {self.taken}",
                self.loop,
            )
        if channel in self._inside:
            self.taken += 1

    def recover(self, batches: Mapping[ChannelId, int]) -> None:
        """Count what was put back into channels between members as sent in this attempt: it will be taken in it."""
        members = self._vertices
        self.sent += sum(
            count
            for channel, count in batches.items()
            if channel.sender.vertex in members and channel.receiver.vertex in members
        )

    def input_ended(self, channel: int) -> None:
        """Tell the coordinator if a channel was the last one from outside, and all of its records are processed."""
        if channel in self._fed_by:
            self._fed_by.remove(channel)
            if not self._fed_by:
                self._coordinator.send(LoopInputEnded(self._attempt, self._subtask, self.loop))

    def on_message(self, message: CountLoop | EndLoop, feed: Callable[[InputEnded], None]) -> None:
        """Answer a wave with the counts, or let the feedback channels end."""
        match message:
            case CountLoop(wave=wave):
                counts = LoopCounted(self._attempt, self._subtask, self.loop, wave, self.sent, self.taken)
                self._coordinator.send(counts)
            case EndLoop():
                self.ended = True
                for channel in self.feedback:
                    feed(InputEnded(channel))

    def send_data(self, channel: int, payload: Payload) -> None:
        """Output port: count what goes to a member; raises RecordBehindLoop for a record that can go round no more."""
        if channel in self._to_members:
            if self.ended and channel in self._back:
                raise RecordBehindLoop(
                    f"{self._subtask} emits records at the end of its input into the loop {self.loop!r}, which has "
                    "ended: an operator in a loop must emit all that goes round it before",
                    self.loop,
                )
            self.sent += 1
        self._output.send_data(channel, payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        """Output port: pass a control element on."""
        self._output.send_control(channel, element)
