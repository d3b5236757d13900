"""What can go wrong between a simulated process and the storage of its checkpoints."""

from __future__ import annotations

from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.hdfs_model import HdfsService
from barrier_tck.harness.reference.object_store_model import ObjectStoreService
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.hosts import planned_failures
from barrier_tck.harness.reference.simulated.randomness import stream
from barrier_tck.harness.reference.simulated.refused_deletions import Deletions, DeletionsRefused
from barrier_tck.harness.reference.storage_service import ServiceTarget, StorageService, ThroughService
from barrier_tck.reference_impl.storage.filesystem import FileSystem

_SERVICES = {"s3": ObjectStoreService, "hdfs": HdfsService}


class StorageFaults:
    """The writes that a plan lets fail, and the service that its checkpoints are on."""

    def __init__(self, plan: TrialPlan, disk: SimulatedDisk) -> None:
        self.failures = planned_failures(plan)
        """Which writes of durable storage fail; None if the plan has no such fault."""
        refused = any(scheduled.fault.needs is TargetKind.DELETIONS for scheduled in plan.faults)
        self.deletions = Deletions() if refused else None
        """The coordinator's deletions; None if the plan lets none of them fail."""
        make = _SERVICES.get(plan.checkpoints.storage)
        self.service: StorageService | None = (
            make(disk.host(), stream(plan.seed, "storage service")) if make is not None else None
        )

    def disk_of(self, files: FileSystem) -> FileSystem:
        """Return the shared disk as a process meets it."""
        return self.failures.wrapped(files) if self.failures is not None else files

    def way_to_storage(self, files: FileSystem) -> FileSystem:
        """Return what the checkpoint storage of a process is made from; judges make it from the disk alone."""
        met = self.disk_of(files)
        return ThroughService(met, self.service) if self.service is not None else met

    def way_of_coordinator(self, files: FileSystem) -> FileSystem:
        """Return what the checkpoint storage of a coordinator is made from: its deletions may be refused."""
        way = self.way_to_storage(files)
        return way if self.deletions is None else DeletionsRefused(way, self.deletions)

    def target(self) -> ServiceTarget | None:
        """Return the service as the target of one more fault; None if checkpoints are in files."""
        return ServiceTarget(self.service) if self.service is not None else None

    def take_late_ms(self) -> float:
        """Return by how much longer than usual storage took since this was asked last (virtual ms)."""
        return self.service.take_late_ms() if self.service is not None else 0.0
