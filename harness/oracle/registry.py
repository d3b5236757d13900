"""Which checkers judge a trial: those whose property the plan asks for and the system can show."""

from __future__ import annotations

from collections.abc import Collection

from harness.oracle.checker import Checker
from harness.oracle.checkpoint_life_cycle import CheckpointLifeCycle
from harness.oracle.exactly_once_output import ExactlyOnceOutput
from harness.oracle.faults_fired import FaultsFired
from harness.oracle.no_garbage import NoGarbage
from harness.oracle.progress import Progress
from harness.oracle.reachability import Reachability
from harness.oracle.snapshot_formula import SnapshotFormula
from harness.oracle.trial_input import TrialInput
from harness.plan import TrialPlan
from harness.suts.system import Capability
from harness.workloads.registry import workload_named
from harness.workloads.workload import Workload

EXACTLY_ONCE = "exactly_once"
"""The checkpointing mode whose output and snapshots are exact."""


def checkers_for(
    plan: TrialPlan, capabilities: Collection[Capability], workload: Workload | None = None
) -> tuple[Checker, ...]:
    """Return the checkers that apply, for this one plan; they share its input, which is made once.

    ``workload`` overrides the plan's, for instance to read an input from elsewhere. Raises UsageError for a
    workload that does not exist.
    """
    trial_input = TrialInput(workload if workload is not None else workload_named(plan.workload.name), plan)
    chosen: list[Checker] = []
    exact = plan.checkpoints.mode == EXACTLY_ONCE
    if exact:
        chosen.append(ExactlyOnceOutput(trial_input))
    if plan.checkpoints.enabled and Capability.SNAPSHOT_INSPECTION in capabilities:
        if exact:
            chosen.append(SnapshotFormula(trial_input))
        chosen += [CheckpointLifeCycle(), NoGarbage(), Reachability()]
    chosen += [Progress(trial_input), FaultsFired()]
    return tuple(chosen)
