"""The profiles for a real cluster: jobs that fit its slots, in seconds of real time."""

from __future__ import annotations

from dataclasses import replace

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.draw.profile import Profile

_SPARK_GRAPHS = Profile(
    name="spark-graphs",
    description="For a real cluster: generated job graphs; kills, lost hosts, pauses, disturbed connections.",
    workloads=("lineage",),
    sources=(1, 2),
    keyed=(1, 2),
    sinks=(1, 2),
    subtasks_max=10,
    lists_per_mille=500,
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
    timed_per_mille=85,
    timed_ms=(100, 800),
    lose_unsynced_per_mille=0,
    duration_ms=(200, 1_500),
    latency_ms=(10, 200),
    bytes_per_second=(20_000, 100_000),
    progress_ms=30_000,
)

_SPARK_EXPLORE = Profile(
    name="spark-explore",
    description="For a real cluster: any graph without loops, every mode of barriers, every kind of fault.",
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
    tiny_inputs_per_mille=35,
    records_per_second=(400,),
    modes=(
        *("exactly_once", "exactly_once", "at_least_once", "at_least_once"),
        *("unaligned", "unaligned", "aligned_timeout"),
    ),
    alignment_timeouts_ms=(0, 50, 200),
    buffer_bytes=(None, None, 2_000, 400),
    slow_vertex_per_mille=160,
    slow_batch_ms=(5, 20),
    max_concurrent=(1, 2),
    interval_ms=(200, 500),
    timeouts_ms=(10_000, 10_000, 2_000),
    min_pause_ms=(0, 0, 100),
    retained=(1, 3),
    local_recovery_per_mille=185,
    storage_per_mille=160,
    settle_ms=250,
    async_ms_max=(0, 0),
    late_async_per_mille=0,
    latency_ms_max=(20, 60),
    slow_channel_per_mille=85,
    slow_at_least_once_per_mille=1_000,
    slow_channel_into_keyed=True,
    slow_factors=(5, 8),
    channel_capacities=(8,),
    restart_delay_ms=(10, 50),
    failures_counted_ms=(500, 5_000),
    faults=(1, 3),
    kinds=tuple(
        (kind.name, 4 if kind.drawn_as.package == "kill" else 1)
        for kind in KINDS.values()
        # Only an elastic job owes anything when slots are gone for good: the profile spark-elastic.
        if kind.fault.needs is not TargetKind.CAPACITY
    ),
    timed_per_mille=85,
    timed_ms=(100, 800),
    duration_ms=(200, 1_500),
    zombie_ms=(4_500, 6_000),
    latency_ms=(10, 300),
    bytes_per_second=(2_000, 20_000, 100_000),
    progress_ms=60_000,
)

_SPARK_LOOPS = replace(
    _SPARK_EXPLORE,
    name="spark-loops",
    description="For a real cluster: job graphs with loops, in the exact modes, with every kind of fault.",
    workloads=("rounds", "rounds", "money", "components"),
    # A record may go round some twenty times.
    batch_records=(5, 5),
    # As many networks have edges enough for some seconds.
    keys=(40, 60),
    records_per_second=(100,),
    modes=("exactly_once", "exactly_once", "unaligned", "aligned_timeout"),
)

_SPARK_SAVEPOINTS = replace(
    _SPARK_GRAPHS,
    name="spark-savepoints",
    description="For a real cluster: savepoints, stops and second jobs, with kills.",
    workloads=("lineage", "keyed-totals"),
    subtasks_max=8,
    interval_ms=(200, 500),
    retained=(1, 2),
    tolerated_failures=(1_000,),
    on_unreadable=("fail",),
    faults=(0, 1),
    kinds=(("executor", 2), ("worker", 2)),
    storage_per_mille=0,
    savepoints_per_mille=1_000,
    savepoint_after=(0, 3),
    savepoint_delay_ms=(0, 200),
    stop_per_mille=380,
)

_SPARK_ELASTIC = replace(
    _SPARK_SAVEPOINTS,
    name="spark-elastic",
    description="For a real cluster of nine slots: elastic jobs that lose an executor for good, and more kills.",
    workloads=("keyed-totals",),
    # Between seven and nine subtasks; six find room, whichever vertex keeps its parallelism.
    sources=(2, 4),
    keyed=(4, 4),
    sinks=(1, 1),
    subtasks_max=9,
    max_parallelism=(16, 16, 5, 128),
    modes=("unaligned", "exactly_once", "exactly_once", "at_least_once"),
    slow_vertex_per_mille=380,
    slow_batch_ms=(5, 20),
    # Without it no record overtakes a barrier, and at-least-once mode shows no duplicate.
    latency_ms_max=(5, 20),
    slow_at_least_once_per_mille=1_000,
    slow_channel_into_keyed=True,
    slow_factors=(5, 8),
    faults=(1, 2),
    kinds=(("worker", 3), ("coordinator", 1)),
    savepoints_per_mille=220,
    savepoint_after=(2, 4),
    elastic_per_mille=1_000,
    elastic_wait_ms=(200, 1_500),
)

_SPARK_RESCALE = replace(
    _SPARK_SAVEPOINTS,
    name="spark-rescale",
    lists_per_mille=300,
    description="For a real cluster: jobs stopped with savepoints that go on wider or narrower, with kills.",
    max_parallelism=(16, 16, 5, 128),
    modes=("unaligned", "unaligned", "aligned_timeout", "exactly_once", "at_least_once"),
    alignment_timeouts_ms=(0, 50, 200),
    slow_vertex_per_mille=380,
    slow_batch_ms=(5, 20),
    faults=(1, 2),
    kinds=(("executor", 2), ("worker", 3), ("coordinator", 1)),
    savepoints=(2, 4),
    savepoints_in_turn=True,
    stop_per_mille=1_000,
    rescale_per_mille=1_000,
    rescaled_width_max=4,
    # A cluster of 30 slots has room for it when one of its three executors is dead.
    rescaled_subtasks_max=16,
)

SPARK_PROFILES: tuple[Profile, ...] = (
    _SPARK_SAVEPOINTS,
    _SPARK_RESCALE,
    _SPARK_ELASTIC,
    replace(
        _SPARK_GRAPHS,
        name="spark-kill",
        description="For a real cluster: executors and workers killed at protocol points, seconds a trial.",
        workloads=("keyed-totals",),
        sources=(2, 2),
        keyed=(2, 2),
        sinks=(1, 1),
        executors=(2, 3),
        max_parallelism=(16,),
        modes=("exactly_once",),
        max_concurrent=(1, 1),
        tolerated_failures=(1_000,),
        local_recovery_per_mille=0,
        on_unreadable=("fail",),
        kinds=(("executor", 3), ("worker", 1)),
    ),
    _SPARK_GRAPHS,
    replace(
        _SPARK_GRAPHS,
        name="spark-driver",
        description="For a real cluster: the driver's process killed at protocol points, seconds a trial.",
        workloads=("lineage", "keyed-totals"),
        faults=(1, 1),
        kinds=(("coordinator", 1),),
        lose_unsynced_per_mille=130,
        progress_ms=60_000,
    ),
    _SPARK_EXPLORE,
    _SPARK_LOOPS,
    replace(
        _SPARK_LOOPS,
        name="spark-chandy-lamport",
        description="For a real cluster: any graph under Chandy-Lamport, drawn initiators, and every kind of fault.",
        workloads=("rounds", "rounds", "money", "components", "lineage"),
        modes=("exactly_once",),
        protocol="chandy_lamport",
    ),
)
"""All of them."""
