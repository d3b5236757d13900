"""The planted bugs of loops and of Chandy-Lamport."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    WorkloadPlan,
)
from barrier_tck.harness.reference.mutants import data_bugs as data
from barrier_tck.harness.reference.mutants import loop_bugs as loops
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, SPARK, Mutant
from barrier_tck.harness.workloads.staged_jobs import FORKED, ONE_RECORD
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reference_impl.runtime.components import Components

LOOP = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("rounds", batches=8, records_per_second=300),
    job=job_of("rounds", JobPlan(shape="loop")),
    limits=LimitsPlan(virtual_ms=2_500),
)
"""A loop that is never empty while its input lasts."""

HIDDEN = msgspec.structs.replace(
    LOOP, workload=ONE_RECORD, job=FORKED, network=NetworkPlan(latency_ms_max=12)
)
"""One record goes round, and each time a copy of it goes another way and ends there."""

MESH = msgspec.structs.replace(
    LOOP,
    job=job_of("rounds", JobPlan(shape="exchange")),
    checkpoints=CheckpointPlan(
        protocol="chandy_lamport",
        initiators=(("hub[1]",), ("hub[0]", "hub[2]")),
        interval_ms=10,
        max_concurrent=3,
    ),
    network=NetworkPlan(latency_ms_max=10),
)
"""Chandy-Lamport among processes that all reach each other; several snapshots overlap."""

MONEY = msgspec.structs.replace(
    MESH,
    workload=WorkloadPlan("money", batches=8, records_per_second=300),
    job=job_of("money", JobPlan(shape="exchange")),
    checkpoints=msgspec.structs.replace(MESH.checkpoints, initiators=(("bank[1]",), ("bank[0]", "bank[2]"))),
)
"""The same with money, which every snapshot must conserve."""

LABELS = msgspec.structs.replace(
    LOOP,
    workload=WorkloadPlan("components", batches=8, keys=3, records_per_second=300),
    job=job_of("components", JobPlan(shape="labels")),
)
"""An iterative algorithm whose operator keeps two states."""

SPARK_LOOP = msgspec.structs.replace(
    SPARK,
    workload=WorkloadPlan("rounds", batches=30, batch_records=5, keys=12, records_per_second=100),
    job=LOOP.job,
    deployment=DeploymentPlan(executors=3, slow_vertex="head", slow_batch_ms=20),
    checkpoints=CheckpointPlan(interval_ms=200, timeout_ms=20_000),
)
"""A loop between executors, one vertex of which is slow: records wait on the feedback edge."""

SPARK_MESH = msgspec.structs.replace(
    SPARK_LOOP,
    job=MESH.job,
    deployment=DeploymentPlan(executors=3, slow_vertex="hub", slow_batch_ms=20),
    checkpoints=msgspec.structs.replace(MESH.checkpoints, interval_ms=100, timeout_ms=20_000),
)
"""Chandy-Lamport between executors; records wait on every channel between the slow processes."""


def loop_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs that need a loop, or channels that are recorded, to show."""
    here = "planted here, no public report"
    yield Mutant(
        "LP-01",
        "REC-6",
        "One wave of counts ends a loop, whatever it says.",
        here,
        replace(product, loop_termination=loops.EndsAfterOneWave),
        LOOP,
        SPARK_LOOP,
    )
    yield Mutant(
        "LP-02",
        "REC-6",
        "A loop ends after one wave in which as much was taken as was sent, whatever the wave before said.",
        "planted by others into version 0.1.0",
        replace(product, loop_termination=loops.ComparesNoWaves),
        HIDDEN,
    )
    yield Mutant(
        "CL-01",
        "CHL-5",
        "Records in flight on a feedback edge are not part of the snapshot.",
        "FLINK-3257",
        replace(product, subtask_driver=loops.ForgetsTheBackEdge),
        LOOP,
        SPARK_LOOP,
    )
    yield Mutant(
        "CL-02",
        "CHL-2",
        "The channels are recorded for one checkpoint at a time; a newer one ends the recording of the older.",
        "FLINK-17533",
        replace(product, subtask_machine=loops.RecordsOneCheckpointAtATime),
        MESH,
        SPARK_MESH,
    )
    yield Mutant(
        "CL-03",
        "CHL-2",
        "A process that recorded itself deals with one more batch before it sends its markers.",
        here,
        replace(product, subtask_driver=loops.SendsMarkersLate),
        MESH,
        SPARK_MESH,
    )
    yield Mutant(
        "CL-04",
        "CHL-2",
        "A marker overtakes a message that was sent before it.",
        here,
        replace(product, subtask_driver=loops.MarkersOvertake),
        MESH,
        SPARK_MESH,
    )
    yield Mutant(
        "CL-05",
        "CHL-2",
        "The first marker that comes back closes every channel.",
        here,
        replace(product, subtask_machine=loops.ClosesAtTheFirstMarker),
        MESH,
        SPARK_MESH,
    )
    yield Mutant(
        "CL-06",
        "CHL-2",
        "A channel is recorded beyond its marker, until the last one is closed.",
        here,
        replace(product, subtask_machine=loops.ClosesWithTheLastMarker),
        MESH,
        SPARK_MESH,
    )
    yield Mutant(
        "CL-07",
        "CHL-1",
        "Whoever is to initiate a snapshot, the sources do.",
        here,
        replace(product, coordinator_machine=loops.InitiatesAtSources),
        MESH,
        SPARK_MESH,
    )
    yield Mutant(
        "CW-01",
        "SNP-1",
        "The first change of a key group after a snapshot is made before the table is copied, and is in the snapshot.",
        here,
        replace(product, state_backend=data.WritesBeforeItCopies),
        MONEY,
    )
    yield Mutant(
        "CW-02",
        "SNP-1",
        "Only the first of an operator's states is copied on write; changes of the others are in the snapshot.",
        here,
        replace(product, state_backend=data.SharesTheFirstState),
        LABELS,
    )
