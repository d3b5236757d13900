"""The planted bugs of sources, sinks and triggers that were reported from systems with other parts than ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, NetworkPlan, SavepointPlan, WorkloadPlan
from barrier_tck.harness.reference.mutants import control_bugs as control
from barrier_tck.harness.reference.mutants import sink_bugs as sinks
from barrier_tck.harness.reference.mutants import source_bugs as sources
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant, kill
from barrier_tck.reference_impl.runtime.components import Components

_LONG = msgspec.structs.replace(SIMULATED, workload=WorkloadPlan(batches=60, records_per_second=600))
_EXPIRING = msgspec.structs.replace(
    _LONG, checkpoints=CheckpointPlan(interval_ms=15, timeout_ms=40, async_ms_max=46, retained=2)
)
"""Every second checkpoint or so expires."""
_CROWDED = CheckpointPlan(interval_ms=6, max_concurrent=3, async_ms_max=30)


def source_and_sink_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs of sources, of triggers, and of two-phase commits."""
    yield Mutant(
        "AL-05",
        "BAR-1",
        "A source takes its snapshot before it applies what the barrier carries: it emits a batch and then stops.",
        "risingwave #5168",
        replace(product, subtask_driver=sources.SnapshotsBeforeItStops),
        msgspec.structs.replace(
            _LONG,
            checkpoints=CheckpointPlan(interval_ms=50, retained=2),
            savepoints=(SavepointPlan(after_checkpoints=1, stop=True),),
        ),
    )
    yield Mutant(
        "CO-02",
        "REC-6",
        "A trigger that waits for a slot is forgotten when the checkpoint in flight is aborted; no checkpoint follows.",
        "FLINK-13256",
        replace(product, coordinator_machine=control.StopsAfterAnAbort),
        _EXPIRING,
    )
    yield Mutant(
        "SO-04",
        "SRC-1",
        "Sources resume at the last checkpoint whose notification was answered, not at the one that is restored.",
        "FLINK-20290, FLINK-20396",
        replace(product, coordinator_machine=sources.ResumesAtTheNotified),
        msgspec.structs.replace(
            SIMULATED, faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth=2, worker=True)
        ),
    )
    yield Mutant(
        "SO-05",
        "STA-3",
        "A split that is being handed over while a snapshot is taken is in nobody's part of it.",
        "FLINK-21996, FLINK-18071",
        replace(product, wrap_reader=sources.LosesTheSplitOnItsWay),
        msgspec.structs.replace(
            SIMULATED,
            workload=WorkloadPlan(records_per_second=200),
            checkpoints=CheckpointPlan(interval_ms=4),
            faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "totals[0]", nth=2, worker=True),
        ),
    )
    yield Mutant(
        "SI-05",
        "SNK-1",
        "Nothing is recorded for a checkpoint before which no record came, not even what is prepared for older ones.",
        "risingwave #26498, risingwave #25690",
        replace(product, build_operator=sinks.records_nothing_when_idle),
        msgspec.structs.replace(
            SIMULATED,
            workload=WorkloadPlan(records_per_second=200),
            checkpoints=CheckpointPlan(interval_ms=4, max_concurrent=3, async_ms_max=30),
            faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth=2, worker=True),
        ),
    )
    yield Mutant(
        "SI-06",
        "SNK-1",
        "What is prepared when a notification comes counts as prepared for that checkpoint, even if it is newer.",
        "iceberg #15846",
        replace(product, build_operator=sinks.commits_for_the_current_one),
        msgspec.structs.replace(
            _LONG,
            checkpoints=msgspec.structs.replace(_CROWDED, mode="unaligned"),
            network=NetworkPlan(channel_capacity=2),
            faults=kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", nth=2, worker=True),
        ),
    )
    yield Mutant(
        "SI-07",
        "SNK-1",
        "After a restore the sink skips what is not newer than the highest checkpoint that anybody committed.",
        "iceberg #10892",
        replace(product, build_operator=sinks.compares_with_the_highest),
        msgspec.structs.replace(
            _LONG,
            job=JobPlan(widths={"sink": 2}),
            faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[1]", nth=2, worker=True),
        ),
    )
    yield Mutant(
        "SI-17",
        "SNK-1",
        "A sink knows its commits by its own attempt; the next attempt commits the same transaction again.",
        "iceberg #16008, iceberg #16011",
        replace(product, build_operator=sinks.commits_under_its_own_name),
        msgspec.structs.replace(
            _LONG, faults=kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", nth=2, worker=True)
        ),
    )
    yield Mutant(
        "SI-08",
        "SNK-1",
        "What was prepared for a checkpoint is thrown away when that checkpoint fails.",
        "risingwave #12698",
        replace(product, build_operator=sinks.drops_with_the_checkpoint),
        _EXPIRING,
    )
