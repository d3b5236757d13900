"""The harness: runs plans in a world, records what happened and judges it.

These are the names for third parties who test a system, bring a workload, a checker or a backend, or run a plan. Import
them from here, because the modules that define them may change. Other faults are in ``barrier_tck.faults.kinds``.
"""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

# fmt: off
if TYPE_CHECKING:  # isort: off
    from barrier_tck.harness.plan.trial_plan import CheckpointPlan, DeploymentPlan, LimitsPlan, NetworkPlan, RestartPlan
    from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan, WorkloadPlan
    from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
    from barrier_tck.harness.plan.reading import read_plan
    from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
    from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
    from barrier_tck.faults.kinds.kill_executor import KillExecutor
    from barrier_tck.faults.kinds.kill_worker import KillWorker
    # A system under test: the seam, what it may add, how it shows its job, its targets for faults, what a run leaves.
    from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, SystemUnderTest, TrialOutcome
    from barrier_tck.harness.system.additions import HasCluster, KeepsLogs, StartsSlowly, TakesSettings
    from barrier_tck.harness.system.additions import BringsItsJob, CanBeBroken, NotesPassages, UsesFieldsOfPlans
    from barrier_tck.harness.system.broken_recovery import BrokenRecovery
    from barrier_tck.harness.system.job_view import JobView, Role, SubtaskView
    from barrier_tck.harness.system.scale import HasScale, Scale
    from barrier_tck.faults.targets import CopiesTarget, Damage, Impairment, LinkTarget, NoTargets, PausableTarget
    from barrier_tck.faults.targets import ProcessTarget, StorageUser, TargetGone, Targets
    from barrier_tck.harness.record.history import CheckpointProblem, End, History, InFlight, NamedFile, Recorded, Row
    from barrier_tck.harness.record.history import SnapshotView, StateView, StorageView, Transaction
    from barrier_tck.harness.record.operations import AttemptEnded, AttemptRunning, AttemptStarted, CheckpointAborted
    from barrier_tck.harness.record.operations import CheckpointCompleted, CheckpointTriggered, Committed, Operation
    from barrier_tck.harness.record.operations import JobCut, JobFailed, JobFinished, JobStopped, Restored
    from barrier_tck.harness.record.reasons import Reason
    from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, SnapshotRecord, TrialRecord
    # A workload, and what it or a system may bring to a campaign.
    from barrier_tck.harness.workloads.workload import DrawsJobs, SplitData, Workload
    from barrier_tck.harness.workloads.sequential_model import Aggregate, SequentialSpec
    from barrier_tck.harness.workloads.workload_names import register_workload, workload_names
    from barrier_tck.harness.draw.brought_profiles import BringsProfiles
    from barrier_tck.harness.draw.profile import Profile
    from barrier_tck.harness.oracle.brought_checkers import BringsCheckers
    # A user's own query of Structured Streaming.
    from barrier_tck.harness.streaming.query_definition import QueryState, QueryPlace
    from barrier_tck.harness.streaming.streaming_job import StreamingJob
    # A checker; running a plan, or a campaign; what goes wrong.
    from barrier_tck.harness.oracle.checker import Checker, TrialContext
    from barrier_tck.harness.record.verdict import Finding, Verdict
    from barrier_tck.harness.trial.trial_run import run_trial
    from barrier_tck.harness.campaign.configuration import CampaignConfiguration, read_configuration
    from barrier_tck.harness.campaign.runner import run_campaign
    from barrier_tck.harness.support.errors import EnvironmentProblem, OperatingError, SystemBroke
    from barrier_tck.harness.support.errors import UsageProblem
    from barrier_tck.harness.reference.backend_kit import BatchedStateStore, CheckpointId, CorruptStateError
    from barrier_tck.harness.reference.backend_kit import DeferredSnapshot, FinishedSnapshot, JobUsageError
    from barrier_tck.harness.reference.backend_kit import KeyedStateStore, KeyGroupRange, LinkingStateWriter
    from barrier_tck.harness.reference.backend_kit import LocalStateReader, SharingStateWriter, SnapshotCancelled
    from barrier_tck.harness.reference.backend_kit import SnapshotFuture
    from barrier_tck.harness.reference.backend_kit import StateBackend, StateCapability, StateHandle, StateReader
    from barrier_tck.harness.reference.backend_kit import StateScope, StateWriter, StorageError, refuse_overlaps
    from barrier_tck.harness.reference.backend_kit import require_in_range, require_same_length

__all__ = [
    "After", "Aggregate", "At", "AttemptEnded", "AttemptRecord", "AttemptRunning", "AttemptStarted",
    "BatchedStateStore", "BringsCheckers", "BringsItsJob", "BringsProfiles", "BrokenRecovery", "CampaignConfiguration",
    "CanBeBroken", "Capability", "Checker", "CheckpointAborted", "CheckpointCompleted", "CheckpointId",
    "CheckpointPlan", "CheckpointProblem", "CheckpointRecord", "CheckpointTriggered", "Committed", "CopiesTarget",
    "CorruptStateError", "CrashCoordinator", "Damage", "DeferredSnapshot", "DeploymentPlan", "DrawsJobs", "EdgePlan",
    "End", "EnvironmentProblem", "Finding", "FinishedSnapshot", "HasCluster", "HasScale", "History", "Impairment",
    "InFlight", "JobCut", "JobFailed", "JobFinished", "JobPlan", "JobStopped", "JobUsageError", "JobView", "KeepsLogs",
    "KeyGroupRange", "KeyedStateStore", "KillExecutor", "KillWorker", "LimitsPlan", "LinkTarget", "LinkingStateWriter",
    "LocalStateReader", "NamedFile", "NemesisHooks", "NetworkPlan", "NoTargets", "NotesPassages", "OperatingError",
    "Operation", "OperatorPlan", "PausableTarget", "ProcessTarget", "Profile", "ProtocolPoint", "QueryPlace",
    "QueryState", "Reason", "Recorded", "RestartPlan", "Restored", "Role", "Row", "SavepointPlan", "Scale",
    "ScheduledFault", "SequentialSpec", "SharingStateWriter", "SnapshotCancelled", "SnapshotFuture", "SnapshotRecord",
    "SnapshotView", "SplitData", "Spread", "StartsSlowly", "StateBackend", "StateCapability", "StateHandle",
    "StateReader", "StateScope", "StateView", "StateWriter", "StorageError", "StorageUser", "StorageView",
    "StreamingJob", "SubtaskView", "SystemBroke", "SystemUnderTest", "TakesSettings", "TargetGone", "Targets",
    "Transaction", "TrialContext", "TrialOutcome", "TrialPlan", "TrialRecord", "UsageProblem", "UsesFieldsOfPlans",
    "Verdict", "VertexPlan", "Workload", "WorkloadPlan", "read_configuration", "read_plan", "refuse_overlaps",
    "register_workload", "require_in_range", "require_same_length", "run_campaign", "run_trial", "workload_names",
]
# fmt: on


@functools.cache
def _homes() -> dict[str, str]:
    """Return the module of every name, read from the imports above, which only type checkers execute."""
    nodes = ast.walk(ast.parse(Path(__file__).read_text()))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


if not TYPE_CHECKING:  # a type checker would take it to mean that every name exists

    def __getattr__(name: str) -> object:
        """Import a name when it is first used, so that a command that needs none of them starts fast."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(importlib.import_module(_homes()[name]), name)
        return found
