"""What a profile is: from which ranges a campaign draws its plans."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
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
    ProtocolPoint.TRANSACTIONS_COMMITTED,
    ProtocolPoint.RESTORE_STARTED,
    ProtocolPoint.RESTORED,
)
COORDINATOR_POINTS = (
    ProtocolPoint.CHECKPOINT_TRIGGERED,
    ProtocolPoint.ALL_ACKNOWLEDGED,
    ProtocolPoint.CHECKPOINT_COMPLETED,
    ProtocolPoint.ATTEMPT_RUNNING,
)
EVERY_KIND = tuple((kind.name, kind.drawn_as.weight) for kind in KINDS.values() if kind.drawn_as.weight)
"""Every kind of fault that is drawn, with its weight."""


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
    """Ranges and choices for generated plans. Times in milliseconds, ranges with both ends included."""

    name: str
    description: str
    sources: Range = (1, 3)
    keyed: Range = (1, 3)
    sinks: Range = (1, 3)
    executors: Range = (1, 3)
    max_parallelism: tuple[int, ...] = (16, 16, 1, 128, 300)
    """Numbers of key groups; a job that is wider than the drawn number has as many as its widest vertex (RSC-1)."""
    batches: Range = (1, 24)
    batch_records: Range = (1, 4)
    keys: Range = (1, 8)
    start_offset: Range = (0, 5)
    tiny_inputs_per_mille: int = 55
    """How many plans in 1,000 have an input of no record or of exactly one."""
    early_ends_per_mille: int = 0
    """In how many plans in 1,000 some source subtasks, but not all, have hardly any input (BAR-6)."""
    records_per_second: tuple[int | None, ...] = (None, 300, 300, 600)
    """Rates of a source. Without a rate, all input is read before the first barrier, and nothing is left to replay."""
    workloads: tuple[str, ...] = ("keyed-totals",)
    """Workloads; one that is listed more often is drawn more often."""
    drawn_jobs_per_mille: int = 500
    """How many plans in 1,000 have a drawn job graph instead of a named shape, if their workload can draw one."""
    shapes_left_out: tuple[str, ...] = ("between",)
    """Named shapes that are not drawn, because they are wide; a plan may name them."""
    subtasks_max: int = 30
    """Roughly the most subtasks that a drawn job graph has."""
    modes: tuple[CheckpointingMode, ...] = ("exactly_once",)
    """Checkpointing modes."""
    protocol: CheckpointProtocol = "barriers"
    """How checkpoints are taken; with ``chandy_lamport``, initiators are drawn, too."""
    alignment_timeouts_ms: tuple[int, ...] = (0, 5, 20, 60)
    """Mode ``aligned_timeout``: how long barriers wait before they overtake (UNA-2)."""
    buffer_bytes: tuple[int | None, ...] = (None, None, 400, 90, 23)
    """Sizes of the buffers into which batches are cut, in modes whose barriers overtake."""
    slow_vertex_per_mille: int = 0
    """How many plans in 1,000 have a vertex that is slower than the others, most often a sink."""
    slow_behind_ends_per_mille: int = 0
    """How many of these vertices in 1,000 are behind a forward edge of sources that end early, if there is one."""
    slow_batch_ms: tuple[int, ...] = (3, 10, 30)
    """How much longer it takes there for each batch."""
    max_concurrent: Range = (1, 3)
    """Most checkpoints in flight at once (BAR-4)."""
    interval_ms: Range = (6, 60)
    timeouts_ms: tuple[int, ...] = (150, 400, 2_000)
    min_pause_ms: tuple[int, ...] = (0, 0, 10, 50)
    retained: Range = (1, 3)
    first_ids: tuple[int, ...] = (1, 1, 1, 8, 98, 998, 2**31 - 3, 2**32 - 3)
    """Ids of the first checkpoint; those that follow have one more digit, or one more bit, than those before."""
    tolerated_failures: tuple[int, ...] = (1_000, 1_000, 1_000, 3, 1, 0)
    """How many checkpoints in a row may fail (COO-2); at least 3 if checkpoints are meant to expire."""
    local_recovery_per_mille: int = 130
    """How many plans in 1,000 keep copies of state on the hosts, if the system can (LOC-1)."""
    local_memory_per_mille: int = 160
    """How many of these plans in 1,000 keep the copies in the executors' memory."""
    local_memory_bytes: tuple[int, ...] = (64 * 1024 * 1024, 64 * 1024 * 1024, 4_000, 700)
    """Sizes of this memory. The first one has room for all; the others are drawn if no fault is to hit a copy."""
    on_unreadable: tuple[WhenUnreadable, ...] = ("fail", "older")
    """What to do when no copy of the latest checkpoint can be read, in a system whose copies can be damaged (REC-4)."""
    async_ms_max: Range = (0, 40)
    cached_keys: tuple[int | None, ...] = ()
    """How many keys a keyed aggregate may have in memory, or None for all; empty: all, and nothing is drawn."""
    incremental_per_mille: int = 0
    """How many plans in 1,000 have incremental checkpoints (SNP-5)."""
    compressed_per_mille: int = 0
    """How many plans in 1,000 have compressed snapshots (SNP-6)."""
    late_async_per_mille: int = 85
    """How many plans in 1,000 have asynchronous parts that may outlast the timeout, so that checkpoints expire."""
    late_async_part: int = 10
    """Such a part may outlast the timeout by the timeout divided by this number, and by more in a wider job."""
    latency_ms_max: Range = (0, 10)
    slow_channel_per_mille: int = 105
    slow_at_least_once_per_mille: int | None = None
    """How many plans in 1,000 in at-least-once mode have a slow channel; None: as many as in the other mode."""
    slow_channel_into_keyed: bool = False
    """Whether the slow channel is always one of those between sources and keyed subtasks."""
    slow_factors: tuple[int, ...] = (5, 20)
    channel_capacities: tuple[int, ...] = (1, 2, 8, 32)
    restarts: tuple[RestartStrategyName, ...] = ("fixed_delay", "failure_rate", "exponential_delay")
    """Restart strategies (REC-3)."""
    restart_delay_ms: Range = (0, 40)
    failures_counted_ms: Range = (5, 200)
    """The time in which failures are counted, or after which a row of failures is over."""
    faults: Range = (0, 4)
    kinds: tuple[tuple[str, int], ...] = EVERY_KIND
    """Kinds of ``barrier_tck.faults.catalogue`` with their weights."""
    points: tuple[ProtocolPoint, ...] = SUBTASK_POINTS + COORDINATOR_POINTS
    restore_per_mille: int = 185
    """How many plans in 1,000 with several faults begin with one after which a checkpoint is restored."""
    timed_per_mille: int = 130
    """How many faults in 1,000 are timed and not aimed at a protocol point; all, where nobody is sure to pass one.

    0: none, for instance because the system has no clock. What cannot be aimed is left out then.
    """
    timed_ms: Range = (0, 25)
    """When timed faults strike, in ms after the first attempt ran. A job that may be over by then gets none."""
    own_target_per_mille: int = 500
    """How many aimed faults in 1,000 hit the subtask that stands at the point, and not another one."""
    storage_per_mille: int = 70
    """How many plans in 1,000 are made for faults of copies of state (``storage_faults``), if the system suffers any.

    They are longer than others, most have local recovery, and their only other faults are kills.
    """
    recovery_per_mille: int = 0
    """How many plans in 1,000 are made for checkpoints during a recovery (``recovery_plans``), if barriers overtake."""
    settle_ms: int = 5
    """The longest time that a checkpoint takes for reasons outside the plan; it determines the length of such plans."""
    savepoints_per_mille: int = 0
    """How many plans in 1,000 ask for savepoints, if the system takes any (COO-5)."""
    savepoints: Range = (1, 3)
    """How many such a plan asks for."""
    savepoint_after: Range = (0, 5)
    """After how many completed checkpoints each is asked for."""
    savepoints_in_turn: bool = False
    """Whether these are counted from the savepoint before, so that a job is stopped several times."""
    savepoint_delay_ms: Range = (0, 20)
    """How much later."""
    stop_per_mille: int = 220
    """With how many savepoints in 1,000 the job is stopped, and another one is started from it."""
    claim_per_mille: int = 0
    """How many of these savepoints in 1,000 the other job takes over, so that it deletes them."""
    failing_stops_per_mille: int = 0
    """How many plans in 1,000 are made for savepoints and stops that fail while the job goes on (``stop_plans``)."""
    rescale_per_mille: int = 0
    """After how many such stops in 1,000 the job goes on with other widths, if the system can do that (RSC-2)."""
    lists_per_mille: int = 0
    """In how many jobs in 1,000 operators without keyed state keep lists, if the system and the workload have any."""
    windows_per_mille: int = 0
    """In how many jobs in 1,000 operators with keyed state hold records back, if the system and the workload can."""
    window_ms: tuple[int, ...] = (5, 20, 60)
    """How long they do: until the window ends in which a record came."""
    chains_per_mille: int = 0
    """How many plans in 1,000 are made for chains of recover, checkpoint, rescale, recover again (``chain_plans``)."""
    rescaled_width_max: int = 7
    """How wide a vertex becomes then, at most; sometimes it becomes as wide as there are key groups."""
    elastic_per_mille: int = 0
    """How many plans in 1,000 have an elastic job that loses an executor for good (``elastic_plans``)."""
    losses_per_mille: int = 0
    """How many plans in 1,000 are made for several losses of executors, one after the other (``loss_plans``)."""
    elastic_wait_ms: Range = (0, 40)
    """How long such a job waits for slots."""
    replaced_late_per_mille: int = 0
    """In how many plans in 1,000 with an elastic job an executor that died is replaced only after a while."""
    rescaled_subtasks_max: int = 30
    """How many subtasks the job has then, at most."""
    lose_unsynced_per_mille: int = 130
    """How many executor kills and coordinator crashes in 1,000 also lose the unsynced writes of their host."""
    unreadable_per_mille: int = 105
    """How many coordinator crashes in 1,000 leave storage unreadable for a time when the coordinator starts again."""
    duration_ms: Range = (5, 120)
    """How long a fault lasts that should be over before the coordinator takes a silent subtask for lost."""
    zombie_ms: Range = (200, 400)
    """How long a fault lasts that should outlast the heartbeat timeout (150 ms in the simulator) by far."""
    latency_ms: Range = (1, 60)
    """Latency of a delayed connection."""
    bytes_per_second: tuple[int, ...] = (2_000, 10_000, 50_000)
    """Rate of a throttled connection; a row counts 64 bytes in the simulator."""
    settings: tuple[DrawnSetting, ...] = ()
    """Settings of the system that are drawn, unless the campaign gives them."""
    wall_s: int = 120
    progress_ms: int = 10_000
    """Within this time after the last healing, a checkpoint must complete or the job must end (REC-6)."""
