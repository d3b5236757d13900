"""What third parties may import from ``barrier_tck.harness``, where each name is imported when it is first used."""

# fmt: off
# isort: off
from .plan.trial_plan import CheckpointPlan, DeploymentPlan, LimitsPlan, NetworkPlan, RestartPlan
from .plan.trial_plan import SavepointPlan, TrialPlan, WorkloadPlan
from .plan.job_graph import EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from .plan.reading import read_plan
from .plan.shapes import job_along
from .system.fault_kit import After, At, CopiesTarget, CrashCoordinator, Damage, Impairment, KillExecutor, KillWorker
from .system.fault_kit import LinkTarget, NoTargets, PausableTarget, ProcessTarget, ProtocolPoint, ScheduledFault
from .system.fault_kit import SavepointStarter, StorageUser, TargetGone, Targets
# A system under test: the seam, what it may add, how it shows its job, its targets for faults, what a run leaves.
from .system.system_under_test import Capability, NemesisHooks, SystemUnderTest, TrialOutcome
from .system.optional_interfaces import HasCluster, HasWordsForFaults, KeepsLogs, StartsSlowly, TakesSettings
from .system.optional_interfaces import CanBeBroken, ProvidesOwnJob, ShowsCoverage, TracesMessages, UsesFieldsOfPlans
from .system.broken_recovery import BrokenRecovery
from .system.job_view import JobView, Role, SubtaskView
from .system.scale import HasScale, Scale
from .record.elements import AllOver, InputOver, Polled, Sent, SentWatermark, SplitsIdle, Stood, SubtaskElements
from .record.elements import Took, TookWatermark
from .record.history import CheckpointProblem, End, EventTimeView, History, InFlight, NamedFile, Recorded, Row
from .record.history import SnapshotView, StateView, StorageView, Transaction
from .record.operations import Acknowledged, AttemptEnded, AttemptRunning, AttemptStarted, CheckpointAborted
from .record.operations import CheckpointCompleted, CheckpointTriggered, Committed, Crashed, Operation
from .record.operations import Finished, InputRead, JobCut, JobFailed, JobFinished, JobStopped, Restored
from .record.reasons import Reason
from .record.records import AttemptRecord, CheckpointRecord, SnapshotRecord, TrialRecord
# A workload, and what it or a system may bring to a campaign.
from .workloads.workload import DrawsJobs, SplitData, Workload, job_of_plan, problem_of_fixed
from .workloads.keyed_totals import KeyedTotals
from .workloads.sequential_model import Aggregate, SequentialSpec
from .workloads.workload_names import register_workload, workload_names
from .draw.plug_in_profiles import ProvidesProfiles
from .draw.profile import CheckpointRanges, DeploymentRanges, DrawnSetting, ElasticRanges, FaultRanges, JobRanges
from .draw.profile import LimitRanges, NetworkRanges, Profile, RestartRanges, SavepointRanges, StorageRanges
from .draw.profile import WorkloadRanges
from .oracle.plug_in_checkers import ProvidesCheckers
# A user's own query of Structured Streaming.
from .streaming.query_definition import QueryState, QueryPlace, Upserts
from .streaming.streaming_job import StreamingJob
# A checker; running a plan, or a campaign; what goes wrong.
from .oracle.checker import Checker, TrialContext
from .record.verdict import Finding, Verdict
from .trial.trial_run import run_trial
from .campaign.configuration import CampaignConfiguration, read_configuration
from .campaign.runner import run_campaign
from .support.errors import EnvironmentProblem, OperatingError, SystemBroke
from .support.errors import UsageProblem
from .reference.backend_kit import BatchedStateStore, CheckpointId, CorruptStateError
from .reference.backend_kit import DeferredSnapshot, FinishedSnapshot, JobUsageError
from .reference.backend_kit import KeyedStateStore, KeyGroupRange, LinkingStateWriter
from .reference.backend_kit import LocalStateReader, SharingStateWriter, SnapshotCancelled
from .reference.backend_kit import SnapshotFuture
from .reference.backend_kit import StateBackend, StateCapability, StateHandle, StateReader
from .reference.backend_kit import StateScope, StateWriter, StorageError, refuse_overlaps
from .reference.backend_kit import TwoFormatStateWriter, require_in_range, require_same_length
from .reference.storage_kit import CheckpointStorage, MediumCheckpointStorage, WholeFiles

__all__ = [
    "Acknowledged", "After", "Aggregate", "AllOver", "At", "AttemptEnded", "AttemptRecord", "AttemptRunning",
    "AttemptStarted", "BatchedStateStore", "BrokenRecovery", "CampaignConfiguration", "CanBeBroken", "Capability",
    "Checker", "CheckpointAborted", "CheckpointCompleted", "CheckpointId", "CheckpointPlan", "CheckpointProblem",
    "CheckpointRanges", "CheckpointRecord", "CheckpointStorage", "CheckpointTriggered", "Committed", "CopiesTarget",
    "CorruptStateError", "CrashCoordinator", "Crashed", "Damage", "DeferredSnapshot", "DeploymentPlan",
    "DeploymentRanges", "DrawnSetting", "DrawsJobs", "EdgePlan", "ElasticRanges", "End", "EnvironmentProblem",
    "EventTimeView", "FaultRanges", "Finding", "Finished", "FinishedSnapshot", "HasCluster", "HasScale",
    "HasWordsForFaults", "History", "Impairment", "InFlight", "InputOver", "InputRead", "JobCut", "JobFailed",
    "JobFinished", "JobPlan", "JobRanges", "JobStopped", "JobUsageError", "JobView", "KeepsLogs", "KeyGroupRange",
    "KeyedStateStore", "KeyedTotals", "KillExecutor", "KillWorker", "LimitRanges", "LimitsPlan", "LinkTarget",
    "LinkingStateWriter", "LocalStateReader", "MediumCheckpointStorage", "NamedFile", "NemesisHooks", "NetworkPlan",
    "NetworkRanges", "NoTargets", "OperatingError", "Operation", "OperatorPlan", "PausableTarget", "Polled",
    "ProcessTarget", "Profile", "ProtocolPoint", "ProvidesCheckers", "ProvidesOwnJob", "ProvidesProfiles",
    "QueryPlace", "QueryState", "Reason", "Recorded", "RestartPlan", "RestartRanges", "Restored", "Role", "Row",
    "SavepointPlan", "SavepointRanges", "SavepointStarter", "Scale", "ScheduledFault", "Sent", "SentWatermark",
    "SequentialSpec", "SharingStateWriter", "ShowsCoverage", "SnapshotCancelled", "SnapshotFuture", "SnapshotRecord",
    "SnapshotView", "SplitData", "SplitsIdle", "Spread", "StartsSlowly", "StateBackend", "StateCapability",
    "StateHandle", "StateReader", "StateScope", "StateView", "StateWriter", "Stood", "StorageError", "StorageRanges",
    "StorageUser", "StorageView", "StreamingJob", "SubtaskElements", "SubtaskView", "SystemBroke", "SystemUnderTest",
    "TakesSettings", "TargetGone", "Targets", "Took", "TookWatermark", "TracesMessages", "Transaction",
    "TrialContext", "TrialOutcome", "TrialPlan", "TrialRecord", "TwoFormatStateWriter", "Upserts", "UsageProblem",
    "UsesFieldsOfPlans", "Verdict", "VertexPlan", "WholeFiles", "Workload", "WorkloadPlan", "WorkloadRanges",
    "job_along", "job_of_plan", "problem_of_fixed", "read_configuration", "read_plan", "refuse_overlaps",
    "register_workload", "require_in_range", "require_same_length", "run_campaign", "run_trial", "workload_names",
]
