"""Heartbeats in virtual time: how the coordinator notices a subtask that is silent without closing its connection.

The runtime decides when silence means loss (``barrier_tck.reference_impl.protocol.heartbeats``). Heartbeats of
healthy subtasks cannot be late, so they are not simulated. A subtask is watched from the moment at which it is paused
or its control connection is disturbed, until it is healthy again or lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from barrier_tck.harness.plan.trial_plan import NetworkPlan
from barrier_tck.harness.reference.simulated.randomness import stream
from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedSubtask
from barrier_tck.reference_impl.protocol.heartbeats import FailureDetector

HEARTBEAT_INTERVAL_MS = 15.0
HEARTBEAT_TIMEOUT_MS = 150.0
"""Both are a thirtieth of the values on Spark, like all times in simulated plans."""


_STEP_MS = 2.0
"""How long the coordinator takes at the most to end an attempt whose subtask is lost."""


def silence_noticed_ms(network: NetworkPlan) -> float:
    """Return within how many milliseconds a subtask that falls silent is lost: its last heartbeat may still be under
    way, and is looked for once in an interval.
    """
    slowest = network.latency_ms_max * (1 if network.slow_channel is None else network.slow_factor)
    return HEARTBEAT_TIMEOUT_MS + HEARTBEAT_INTERVAL_MS + slowest + _STEP_MS


class Heartbeats:
    """Sends the heartbeats of watched subtasks and looks for silent ones."""

    def __init__(
        self,
        scheduler: Scheduler,
        seed: int,
        detector: FailureDetector,
        is_awaited: Callable[[SimulatedSubtask], bool],
        is_disturbed: Callable[[SimulatedSubtask], bool],
    ) -> None:
        """Start without a watched subtask.

        ``is_awaited`` says whether the coordinator that deployed a subtask still waits for it, ``is_disturbed``
        whether its control connection is disturbed.
        """
        self._scheduler = scheduler
        self._seed = seed
        self._detector = detector
        self._is_awaited = is_awaited
        self._is_disturbed = is_disturbed

    @cached_property
    def _draw(self) -> Callable[[], float]:
        """The random stream of all heartbeats, made late because most trials need none and making one takes time."""
        return stream(self._seed, "heartbeats").random

    def watch(self, process: SimulatedSubtask) -> None:
        """Watch a subtask from now on; its last heartbeat came at most one interval ago."""
        if process.watched:
            return
        process.watched = True
        scheduler = self._scheduler
        process.last_heard = scheduler.now - self._draw() * HEARTBEAT_INTERVAL_MS
        scheduler.at(process.last_heard + HEARTBEAT_INTERVAL_MS, self._beat, process)

    def _beat(self, process: SimulatedSubtask) -> None:
        scheduler = self._scheduler
        if not self._is_awaited(process):
            return
        if process.alive and not process.frozen:
            assert process.to_coordinator is not None
            process.to_coordinator.send(process, self._beat_arrived)
            if not self._is_disturbed(process):
                process.watched = False
                return
        if self._detector.is_lost(scheduler.now - process.last_heard):
            process.coordinator.lost(process, f"was silent for more than {HEARTBEAT_TIMEOUT_MS:.0f} ms")
            return
        scheduler.at(scheduler.now + HEARTBEAT_INTERVAL_MS, self._beat, process)

    def _beat_arrived(self, process: SimulatedSubtask) -> None:
        process.last_heard = self._scheduler.now
