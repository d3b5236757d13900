"""Which faults a system can suffer, and in which phases, according to its capabilities and points."""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.faults.fault import tag_of
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import PHASE_OF_POINT, Phase, ProtocolPoint
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest

_CAPABILITIES = {
    TargetKind.EXECUTOR: Capability.EXECUTOR_KILL,
    TargetKind.WORKER: Capability.WORKER_KILL,
    TargetKind.COORDINATOR: Capability.COORDINATOR_CRASH,
    TargetKind.HOST: Capability.HOST_LOSS,
    TargetKind.CAPACITY: Capability.EXECUTOR_LOSS,
    TargetKind.PAUSE: Capability.PAUSE,
    TargetKind.CHANNEL: Capability.CHANNEL_FAULTS,
    TargetKind.PARTITION: Capability.PARTITION,
    TargetKind.PACKETS: Capability.PACKET_LOSS,
    TargetKind.STORAGE: Capability.STORAGE_FAULTS,
    TargetKind.MESSAGES: Capability.MESSAGE_FAULTS,
    TargetKind.OBJECT_STORE: Capability.OBJECT_STORE_FAULTS,
    TargetKind.WRITES: Capability.WRITE_FAULTS,
    TargetKind.DELETIONS: Capability.DELETION_FAULTS,
    TargetKind.SNAPSHOTS: Capability.SNAPSHOT_FAULTS,
    TargetKind.MEMORY: Capability.MEMORY_LIMIT,
}
"""Kind of target -> the capability of systems that expose it."""


def targets_among(capabilities: frozenset[Capability]) -> frozenset[TargetKind]:
    """Return the kinds of target that a system with these capabilities exposes."""
    return frozenset(kind for kind, capability in _CAPABILITIES.items() if capability in capabilities)


def targets_of(system: SystemUnderTest) -> frozenset[TargetKind]:
    """Return the kinds of target that a system exposes."""
    return targets_among(system.capabilities)


def fault_kinds_of(system: SystemUnderTest) -> tuple[str, ...]:
    """Return the tags of the faults that a system can suffer, in the order of the catalogue."""
    exposed = targets_of(system)
    return tuple(tag_of(fault) for fault in FAULTS if fault.needs in exposed)


def phases_with(points: Iterable[ProtocolPoint]) -> tuple[str, ...]:
    """Return the phases in which a fault can be known to have struck, in jobs that show these points.

    Without points no fault can be aimed, and all that is known of a job is whether it runs.
    """
    reached = {PHASE_OF_POINT[point]: None for point in points}
    return tuple(
        phase.value for phase in Phase if phase in reached or phase in (Phase.PROCESSING, Phase.RESTORING)
    )
