"""The planted bugs of recovery as a whole, and which bug is which way of breaking recovery (``BrokenRecovery``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan
from barrier_tck.harness.reference.mutants import recovery_bugs as recovery
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, WITH_KILL, Mutant, kill, spark
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.reference_impl.runtime.components import Components

CONTROLS: dict[BrokenRecovery, str] = {
    BrokenRecovery.READ_AGAIN: "SO-03",
    BrokenRecovery.STATE_DROPPED: "RE-01",
    BrokenRecovery.COMMITTED_EARLY: "SK-01",
    BrokenRecovery.UNFENCED: "FE-03",
}
"""``BrokenRecovery`` -> the planted bug with which the reference runtime breaks its recovery in this way."""


def broken(plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
    """Return a plan for the reference runtime with its recovery broken; None if the plan already has a planted bug."""
    return None if plan.mutant is not None else msgspec.structs.replace(plan, mutant=CONTROLS[how])


def recovery_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs that are planted only for control trials."""
    yield Mutant(
        "RE-01",
        "REC-1",
        "Keyed state is dropped at a restore; positions and transactions are restored.",
        "planted here, no public report",
        replace(product, subtask_driver=recovery.DropsRestoredState),
        WITH_KILL,
    )
    yield Mutant(
        "FE-03",
        "REC-2",
        "Checkpoints of a failed attempt are aborted only when the next one runs.",
        "planted here, no public report",
        replace(product, coordinator_machine=recovery.CarriesThePending),
        msgspec.structs.replace(
            SIMULATED,
            checkpoints=CheckpointPlan(async_ms_max=60),
            faults=kill(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", worker=True),
        ),
    )
    yield Mutant(
        "CO-11",
        "COO-3",
        "What an earlier coordinator had begun and not completed is nobody's: its files stay for ever.",
        "planted by others into version 0.1.0",
        replace(product, coordinator_machine=recovery.LeavesWhatTheDeadBegan),
        msgspec.structs.replace(
            SIMULATED,
            faults=(
                ScheduledFault(CrashCoordinator(), After(ProtocolPoint.SNAPSHOT_STORED, "totals[0]", 2)),
            ),
        ),
        spark(ScheduledFault(CrashCoordinator(), After(ProtocolPoint.SNAPSHOT_STORED, "totals[0]", 2))),
    )
