"""Routing: which output channel a batch goes to, by edge."""

from __future__ import annotations

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning
from barrier_tck.reference_impl.protocol.messages import ChannelControl
from barrier_tck.reference_impl.runtime.ports import ChannelOutput, Payload


class Router:
    """Spreads what one subtask emits over its output channels, numbered as ``JobGraph.outputs_of`` lists them."""

    def __init__(self, graph: JobGraph, subtask: SubtaskId, plane: DataPlane, output: ChannelOutput) -> None:
        """Work out the channel numbers of every output edge."""
        self._plane = plane
        self._output = output
        self._max_parallelism = graph.max_parallelism
        self._edges: list[tuple[Edge, bool, int, int]] = []
        first = 0
        for edge in graph.output_edges_of(subtask.vertex):
            forward = edge.partitioning is Partitioning.FORWARD
            width = 1 if forward else graph.vertex(edge.target).parallelism
            self._edges.append((edge, edge.partitioning is Partitioning.HASH, first, width))
            first += width
        self._channels = first
        self._turn = subtask.index

    def emit(self, payload: Payload) -> None:
        """Send a batch along every output edge."""
        for edge, by_key, first, width in self._edges:
            if by_key:
                parts = self._plane.partition(payload, edge.key, width, self._max_parallelism)
                for target, part in parts:
                    self._output.send_data(first + target, part)
            else:
                self._output.send_data(first + self._turn % width, payload)
        self._turn += 1

    def send_control(self, element: ChannelControl) -> None:
        """Append a control element to every output channel."""
        for channel in range(self._channels):
            self._output.send_control(channel, element)
