"""The planted bugs of admission, timeouts and control messages, which general checkers and faults must find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.repeat_messages import RepeatMessages
from barrier_tck.faults.targets import Direction
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, RestartPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.mutants import control_bugs as control
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant, kill
from barrier_tck.reference_impl.runtime.components import Components

OURS = "planted here, no public report"
HELD_OUT = "planted by others into version 0.1.0"


def control_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs in the messages between subtasks and the coordinator, and in their times."""
    several = _with(CheckpointPlan(interval_ms=6, max_concurrent=2, async_ms_max=30))
    late = _with(CheckpointPlan(timeout_ms=25, async_ms_max=80))
    twice = _twice(several, Direction.FORWARD)
    yield Mutant(
        "SR-01",
        "COO-1",
        "Acknowledgements are counted, not attributed; two of one subtask complete a checkpoint.",
        HELD_OUT,
        replace(product, coordinator_machine=control.CountsAcknowledgements),
        twice,
    )
    yield Mutant(
        "SR-02",
        "COO-2",
        "Timeouts of checkpoints are never enforced.",
        HELD_OUT,
        replace(product, coordinator_machine=control.NeverExpires),
        late,
    )
    yield Mutant(
        "SR-03",
        "BAR-4",
        "One checkpoint too many is in flight.",
        HELD_OUT,
        replace(product, coordinator_machine=control.AdmitsOneMore),
        several,
    )
    yield Mutant(
        "SR-04",
        "BAR-6",
        "One barrier is lost when a source ends.",
        HELD_OUT,
        replace(product, subtask_driver=control.LosesABarrierAtTheEnd),
        SIMULATED,
    )
    yield Mutant(
        "SR-05",
        "BAR-4",
        "The minimum pause between checkpoints is ignored.",
        HELD_OUT,
        replace(product, coordinator_machine=control.KeepsNoPause),
        _with(CheckpointPlan(interval_ms=6, min_pause_ms=20)),
    )
    yield Mutant(
        "DU-01",
        "STA-3",
        "An acknowledgement that comes twice is taken for a late one, and its files are deleted.",
        OURS,
        replace(product, coordinator_machine=control.DeletesWhatCameTwice),
        twice,
    )
    yield Mutant(
        "TF-01",
        "COO-2",
        "One failure in a row more than configured is tolerated.",
        OURS,
        replace(product, coordinator_machine=control.ToleratesOneMore),
        msgspec.structs.replace(
            late,
            checkpoints=CheckpointPlan(timeout_ms=60, async_ms_max=80, tolerated_failures=1),
            restart=RestartPlan(attempts_max=200),
        ),
    )
    yield Mutant(
        "AB-01",
        "COO-2",
        "The asynchronous part of an aborted snapshot is not cancelled, and is acknowledged at its end.",
        OURS,
        replace(product, subtask_machine=control.StoresOnAfterAnAbort),
        late,
    )
    yield Mutant(
        "ID-02",
        "REC-1",
        "The latest checkpoint is taken to be the last one by its name, so 9 comes after 10.",
        OURS,
        replace(product, coordinator_machine=control.ComparesIdsAsText),
        msgspec.structs.replace(
            _with(CheckpointPlan(first_id=9)),
            faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth=2, worker=True),
        ),
    )


def _with(checkpoints: CheckpointPlan) -> TrialPlan:
    workload = WorkloadPlan(batches=40, records_per_second=600)
    return msgspec.structs.replace(SIMULATED, workload=workload, checkpoints=checkpoints)


def _twice(plan: TrialPlan, direction: Direction) -> TrialPlan:
    """Return the plan with a fault that repeats the messages of one subtask, almost from the beginning."""
    fault = RepeatMessages("totals[0]", 1, 200, direction)
    return msgspec.structs.replace(
        plan, faults=(ScheduledFault(fault, After(ProtocolPoint.CHECKPOINT_TRIGGERED)),)
    )
