"""Routing: which output channel a batch goes to, by edge."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane, Payload
from barrier_tck.reference_impl.operators.graph import JobGraph, Partitioning
from barrier_tck.reference_impl.protocol.messages import ChannelControl
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime.ports import ChannelOutput

_Route = Callable[[Payload], None]
"""Sends a batch along one output edge."""


class Router:
    """Spreads what one subtask emits over its output channels, numbered as ``JobGraph.outputs_of`` lists them."""

    def __init__(self, graph: JobGraph, subtask: SubtaskId, plane: DataPlane, output: ChannelOutput) -> None:
        """Work out the channel numbers of every output edge."""
        self._output = output
        self._routes: list[_Route] = []
        self._aside: dict[str, list[_Route]] = {}
        """Side output -> its routes."""
        self._ahead: list[int] = []
        """The channels that do not lead back in a loop."""
        first = 0
        for edge in graph.output_edges_of(subtask.vertex):
            forward = edge.partitioning is Partitioning.FORWARD
            width = 1 if forward else graph.vertex(edge.target).parallelism
            match edge.partitioning:
                case Partitioning.HASH:
                    route = _by_key(output, first, width, plane, edge.key, graph.max_parallelism)
                case Partitioning.BROADCAST:
                    route = _to_every_one(output, first, width)
                case Partitioning.FORWARD | Partitioning.REBALANCE:
                    route = _in_turn(output, first, width, subtask.index)
            (self._aside.setdefault(edge.output, []) if edge.output else self._routes).append(route)
            self._ahead += [] if edge.feedback else range(first, first + width)
            first += width
        self._channels = first

    def emit(self, payload: Payload) -> None:
        """Send a batch along every edge of the main output."""
        for route in self._routes:
            route(payload)

    def emit_aside(self, output: str, payload: Payload) -> None:
        """Send a batch along every edge of a side output; nobody may want it."""
        for route in self._aside.get(output, ()):
            route(payload)

    def send_watermark(self, watermark: Watermark) -> None:
        """Append a watermark to every output channel, behind the records sent before (EVT-1); not round a loop, which
        ends when nothing goes round.
        """
        for channel in self._ahead:
            self._output.send_data(channel, watermark)

    def send_control(self, element: ChannelControl) -> None:
        """Append a control element to every output channel."""
        for channel in range(self._channels):
            self._output.send_control(channel, element)


def _by_key(
    output: ChannelOutput, first: int, width: int, plane: DataPlane, key: tuple[str, ...], groups: int
) -> _Route:
    def send(payload: Payload) -> None:
        for target, part in plane.partition(payload, key, width, groups):
            output.send_data(first + target, part)

    return send


def _to_every_one(output: ChannelOutput, first: int, width: int) -> _Route:
    def send(payload: Payload) -> None:
        for channel in range(first, first + width):
            output.send_data(channel, payload)

    return send


def _in_turn(output: ChannelOutput, first: int, width: int, start: int) -> _Route:
    """Rebalance, each edge with turns of its own; a forward edge has one receiver, whose turn it always is."""
    turns = count(start)

    def send(payload: Payload) -> None:
        output.send_data(first + next(turns) % width, payload)

    return send
