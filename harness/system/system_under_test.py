"""The seam to a system under test. Nothing here assumes that a system has barriers or checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from barrier_tck.faults.targets import Targets
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.message_trace import TraceEvent
from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, SnapshotRecord
from barrier_tck.harness.system.job_view import JobView


class Capability(StrEnum):
    """What a system can do or show; tests and faults are gated on these, never on a system's name."""

    DETERMINISTIC_REPLAY = "The same plan gives the same trace."
    EXECUTOR_KILL = "Its executors can be killed."
    WORKER_KILL = "The process of one subtask can be killed."
    COORDINATOR_CRASH = "Its coordinator can be killed and resumed from durable storage."
    CHECKPOINTS = (
        "It takes checkpoints of the whole job, reports which complete, and from which one an attempt starts."
    )
    ATTEMPTS = "Every failure ends the attempt, and another one follows; it reports when each attempt starts and runs."
    BARRIERS = "Barriers pass through its channels, and operators with several inputs align on them (ALN-1)."
    UNALIGNED_CHECKPOINTS = (
        "Barriers can overtake records, which become part of the checkpoint and can be read there (UNA-1)."
    )
    SAVEPOINTS = "A user can ask for a savepoint, stop the job with one, and start a job from one."
    RESCALING = "A job that is started from a savepoint may have another parallelism of any vertex (RSC-2)."
    OPERATOR_LISTS = (
        "Its operators can keep lists without keys, which restores deal out or give to all (RSC-3)."
    )
    OPERATOR_TIMERS = "Its operators can hold records back until a timer of their key goes off (STA-1)."
    EVENT_TIME = (
        "Its jobs know event time: sources make watermarks, and windows and timers follow them; it records in which "
        "order elements came to each subtask (EVT-1)."
    )
    STATE_FORMS = (
        "Its operators can keep maps, reduced and aggregated values by key, and not lists only (STA-1)."
    )
    EMISSION = (
        "Its aggregates can emit what has changed ahead of each barrier, or all at the end of the input."
    )
    SNAPSHOT_INSPECTION = "A completed checkpoint can be opened and read."
    FIFO_CHANNELS = "Records that one of its processes sends to another arrive in order (BAR-2)."
    UNSYNCED_LOSS = "A dying host can lose what it wrote but did not sync."
    FROM_SAVEPOINT = (
        "After a crash of its coordinator the job can be started again from its newest savepoint instead."
    )
    STORAGE_OUTAGE = "Durable storage can be made unreadable for a coordinator that restarts."
    SLOW_SNAPSHOTS = "The asynchronous part of its snapshots can be slowed down as a plan says."
    HOST_LOSS = "A host can be lost together with its local disk."
    HOST_RETURN = "A host that was lost can come back under its own name, with an empty disk."
    CLOCK_SKEW = (
        "The clocks of its hosts can be ahead of the coordinator's, or behind it; it reports by how much."
    )
    MEMORY_LIMIT = "Its hosts have a memory limit, and the kernel kills what exceeds it."
    EXECUTOR_LOSS = "An executor can be lost for good: nothing takes its place."
    ELASTIC = "A job that finds too few slots goes on with a smaller parallelism, if a plan says so (RSC-2)."
    PAUSE = "Its processes can be paused for a time, and then continue."
    CHANNEL_FAULTS = "Its connections can be delayed, throttled, cut and black-holed."
    LOCAL_RECOVERY = "It can keep copies of state on its hosts, and reports which copy a restore read."
    STORAGE_FAULTS = "Copies of its state can be damaged, and writes of such copies refused."
    FILE_FAULTS = "Single files of a local copy can be refused, while there is room for others."
    OBJECT_STORE_FAULTS = (
        "Its checkpoints can be in an object store or in HDFS, whose servers can be killed and throttled."
    )
    DELETION_FAULTS = "Its coordinator's deletions of checkpoints can fail."
    SNAPSHOT_FAULTS = "The synchronous part of a subtask's snapshot can fail."
    WRITE_FAULTS = "Single writes of files of its checkpoints can fail, find no room, or be late."
    MESSAGE_FAULTS = (
        "Messages about checkpoints between subtasks and coordinator can arrive twice, or be forged."
    )
    LOOPS = "Its jobs may have feedback edges, and what is under way in a loop is part of a checkpoint."
    CHANDY_LAMPORT = "It takes snapshots by Chandy and Lamport's algorithm, initiated by any of its subtasks."
    EARLY_FINISH = (
        "Its subtasks may finish before the job does; it reports that, and checkpoints go on (BAR-6)."
    )
    REQUEST_LOG = "It shows how often each of its subtasks asks checkpoint storage for what."
    MESSAGE_LOG = "It shows what each of its processes sends to others and takes from them, in its own order."
    PACKET_LOSS = "The networks of its hosts can lose packets."
    PARTITION = "Its executors can be partitioned from each other and from the coordinator."


class NemesisHooks(Protocol):
    """The calls that a deployment makes while it runs; the nemesis implements them."""

    def bind(self, targets: Targets, now_ms: Callable[[], float]) -> None:
        """Learn what can be hit, and the deployment's clock. Called once, before the job starts."""

    def point_reached(self, point: ProtocolPoint, subtask: str | None, attempt: int) -> None:
        """Called at every protocol point, while the subtask (None: the coordinator) stands still there."""

    def first_attempt_ran(self) -> None:
        """Called once, when the first attempt runs: timed faults count from then."""

    def next_time_ms(self) -> float | None:
        """Return when ``time_reached`` is to be called next, on the deployment's clock; None: not at all.

        It must be asked again after every other call, because a fault that fires at a point must be healed later.
        """

    def time_reached(self, now_ms: float) -> None:
        """Called when that time has come, with the deployment's time: timed faults strike, lasting ones are
        healed."""

    def heal_all(self) -> None:
        """Called at the end of every run, however it ends: heals what is not healed yet. Twice is harmless."""

    def watched_points(self) -> tuple[tuple[ProtocolPoint, str | None], ...]:
        """Return the (point, subtask or None for any) pairs that planned faults wait for; only these need a stop."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What a deployment leaves behind when it is over. A system fills in what it has.

    Give attempts and checkpoints once: as operations of the history, from which the records are made. A system that has
    better records of its own may give them, too, and they must agree. A negative time, duration or count is refused.
    """

    history: History
    """What the oracle judges."""
    subtasks: tuple[str, ...] = ()
    """Every subtask, upstream first."""
    duration_ms: float = 0.0
    """The length of the run on its own clock."""
    attempts: tuple[AttemptRecord, ...] = ()
    """The deployments of the dataflow, in order; empty: they are made of the history's ``AttemptStarted``,
    ``AttemptRunning`` and ``AttemptEnded``."""
    checkpoints: tuple[CheckpointRecord, ...] = ()
    """In order; empty: they are made of the history's ``CheckpointTriggered``, ``CheckpointCompleted`` and
    ``CheckpointAborted``."""
    snapshots: tuple[SnapshotRecord, ...] = ()
    """The subtasks' parts of the checkpoints."""
    trace: tuple[str, ...] = ()
    """The scheduler's steps, one line each."""
    measurements: dict[str, float] = field(default_factory=dict)
    """Named numbers, units in the name."""
    refused_connections: dict[str, int] = field(default_factory=dict)
    """How many connections the system refused, by a name for the reason."""
    trace_events: tuple[TraceEvent, ...] = ()
    """What passed through the channels around barriers, for cut diagrams; empty if the system does not note it."""
    reached: tuple[str, ...] = ()
    """What its protocol came through, by names; empty unless the system was asked (``ShowsCoverage``)."""


class SystemUnderTest(Protocol):
    """Deploys plans.

    Making a system is cheap; later it may hold something costly (a cluster), which ``close`` releases.
    ``harness.system.optional_interfaces`` lists what else a system may do or say.
    """

    @property
    def name(self) -> str:
        """Return the name used on the command line."""

    @property
    def world(self) -> str:
        """Return where it runs, as one word for reports; ``simulated`` if its time is virtual."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what it can do."""

    def job(self, plan: TrialPlan) -> JobView:
        """Return the job that the plan would give; faults are drawn and checked with it before anything runs."""

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run one trial to its end (or its time limit) and clean up. ``directory`` belongs to this trial alone."""

    def close(self) -> None:
        """Stop what was started. Closing twice is harmless."""
