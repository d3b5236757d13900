"""The executors of the simulated world, and how many subtasks they have room for."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from barrier_tck.harness.plan.trial_plan import DeploymentPlan
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.hosts import SimulatedHost, SimulatedHosts
from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedExecutor


class Lost(Enum):
    """What is lost when an executor dies."""

    PROCESS = "the process"
    """Another one starts on the same host."""
    HOST = "the host"
    """Another one starts on another host, whose disk is empty."""
    HOST_THAT_RETURNS = "the host, for a moment"
    """Another one starts on a host of the same name, whose disk is empty."""
    FOR_GOOD = "the host, for good"
    """Nothing takes its place."""


class SimulatedExecutors:
    """The present executors, in their order; one that is replaced at once leaves its place to its successor."""

    def __init__(
        self,
        planned: DeploymentPlan,
        disk: SimulatedDisk,
        real_directory: str | None,
        memory_bytes: int | None,
        scheduler: Scheduler,
    ) -> None:
        self.slots_changed: Callable[[int], None] = lambda slots: None
        """Called with the number of slots whenever it has changed."""
        self._slots_each = planned.slots_per_executor
        self._replaced_after_ms = planned.replaced_after_ms
        self._scheduler = scheduler
        self._coming = 0
        self._started = 0
        self.hosts = SimulatedHosts(planned.executors, disk, real_directory, memory_bytes)
        self.present = [self._new(host) for host in self.hosts.hosts]

    @property
    def slots(self) -> int | None:
        """Return how many subtasks there is room for; None: for any number."""
        return None if self._slots_each is None else self._slots_each * len(self.present)

    @property
    def lasting(self) -> int:
        """Return how many there are, with those that are about to take the place of one that died."""
        return len(self.present) + self._coming

    def lose(self, executor: SimulatedExecutor, lost: Lost) -> SimulatedHost:
        """Lose one, and start another in its place unless it is gone for good; return the host that is there then."""
        executor.alive = False
        if lost is Lost.FOR_GOOD:
            self.present.remove(executor)
            self.hosts.lose(executor.host)
            self._notify()
            return executor.host
        if lost is Lost.PROCESS:
            host = self.hosts.executor_died(executor.host)
        else:
            host = self.hosts.replace(executor.host, returns=lost is Lost.HOST_THAT_RETURNS)
        if self._replaced_after_ms:
            self.present.remove(executor)
            self._coming += 1
            self._notify()
            self._scheduler.at(self._scheduler.now + self._replaced_after_ms, self._replace, (executor, host))
        else:
            executor.successor = self.present[self.present.index(executor)] = self._new(host)
        return host

    def _replace(self, lost: tuple[SimulatedExecutor, SimulatedHost]) -> None:
        executor, host = lost
        self._coming -= 1
        executor.successor = self._new(host)
        self.present.append(executor.successor)
        self._notify()

    def _notify(self) -> None:
        if self.slots is not None:
            self.slots_changed(self.slots)

    def _new(self, host: SimulatedHost) -> SimulatedExecutor:
        self._started += 1
        return SimulatedExecutor(self._started - 1, host.shared, host)
