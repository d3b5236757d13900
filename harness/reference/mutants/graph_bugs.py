"""Planted bugs of job graphs: routing, chains, several edges, several sinks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from barrier_tck.reference_impl.config import CheckpointMode, JobConfig
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane, Operator, OperatorContext, Payload
from barrier_tck.reference_impl.operators.graph import JobGraph, OperatorSpec, Partitioning
from barrier_tck.reference_impl.operators.sinks import FileSink, TransactionalFileSink
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.messages import ChannelControl, OperatorSnapshot
from barrier_tck.reference_impl.protocol.subtask_commands import TakeSnapshot
from barrier_tck.reference_impl.runtime.ports import ChannelOutput
from barrier_tck.reference_impl.runtime.routing import Router
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


class _Rerouted:
    """An output on which batches may go to another channel of their edge."""

    def __init__(self, graph: JobGraph, subtask: SubtaskId, inner: ChannelOutput, by: Partitioning) -> None:
        self._inner = inner
        self.edges: list[range] = []
        """The channels of each edge of the kind that is rerouted."""
        first = 0
        for edge in graph.output_edges_of(subtask.vertex):
            forward = edge.partitioning is Partitioning.FORWARD
            width = 1 if forward else graph.vertex(edge.target).parallelism
            stateful = any(operator.keeps_state for operator in graph.vertex(edge.target).operators)
            if edge.partitioning is by and not (by is Partitioning.HASH and stateful):
                self.edges.append(range(first, first + width))
            first += width
        self._turns = count()

    def send_data(self, channel: int, payload: Payload) -> None:
        """Send a batch to the wrong channel."""
        for channels in self.edges:
            if channel in channels:
                channel = self.instead(channel, channels)
        self._inner.send_data(channel, payload)

    def instead(self, channel: int, channels: range) -> int:
        """Return the channel that is taken instead."""
        return channels[next(self._turns) % len(channels)]

    def send_control(self, channel: int, element: ChannelControl) -> None:
        """Send a control element to the right channel."""
        self._inner.send_control(channel, element)


class _FirstForLast(_Rerouted):
    """The first channel is taken for the last one."""

    def instead(self, channel: int, channels: range) -> int:
        return channels[0] if channel == channels[-1] else channel


class BroadcastsTwiceToTheFirst(SubtaskDriver):
    """GR-01: a broadcast reaches its first subtask twice and its last subtask never."""

    def __init__(self, deployment: Any, graph: JobGraph, plane: Any, ports: Any, components: Any) -> None:
        """Replace the router's output."""
        super().__init__(deployment, graph, plane, ports, components)
        output = _FirstForLast(graph, deployment.subtask, ports.output, Partitioning.BROADCAST)
        self._router = Router(graph, deployment.subtask, plane, output)


class SpreadsKeysWithoutState(SubtaskDriver):
    """GR-04: before a vertex without state, a hash edge sends batches to each receiver in turn."""

    def __init__(self, deployment: Any, graph: JobGraph, plane: Any, ports: Any, components: Any) -> None:
        """Replace the router's output."""
        super().__init__(deployment, graph, plane, ports, components)
        output = _Rerouted(graph, deployment.subtask, ports.output, Partitioning.HASH)
        self._router = Router(graph, deployment.subtask, plane, output)


class FeedsTheFirstInput(SubtaskDriver):
    """GR-02: if two edges connect the same vertices, the second edge feeds the first edge's input."""

    def __init__(self, deployment: Any, graph: JobGraph, *others: Any) -> None:
        """Give every channel the input that the first edge from its sender's vertex feeds."""
        super().__init__(deployment, graph, *others)
        if self._input_numbers:
            first: dict[str, int] = {}
            senders = [channel.sender.vertex for channel in graph.inputs_of(deployment.subtask)]
            numbers = zip(senders, self._input_numbers, strict=True)
            self._input_numbers = tuple(first.setdefault(sender, number) for sender, number in numbers)


class SnapshotsTheHeadOnly(SubtaskDriver):
    """GR-03: only the first operator of a chain is part of the snapshot."""

    def take_snapshot(self, command: TakeSnapshot) -> None:
        """Leave out the operators after the first one."""
        operators, self.operators = self.operators, self.operators[:1]
        super().take_snapshot(command)
        self.operators = operators


class EmitsTheFirstBatchAgain(SubtaskDriver):
    """AO-04: in at-least-once mode a restored source emits its first batch twice, as duplicates are allowed there."""

    _emitted = False

    def run_chain(self, start: int, payload: Payload | None) -> None:
        """Emit the first batch of a restored source once more."""
        super().run_chain(start, payload)
        checkpoints = self.deployment.config.checkpoints
        if self.is_source and not self._emitted and self.deployment.restore is not None:
            self._emitted = True
            if checkpoints is not None and checkpoints.mode is CheckpointMode.AT_LEAST_ONCE:
                super().run_chain(start, payload)


class WaitsForOneSinkVertex(CoordinatorMachine):
    """GR-07: the job ends when its last sink vertex has read everything."""

    def __init__(
        self, config: JobConfig, subtasks: Sequence[SubtaskId], terminal: Sequence[SubtaskId]
    ) -> None:
        """Wait for the subtasks of one vertex."""
        super().__init__(config, subtasks, [one for one in terminal if one.vertex == terminal[-1].vertex])


class WritesBackwards(TransactionalFileSink):
    """GR-05: a sink writes its gathered rows in reverse order."""

    def flush_buffer(self) -> None:
        """Reverse the order of the batches."""
        self._buffer.reverse()
        super().flush_buffer()


class TakesTheOthersName(TransactionalFileSink):
    """GR-06: every sink names its files like the vertex ``out0``, with numbers that no other sink uses."""

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Take another name."""
        super().open(context, restored)
        if context.subtask.vertex != "out0":
            self._subtask_name = f"out0-{context.subtask.index + 1}"


def writes_backwards(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with GR-05."""
    return WritesBackwards(spec, plane) if isinstance(spec, FileSink) else spec.build(plane)


def takes_the_others_name(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with GR-06."""
    return TakesTheOthersName(spec, plane) if isinstance(spec, FileSink) else spec.build(plane)
