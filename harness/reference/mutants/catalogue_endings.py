"""The planted bugs of subtasks that finish before the job does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import LimitsPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.mutants import ending_bugs as endings
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reference_impl.runtime.components import Components

_EARLY = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("lineage", batches=16, records_per_second=300, early_ends=1),
    job=job_of("lineage", JobPlan(shape="joined")),
    limits=LimitsPlan(virtual_ms=4_000),
)
"""One source subtask ends long before the others."""


def _killed(nth: int, **checkpoints: Any) -> TrialPlan:
    """Return the plan with a kill after so many checkpoints, when the early source has finished."""
    fault = ScheduledFault(KillWorker("met[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, None, nth))
    changed = msgspec.structs.replace(_EARLY.checkpoints, **checkpoints)
    return msgspec.structs.replace(_EARLY, checkpoints=changed, faults=(fault,))


def ending_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs that need a subtask that finishes early to show."""
    here = "planted here, no public report"
    yield Mutant(
        "FI-01",
        "BAR-6",
        "A restore takes the part of a subtask that had finished for none: it reads and emits everything again.",
        here,
        replace(product, subtask_driver=endings.ForgetsWhoHadFinished),
        _killed(4),
    )
    yield Mutant(
        "FI-02",
        "BAR-6",
        "A checkpoint under way waits for ever for a subtask that finishes between its trigger and its part.",
        "hazelcast-jet #1101, FLINK-7844",
        replace(product, coordinator_machine=endings.WaitsForTheFinished),
        msgspec.structs.replace(
            _EARLY, checkpoints=msgspec.structs.replace(_EARLY.checkpoints, timeout_ms=400)
        ),
    )
    yield Mutant(
        "FI-03",
        "SNK-1",
        "A subtask finishes with a snapshot from before the end of its input; what came after it is in no checkpoint.",
        here,
        replace(product, subtask_machine=endings.FinishesWithAnEarlierSnapshot),
        _EARLY,
    )
    yield Mutant(
        "FI-04",
        "BAR-6",
        "A subtask counts as finished when it has acknowledged its last part; its last transaction stays prepared.",
        here,
        replace(product, subtask_machine=endings.FinishesBeforeItCommits),
        _EARLY,
    )
    yield Mutant(
        "FI-05",
        "BAR-6",
        "An alignment waits for the barrier of a channel that has ended meanwhile.",
        here,
        replace(product, subtask_machine=endings.EndedChannelsBlock),
        msgspec.structs.replace(
            _EARLY, checkpoints=msgspec.structs.replace(_EARLY.checkpoints, timeout_ms=400)
        ),
    )
