"""Packages bind faults to all that belongs to them: how they look, what they need, who injects, who draws.

A report asks a package for label and colour, the harness asks which targets must exist, the generator of
plans asks it to build a fault, and the nemesis asks it for the injector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barrier_tck.faults.injectors.connections import disturb_channel, partition
from barrier_tck.faults.injectors.copies import harm_copies
from barrier_tck.faults.injectors.injection import Injection, Injector
from barrier_tck.faults.injectors.pauses import pause_process
from barrier_tck.faults.injectors.processes import kill_process
from barrier_tck.faults.targets import Targets
from barrier_tck.faults.vocabulary import (
    COORDINATOR,
    BlackHoleChannel,
    CrashCoordinator,
    CutChannel,
    Damage,
    DamageLocalCopy,
    DamagePrimary,
    DelayChannel,
    Direction,
    FailLocalWrites,
    FailPrimaryWrites,
    Fault,
    KillExecutor,
    KillWorker,
    LoseHost,
    PartitionExecutor,
    PartitionHalves,
    PauseExecutor,
    PauseWorker,
    Peers,
    ThrottleChannel,
    duration_of,
)


@dataclass(frozen=True, slots=True)
class Aim:
    """What a generator drew for a fault. A kind takes what it has a use for, and ignores the rest."""

    subtask: str
    """The subtask that is hit; the sending end of a connection."""
    receiver: str = COORDINATOR
    """The other end of a connection."""
    lose_unsynced: bool = False
    unreadable_ms: int = 0
    duration_ms: int = 1
    latency_ms: int = 1
    jitter_ms: int = 0
    bytes_per_second: int = 1
    direction: Direction = Direction.BOTH
    peers: Peers = Peers.EVERYONE
    damage: Damage = Damage.MISSING


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault and what belongs to it."""

    name: str
    """Short name, the only one of all packages: a key of weights in campaign files."""
    tag: str
    """The fault's tag in plans, for instance ``kill_executor``."""
    label: str
    colour: str
    """Colour in timelines, ``#rrggbb``."""
    needs: str
    """What a system must expose: ``executor``, ``worker``, ``coordinator``, ``host`` (can be killed), ``pause``,
    ``channel``, ``partition`` or ``storage``."""
    build: Callable[[Aim], Fault]
    """Generator hook."""
    inject: Injector
    can_lose_unsynced: bool = False
    outlasts_heartbeat: bool = False
    """Whether a generator lets it last longer than the heartbeat timeout, so that a zombie comes back (REC-2)."""

    @property
    def lasts(self) -> bool:
        """Tell whether its faults last for a time and are then healed."""
        return duration_of(self.build(Aim("any[0]"))) is not None


@dataclass(frozen=True, slots=True)
class FaultPackage:
    """Faults that belong together."""

    name: str
    label: str
    colour: str
    kinds: tuple[FaultKind, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """Return what its faults need of a system."""
        return tuple(dict.fromkeys(kind.needs for kind in self.kinds))


KILL = FaultPackage(
    name="kill",
    label="process kills",
    colour="#b3261e",
    kinds=(
        FaultKind(
            name="executor",
            tag="kill_executor",
            label="kill executor",
            colour="#b3261e",
            needs="executor",
            build=lambda aim: KillExecutor(aim.subtask, aim.lose_unsynced),
            inject=kill_process,
            can_lose_unsynced=True,
        ),
        FaultKind(
            name="worker",
            tag="kill_worker",
            label="kill worker",
            colour="#d9730d",
            needs="worker",
            build=lambda aim: KillWorker(aim.subtask),
            inject=kill_process,
        ),
        FaultKind(
            name="coordinator",
            tag="crash_coordinator",
            label="crash coordinator",
            colour="#7b3fa0",
            needs="coordinator",
            build=lambda aim: CrashCoordinator(aim.lose_unsynced, aim.unreadable_ms),
            inject=kill_process,
            can_lose_unsynced=True,
        ),
    ),
)

HOST_LOSS = FaultPackage(
    name="host-loss",
    label="lost hosts",
    colour="#7a1f1f",
    kinds=(
        FaultKind(
            name="host",
            tag="lose_host",
            label="lose host",
            colour="#7a1f1f",
            needs="host",
            build=lambda aim: LoseHost(aim.subtask),
            inject=kill_process,
        ),
    ),
)

PAUSE = FaultPackage(
    name="pause",
    label="paused processes",
    colour="#2f6f9f",
    kinds=(
        FaultKind(
            name="pause-worker",
            tag="pause_worker",
            label="pause worker",
            colour="#2f6f9f",
            needs="pause",
            build=lambda aim: PauseWorker(aim.subtask, aim.duration_ms),
            inject=pause_process,
        ),
        FaultKind(
            name="pause-executor",
            tag="pause_executor",
            label="pause executor",
            colour="#1f4f7f",
            needs="pause",
            build=lambda aim: PauseExecutor(aim.subtask, aim.duration_ms),
            inject=pause_process,
        ),
    ),
)

DELAY = FaultPackage(
    name="delay",
    label="delayed connections",
    colour="#3b7a57",
    kinds=(
        FaultKind(
            name="delay",
            tag="delay_channel",
            label="delay channel",
            colour="#3b7a57",
            needs="channel",
            build=lambda aim: DelayChannel(
                aim.subtask, aim.receiver, aim.latency_ms, aim.duration_ms, aim.jitter_ms, aim.direction
            ),
            inject=disturb_channel,
        ),
    ),
)

THROTTLE = FaultPackage(
    name="throttle",
    label="throttled connections",
    colour="#8a7a1f",
    kinds=(
        FaultKind(
            name="throttle",
            tag="throttle_channel",
            label="throttle channel",
            colour="#8a7a1f",
            needs="channel",
            build=lambda aim: ThrottleChannel(
                aim.subtask, aim.receiver, aim.bytes_per_second, aim.duration_ms, aim.direction
            ),
            inject=disturb_channel,
        ),
    ),
)


def _partition_executor(aim: Aim) -> Fault:
    return PartitionExecutor(aim.subtask, aim.peers, aim.duration_ms, aim.direction)


PARTITION = FaultPackage(
    name="partition",
    label="broken connections and partitions",
    colour="#a03070",
    kinds=(
        FaultKind(
            name="cut",
            tag="cut_channel",
            label="cut channel",
            colour="#c2185b",
            needs="channel",
            build=lambda aim: CutChannel(aim.subtask, aim.receiver, aim.duration_ms),
            inject=disturb_channel,
        ),
        FaultKind(
            name="black-hole",
            tag="black_hole_channel",
            label="black-hole channel",
            colour="#5d2a5d",
            needs="channel",
            build=lambda aim: BlackHoleChannel(aim.subtask, aim.receiver, aim.duration_ms, aim.direction),
            inject=disturb_channel,
        ),
        FaultKind(
            name="partition-executor",
            tag="partition_executor",
            label="partition executor",
            colour="#a03070",
            needs="partition",
            build=_partition_executor,
            inject=partition,
        ),
        FaultKind(
            name="partition-halves",
            tag="partition_halves",
            label="partition halves",
            colour="#802050",
            needs="partition",
            build=lambda aim: PartitionHalves((aim.subtask,), aim.duration_ms),
            inject=partition,
        ),
    ),
)

ZOMBIE = FaultPackage(
    name="zombie",
    label="zombies: replaced while paused or partitioned, and back again",
    colour="#444466",
    kinds=(
        FaultKind(
            name="zombie-paused",
            tag="pause_worker",
            label="pause worker beyond the heartbeat timeout",
            colour="#444466",
            needs="pause",
            build=lambda aim: PauseWorker(aim.subtask, aim.duration_ms),
            inject=pause_process,
            outlasts_heartbeat=True,
        ),
        FaultKind(
            name="zombie-partitioned",
            tag="partition_executor",
            label="partition executor beyond the heartbeat timeout",
            colour="#55447f",
            needs="partition",
            build=lambda aim: PartitionExecutor(
                aim.subtask, Peers.COORDINATOR, aim.duration_ms, aim.direction
            ),
            inject=partition,
            outlasts_heartbeat=True,
        ),
    ),
)

STORAGE = FaultPackage(
    name="storage",
    label="damaged copies and failing disks",
    colour="#6b5b2a",
    kinds=(
        FaultKind(
            name="damage-local-copy",
            tag="damage_local_copy",
            label="damage local copy",
            colour="#6b5b2a",
            needs="storage",
            build=lambda aim: DamageLocalCopy(aim.subtask, aim.damage),
            inject=harm_copies,
        ),
        FaultKind(
            name="damage-primary",
            tag="damage_primary",
            label="damage primary copy",
            colour="#8f4f1f",
            needs="storage",
            build=lambda aim: DamagePrimary(aim.subtask),
            inject=harm_copies,
        ),
        FaultKind(
            name="fail-local-writes",
            tag="fail_local_writes",
            label="local disk full",
            colour="#4b6b4a",
            needs="storage",
            build=lambda aim: FailLocalWrites(aim.subtask),
            inject=harm_copies,
        ),
        FaultKind(
            name="fail-primary-writes",
            tag="fail_primary_writes",
            label="primary writes fail",
            colour="#9f6f3f",
            needs="storage",
            build=lambda aim: FailPrimaryWrites(aim.subtask),
            inject=harm_copies,
        ),
    ),
)

PACKAGES: tuple[FaultPackage, ...] = (KILL, HOST_LOSS, PAUSE, DELAY, THROTTLE, PARTITION, ZOMBIE, STORAGE)
"""Every package there is. Zombies are pauses and partitions that last: their tags belong to those packages first."""

KINDS: dict[str, FaultKind] = {kind.name: kind for package in PACKAGES for kind in package.kinds}
"""Every kind by its name."""


def tag_of(fault: Fault) -> str:
    """Return the fault's tag, for instance ``kill_executor``."""
    tag = type(fault).__struct_config__.tag
    assert isinstance(tag, str), f"{type(fault).__name__} has no tag"
    return tag


def kind_of(fault: Fault) -> FaultKind:
    """Return the kind that a fault belongs to; raises LookupError if no package knows it."""
    tag = tag_of(fault)
    for kind in KINDS.values():
        if kind.tag == tag:
            return kind
    raise LookupError(f"no package in faults.packages has a kind for {tag!r}")


def inject(fault: Fault, targets: Targets) -> Injection:
    """Carry out a fault with the injector of its kind."""
    return kind_of(fault).inject(fault, targets)
