"""Disturbed connections of the simulated world: which pairs of ends are disturbed, how, and what breaks when they heal.

A disturbance belongs to a pair of ends, not to a connection: it is in force on the pair's open connections, including
those of zombies, and on every later one. Pairs are (sender, receiver) of a data channel, or (subtask,
``COORDINATOR``) of a control connection. On a data channel elements flow forward, and credits flow back.

What breaks, and who notices it, is the same as on Spark. A cut connection ends at once, and cannot be opened again
before it heals. A black hole ends nothing; but once it heals, a connection that lost something ends. A connection
that has reached its limit ends once everything that it carried has arrived. The receiver of a data channel that has
ended fails, and so does its sender when it sends. When a control connection has ended, the coordinator takes the
subtask for lost, and the subtask ends itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Protocol

from barrier_tck.faults.targets import COORDINATOR, Direction, Impairment
from barrier_tck.harness.reference.simulated.network import DataChannel, Disturbance, Link
from barrier_tck.harness.reference.simulated.randomness import stream
from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedSubtask

Pair = tuple[str, str]


class ConnectedWorld(Protocol):
    """A world whose connections can be disturbed."""

    def living(self, subtask: str) -> list[SimulatedSubtask]:
        """Return every living process of a subtask, zombies first."""

    def watch(self, process: SimulatedSubtask) -> None:
        """Check from now on whether the process is silent."""

    def break_control(self, process: SimulatedSubtask, arrived_ms: float = 0.0) -> None:
        """End a control connection; both ends notice it after ``arrived_ms``, when earlier messages have arrived."""

    def break_channel(self, channel: DataChannel, arrived_ms: float = 0.0) -> None:
        """End a data channel; its receiver notices it after ``arrived_ms``, when earlier elements have arrived."""


class Disturbances:
    """All disturbances of a world, by pair of ends."""

    def __init__(self, world: ConnectedWorld, seed: int) -> None:
        self._world = world
        self._seed = seed
        self._active: dict[Pair, list[Impairment]] = {}

    def add(self, pair: Pair, impairment: Impairment) -> None:
        """Disturb a pair's connections from now on; a cut ends those that are open."""
        self._active.setdefault(pair, []).append(impairment)
        self._apply(pair)
        if impairment.closes:
            self._break(pair, whole=True)

    def remove(self, pair: Pair, impairment: Impairment) -> None:
        """Undo one disturbance of a pair; connections that lost something end."""
        left = [other for other in self._active.get(pair, ()) if other is not impairment]
        if left:
            self._active[pair] = left
        else:
            self._active.pop(pair, None)
        self._apply(pair)
        if impairment.swallows:
            self._break(pair, whole=False)

    def holds(self, pair: Pair, impairment: Impairment) -> bool:
        """Return whether this very disturbance is in force."""
        return any(other is impairment for other in self._active.get(pair, ()))

    def any_on(self, pair: Pair) -> bool:
        """Return whether any disturbance of a pair's connections is in force."""
        return pair in self._active

    def is_cut(self, pair: Pair) -> bool:
        """Return whether a connection of the pair cannot be opened now."""
        return any(impairment.closes for impairment in self._active.get(pair, ()))

    def disturb_new(self, process: SimulatedSubtask) -> None:
        """Disturb the control connection and the outgoing channels of a process that was just connected."""
        if self._active:
            self._apply_control(process)
            for channel in process.outputs:
                assert channel.receiver is not None
                self._apply_to(channel, (process.text, channel.receiver.text))

    # --- inside ---------------------------------------------------------------------------------------------

    @cached_property
    def _draw(self) -> Callable[[], float]:
        """The random stream of all disturbances, made late because most trials need none and making one takes time."""
        return stream(self._seed, "disturbances").random

    def _of(
        self, pair: Pair, direction: Direction, close: Callable[[], None], before: Disturbance | None
    ) -> Disturbance | None:
        active = [
            impairment
            for impairment in self._active.get(pair, ())
            if impairment.direction in (direction, Direction.BOTH)
        ]
        return Disturbance(self._draw, active, close, before) if active else None

    def _apply(self, pair: Pair) -> None:
        if pair[1] == COORDINATOR:
            for process in self._world.living(pair[0]):
                self._apply_control(process)
        else:
            for channel in self._channels(pair):
                self._apply_to(channel, pair)

    def _apply_to(self, channel: DataChannel, pair: Pair) -> None:
        def close() -> None:
            self._world.break_channel(channel, channel.last_arrival_ms)

        channel.disturb(
            self._of(pair, Direction.FORWARD, close, channel.disturbance),
            self._of(pair, Direction.BACKWARD, close, channel.returning),
        )

    def _apply_control(self, process: SimulatedSubtask) -> None:
        pair = (process.text, COORDINATOR)
        for direction, link in zip((Direction.FORWARD, Direction.BACKWARD), _links(process), strict=True):

            def close(link: Link = link) -> None:
                self._world.break_control(process, link.last_arrival_ms)

            link.disturbance = self._of(pair, direction, close, link.disturbance)
        if pair in self._active:
            self._world.watch(process)

    def _break(self, pair: Pair, whole: bool) -> None:
        """End the pair's open connections: all of them, or only those that lost something."""
        world = self._world
        if pair[1] == COORDINATOR:
            for process in world.living(pair[0]):
                if whole or any(link.swallowed for link in _links(process)):
                    world.break_control(process)
        else:
            for channel in self._channels(pair):
                if (whole or channel.swallowed) and not channel.broken:
                    world.break_channel(channel)

    def _channels(self, pair: Pair) -> Iterator[DataChannel]:
        """Yield the channels of a pair of which at least one end is alive."""
        seen: list[DataChannel] = []
        for process in (*self._world.living(pair[0]), *self._world.living(pair[1])):
            for channel in (*process.outputs, *process.inputs):
                sender, receiver = channel.sender, channel.receiver
                if sender is None or receiver is None or (sender.text, receiver.text) != pair:
                    continue
                if not any(channel is other for other in seen):
                    seen.append(channel)
                    yield channel


def _links(process: SimulatedSubtask) -> tuple[Link, Link]:
    assert process.to_coordinator is not None and process.from_coordinator is not None
    return process.to_coordinator, process.from_coordinator
