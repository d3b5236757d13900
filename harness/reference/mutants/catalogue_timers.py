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
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, SPARK, Mutant, kill
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reference_impl.runtime.components import Components

_PLAN = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("lineage", batches=20, records_per_second=300),
    job=job_of("lineage", JobPlan("windows", {"windows": 2})),
    checkpoints=CheckpointPlan(interval_ms=15),
)


def _first_only(plan: TrialPlan, size_ms: int) -> TrialPlan:
    """Return a plan in which one record of each split comes to the windows, while the input goes on for long."""
    changed = {"first": {"every": 100_000}, "windows": {"size_ms": size_ms}}
    vertices = tuple(
        msgspec.structs.replace(vertex, parameters=changed.get(vertex.name, vertex.parameters))
        for vertex in plan.job.vertices
    )
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, vertices=vertices))


_FIRST_ONLY = msgspec.structs.replace(
    _first_only(_PLAN, 200),
    workload=WorkloadPlan("lineage", batches=60, batch_records=2, records_per_second=100),
    limits=LimitsPlan(virtual_ms=10_000, progress_ms=400),
)
_KILLED = kill(ProtocolPoint.COMPLETION_NOTIFIED, "windows[0]", worker=True)
_ON_SPARK = msgspec.structs.replace(
    _first_only(msgspec.structs.replace(SPARK, job=_PLAN.job), 2_000),
    workload=WorkloadPlan("lineage", batches=240, batch_records=20, keys=40, records_per_second=400),
    limits=LimitsPlan(wall_s=60, progress_ms=2_000),
)
"""Twelve seconds of input, and a window of two, of which one is left when its records are restored."""


def timer_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs of timers."""

    def bug(
        name: str,
        what: str,
        operator: type,
        plan: TrialPlan = _PLAN,
        source: str = "planted here, no public report",
        on_spark: TrialPlan | None = None,
    ) -> Mutant:
        changed = replace(product, build_operator=partial(bugs.with_timers, operator))
        return Mutant(name, "STA-1", what, source, changed, plan, on_spark)

    yield bug(
        "TI-02",
        "Timers that were restored do not go off before a record comes.",
        bugs.NotWokenByARestore,
        msgspec.structs.replace(_FIRST_ONLY, faults=_KILLED),
        "bytewax ae87405f",
        msgspec.structs.replace(_ON_SPARK, faults=_KILLED),
    )
    yield bug("TI-03", "Timers go off only at the end of the input.", bugs.OnlyAtTheEnd, _FIRST_ONLY)
    yield bug(
        "TI-04",
        "Values are part of the snapshot, and timers are not.",
        bugs.KeepsTimersInMemory,
        source="hazelcast-jet f15b30fb78",
        on_spark=_ON_SPARK,
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
        source="FLINK-39589",
    )
    yield Mutant(
        "TI-08",
        "ALN-2",
        "Timers that are due go off between the snapshot and the barrier.",
        "planted by others into this version",
        replace(product, subtask_driver=bugs.FiresBeforeTheBarrier),
        msgspec.structs.replace(_PLAN, checkpoints=CheckpointPlan(interval_ms=6)),
    )
