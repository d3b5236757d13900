"""What a system under test, and the author of a plan, need of the faults."""

from __future__ import annotations

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.targets import (
    CopiesTarget,
    Damage,
    Impairment,
    LinkTarget,
    NoTargets,
    PausableTarget,
    ProcessTarget,
    SavepointStarter,
    StorageUser,
    TargetGone,
    Targets,
)
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault

__all__ = [
    "After",
    "At",
    "CopiesTarget",
    "CrashCoordinator",
    "Damage",
    "Impairment",
    "KillExecutor",
    "KillWorker",
    "LinkTarget",
    "NoTargets",
    "PausableTarget",
    "ProcessTarget",
    "ProtocolPoint",
    "SavepointStarter",
    "ScheduledFault",
    "StorageUser",
    "TargetGone",
    "Targets",
]
