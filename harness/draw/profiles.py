"""Named profiles: from which ranges a campaign draws its plans. Frozen values, printed by campaigns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointProtocol,
    RestartStrategyName,
    WhenUnreadable,
)
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest

Range = tuple[int, int]
"""Smallest and largest value, both included."""

_SUBTASK_POINTS = (
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
_COORDINATOR_POINTS = (
    ProtocolPoint.CHECKPOINT_TRIGGERED,
    ProtocolPoint.ALL_ACKNOWLEDGED,
    ProtocolPoint.CHECKPOINT_COMPLETED,
    ProtocolPoint.ATTEMPT_RUNNING,
)
_ALL_KINDS = tuple((kind.name, kind.drawn_as.weight) for kind in KINDS.values() if kind.drawn_as.weight)


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
    tiny_inputs_per_mille: int = 80
    """How many plans in 1,000 have an input of no record or of exactly one."""
    records_per_second: tuple[int | None, ...] = (None, 300, 300, 600)
    """Rates of a source. Without a rate, all input is read before the first barrier, and nothing is left to replay."""
    workloads: tuple[str, ...] = ("keyed-totals",)
    """Workloads; one that is listed more often is drawn more often."""
    drawn_jobs_per_mille: int = 700
    """How many plans in 1,000 have a drawn job graph instead of a named shape, if their workload can draw one."""
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
    local_recovery_per_mille: int = 250
    """How many plans in 1,000 keep copies of state on the hosts, if the system can (LOC-1)."""
    on_unreadable: tuple[WhenUnreadable, ...] = ("fail", "older")
    """What to do when no copy of the latest checkpoint can be read, in a system whose copies can be damaged (REC-4)."""
    async_ms_max: Range = (0, 40)
    late_async_per_mille: int = 150
    """How many plans in 1,000 have asynchronous parts that may outlast the timeout, so that checkpoints expire."""
    late_async_part: int = 10
    """Such a part may outlast the timeout by the timeout divided by this number, and by more in a wider job."""
    latency_ms_max: Range = (0, 10)
    slow_channel_per_mille: int = 200
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
    kinds: tuple[tuple[str, int], ...] = _ALL_KINDS
    """Kinds of ``barrier_tck.faults.catalogue`` with their weights."""
    points: tuple[ProtocolPoint, ...] = _SUBTASK_POINTS + _COORDINATOR_POINTS
    restore_per_mille: int = 350
    """How many plans in 1,000 with several faults begin with one after which a checkpoint is restored."""
    timed_per_mille: int = 250
    """How many faults in 1,000 are timed and not aimed at a protocol point; all, where nobody is sure to pass one.

    0: none, for instance because the system has no clock. What cannot be aimed is left out then.
    """
    timed_ms: Range = (0, 25)
    own_target_per_mille: int = 700
    """How many aimed faults in 1,000 hit the subtask that stands at the point, and not another one."""
    storage_per_mille: int = 60
    """How many plans in 1,000 are made for faults of copies of state (``storage_faults``), if the system suffers any.

    They are longer than others, most have local recovery, and their only other faults are kills.
    """
    settle_ms: int = 5
    """The longest time that a checkpoint takes for reasons outside the plan; it determines the length of such plans."""
    savepoints_per_mille: int = 0
    """How many plans in 1,000 ask for savepoints, if the system takes any (COO-5)."""
    savepoints: Range = (1, 3)
    """How many such a plan asks for."""
    savepoint_after: Range = (0, 5)
    """After how many completed checkpoints each is asked for."""
    savepoint_delay_ms: Range = (0, 20)
    """How much later."""
    stop_per_mille: int = 400
    """With how many savepoints in 1,000 the job is stopped, and another one is started from it."""
    lose_unsynced_per_mille: int = 250
    """How many executor kills and coordinator crashes in 1,000 also lose the unsynced writes of their host."""
    unreadable_per_mille: int = 200
    """How many coordinator crashes in 1,000 leave storage unreadable for a time when the coordinator starts again."""
    duration_ms: Range = (5, 120)
    """How long a fault lasts that should be over before the coordinator takes a silent subtask for lost."""
    zombie_ms: Range = (200, 400)
    """How long a fault lasts that should outlast the heartbeat timeout (150 ms in the simulator) by far."""
    latency_ms: Range = (1, 60)
    """Latency of a delayed connection."""
    bytes_per_second: tuple[int, ...] = (2_000, 10_000, 50_000)
    """Rate of a throttled connection; a row counts 64 bytes in the simulator."""
    wall_s: int = 120
    progress_ms: int = 10_000
    """Within this time after the last healing, a checkpoint must complete or the job must end (REC-6)."""


_LOOPS = Profile(
    name="loops",
    description="Generated job graphs with loops, in the exact modes, with every kind of fault: 0 to 4 faults.",
    workloads=("rounds", "rounds", "money"),
    modes=("exactly_once", "exactly_once", "unaligned", "aligned_timeout"),
    drawn_jobs_per_mille=600,
    interval_ms=(8, 40),
    sources=(1, 2),
    sinks=(1, 2),
    late_async_per_mille=0,
    batches=(2, 6),
    records_per_second=(None, 300, 600),
    subtasks_max=10,
    timeouts_ms=(2_000,),
    tolerated_failures=(1_000,),
    restore_per_mille=600,
    storage_per_mille=30,
)

_SPARK_GRAPHS = Profile(
    name="spark-graphs",
    description="For a real cluster: generated job graphs; kills, lost hosts, pauses, disturbed connections.",
    workloads=("lineage",),
    sources=(1, 2),
    keyed=(1, 2),
    sinks=(1, 2),
    subtasks_max=10,
    executors=(3, 3),
    batches=(40, 60),
    batch_records=(20, 20),
    keys=(5, 50),
    start_offset=(0, 0),
    tiny_inputs_per_mille=0,
    records_per_second=(400,),
    modes=("exactly_once", "exactly_once", "at_least_once"),
    max_concurrent=(1, 2),
    interval_ms=(300, 600),
    timeouts_ms=(10_000,),
    min_pause_ms=(0,),
    retained=(2, 2),
    async_ms_max=(0, 0),
    late_async_per_mille=0,
    latency_ms_max=(0, 0),
    slow_channel_per_mille=0,
    channel_capacities=(8,),
    restart_delay_ms=(10, 10),
    faults=(1, 2),
    kinds=(
        *(("executor", 4), ("worker", 3), ("host", 1)),
        *(("pause-worker", 1), ("pause-executor", 1)),
        *(("delay", 1), ("throttle", 1), ("cut", 1), ("black-hole", 1)),
    ),
    timed_per_mille=150,
    timed_ms=(100, 800),
    lose_unsynced_per_mille=0,
    duration_ms=(200, 1_500),
    latency_ms=(10, 200),
    bytes_per_second=(20_000, 100_000),
    progress_ms=30_000,
)

PROFILES: tuple[Profile, ...] = (
    Profile(
        name="lite",
        description="Small and quick: one fault at most, no timeouts, no slow channels.",
        sources=(1, 2),
        keyed=(1, 2),
        sinks=(1, 1),
        batches=(1, 12),
        interval_ms=(6, 30),
        faults=(0, 1),
        max_concurrent=(1, 1),
        late_async_per_mille=0,
        slow_channel_per_mille=0,
        timeouts_ms=(2_000,),
    ),
    Profile(
        name="standard",
        description="Everything at once: all topologies, tiny inputs, late snapshots, 0 to 4 faults.",
    ),
    Profile(
        name="faultless",
        description="As standard, without faults: what must hold when nothing goes wrong.",
        faults=(0, 0),
    ),
    Profile(
        name="heavy",
        description="As standard, with 2 to 4 faults in every trial, many of them during a restore.",
        faults=(2, 4),
        restore_per_mille=800,
        points=(
            *_SUBTASK_POINTS,
            *_COORDINATOR_POINTS,
            ProtocolPoint.RESTORE_STARTED,
            ProtocolPoint.RESTORED,
            ProtocolPoint.RESTORE_STARTED,
        ),
    ),
    Profile(
        name="at-least-once",
        description="At-least-once mode with one slow channel of several, and faults: duplicates do happen.",
        modes=("at_least_once",),
        sources=(2, 3),
        batches=(4, 16),
        tiny_inputs_per_mille=20,
        records_per_second=(None, 600),
        interval_ms=(8, 40),
        min_pause_ms=(0,),
        late_async_per_mille=50,
        latency_ms_max=(1, 6),
        slow_channel_per_mille=1_000,
        slow_channel_into_keyed=True,
        faults=(1, 3),
        restore_per_mille=900,
    ),
    Profile(
        name="graphs",
        description="Generated job graphs in both modes, with everything that can go wrong: 0 to 4 faults.",
        workloads=("lineage",),
        sources=(1, 2),
        keyed=(1, 4),
        sinks=(1, 2),
        executors=(1, 4),
        batches=(1, 8),
        modes=("exactly_once", "exactly_once", "at_least_once"),
        drawn_jobs_per_mille=850,
        late_async_part=40,
        storage_per_mille=30,
    ),
    Profile(
        name="modes",
        description="Generated job graphs in every mode, with full queues: slow channels and vertices, 0 to 4 faults.",
        workloads=("lineage", "lineage", "lineage", "keyed-totals"),
        sources=(1, 2),
        keyed=(1, 3),
        sinks=(1, 2),
        executors=(1, 4),
        batches=(2, 8),
        batch_records=(1, 4),
        records_per_second=(None, 600, 2_000),
        modes=(
            "unaligned",
            "unaligned",
            "aligned_timeout",
            "aligned_timeout",
            "exactly_once",
            "at_least_once",
        ),
        drawn_jobs_per_mille=800,
        subtasks_max=14,
        interval_ms=(10, 60),
        min_pause_ms=(0, 0, 10),
        timeouts_ms=(2_000,),
        tolerated_failures=(1_000,),
        late_async_per_mille=0,
        latency_ms_max=(0, 6),
        slow_channel_per_mille=400,
        slow_vertex_per_mille=500,
        slow_batch_ms=(2, 5, 12),
        channel_capacities=(1, 2, 2, 4, 8),
        restore_per_mille=600,
        storage_per_mille=50,
    ),
    _LOOPS,
    replace(
        _LOOPS,
        name="chandy-lamport",
        description="Any graph under Chandy-Lamport, with drawn initiators and overlapping snapshots: 0 to 4 faults.",
        workloads=("rounds", "rounds", "money", "lineage"),
        modes=("exactly_once",),
        protocol="chandy_lamport",
        interval_ms=(6, 30),
    ),
    Profile(
        name="savepoints",
        description="Savepoints amid checkpoints, stops and second jobs, in both modes, with 0 to 3 faults.",
        workloads=("lineage", "keyed-totals"),
        sources=(1, 2),
        sinks=(1, 2),
        subtasks_max=16,
        batches=(6, 24),
        tiny_inputs_per_mille=30,
        records_per_second=(300, 300, 600),
        modes=("exactly_once", "exactly_once", "at_least_once"),
        drawn_jobs_per_mille=600,
        interval_ms=(6, 40),
        faults=(0, 3),
        late_async_part=40,
        savepoints_per_mille=1_000,
    ),
    Profile(
        name="spark-savepoints",
        description="For a real cluster: savepoints, stops and second jobs, with kills.",
        workloads=("lineage", "keyed-totals"),
        sources=(1, 2),
        keyed=(1, 2),
        sinks=(1, 2),
        subtasks_max=8,
        executors=(3, 3),
        batches=(40, 60),
        batch_records=(20, 20),
        keys=(5, 50),
        start_offset=(0, 0),
        tiny_inputs_per_mille=0,
        records_per_second=(400,),
        modes=("exactly_once", "exactly_once", "at_least_once"),
        max_concurrent=(1, 2),
        interval_ms=(200, 500),
        timeouts_ms=(10_000,),
        min_pause_ms=(0,),
        retained=(1, 2),
        tolerated_failures=(1_000,),
        local_recovery_per_mille=250,
        on_unreadable=("fail",),
        async_ms_max=(0, 0),
        late_async_per_mille=0,
        latency_ms_max=(0, 0),
        slow_channel_per_mille=0,
        channel_capacities=(8,),
        restart_delay_ms=(10, 10),
        faults=(0, 1),
        kinds=(("executor", 2), ("worker", 2)),
        timed_per_mille=150,
        timed_ms=(100, 800),
        storage_per_mille=0,
        savepoints_per_mille=1_000,
        savepoint_after=(0, 3),
        savepoint_delay_ms=(0, 200),
        stop_per_mille=600,
        lose_unsynced_per_mille=0,
        progress_ms=30_000,
    ),
    Profile(
        name="spark-kill",
        description="For a real cluster: executors and workers killed at protocol points, seconds a trial.",
        sources=(2, 2),
        keyed=(2, 2),
        sinks=(1, 1),
        executors=(2, 3),
        max_parallelism=(16,),
        batches=(40, 60),
        batch_records=(20, 20),
        keys=(5, 50),
        start_offset=(0, 0),
        tiny_inputs_per_mille=0,
        records_per_second=(400,),
        max_concurrent=(1, 1),
        interval_ms=(300, 600),
        timeouts_ms=(10_000,),
        min_pause_ms=(0,),
        retained=(2, 2),
        tolerated_failures=(1_000,),
        local_recovery_per_mille=0,
        on_unreadable=("fail",),
        async_ms_max=(0, 0),
        late_async_per_mille=0,
        latency_ms_max=(0, 0),
        slow_channel_per_mille=0,
        channel_capacities=(8,),
        restart_delay_ms=(10, 10),
        faults=(1, 2),
        kinds=(("executor", 3), ("worker", 1)),
        timed_per_mille=150,
        timed_ms=(100, 800),
        lose_unsynced_per_mille=0,
        progress_ms=30_000,
    ),
    _SPARK_GRAPHS,
    replace(
        _SPARK_GRAPHS,
        name="spark-driver",
        description="For a real cluster: the driver's process killed at protocol points, seconds a trial.",
        workloads=("lineage", "keyed-totals"),
        faults=(1, 1),
        kinds=(("coordinator", 1),),
        lose_unsynced_per_mille=250,
        progress_ms=60_000,
    ),
    Profile(
        name="spark-explore",
        description="For a real cluster: any job, every mode, every kind of fault that Spark can suffer.",
        workloads=("lineage", "lineage", "keyed-totals"),
        sources=(1, 2),
        keyed=(1, 2),
        sinks=(1, 2),
        subtasks_max=10,
        executors=(3, 3),
        batches=(25, 40),
        batch_records=(20, 20),
        keys=(5, 50),
        start_offset=(0, 40),
        tiny_inputs_per_mille=30,
        records_per_second=(400,),
        modes=(
            *("exactly_once", "exactly_once", "at_least_once", "at_least_once"),
            *("unaligned", "unaligned", "aligned_timeout"),
        ),
        alignment_timeouts_ms=(0, 50, 200),
        buffer_bytes=(None, None, 2_000, 400),
        slow_vertex_per_mille=300,
        slow_batch_ms=(5, 20),
        max_concurrent=(1, 2),
        interval_ms=(200, 500),
        timeouts_ms=(10_000, 10_000, 2_000),
        min_pause_ms=(0, 0, 100),
        retained=(1, 3),
        local_recovery_per_mille=350,
        storage_per_mille=300,
        settle_ms=250,
        async_ms_max=(0, 0),
        late_async_per_mille=0,
        latency_ms_max=(20, 60),
        slow_channel_per_mille=150,
        slow_at_least_once_per_mille=1_000,
        slow_channel_into_keyed=True,
        slow_factors=(5, 8),
        channel_capacities=(8,),
        restart_delay_ms=(10, 50),
        failures_counted_ms=(500, 5_000),
        faults=(1, 3),
        kinds=tuple((kind.name, 4 if kind.drawn_as.package == "kill" else 1) for kind in KINDS.values()),
        timed_per_mille=150,
        timed_ms=(100, 800),
        duration_ms=(200, 1_500),
        zombie_ms=(4_500, 6_000),
        latency_ms=(10, 300),
        bytes_per_second=(2_000, 20_000, 100_000),
        progress_ms=60_000,
    ),
)
"""Every profile there is."""


def profile_named(name: str) -> Profile:
    """Return a profile; raises UsageProblem with the nearest name if there is none."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise UsageProblem(f"there is no profile {name!r}{nearest(name, [profile.name for profile in PROFILES])}")
