"""What describes a planted bug, and the plans on which most of them are run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.reference_impl.runtime.components import Components

TRIES = 40
"""Number of plans per mutant in the simulator; each bug of the catalogue shows within a few of them."""


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    id: str
    clause: str
    """The clause that it mainly breaks."""
    description: str
    source: str
    """The real bug that it reproduces."""
    components: Components
    plan: TrialPlan
    """A simulated plan in which the bug can show; ``plans`` varies the seed."""
    spark_plan: TrialPlan | None = None
    """A plan for the Spark world, if the bug is also looked for there."""

    @property
    def worlds(self) -> tuple[str, ...]:
        """Return the worlds in which the bug is looked for."""
        return ("simulated",) if self.spark_plan is None else ("simulated", "spark")

    def plans(self, world: str) -> Iterator[TrialPlan]:
        """Yield the plans for a world, at most ``TRIES``; none if the bug is not looked for there."""
        base = self.plan if world == "simulated" else self.spark_plan
        if base is None:
            return
        for seed in range(TRIES if world == "simulated" else 4):
            yield msgspec.structs.replace(base, seed=seed, mutant=self.id)


def kill(
    point: ProtocolPoint, subtask: str, nth: int = 1, worker: bool = False
) -> tuple[ScheduledFault, ...]:
    """Return one kill, of a subtask's executor or of its worker alone, at a protocol point."""
    fault: Fault = KillWorker(subtask) if worker else KillExecutor(subtask)
    return (ScheduledFault(fault, After(point, subtask, nth)),)


def interruption(nth: int) -> tuple[ScheduledFault, ...]:
    """Return the kill of a worker that interrupts the restore of the others."""
    return kill(ProtocolPoint.RESTORE_STARTED, "source[1]", nth, worker=True)


def pause(subtask: str, duration_ms: int, point: ProtocolPoint, nth: int = 1) -> tuple[ScheduledFault, ...]:
    """Return one pause of a subtask's worker."""
    return (ScheduledFault(PauseWorker(subtask, duration_ms), After(point, subtask, nth)),)


SIMULATED = TrialPlan(limits=LimitsPlan(virtual_ms=5_000), note="a plan for planted bugs")
WITH_KILL = msgspec.structs.replace(
    SIMULATED, faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "totals[0]", worker=True)
)

WITH_ZOMBIE = msgspec.structs.replace(SIMULATED, workload=WorkloadPlan(batches=200, records_per_second=600))
"""Runs long enough that a subtask which was replaced while it was paused wakes up while its successor still runs."""

AT_LEAST_ONCE = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan(batches=40, records_per_second=600),
    checkpoints=CheckpointPlan(mode="at_least_once", interval_ms=8, max_concurrent=3, async_ms_max=20),
    network=NetworkPlan(slow_channel=0, slow_factor=6),
)
"""One of two channels into a keyed subtask is slow, and several checkpoints are in flight."""

SPARK = TrialPlan(
    workload=WorkloadPlan("keyed-totals", batches=60, batch_records=200, keys=40, records_per_second=4_000),
    deployment=DeploymentPlan(executors=3),
    checkpoints=CheckpointPlan(interval_ms=500, timeout_ms=20_000, retained=3),
    restart=RestartPlan(attempts_max=4, delay_ms=50),
    limits=LimitsPlan(wall_s=60),
    note="a plan for planted bugs, on Spark",
)


SPARK_GRAPH = msgspec.structs.replace(
    SPARK,
    workload=WorkloadPlan("lineage", batches=60, batch_records=20, keys=40, records_per_second=400),
    job=JobPlan(shape="joined"),
    network=NetworkPlan(latency_ms_max=50, slow_channel=0, slow_factor=6),
)
"""A vertex with two inputs keeps state, and one of the channels of its first input is slow."""

SPARK_AT_LEAST_ONCE = msgspec.structs.replace(
    SPARK,
    checkpoints=CheckpointPlan(mode="at_least_once", interval_ms=500, timeout_ms=20_000, max_concurrent=2),
    network=SPARK_GRAPH.network,
)
"""One of two channels into a keyed subtask is slow."""


def spark(*faults: ScheduledFault) -> TrialPlan:
    """Return the plan for Spark with these faults."""
    return msgspec.structs.replace(SPARK, faults=faults)
