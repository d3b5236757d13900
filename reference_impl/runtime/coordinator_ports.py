"""What a coordinator uses of its world."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.runtime.ports import (
    BackgroundExecutor,
    Clock,
    Deployer,
    Probe,
    SubtaskDirectory,
    Timers,
)
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage


@dataclass(frozen=True)
class CoordinatorPorts:
    """The world of the coordinator."""

    clock: Clock
    probe: Probe
    timers: Timers
    subtasks: SubtaskDirectory
    deployer: Deployer
    background: BackgroundExecutor
    storage: CheckpointStorage
    observer: JobObserver
