"""The planted bugs of timers (STA-1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import msgspec

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, LimitsPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.mutants import timer_bugs as bugs
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant, kill
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reference_impl.runtime.components import Components

_PLAN = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("lineage", batches=20, records_per_second=300),
    job=job_of("lineage", JobPlan("windows", {"windows": 2})),
    checkpoints=CheckpointPlan(interval_ms=15),
)


def _first_only(plan: TrialPlan) -> TrialPlan:
    """Return a plan in which one record of each split comes to the windows, while the input goes on for long."""
    changed = {"first": {"every": 100_000}, "windows": {"size_ms": 200}}
    vertices = tuple(
        msgspec.structs.replace(vertex, parameters=changed.get(vertex.name, vertex.parameters))
        for vertex in plan.job.vertices
    )
    return msgspec.structs.replace(
        plan,
        job=msgspec.structs.replace(plan.job, vertices=vertices),
        workload=WorkloadPlan("lineage", batches=60, batch_records=2, records_per_second=100),
        limits=LimitsPlan(virtual_ms=10_000, progress_ms=400),
    )


def timer_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs of timers."""

    def bug(
        name: str, what: str, operator: type, plan: TrialPlan, source: str = "planted here, no public report"
    ) -> Mutant:
        changed = replace(product, build_operator=partial(bugs.with_timers, operator))
        return Mutant(name, "STA-1", what, source, changed, plan)

    killed = kill(ProtocolPoint.CHECKPOINT_COMPLETED, "windows[0]", nth=2, worker=True)
    yield bug(
        "TI-02",
        "Timers that were restored do not go off before a record comes.",
        bugs.NotWokenByARestore,
        msgspec.structs.replace(_first_only(_PLAN), faults=killed),
        "bytewax ae87405f",
    )
    yield bug("TI-03", "Timers go off only at the end of the input.", bugs.OnlyAtTheEnd, _first_only(_PLAN))
    yield bug(
        "TI-04",
        "Values are part of the snapshot, and timers are not.",
        bugs.KeepsTimersInMemory,
        _PLAN,
        "hazelcast-jet f15b30fb78",
    )
    yield bug(
        "TI-05",
        "A timer that has gone off is forgotten in memory only, and goes off again after a restore.",
        bugs.LeavesTimersInTheState,
        _PLAN,
    )
    yield bug("TI-06", "At the end of the input, timers do not go off.", bugs.ForgetsTimersAtTheEnd, _PLAN)
    yield bug(
        "TI-07",
        "Whatever key a timer belongs to, the function is given the key of the last record.",
        bugs.FiresForTheLastKey,
        _PLAN,
        "FLINK-39589",
    )
