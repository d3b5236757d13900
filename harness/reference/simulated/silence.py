"""Heartbeats in virtual time: how the coordinator notices a subtask that is silent, and closes no connection.

The runtime decides when silence means loss (``barrier_tck.reference_impl.protocol.heartbeats``). Heartbeats of healthy
subtasks cannot be late, so they are not simulated: a subtask is watched from the moment it is stopped or its
control connection is disturbed, until it is healthy again or lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barrier_tck.faults.vocabulary import COORDINATOR
from barrier_tck.harness.reference.simulated.randomness import stream

if TYPE_CHECKING:
    from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedSubtask
    from barrier_tck.harness.reference.simulated.world import SimulatedWorld

HEARTBEAT_INTERVAL_MS = 15.0
HEARTBEAT_TIMEOUT_MS = 150.0
"""Both a thirtieth of what they are on Spark, as all times of simulated plans."""


class Heartbeats:
    """Sends the heartbeats of watched subtasks and looks for silent ones."""

    def __init__(self, world: SimulatedWorld) -> None:
        """Watch nobody."""
        self._world = world
        self._draw = stream(world.plan.seed, "heartbeats").random
        self._detector = world.components.failure_detector(HEARTBEAT_TIMEOUT_MS)

    def watch(self, process: SimulatedSubtask) -> None:
        """Watch a subtask from now on; the last heartbeat that came was up to an interval ago."""
        if process.watched:
            return
        process.watched = True
        scheduler = self._world.scheduler
        process.last_heard = scheduler.now - self._draw() * HEARTBEAT_INTERVAL_MS
        scheduler.at(process.last_heard + HEARTBEAT_INTERVAL_MS, self._beat, process)

    def _beat(self, process: SimulatedSubtask) -> None:
        world = self._world
        scheduler, coordinator = world.scheduler, world.coordinator
        over = world.processes.get(process.subtask) is not process or coordinator.driver.ended
        if over or process.coordinator is not coordinator:
            return  # nobody waits for it any more
        if process.alive and not process.frozen:
            assert process.to_coordinator is not None
            process.to_coordinator.send(process, self._heard)
            if not world.disturbances.any_on((process.text, COORDINATOR)):
                process.watched = False
                return
        if self._detector.is_lost(scheduler.now - process.last_heard):
            coordinator.lost(process, f"was silent for more than {HEARTBEAT_TIMEOUT_MS:.0f} ms")
            return
        scheduler.at(scheduler.now + HEARTBEAT_INTERVAL_MS, self._beat, process)

    def _heard(self, process: SimulatedSubtask) -> None:
        process.last_heard = self._world.scheduler.now
