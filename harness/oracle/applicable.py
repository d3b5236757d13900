"""Which checkers judge a trial: those whose property the plan requires and the system can show."""

from __future__ import annotations

from collections.abc import Collection

from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.oracle.checkers.aborts_obeyed import AbortsObeyed
from barrier_tck.harness.oracle.checkers.at_least_once_output import AtLeastOnceOutput
from barrier_tck.harness.oracle.checkers.at_least_once_snapshots import AtLeastOnceSnapshots
from barrier_tck.harness.oracle.checkers.channel_order import ChannelOrder
from barrier_tck.harness.oracle.checkers.checkpoint_admission import AdmittedTriggers
from barrier_tck.harness.oracle.checkers.checkpoint_expiry import CheckpointExpiry
from barrier_tck.harness.oracle.checkers.checkpoint_life_cycle import CheckpointLifeCycle
from barrier_tck.harness.oracle.checkers.checkpoints_go_on import CheckpointsGoOn
from barrier_tck.harness.oracle.checkers.committed_transactions import CommittedTransactions
from barrier_tck.harness.oracle.checkers.conservation import Conservation
from barrier_tck.harness.oracle.checkers.consistent_cut import ConsistentCut
from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.oracle.checkers.exactly_once_output import ExactlyOnceOutput
from barrier_tck.harness.oracle.checkers.failures_explained import FailuresExplained
from barrier_tck.harness.oracle.checkers.faults_fired import FaultsFired
from barrier_tck.harness.oracle.checkers.finished_subtasks import FinishedSubtasks
from barrier_tck.harness.oracle.checkers.input_reads import InputReads
from barrier_tck.harness.oracle.checkers.labels import Labels
from barrier_tck.harness.oracle.checkers.local_recovery import LocalRecovery
from barrier_tck.harness.oracle.checkers.narrowed_jobs import NarrowedJobs
from barrier_tck.harness.oracle.checkers.no_garbage import NoGarbage
from barrier_tck.harness.oracle.checkers.nothing_held_back import NothingHeldBack
from barrier_tck.harness.oracle.checkers.progress import Progress
from barrier_tck.harness.oracle.checkers.reachability import Reachability
from barrier_tck.harness.oracle.checkers.restart_strategy import RestartStrategyKept
from barrier_tck.harness.oracle.checkers.restorability import Restorability
from barrier_tck.harness.oracle.checkers.restored_latest import RestoredLatest
from barrier_tck.harness.oracle.checkers.savepoints import Savepoints
from barrier_tck.harness.oracle.checkers.savepoints_answered import SavepointsAnswered
from barrier_tck.harness.oracle.checkers.shared_files import SharedFilesKept
from barrier_tck.harness.oracle.checkers.snapshot_formula import SnapshotFormula
from barrier_tck.harness.oracle.checkers.snapshot_order import SnapshotOrder
from barrier_tck.harness.oracle.checkers.stop_with_savepoint import StopWithSavepoint
from barrier_tck.harness.oracle.checkers.stored_checkpoints import StoredCheckpoints
from barrier_tck.harness.oracle.checkers.timers import TimersKept
from barrier_tck.harness.oracle.checkers.tolerated_failures import ToleratedFailures
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.connected_components import NODE
from barrier_tck.harness.workloads.meaning import windows_of
from barrier_tck.harness.workloads.money import banks_of
from barrier_tck.harness.workloads.workload import Workload
from barrier_tck.harness.workloads.workload_names import filled, workload_named

AT_LEAST_ONCE = "at_least_once"
"""The checkpointing mode in which records may count twice after a recovery (ALO-2)."""


def checkers_for(
    plan: TrialPlan,
    capabilities: Collection[Capability],
    workload: Workload | None = None,
    judges_output: bool = True,
) -> tuple[Checker, ...]:
    """Return the checkers that apply to this plan; they share its input, which is made once.

    ``workload`` overrides the plan's, for instance to read an input from elsewhere. Without ``judges_output`` the
    workload's meaning is not that of the job (``BringsItsJob``). Raises UsageError for a workload that does not exist.
    """
    if workload is None:
        workload, plan = workload_named(plan.workload.name), filled(plan)
    trial_input = TrialInput(workload, plan)
    chosen: list[Checker] = []
    exact = is_exact(trial_input.plan)
    inspects = plan.checkpoints.enabled and Capability.SNAPSHOT_INSPECTION in capabilities
    if not judges_output:
        inspects = False
    elif any(vertex.kind == NODE for vertex in trial_input.plan.job.vertices):
        chosen.append(Labels(trial_input))
    elif trial_input.workload.spec is None:
        chosen.append(Dataflow(trial_input, exact))
        if inspects and banks_of(trial_input.plan.job):
            chosen.append(Conservation(trial_input))
    else:
        chosen.append(ExactlyOnceOutput(trial_input) if exact else AtLeastOnceOutput(trial_input))
        if exact and trial_input.spec.stateful and Capability.FIFO_CHANNELS in capabilities:
            chosen.append(ChannelOrder(trial_input))
        if inspects:
            chosen.append(SnapshotFormula(trial_input) if exact else AtLeastOnceSnapshots(trial_input))
    if plan.checkpoints.enabled and Capability.CHECKPOINTS in capabilities:
        if Capability.BARRIERS in capabilities:
            chosen.append(CheckpointLifeCycle())
            chosen += [AdmittedTriggers(), CheckpointsGoOn(), CheckpointExpiry(), ToleratedFailures()]
            chosen.append(AbortsObeyed())
            if plan.checkpoints.mode != AT_LEAST_ONCE and plan.checkpoints.protocol == "barriers":
                chosen.append(SnapshotOrder())
            chosen.append(FailuresExplained(plan.checkpoints.overtakes))
            if plan.checkpoints.mode == AT_LEAST_ONCE:
                chosen.append(NothingHeldBack())
        else:
            chosen.append(RestoredLatest())
    if inspects:
        chosen += [
            NoGarbage(),
            Reachability(),
            StoredCheckpoints(trial_input),
            Restorability(),
            CommittedTransactions(),
            InputReads(),
        ]
        if plan.checkpoints.incremental:
            chosen.append(SharedFilesKept())
        if judges_output and windows_of(trial_input.plan.job):
            chosen.append(TimersKept(trial_input.plan))
        if Capability.EARLY_FINISH in capabilities:
            chosen.append(FinishedSubtasks(trial_input))
    if plan.savepoints and plan.checkpoints.enabled and Capability.SAVEPOINTS in capabilities:
        chosen += [StopWithSavepoint(), SavepointsAnswered()]
        if inspects:
            chosen.append(Savepoints())
    if inspects and trial_input.plan.records_channels and Capability.MESSAGE_LOG in capabilities:
        chosen.append(ConsistentCut())
    if plan.local_recovery and plan.checkpoints.enabled and Capability.LOCAL_RECOVERY in capabilities:
        chosen.append(LocalRecovery())
    if {Capability.ATTEMPTS, Capability.BARRIERS} <= set(capabilities):
        chosen.append(RestartStrategyKept())
    if plan.deployment.elastic_wait_ms is not None and Capability.ELASTIC in capabilities:
        chosen.append(NarrowedJobs())
    chosen += [Progress(trial_input), FaultsFired()]
    return tuple(chosen)


def is_exact(plan: TrialPlan) -> bool:
    """Tell whether output and snapshots must be exact: always, except with a shuffle in at-least-once mode.

    Without checkpoints the mode has no meaning, and without a shuffle no subtask has a second channel to wait for
    (ALO-3). A job that goes on wider after a stop may have a shuffle that the first one had not. The plan's job must
    be filled in.
    """
    at_least_once = plan.checkpoints.enabled and plan.checkpoints.mode == AT_LEAST_ONCE
    stops = range(len(plan.rescales) + 1)
    return not at_least_once or not any(plan.after_stops(number).job.shuffles for number in stops)
