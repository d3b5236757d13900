"""The executors of the simulated world, and how many subtasks they have room for."""

from __future__ import annotations

from enum import Enum

from barrier_tck.harness.plan.trial_plan import DeploymentPlan
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.hosts import SimulatedHost, SimulatedHosts
from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedExecutor


class Lost(Enum):
    """What is lost when an executor dies."""

    PROCESS = "the process"
    """Another one starts on the same host."""
    HOST = "the host"
    """Another one starts on another host, whose disk is empty."""
    FOR_GOOD = "the host, for good"
    """Nothing takes its place."""


class SimulatedExecutors:
    """The present executors, in their order; whoever is replaced leaves its place to its successor."""

    def __init__(
        self,
        planned: DeploymentPlan,
        disk: SimulatedDisk,
        real_directory: str | None,
        memory_bytes: int | None,
    ) -> None:
        """Start as many as a plan has, each on a host of its own; see ``SimulatedHosts`` for directory and memory."""
        self._slots_each = planned.slots_per_executor
        self._disk = disk
        self._started = 0
        self.hosts = SimulatedHosts(planned.executors, real_directory, memory_bytes)
        self.present = [self._new(host) for host in self.hosts.hosts]

    @property
    def slots(self) -> int | None:
        """Return how many subtasks there is room for; None: for any number."""
        return None if self._slots_each is None else self._slots_each * len(self.present)

    def lose(self, executor: SimulatedExecutor, lost: Lost) -> SimulatedHost:
        """Lose one, and start another in its place unless it is gone for good; return the host that is there then."""
        executor.alive = False
        if lost is Lost.FOR_GOOD:
            self.present.remove(executor)
            self.hosts.lose(executor.host)
            return executor.host
        after = self.hosts.replace if lost is Lost.HOST else self.hosts.executor_died
        host = after(executor.host)
        self.present[self.present.index(executor)] = self._new(host)
        return host

    def _new(self, host: SimulatedHost) -> SimulatedExecutor:
        self._started += 1
        return SimulatedExecutor(self._started - 1, self._disk.host(), host)
