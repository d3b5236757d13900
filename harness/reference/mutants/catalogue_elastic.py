"""The planted bugs of elastic jobs (RSC-2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.lose_executor import LoseExecutor
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.reference.mutants import elastic_bugs as bugs
from barrier_tck.harness.reference.mutants.data_bugs import with_sink
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, SPARK, Mutant
from barrier_tck.reference_impl.runtime.components import Components

OURS = "planted here, no public report"

_PLAN = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("keyed-totals", batches=30, keys=20, records_per_second=600),
    job=JobPlan("", {"source": 3, "totals": 4}),
    deployment=DeploymentPlan(executors=3, slots_per_executor=3, elastic_wait_ms=20),
    checkpoints=CheckpointPlan(interval_ms=15, async_ms_max=4),
    faults=(ScheduledFault(LoseExecutor("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),),
)
"""Eight subtasks, and slots for six once an executor is lost for good."""
_FIXED = msgspec.structs.replace(
    _PLAN, deployment=msgspec.structs.replace(_PLAN.deployment, fixed_vertices=("totals",))
)

_SINKS = msgspec.structs.replace(
    _PLAN,
    job=JobPlan("", {"source": 2, "totals": 2, "sink": 4}),
    faults=(ScheduledFault(LoseExecutor("sink[0]"), After(ProtocolPoint.SNAPSHOT_TAKEN, "sink[3]", nth=2)),),
)
"""Four sinks, of which two are left; the last one has prepared a transaction for a checkpoint that fails."""
_LOOP = msgspec.structs.replace(
    _PLAN,
    workload=WorkloadPlan("rounds", batches=20, keys=5, records_per_second=300),
    job=JobPlan("loop", {"read": 2, "head": 3, "again": 1, "out": 2}),
    faults=(ScheduledFault(LoseExecutor("out[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),),
    limits=LimitsPlan(virtual_ms=4_000),
)
"""The four subtasks of the loop stay, and the others give up two."""
_ONE_BY_ONE = msgspec.structs.replace(
    _PLAN,
    workload=WorkloadPlan("lineage", batches=40, batch_records=3, keys=20, records_per_second=600),
    job=JobPlan("line", {"read": 1, "keep": 2, "out": 4}),
    deployment=DeploymentPlan(executors=7, slots_per_executor=1, elastic_wait_ms=5),
    restart=RestartPlan(attempts_max=6, delay_ms=5),
    on_unreadable="older",
    faults=tuple(
        ScheduledFault(LoseExecutor(sink), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth))
        for sink, nth in (("out[3]", 3), ("out[0]", 4))
    ),
)
"""Four sinks, then three, then two: who has prepared something is lost, and then who has taken it over."""
_PAIR = msgspec.structs.replace(
    _PLAN,
    workload=WorkloadPlan("lineage", batches=40, batch_records=3, keys=20, records_per_second=600),
    job=JobPlan("line", {"read": 4, "keep": 3, "out": 3}),
    deployment=DeploymentPlan(executors=3, slots_per_executor=4, elastic_wait_ms=20),
    faults=(ScheduledFault(LoseExecutor("out[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),),
)
"""Ten subtasks, and eight slots after the loss: the pair gives up two, so the source, which had given up one, gets it
back.
"""
_IN_TIME = msgspec.structs.replace(
    _PLAN,
    workload=WorkloadPlan("keyed-totals", batches=60, keys=20, records_per_second=600),
    deployment=msgspec.structs.replace(_PLAN.deployment, replaced_after_ms=20, elastic_wait_ms=30),
    faults=tuple(
        ScheduledFault(KillExecutor("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth))
        for nth in (2, 6)
    ),
)
"""Each executor that dies is replaced before the job has waited for long enough."""
_IN_TIME_ON_SPARK = msgspec.structs.replace(
    SPARK,
    workload=WorkloadPlan("keyed-totals", batches=120, batch_records=200, keys=40, records_per_second=4_000),
    job=JobPlan("", {"source": 2, "totals": 5, "sink": 1}),
    deployment=DeploymentPlan(executors=3, slots_per_executor=3, elastic_wait_ms=5_000),
    checkpoints=CheckpointPlan(interval_ms=300, timeout_ms=20_000, retained=3),
    faults=tuple(
        ScheduledFault(KillExecutor("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth))
        for nth in (2, 12)
    ),
)
"""Spark itself replaces an executor, after two or three seconds. The second one dies more than five after the first."""


def elastic_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs of elastic jobs."""

    def bug(
        name: str,
        clause: str,
        what: str,
        plan: TrialPlan = _PLAN,
        on_spark: TrialPlan | None = None,
        **changed: Any,
    ) -> Mutant:
        return Mutant(name, clause, what, OURS, replace(product, **changed), plan, on_spark)

    yield bug(
        "EL-01",
        "REC-6",
        "A job that goes on narrower takes one slot more than there is, so it is never deployed again.",
        narrow=bugs.TakesOneSlotTooMany(),
    )
    yield bug(
        "EL-02",
        "RSC-2",
        "A job that goes on narrower changes vertices that are to keep their parallelism.",
        _FIXED,
        narrow=bugs.NarrowsWhateverIsFixed(),
    )
    yield bug(
        "EL-03",
        "RSC-2",
        "A job that goes on narrower has one subtask for each vertex, however many slots are left.",
        narrow=bugs.NarrowsToOne(),
    )
    yield bug(
        "EL-04",
        "REC-1",
        "When a job goes on narrower, nobody takes over the key groups of subtasks that are gone.",
        redistribute=bugs.LeavesStateOfLostSubtasks(),
    )
    yield bug(
        "EL-05",
        "REC-6",
        "The coordinator waits for subtasks that a narrower job does not have.",
        coordinator_machine=bugs.AwaitsEverybody,
    )
    yield bug(
        "EL-06",
        "COO-3",
        "What sinks that a narrower job does not have left pending stays for ever.",
        _SINKS,
        build_operator=partial(with_sink, bugs.SweepsItsOwnOnly),
    )
    yield bug(
        "EL-07",
        "RSC-2",
        "A job that goes on narrower changes the vertices of a loop.",
        _LOOP,
        narrow=bugs.NarrowsLoops(),
    )
    yield bug(
        "EL-08",
        "SNK-1",
        "A prepared transaction goes on to the successor of who held it last; a sink sweeps that of who prepared it.",
        _ONE_BY_ONE,
        redistribute=bugs.HandsTransactionsOn(),
    )
    yield bug(
        "EL-09",
        "RSC-2",
        "A job that once waited for slots, and got them in time, does not wait the next time, and goes on narrower.",
        _IN_TIME,
        _IN_TIME_ON_SPARK,
        elasticity=bugs.WaitsOnlyOnce,
    )
    yield bug(
        "EL-10",
        "RSC-2",
        "When vertices that stay equally parallel gave up more than was missing, a slot stays empty.",
        _PAIR,
        narrow=bugs.LeavesSlotsEmpty(),
    )
