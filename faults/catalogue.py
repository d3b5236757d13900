"""All faults, one line each. Everything that belongs to a fault is in its own file, below ``kinds/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barrier_tck.faults.drawing import DrawnAs
from barrier_tck.faults.fault import Fault, tag_of
from barrier_tck.faults.kinds.black_hole_channel import BlackHoleChannel
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.cut_object_store import CutObjectStore
from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.delay_object_store import DelayObjectStore
from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.kinds.exhaust_memory import ExhaustMemory
from barrier_tck.faults.kinds.fail_local_writes import FailLocalWrites
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.fail_request import FailRequest
from barrier_tck.faults.kinds.fail_snapshot import FailSnapshot
from barrier_tck.faults.kinds.forge_acknowledgement import ForgeAcknowledgement
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.limit_channel import LimitChannel
from barrier_tck.faults.kinds.lose_executor import LoseExecutor
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.lose_packets import LosePackets
from barrier_tck.faults.kinds.partition_executor import PartitionExecutor
from barrier_tck.faults.kinds.partition_halves import PartitionHalves
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.kinds.refuse_deletions import RefuseDeletions
from barrier_tck.faults.kinds.repeat_messages import RepeatMessages
from barrier_tck.faults.kinds.throttle_channel import ThrottleChannel
from barrier_tck.faults.kinds.throttle_object_store import ThrottleObjectStore

FAULTS: tuple[type[Fault], ...] = (
    KillExecutor,
    KillWorker,
    CrashCoordinator,
    LoseHost,
    LoseExecutor,
    PauseWorker,
    PauseExecutor,
    DelayChannel,
    ThrottleChannel,
    CutChannel,
    BlackHoleChannel,
    LosePackets,
    PartitionExecutor,
    PartitionHalves,
    DamageLocalCopy,
    DamagePrimary,
    FailLocalWrites,
    FailPrimaryWrites,
    RefuseDeletions,
    LimitChannel,
    RepeatMessages,
    ForgeAcknowledgement,
    KillObjectStore,
    ThrottleObjectStore,
    DelayObjectStore,
    CutObjectStore,
    DisturbWrites,
    ExhaustMemory,
    FailRequest,
    FailSnapshot,
)
"""Every fault there is, in the order in which reports show them. A new one goes to the end."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A fault under one of the names by which campaigns draw faults."""

    fault: type[Fault]
    drawn_as: DrawnAs

    @property
    def name(self) -> str:
        """Return the name, which no other kind has."""
        return self.drawn_as.name


KINDS: Mapping[str, FaultKind] = {
    drawn_as.name: FaultKind(fault, drawn_as)
    for outlasts_heartbeat in (False, True)
    for fault in FAULTS
    for drawn_as in fault.drawn_as
    if drawn_as.outlasts_heartbeat is outlasts_heartbeat
}
"""Every kind by its name; those that make zombies come last."""

PACKAGES: Mapping[str, tuple[FaultKind, ...]] = {
    package: tuple(kind for kind in KINDS.values() if kind.drawn_as.package == package)
    for package in dict.fromkeys(kind.drawn_as.package for kind in KINDS.values())
}
"""Name of a package -> the kinds in it."""

BY_TAG: Mapping[str, type[Fault]] = {tag_of(fault): fault for fault in FAULTS}
"""Every fault by its tag in plans."""
