"""The planted bugs of job graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, WorkloadPlan
from barrier_tck.harness.reference.mutants import graph_bugs as graphs
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant, kill
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reference_impl.runtime.components import Components

_PLAN = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("lineage", batches=12, records_per_second=300),
    job=job_of("lineage", JobPlan(shape="mixed")),
)


def graph_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs that need more than one chain of operators to show."""
    here = "planted here, no public report"
    yield Mutant(
        "GR-01",
        "ALN-2",
        "A broadcast reaches its first subtask twice and its last subtask never.",
        here,
        replace(product, subtask_driver=graphs.BroadcastsTwiceToTheFirst),
        _PLAN,
    )
    yield Mutant(
        "GR-02",
        "ALN-2",
        "If two edges connect the same vertices, the second edge feeds the first edge's input.",
        here,
        replace(product, subtask_driver=graphs.FeedsTheFirstInput),
        _PLAN,
    )
    yield Mutant(
        "GR-03",
        "STA-1",
        "Only the first operator of a chain is part of the snapshot.",
        here,
        replace(product, subtask_driver=graphs.SnapshotsTheHeadOnly),
        _PLAN,
    )
    yield Mutant(
        "GR-04",
        "ALN-2",
        "Before a vertex without state, a hash edge sends batches to each receiver in turn, whatever their keys.",
        here,
        replace(product, subtask_driver=graphs.SpreadsKeysWithoutState),
        _PLAN,
    )
    yield Mutant(
        "GR-05",
        "BAR-2",
        "A sink writes its gathered rows in reverse order.",
        here,
        replace(product, build_operator=graphs.writes_backwards),
        _PLAN,
    )
    yield Mutant(
        "GR-06",
        "SNK-1",
        "Every sink commits its rows under the name of the first sink.",
        here,
        replace(product, build_operator=graphs.takes_the_others_name),
        _PLAN,
    )
    yield Mutant(
        "GR-07",
        "SNK-1",
        "The job ends when its last sink vertex has read everything; the other sinks may not have.",
        here,
        replace(product, coordinator_machine=graphs.WaitsForOneSinkVertex),
        msgspec.structs.replace(_PLAN, job=job_of("lineage", JobPlan(shape="apart"))),
    )
    yield Mutant(
        "AO-04",
        "ALO-2",
        "In at-least-once mode a restored source emits its first batch twice, because duplicates are allowed there.",
        here,
        replace(product, subtask_driver=graphs.EmitsTheFirstBatchAgain),
        msgspec.structs.replace(
            _PLAN,
            checkpoints=CheckpointPlan(mode="at_least_once"),
            faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "out1[0]", worker=True),
        ),
    )
