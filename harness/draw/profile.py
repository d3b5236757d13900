"""What a profile is: from which ranges a campaign draws its plans, in groups for each part of a plan.

Times are in milliseconds, and both ends of a range are included. A field that ends in ``per_mille`` says how many of
1,000 have something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    CheckpointProtocol,
    RestartStrategyName,
    WhenUnreadable,
)

Range = tuple[int, int]
"""Smallest and largest value, both included."""

SUBTASK_POINTS = (
    ProtocolPoint.RECORDS_PROCESSED,
    ProtocolPoint.BARRIER_RECEIVED,
    ProtocolPoint.ALIGNMENT_STARTED,
    ProtocolPoint.ALIGNMENT_COMPLETED,
    ProtocolPoint.SNAPSHOT_TAKEN,
    ProtocolPoint.BARRIER_FORWARDED,
    ProtocolPoint.SNAPSHOT_STORED,
    ProtocolPoint.ACKNOWLEDGED,
    ProtocolPoint.COMPLETION_NOTIFIED,
    ProtocolPoint.COMMIT_STEP,
    ProtocolPoint.TRANSACTIONS_COMMITTED,
    ProtocolPoint.RESTORE_STARTED,
    ProtocolPoint.RESTORED,
)
COORDINATOR_POINTS = (
    ProtocolPoint.CHECKPOINT_TRIGGERED,
    ProtocolPoint.ALL_ACKNOWLEDGED,
    ProtocolPoint.PUBLICATION_STEP,
    ProtocolPoint.CHECKPOINT_COMPLETED,
    ProtocolPoint.ATTEMPT_RUNNING,
)
EVERY_KIND = tuple((kind.name, kind.drawn_as.weight) for kind in KINDS.values() if kind.drawn_as.weight)
"""Every kind of fault that is drawn, with its weight."""


@dataclass(frozen=True, slots=True)
class WorkloadRanges:
    """The input."""

    names: tuple[str, ...] = ("keyed-totals",)
    """Workloads; one that is listed more often is drawn more often."""
    batches: Range = (1, 24)
    batch_records: Range = (1, 4)
    keys: Range = (1, 8)
    start_offset: Range = (0, 5)
    records_per_second: tuple[int | None, ...] = (None, 300, 300, 600)
    """Rates of a source. Without a rate, all input is read before the first barrier, and nothing is left to replay."""

    @property
    def slowest(self) -> tuple[int | None, ...]:
        """Return the lowest of the rates as the only one; None if there is no rate."""
        return (min((rate for rate in self.records_per_second if rate), default=None),)


@dataclass(frozen=True, slots=True)
class JobRanges:
    """The job graph."""

    sources: Range = (1, 3)
    keyed: Range = (1, 3)
    sinks: Range = (1, 3)
    drawn_per_mille: int = 500
    """How many plans have a drawn graph instead of a named shape, if their workload can draw one."""
    shapes_left_out: tuple[str, ...] = ("between",)
    """Named shapes that are not drawn, because they are wide; a plan may name them."""
    subtasks_max: int = 30
    """Roughly the most subtasks that a drawn graph has."""
    window_ms: tuple[int, ...] = (5, 20, 60)
    """How long operators hold records back, where they do (``scenarios/windows``)."""


@dataclass(frozen=True, slots=True)
class DeploymentRanges:
    """Executors, key groups, and a vertex that is slow."""

    executors: Range = (1, 3)
    max_parallelism: tuple[int, ...] = (16, 16, 1, 128, 300)
    """Numbers of key groups; a job that is wider than the drawn number has as many as its widest vertex (RSC-1)."""
    cached_keys: tuple[int | None, ...] = ()
    """How many keys a keyed aggregate may have in memory, or None for all; empty: all, and nothing is drawn."""
    slow_behind_ends_per_mille: int = 0
    """How many slow vertices are behind a forward edge of sources that end early, if there is one."""
    slow_batch_ms: tuple[int, ...] = (3, 10, 30)
    """How much longer a slow vertex takes for each batch."""


@dataclass(frozen=True, slots=True)
class CheckpointRanges:
    """How checkpoints are taken."""

    protocol: CheckpointProtocol = "barriers"
    """With ``chandy_lamport``, initiators are drawn, too."""
    modes: tuple[CheckpointingMode, ...] = ("exactly_once",)
    alignment_timeouts_ms: tuple[int, ...] = (0, 5, 20, 60)
    """Mode ``aligned_timeout``: how long barriers wait before they overtake (UNA-2)."""
    max_concurrent: Range = (1, 3)
    """Most checkpoints in flight at once (BAR-4)."""
    interval_ms: Range = (6, 60)
    timeouts_ms: tuple[int, ...] = (150, 400, 2_000)
    min_pause_ms: tuple[int, ...] = (0, 0, 10, 50)
    retained: Range = (1, 3)
    first_ids: tuple[int, ...] = (1, 1, 1, 8, 98, 998, 2**31 - 3, 2**32 - 3)
    """Ids of the first checkpoint; those that follow have one more digit, or one more bit, than those before."""
    tolerated_failures: tuple[int, ...] = (1_000, 1_000, 1_000, 3, 1, 0)
    """How many checkpoints in a row may fail (COO-2)."""
    async_ms_max: Range = (0, 40)
    """The longest time that an asynchronous part takes."""
    late_part: int = 10
    """A late part (``scenarios/late_snapshots``) may outlast the timeout by the timeout divided by this number."""
    incremental_per_mille: int = 0
    """How many plans have incremental checkpoints (SNP-5)."""
    storages: tuple[str, ...] = (CheckpointPlan().storage,)
    """Where checkpoints are kept, unless the campaign says so."""


@dataclass(frozen=True, slots=True)
class StorageRanges:
    """Copies of state on hosts and in durable storage."""

    local_recovery_per_mille: int = 130
    """How many plans keep copies of state on the hosts, if the system can (LOC-1)."""
    local_memory_bytes: tuple[int, ...] = (64 * 1024 * 1024, 64 * 1024 * 1024, 4_000, 700)
    """Sizes of the memory for such copies (``scenarios/copies_in_memory``). The first one has room for all; the others
    are drawn if no fault is to hit a copy."""
    on_unreadable: tuple[WhenUnreadable, ...] = ("fail", "older")
    """What to do when no copy of the latest checkpoint can be read, in a system whose copies can be damaged (REC-4)."""


@dataclass(frozen=True, slots=True)
class NetworkRanges:
    """Channels and buffers."""

    latency_ms_max: Range = (0, 10)
    slow_channel_per_mille: int = 105
    slow_at_least_once_per_mille: int | None = None
    """How many plans in at-least-once mode have a slow channel; None: as many as in the other modes."""
    slow_channel_into_keyed: bool = False
    """Whether the slow channel is always one of those between sources and keyed subtasks."""
    slow_factors: tuple[int, ...] = (5, 20)
    channel_capacities: tuple[int, ...] = (1, 2, 8, 32)
    buffer_bytes: tuple[int | None, ...] = (None, None, 400, 90, 23)
    """Sizes of the buffers into which batches are cut, in modes whose barriers overtake."""


@dataclass(frozen=True, slots=True)
class RestartRanges:
    """Restart strategies (REC-3)."""

    strategies: tuple[RestartStrategyName, ...] = ("fixed_delay", "failure_rate", "exponential_delay")
    delay_ms: Range = (0, 40)
    counted_ms: Range = (5, 200)
    """The time in which failures are counted, or after which a row of failures is over."""
    longest: tuple[int, ...] = (2, 8)
    """How many times the first delay the longest one is, where delays grow."""
    factors: tuple[int, ...] = (2, 3, 1)
    """By how much a delay grows with each failure in a row."""


@dataclass(frozen=True, slots=True)
class FaultRanges:
    """How many faults strike, which, when, and how hard."""

    number: Range = (0, 4)
    kinds: tuple[tuple[str, int], ...] = EVERY_KIND
    """Kinds of ``barrier_tck.faults.catalogue`` with their weights."""
    points: tuple[ProtocolPoint, ...] = SUBTASK_POINTS + COORDINATOR_POINTS
    restore_per_mille: int = 185
    """How many plans with several faults begin with one after which a checkpoint is restored."""
    timed_per_mille: int = 130
    """How many faults are timed and not aimed at a protocol point; all, where no subtask is sure to pass one.

    0: none, for instance because the system has no clock. What cannot be aimed is left out then.
    """
    timed_ms: Range = (0, 25)
    """When timed faults strike, in ms after the first attempt ran. A job that may be over by then gets none."""
    batch_ms: int | None = None
    """What a batch of a source without a rate takes at least; None: not known."""
    own_target_per_mille: int = 500
    """How many aimed faults hit the subtask that stands at the point, and not another one."""
    lose_unsynced_per_mille: int = 130
    """How many executor kills and coordinator crashes also lose the unsynced writes of their host."""
    returns_per_mille: int = 500
    """How many hosts that are lost come back under their own names, empty."""
    unreadable_per_mille: int = 105
    """How many coordinator crashes leave storage unreadable for a time when the coordinator starts again."""
    duration_ms: Range = (5, 120)
    """How long a fault lasts that should be over before the coordinator takes a silent subtask for lost."""
    zombie_ms: Range = (200, 400)
    """How long a fault lasts that should outlast the heartbeat timeout (150 ms in the simulator) by far."""
    latency_ms: Range = (1, 60)
    """Latency of a delayed connection."""
    bytes_per_second: tuple[int, ...] = (2_000, 10_000, 50_000)
    """Rate of a throttled connection; a row counts 64 bytes in the simulator."""


@dataclass(frozen=True, slots=True)
class SavepointRanges:
    """Savepoints (COO-5), stops with them, and the jobs that are started from them (RSC-2)."""

    number: Range = (1, 3)
    """How many a plan asks for, if it asks for any (``scenarios/savepoints``)."""
    after: Range = (0, 5)
    """After how many completed checkpoints each is asked for."""
    in_turn: bool = False
    """Whether these are counted from the savepoint before, so that a job is stopped several times."""
    delay_ms: Range = (0, 20)
    """How much later."""
    stop_per_mille: int = 220
    """With how many savepoints the job is stopped, and another one is started from it."""
    claim_per_mille: int = 0
    """How many of these savepoints the other job takes over, so that it deletes them."""
    rescale_per_mille: int = 0
    """After how many such stops the job goes on with other widths, if the system can do that."""
    rescaled_vertices_per_mille: int = 380
    """How many of its vertices get another width then."""
    rescaled_width_max: int = 7
    """How wide a vertex becomes then, at most; sometimes it becomes as wide as there are key groups."""
    rescaled_subtasks_max: int = 30
    """How many subtasks the job has then, at most."""


@dataclass(frozen=True, slots=True)
class ElasticRanges:
    """Elastic jobs (``scenarios/elastic`` and ``scenarios/losses``)."""

    wait_ms: Range = (0, 40)
    """How long such a job waits for slots."""
    replaced_late_per_mille: int = 0
    """In how many such plans an executor that died is replaced only after a while."""


@dataclass(frozen=True, slots=True)
class LimitRanges:
    """Limits of a trial."""

    wall_s: int = 120
    progress_ms: int = 10_000
    """Within this time after the last healing, a checkpoint must complete or the job must end (REC-6)."""
    settle_ms: int = 5
    """The longest time that a checkpoint takes for reasons outside the plan. Plans that count their checkpoints are
    long enough for it."""


@dataclass(frozen=True, slots=True)
class DrawnSetting:
    """A setting of a system, and what is drawn for it."""

    name: str
    per_mille: int
    """In how many plans in 1,000 it is given."""
    values: tuple[str | int, ...]
    matters_after: Ends | None = None
    """It is given only if a fault of the plan ends this; None: in any plan."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Ranges and choices for drawn plans."""

    name: str
    description: str
    workload: WorkloadRanges = WorkloadRanges()
    job: JobRanges = JobRanges()
    deployment: DeploymentRanges = DeploymentRanges()
    checkpoints: CheckpointRanges = CheckpointRanges()
    storage: StorageRanges = StorageRanges()
    network: NetworkRanges = NetworkRanges()
    restarts: RestartRanges = RestartRanges()
    faults: FaultRanges = FaultRanges()
    savepoints: SavepointRanges = SavepointRanges()
    elastic: ElasticRanges = ElasticRanges()
    limits: LimitRanges = LimitRanges()
    scenarios: tuple[tuple[str, int], ...] = ()
    """Of how many plans in 1,000 each scenario is part, where it is possible at all (``harness/draw/scenarios``). One
    that is not named here has the share that it gives itself."""
    settings: tuple[DrawnSetting, ...] = ()
    """Settings of the system that are drawn, unless the campaign gives them."""

    def with_shares(self, **shares: int) -> Profile:
        """Return the profile with other shares of some scenarios, by the scenarios' names."""
        return replace(self, scenarios=tuple({**dict(self.scenarios), **shares}.items()))
