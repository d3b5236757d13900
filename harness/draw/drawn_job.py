"""The facts about a plan's job that the drawing of faults needs."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import CopyPlace
from barrier_tck.faults.targets import COORDINATOR, Direction, Peers, TargetKind
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.storage_targets import OF_THE_TRIAL, SERVED
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.job_view import JobView, Role

_FILES = "files"
"""The checkpoint storage whose files the coordinator deletes itself; elsewhere a service deletes them."""


@dataclass(frozen=True, slots=True)
class DrawnJob:
    """A plan without its faults, and the system's description of its job."""

    plan: TrialPlan
    view: JobView

    @property
    def sinks(self) -> tuple[str, ...]:
        """Return the subtasks that make output visible."""
        return self.view.in_role(Role.SINK)

    @property
    def committing(self) -> tuple[str, ...]:
        """Return the subtasks that are notified of a completed checkpoint and then commit what it covers."""
        return self.view.passing(ProtocolPoint.COMPLETION_NOTIFIED)

    @property
    def batches(self) -> int | None:
        """Return how many batches the longest source is certain to have; None if the system does not count batches."""
        passes = [subtask.passes for subtask in self.view.subtasks]
        counts = [entry.get(ProtocolPoint.RECORDS_PROCESSED) for entry in passes]
        return max((count for count in counts if count is not None), default=None)

    @property
    def reads_ms(self) -> int | None:
        """Return how long the longest source is certain to read; None without a rate, or if batches are not counted."""
        workload, batches = self.plan.workload, self.batches
        if workload.records_per_second is None or batches is None:
            return None
        return batches * workload.batch_records * 1_000 // workload.records_per_second

    def peers_of(self, subtask: str) -> tuple[Peers, ...]:
        """Return the groups of processes from which the executor of a subtask can be cut off.

        Other executors are such a group only if data is sure to pass between them and this one. An executor hosts at
        most its share of the subtasks, so this is sure if more subtasks than that share are connected with this one.
        """
        if self.view.whole_hosts:
            return (Peers.EVERYONE,)
        deployment = self.plan.deployment
        # An elastic job loses one of its executors for good.
        left = deployment.executors - (deployment.elastic_wait_ms is not None)
        share = -(-len(self.view.subtasks) // max(1, left))
        apart = len(self.view.connected_with(subtask)) > share
        controlled = bool(self.view.control_links)
        return tuple(
            peers
            for peers, there in (
                (Peers.EXECUTORS, apart),
                (Peers.COORDINATOR, controlled),
                (Peers.EVERYONE, apart or controlled),
            )
            if there
        )

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Return in which directions an executor can be cut off."""
        return (Direction.BOTH,) if self.view.whole_hosts else tuple(Direction)

    def hit_by(self, kind: FaultKind) -> tuple[str, ...]:
        """Return the subtasks that a kind of fault can hit; empty if it cannot hit this job at all."""
        view = self.view
        match kind.fault.needs:
            case TargetKind.COORDINATOR:
                # Checkpoints in its memory would be lost with it, and the job could only start from the beginning.
                return () if self.plan.checkpoints.storage == "memory" else view.names or (COORDINATOR,)
            case TargetKind.CHANNEL:
                return tuple(name for name in view.names if view.ends_of(name))
            case TargetKind.PARTITION:
                if kind.drawn_as.outlasts_heartbeat:
                    # A subtask is replaced only if it is cut off from the coordinator.
                    return view.names if view.control_links else ()
                return tuple(name for name in view.names if self.peers_of(name))
            case TargetKind.MESSAGES:
                return view.control_links
            case TargetKind.STORAGE:
                if _is_durable(kind) and self.plan.checkpoints.storage not in OF_THE_TRIAL:
                    return ()  # only the storage itself knows where its files are
                return view.in_role(Role.STATEFUL)  # only subtasks with state have copies of it
            case TargetKind.SNAPSHOTS:
                return view.in_role(Role.STATEFUL)
            case TargetKind.DELETIONS:
                return view.names if self.plan.checkpoints.storage == _FILES else ()
            case TargetKind.OBJECT_STORE:
                return view.names if self.plan.checkpoints.storage in SERVED else ()
            case _:
                return view.names


def _is_durable(kind: FaultKind) -> bool:
    """Return whether a kind of fault hits copies in durable storage, not those on hosts."""
    hit = kind.fault.drawn(Plainest(), Aim("")).copies_hit
    return hit is not None and hit.place is CopyPlace.DURABLE
