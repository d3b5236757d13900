"""The planted bugs of job graphs, and the graphs that show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, WorkloadPlan
from barrier_tck.harness.reference.mutants import graph_bugs as graphs
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant, kill
from barrier_tck.harness.workloads.lineage import source
from barrier_tck.reference_impl.runtime.components import Components

_KEY = ("key",)
_SPREAD = JobPlan(
    vertices=(
        source("read"),
        VertexPlan("spread", "rekey", 2, {"by": 2}),
        VertexPlan("twice", "keep", 2, then=(OperatorPlan("twice.keep", "keep"),)),
        VertexPlan("out0", SINK, 2),
        VertexPlan("out1", SINK, 1),
    ),
    edges=(
        EdgePlan("read", "spread", Spread.HASH, _KEY),
        EdgePlan("read", "twice", Spread.HASH, _KEY),
        EdgePlan("read", "twice", Spread.HASH, _KEY, 1),
        EdgePlan("spread", "out0", Spread.BROADCAST),
        EdgePlan("spread", "out1", Spread.REBALANCE),
        EdgePlan("twice", "out1", Spread.REBALANCE),
    ),
)
"""A broadcast, two edges between the same vertices, a chain of stateful operators, two sinks that share a sender."""

_APART = JobPlan(
    vertices=(
        source("long", 1),
        source("short", 1),
        VertexPlan("out0", SINK, 1),
        VertexPlan("out1", SINK, 1),
    ),
    edges=(EdgePlan("long", "out0", Spread.FORWARD), EdgePlan("short", "out1", Spread.FORWARD)),
)
"""Two pipelines side by side."""

_PLAN = msgspec.structs.replace(
    SIMULATED, workload=WorkloadPlan("lineage", batches=12, records_per_second=300), job=_SPREAD
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
        msgspec.structs.replace(_PLAN, job=_APART),
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
