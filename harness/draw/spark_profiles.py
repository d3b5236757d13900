"""The profiles for a real cluster: jobs that fit its slots, in seconds of real time."""

from __future__ import annotations

from dataclasses import replace

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.draw.profile import (
    CheckpointRanges,
    DeploymentRanges,
    DrawnSetting,
    FaultRanges,
    JobRanges,
    LimitRanges,
    NetworkRanges,
    Profile,
    RestartRanges,
    StorageRanges,
    WorkloadRanges,
)

REAL_EVENT_TIME = ("aircraft-sessions", "flights-in-weather", "hourly-flights")
"""The workloads in event time on real data, whose output is compared with a batch, too."""
EVENT_TIME = (*("event-time",) * 6, *REAL_EVENT_TIME)
"""All workloads in event time."""

_OPTIONS = (
    DrawnSetting("heartbeat_interval_ms", 60, (250, 1_000)),
    DrawnSetting("deployment_timeout_ms", 60, (60_000,)),
    DrawnSetting("connect_timeout_ms", 60, (5_000, 20_000)),
    DrawnSetting("warm_executors", 60, (False,)),
)
"""Options of the reference runtime on Spark; none of them may change a result."""

_SPARK_GRAPHS = Profile(
    name="spark-graphs",
    description="For a real cluster: generated job graphs; kills, lost hosts, pauses, disturbed connections.",
    workload=WorkloadRanges(
        names=("lineage",),
        batches=(40, 60),
        batch_records=(20, 20),
        keys=(5, 50),
        start_offset=(0, 0),
        records_per_second=(400,),
    ),
    job=JobRanges(sources=(1, 2), keyed=(1, 2), sinks=(1, 2), subtasks_max=10, window_ms=(20, 100, 300)),
    deployment=DeploymentRanges(executors=(3, 3)),
    checkpoints=CheckpointRanges(
        modes=("exactly_once", "exactly_once", "at_least_once"),
        max_concurrent=(1, 2),
        interval_ms=(300, 600),
        timeouts_ms=(10_000,),
        min_pause_ms=(0,),
        retained=(2, 2),
        async_ms_max=(0, 0),
    ),
    network=NetworkRanges(latency_ms_max=(0, 0), slow_channel_per_mille=0, channel_capacities=(8,)),
    restarts=RestartRanges(delay_ms=(10, 10)),
    faults=FaultRanges(
        number=(1, 2),
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
    ),
    limits=LimitRanges(progress_ms=30_000),
    scenarios=(
        ("lists", 500),
        ("windows", 500),
        ("tiny_inputs", 0),
        ("late_snapshots", 0),
        ("rocksdb", 0),
        ("increments", 0),
    ),
    settings=_OPTIONS,
)

_SPARK_EXPLORE = Profile(
    name="spark-explore",
    description="For a real cluster: any graph without loops, every mode of barriers, every kind of fault.",
    workload=WorkloadRanges(
        names=("lineage", "lineage", "keyed-totals"),
        batches=(25, 40),
        batch_records=(20, 20),
        keys=(5, 50),
        start_offset=(0, 40),
        records_per_second=(400,),
    ),
    job=JobRanges(sources=(1, 2), keyed=(1, 2), sinks=(1, 2), subtasks_max=10),
    deployment=DeploymentRanges(executors=(3, 3), slow_batch_ms=(5, 20)),
    checkpoints=CheckpointRanges(
        modes=(
            *("exactly_once", "exactly_once", "at_least_once", "at_least_once"),
            *("unaligned", "unaligned", "aligned_timeout"),
        ),
        alignment_timeouts_ms=(0, 50, 200),
        max_concurrent=(1, 2),
        interval_ms=(200, 500),
        timeouts_ms=(10_000, 10_000, 2_000),
        min_pause_ms=(0, 0, 100),
        retained=(1, 3),
        async_ms_max=(0, 0),
    ),
    storage=StorageRanges(local_recovery_per_mille=185),
    network=NetworkRanges(
        buffer_bytes=(None, None, 2_000, 400),
        latency_ms_max=(20, 60),
        slow_channel_per_mille=85,
        slow_at_least_once_per_mille=1_000,
        slow_channel_into_keyed=True,
        slow_factors=(5, 8),
        channel_capacities=(8, 8, 4, 16),
    ),
    restarts=RestartRanges(delay_ms=(10, 50), counted_ms=(500, 5_000)),
    faults=FaultRanges(
        number=(1, 3),
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
    ),
    limits=LimitRanges(settle_ms=250, progress_ms=60_000),
    scenarios=(
        ("tiny_inputs", 30),
        ("slow_vertex", 160),
        ("copies", 160),
        ("late_snapshots", 0),
        ("rocksdb", 0),
        ("increments", 0),
    ),
    settings=_OPTIONS,
)

_SPARK_LOOPS = replace(
    _SPARK_EXPLORE,
    name="spark-loops",
    description="For a real cluster: job graphs with loops, some of them stopped with savepoints, in the exact modes, "
    "with every kind of fault.",
    workload=replace(
        _SPARK_EXPLORE.workload,
        names=("rounds", "rounds", "money", "components"),
        # A record may go round some twenty times.
        batch_records=(5, 5),
        # As many networks have edges enough for some seconds.
        keys=(40, 60),
        records_per_second=(100,),
    ),
    checkpoints=replace(
        _SPARK_EXPLORE.checkpoints, modes=("exactly_once", "exactly_once", "unaligned", "aligned_timeout")
    ),
    savepoints=replace(_SPARK_EXPLORE.savepoints, after=(0, 3), delay_ms=(0, 200), stop_per_mille=500),
).with_shares(savepoints=250)

_SPARK_SAVEPOINTS = replace(
    _SPARK_GRAPHS,
    name="spark-savepoints",
    description="For a real cluster: savepoints, stops and second jobs, with kills.",
    workload=replace(_SPARK_GRAPHS.workload, names=("lineage", "keyed-totals")),
    job=replace(_SPARK_GRAPHS.job, subtasks_max=8),
    checkpoints=replace(
        _SPARK_GRAPHS.checkpoints, interval_ms=(200, 500), retained=(1, 2), tolerated_failures=(1_000,)
    ),
    storage=replace(_SPARK_GRAPHS.storage, on_unreadable=("fail",)),
    faults=replace(_SPARK_GRAPHS.faults, number=(0, 1), kinds=(("executor", 2), ("worker", 2))),
    savepoints=replace(_SPARK_GRAPHS.savepoints, after=(0, 3), delay_ms=(0, 200), stop_per_mille=380),
).with_shares(copies=0, savepoints=1_000)

_SPARK_ELASTIC = replace(
    _SPARK_SAVEPOINTS,
    name="spark-elastic",
    description="For a real cluster of nine slots: elastic jobs that lose an executor for good, and more kills.",
    workload=replace(_SPARK_SAVEPOINTS.workload, names=("keyed-totals",)),
    job=replace(
        _SPARK_SAVEPOINTS.job,
        # Between seven and nine subtasks; six find room, whichever vertex keeps its parallelism.
        sources=(2, 4),
        keyed=(4, 4),
        sinks=(1, 1),
        subtasks_max=9,
    ),
    deployment=replace(_SPARK_SAVEPOINTS.deployment, max_parallelism=(16, 16, 5, 128), slow_batch_ms=(5, 20)),
    checkpoints=replace(
        _SPARK_SAVEPOINTS.checkpoints, modes=("unaligned", "exactly_once", "exactly_once", "at_least_once")
    ),
    network=replace(
        _SPARK_SAVEPOINTS.network,
        # Without it no record overtakes a barrier, and at-least-once mode shows no duplicate.
        latency_ms_max=(5, 20),
        slow_at_least_once_per_mille=1_000,
        slow_channel_into_keyed=True,
        slow_factors=(5, 8),
    ),
    faults=replace(_SPARK_SAVEPOINTS.faults, number=(1, 2), kinds=(("worker", 3), ("coordinator", 1))),
    savepoints=replace(_SPARK_SAVEPOINTS.savepoints, after=(2, 4)),
    elastic=replace(_SPARK_SAVEPOINTS.elastic, wait_ms=(200, 1_500)),
).with_shares(
    slow_vertex=380,
    savepoints=220,
    elastic=1_000,
    failed_snapshots=0,
    failed_publications=0,
    failing_savepoints=0,
    late_reports=0,
    last_totals=0,
)

_SPARK_RESCALE = replace(
    _SPARK_SAVEPOINTS,
    name="spark-rescale",
    description="For a real cluster: jobs stopped with savepoints that go on wider or narrower, with kills.",
    job=replace(_SPARK_SAVEPOINTS.job, window_ms=(20, 100, 300)),
    deployment=replace(_SPARK_SAVEPOINTS.deployment, max_parallelism=(16, 16, 5, 128), slow_batch_ms=(5, 20)),
    checkpoints=replace(
        _SPARK_SAVEPOINTS.checkpoints,
        modes=("unaligned", "unaligned", "aligned_timeout", "exactly_once", "at_least_once"),
        alignment_timeouts_ms=(0, 50, 200),
    ),
    network=replace(
        _SPARK_SAVEPOINTS.network,
        # Few trials are in at-least-once mode. Without it these show no duplicate, and nothing is known of the mode.
        latency_ms_max=(5, 20),
        slow_at_least_once_per_mille=1_000,
        slow_channel_into_keyed=True,
        slow_factors=(5, 8),
    ),
    faults=replace(
        _SPARK_SAVEPOINTS.faults, number=(1, 2), kinds=(("executor", 2), ("worker", 3), ("coordinator", 1))
    ),
    savepoints=replace(
        _SPARK_SAVEPOINTS.savepoints,
        number=(2, 4),
        in_turn=True,
        stop_per_mille=1_000,
        rescale_per_mille=1_000,
        rescaled_width_max=4,
        # A cluster of 30 slots has room for it when one of its three executors is dead.
        rescaled_subtasks_max=16,
    ),
).with_shares(lists=300, windows=300, slow_vertex=380)

_SPARK_EVENT_TIME = replace(
    _SPARK_RESCALE,
    name="spark-event-time",
    description="For a real cluster: generated graphs of windows and timers in event time, some with aligned sources, "
    "and real flights, in every mode, with kills; half of them are rescaled.",
    workload=replace(
        _SPARK_RESCALE.workload, names=EVENT_TIME, batches=(30, 50), batch_records=(4, 8), keys=(3, 12)
    ),
    job=replace(_SPARK_RESCALE.job, drawn_per_mille=700, subtasks_max=12),
    savepoints=replace(_SPARK_RESCALE.savepoints, stop_per_mille=500, rescale_per_mille=800),
).with_shares(lists=0, windows=0)

SPARK_PROFILES: tuple[Profile, ...] = (
    _SPARK_SAVEPOINTS,
    _SPARK_RESCALE,
    _SPARK_EVENT_TIME,
    _SPARK_ELASTIC,
    replace(
        _SPARK_GRAPHS,
        name="spark-kill",
        description="For a real cluster: executors and workers killed at protocol points, seconds a trial.",
        workload=replace(_SPARK_GRAPHS.workload, names=("keyed-totals",)),
        job=replace(_SPARK_GRAPHS.job, sources=(2, 2), keyed=(2, 2), sinks=(1, 1)),
        deployment=replace(_SPARK_GRAPHS.deployment, executors=(2, 3), max_parallelism=(16,)),
        checkpoints=replace(
            _SPARK_GRAPHS.checkpoints,
            modes=("exactly_once",),
            max_concurrent=(1, 1),
            tolerated_failures=(1_000,),
        ),
        storage=replace(_SPARK_GRAPHS.storage, local_recovery_per_mille=0, on_unreadable=("fail",)),
        faults=replace(_SPARK_GRAPHS.faults, kinds=(("executor", 3), ("worker", 1))),
    ),
    _SPARK_GRAPHS,
    replace(
        _SPARK_GRAPHS,
        name="spark-driver",
        description="For a real cluster: the driver's process killed at protocol points, seconds a trial.",
        workload=replace(_SPARK_GRAPHS.workload, names=("lineage", "keyed-totals")),
        faults=replace(
            _SPARK_GRAPHS.faults, number=(1, 1), kinds=(("coordinator", 1),), lose_unsynced_per_mille=130
        ),
        limits=replace(_SPARK_GRAPHS.limits, progress_ms=60_000),
    ),
    _SPARK_EXPLORE,
    _SPARK_LOOPS,
    replace(
        _SPARK_LOOPS,
        name="spark-chandy-lamport",
        description="For a real cluster: any graph under Chandy-Lamport, drawn initiators, and every kind of fault.",
        workload=replace(_SPARK_LOOPS.workload, names=("rounds", "rounds", "money", "components", "lineage")),
        checkpoints=replace(_SPARK_LOOPS.checkpoints, modes=("exactly_once",), protocol="chandy_lamport"),
    ),
)
"""All of them."""
