"""Named profiles: frozen values, printed by campaigns."""

from __future__ import annotations

from dataclasses import replace

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.draw.profile import (
    COORDINATOR_POINTS,
    EVERY_KIND,
    SUBTASK_POINTS,
    CheckpointRanges,
    DeploymentRanges,
    ElasticRanges,
    FaultRanges,
    JobRanges,
    NetworkRanges,
    Profile,
    SavepointRanges,
    WorkloadRanges,
)
from barrier_tck.harness.draw.spark_profiles import EVENT_TIME, REAL_EVENT_TIME, SPARK_PROFILES
from barrier_tck.harness.plan.storage_targets import SERVED
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest

_OF_SERVICES = (
    ("kill-object-store", 30),
    ("cut-object-store", 12),
    ("throttle-object-store", 12),
    ("delay-object-store", 18),
    ("fail-request", 24),
)
"""The faults of the service that holds the checkpoints, with weights beside those of all other faults."""

_WITHOUT_SERVICES = (
    "copies",
    "ends_apart",
    "failed_deployments",
    "finalisers",
    "late_reports",
    "recovery",
    "scarce_restarts",
    "torn_commits",
    "undeployed",
)
"""Scenarios that draw all faults of a plan, and none of such a service."""

_LOOPS = Profile(
    name="loops",
    description="Generated job graphs with loops, some of them elastic or stopped with savepoints, in the exact modes, "
    "with every kind of fault: 0 to 4 faults.",
    workload=WorkloadRanges(
        names=("rounds", "rounds", "money", "components"), batches=(2, 6), records_per_second=(None, 300, 600)
    ),
    job=JobRanges(drawn_per_mille=380, sources=(1, 2), sinks=(1, 2), subtasks_max=10),
    checkpoints=CheckpointRanges(
        modes=("exactly_once", "exactly_once", "unaligned", "aligned_timeout"),
        interval_ms=(8, 40),
        timeouts_ms=(2_000,),
        tolerated_failures=(1_000,),
    ),
    faults=FaultRanges(restore_per_mille=380),
    savepoints=SavepointRanges(stop_per_mille=500, claim_per_mille=160, rescale_per_mille=160),
    scenarios=(
        ("late_snapshots", 0),
        ("copies", 35),
        ("elastic", 100),
        ("windows", 290),
        ("savepoints", 250),
        ("from_savepoint", 40),
        ("failing_stops", 60),
        ("failing_savepoints", 60),
        ("stops_at_the_end", 130),
        ("overlapping", 250),
        ("late_messages", 50),
        ("backlog", 120),
        ("in_flight", 100),
    ),
)

PROFILES: tuple[Profile, ...] = (
    Profile(
        name="lite",
        description="Small and quick: one fault at most, no timeouts, no slow channels.",
        workload=WorkloadRanges(batches=(1, 12)),
        job=JobRanges(sources=(1, 2), keyed=(1, 2), sinks=(1, 1)),
        checkpoints=CheckpointRanges(interval_ms=(6, 30), max_concurrent=(1, 1), timeouts_ms=(2_000,)),
        network=NetworkRanges(slow_channel_per_mille=0),
        faults=FaultRanges(number=(0, 1)),
        scenarios=(("late_snapshots", 0),),
    ),
    Profile(
        name="standard",
        description="Everything at once: all topologies, tiny inputs, late snapshots, 0 to 4 faults.",
        scenarios=(
            ("forged_acknowledgements", 30),
            ("in_flight", 60),
            ("overlapping_copies", 40),
            ("refused_deletions", 50),
            ("fallbacks", 20),
        ),
    ),
    Profile(
        name="faultless",
        description="As standard, without faults: what must hold when nothing goes wrong.",
        faults=FaultRanges(number=(0, 0)),
        # Its jobs keep the formula of snapshots, which totals that changed are judged by otherwise.
        scenarios=(("changed_totals", 0),),
    ),
    Profile(
        name="heavy",
        description="As standard, with 2 to 4 faults in every trial, many of them during a restore.",
        faults=FaultRanges(
            number=(2, 4),
            restore_per_mille=650,
            points=(
                *SUBTASK_POINTS,
                *COORDINATOR_POINTS,
                ProtocolPoint.RESTORE_STARTED,
                ProtocolPoint.RESTORED,
                ProtocolPoint.RESTORE_STARTED,
            ),
        ),
        scenarios=(("overlapping_copies", 30), ("refused_deletions", 50), ("fallbacks", 20)),
    ),
    Profile(
        name="at-least-once",
        description="At-least-once mode with one slow channel of several, and faults: duplicates do happen.",
        workload=WorkloadRanges(batches=(4, 16), records_per_second=(None, 600)),
        job=JobRanges(sources=(2, 3)),
        checkpoints=CheckpointRanges(modes=("at_least_once",), interval_ms=(8, 40), min_pause_ms=(0,)),
        network=NetworkRanges(
            latency_ms_max=(1, 6), slow_channel_per_mille=1_000, slow_channel_into_keyed=True
        ),
        faults=FaultRanges(number=(1, 3), restore_per_mille=815),
        scenarios=(
            ("in_flight", 150),
            ("tiny_inputs", 28),
            ("late_snapshots", 37),
            ("late_ends", 250),
            ("refused_deletions", 40),
        ),
    ),
    Profile(
        name="graphs",
        description="Generated job graphs in both modes, with everything that can go wrong: 0 to 4 faults.",
        workload=WorkloadRanges(names=(*["lineage"] * 7, "event-time"), batches=(1, 8)),
        job=JobRanges(sources=(1, 2), keyed=(1, 4), sinks=(1, 2), drawn_per_mille=730),
        deployment=DeploymentRanges(executors=(1, 4)),
        checkpoints=CheckpointRanges(modes=("exactly_once", "exactly_once", "at_least_once"), late_part=40),
        scenarios=(
            ("in_flight", 60),
            ("lists", 500),
            ("windows", 480),
            ("copies", 35),
            ("overlapping_copies", 25),
            ("refused_deletions", 40),
            ("elastic", 80),
        ),
    ),
    Profile(
        name="modes",
        description="Generated job graphs in every mode, with full queues: slow channels and vertices, 0 to 4 faults.",
        workload=WorkloadRanges(
            names=(*["lineage"] * 6, "keyed-totals", "keyed-totals", "event-time"),
            batches=(2, 8),
            batch_records=(1, 4),
            records_per_second=(None, 600, 2_000),
        ),
        job=JobRanges(sources=(1, 2), keyed=(1, 3), sinks=(1, 2), drawn_per_mille=650, subtasks_max=14),
        deployment=DeploymentRanges(executors=(1, 4), slow_batch_ms=(2, 5, 12)),
        checkpoints=CheckpointRanges(
            modes=(
                "unaligned",
                "unaligned",
                "aligned_timeout",
                "aligned_timeout",
                "exactly_once",
                "at_least_once",
            ),
            interval_ms=(10, 60),
            min_pause_ms=(0, 0, 10),
            timeouts_ms=(2_000,),
            tolerated_failures=(1_000,),
        ),
        network=NetworkRanges(
            latency_ms_max=(0, 6), slow_channel_per_mille=220, channel_capacities=(1, 2, 2, 4, 8)
        ),
        faults=FaultRanges(restore_per_mille=380),
        scenarios=(
            ("in_flight", 330),
            ("late_snapshots", 0),
            ("slow_vertex", 255),
            ("full_outputs", 110),
            ("copies", 40),
            ("late_ends", 50),
            ("refused_deletions", 40),
            ("recovery", 125),
            ("lists", 90),
            ("windows", 250),
            ("elastic", 80),
        ),
    ),
    _LOOPS,
    replace(
        _LOOPS,
        name="chandy-lamport",
        description="Any graph under Chandy-Lamport, with drawn initiators and overlapping snapshots: 0 to 4 faults.",
        workload=replace(
            _LOOPS.workload, names=(*["rounds", "rounds", "money", "components", "lineage"] * 2, "event-time")
        ),
        checkpoints=replace(
            _LOOPS.checkpoints, modes=("exactly_once",), protocol="chandy_lamport", interval_ms=(6, 30)
        ),
        # Only here a subtask that is held reads on every channel, up to its marker or its end.
        scenarios=tuple({**dict(_LOOPS.scenarios), "stops_at_the_end": 400}.items()),
    ),
    Profile(
        name="savepoints",
        description="Savepoints amid checkpoints, stops that succeed or fail and second jobs, in every mode: 0 to 3 "
        "faults.",
        workload=WorkloadRanges(
            names=(*["lineage", "keyed-totals"] * 4, "event-time"),
            batches=(6, 24),
            records_per_second=(300, 300, 600),
        ),
        job=JobRanges(sources=(1, 2), sinks=(1, 2), subtasks_max=16, drawn_per_mille=380),
        checkpoints=CheckpointRanges(
            modes=("exactly_once", "unaligned", "aligned_timeout", "at_least_once"),
            interval_ms=(6, 40),
            late_part=40,
        ),
        faults=FaultRanges(number=(0, 3)),
        # Some come last, with no checkpoint behind them.
        savepoints=SavepointRanges(after=(0, 9), rescale_per_mille=500),
        scenarios=(
            ("in_flight", 150),
            ("tiny_inputs", 23),
            ("savepoints", 1_000),
            ("failing_stops", 230),
            ("failing_savepoints", 120),
            ("from_savepoint", 90),
            ("stops_at_the_end", 60),
            ("held_timers", 130),
            ("last_savepoints", 150),
            ("restored_savepoints", 60),
            ("late_snapshots", 56),
            ("lists", 300),
            ("windows", 280),
        ),
    ),
    Profile(
        name="event-time",
        description="Generated graphs of windows, joins and timers in event time, some with aligned sources, and real "
        "flights, in every mode, some of them rescaled, elastic or stopped with savepoints: 0 to 4 faults.",
        workload=WorkloadRanges(
            names=EVENT_TIME,
            batches=(2, 10),
            batch_records=(1, 4),
            records_per_second=(None, 600, 2_000),
        ),
        job=JobRanges(sources=(1, 3), keyed=(1, 3), sinks=(1, 2), drawn_per_mille=600, subtasks_max=14),
        deployment=DeploymentRanges(executors=(1, 4), slow_batch_ms=(2, 5, 12)),
        # Joins multiply records: in the smallest buffers they would be on their way for longer than a trial may last.
        network=NetworkRanges(buffer_bytes=(None, None, 400, 90)),
        checkpoints=CheckpointRanges(
            modes=("exactly_once", "unaligned", "at_least_once", "aligned_timeout", "unaligned"),
            interval_ms=(8, 40),
            timeouts_ms=(2_000,),
            tolerated_failures=(1_000,),
        ),
        savepoints=SavepointRanges(stop_per_mille=500, claim_per_mille=160, rescale_per_mille=500),
        scenarios=(
            ("late_snapshots", 0),
            ("savepoints", 300),
            ("from_savepoint", 40),
            ("elastic", 100),
            ("in_flight", 100),
            ("watermarks_apart", 250),
        ),
    ),
    Profile(
        name="rescale",
        description="Jobs stopped with savepoints that go on wider or narrower, and elastic ones that lose one "
        "executor or several, in every mode: 0 to 3 faults.",
        workload=WorkloadRanges(
            names=(
                *["lineage", "lineage", "keyed-totals", "weather"] * 6,
                *["event-time"] * 2,
                *REAL_EVENT_TIME,
            ),
            batches=(20, 40),
            batch_records=(1, 2),
            records_per_second=(200, 400),
        ),
        job=JobRanges(shapes_left_out=(), sources=(1, 2), sinks=(1, 3), subtasks_max=14, drawn_per_mille=290),
        deployment=DeploymentRanges(max_parallelism=(16, 16, 8, 5, 1, 128, 300), slow_batch_ms=(2, 5)),
        checkpoints=CheckpointRanges(
            modes=("unaligned", "unaligned", "aligned_timeout", "exactly_once", "at_least_once"),
            incremental_per_mille=130,
            interval_ms=(8, 40),
        ),
        faults=FaultRanges(number=(0, 3)),
        savepoints=SavepointRanges(
            number=(2, 5),
            after=(0, 4),
            in_turn=True,
            stop_per_mille=730,
            claim_per_mille=160,
            rescale_per_mille=815,
        ),
        elastic=ElasticRanges(replaced_late_per_mille=290),
        scenarios=(
            ("in_flight", 100),
            ("early_ends", 70),
            ("lists", 420),
            ("forms", 130),
            ("windows", 280),
            ("compressed", 85),
            ("late_snapshots", 0),
            ("slow_vertex", 290),
            ("savepoints", 1_000),
            ("backlog", 250),
            ("chain", 420),
            ("from_savepoint", 60),
            ("failing_savepoints", 0),
            ("late_reports", 0),
            ("elastic", 157),
            ("losses", 81),
            ("failed_deployments", 0),
            ("merged_increments", 40),
            ("fallbacks", 50),
            ("tiny_inputs", 30),
            ("rocksdb", 400),
        ),
    ),
    Profile(
        name="chains",
        description="Chains of three to five conditions: failures, long good runs, stops, slots that go and come back; "
        "with timers, increments and copies on hosts.",
        workload=WorkloadRanges(names=(*["lineage"] * 7, "event-time"), records_per_second=(100,)),
        job=JobRanges(shapes_left_out=("between", "fan-in", "mixed")),
        checkpoints=CheckpointRanges(
            modes=("exactly_once", "exactly_once", "unaligned", "aligned_timeout"),
            timeouts_ms=(2_000,),
            tolerated_failures=(1_000,),
        ),
        network=NetworkRanges(latency_ms_max=(0, 4)),
        faults=FaultRanges(number=(0, 6)),
        scenarios=(
            ("conditions", 1_000),
            # A checkpoint of RocksDB takes a hundred times as long, and a chain has many.
            ("rocksdb", 20),
            ("lists", 130),
            ("forms", 0),
            ("changed_totals", 0),
            ("ends_apart", 0),
            ("bursts", 0),
            ("copies", 0),
            ("recovery", 0),
            ("tiny_inputs", 0),
            ("late_snapshots", 0),
        ),
    ),
    Profile(
        name="ends",
        description="Some sources end long before the others, in every mode: 0 to 3 faults, before and after that.",
        workload=WorkloadRanges(
            names=(*["lineage", "lineage", "keyed-totals"] * 3, "event-time"),
            batches=(12, 30),
            batch_records=(1, 3),
            records_per_second=(150, 300),
        ),
        # Eleven sources give more records at so many checkpoints than can be judged in time.
        job=JobRanges(
            sources=(2, 3),
            sinks=(1, 2),
            subtasks_max=14,
            drawn_per_mille=380,
            shapes_left_out=("between", "fan-in"),
        ),
        deployment=DeploymentRanges(slow_behind_ends_per_mille=500, slow_batch_ms=(5, 15)),
        checkpoints=CheckpointRanges(
            modes=("exactly_once", "unaligned", "aligned_timeout", "at_least_once"),
            interval_ms=(6, 25),
            timeouts_ms=(400, 2_000),
            min_pause_ms=(0,),
            async_ms_max=(0, 10),
        ),
        network=NetworkRanges(latency_ms_max=(0, 5)),
        faults=FaultRanges(
            number=(0, 3),
            kinds=tuple((name, 6 if name == "repeat" else weight) for name, weight in EVERY_KIND),
            restore_per_mille=380,
        ),
        savepoints=SavepointRanges(number=(1, 4), after=(1, 8), rescale_per_mille=500),
        scenarios=(
            ("in_flight", 90),
            ("tiny_inputs", 0),
            ("early_ends", 640),
            ("late_ends", 150),
            ("late_snapshots", 0),
            ("slow_vertex", 160),
            ("elastic", 80),
            ("savepoints", 300),
            ("last_savepoints", 120),
            ("lists", 130),
            ("windows", 280),
        ),
    ),
    Profile(
        name="incremental",
        description="Incremental checkpoints, several in flight, many of them failing, with 0 to 4 faults.",
        workload=WorkloadRanges(
            names=(*["keyed-totals", "lineage"] * 4, "event-time"),
            batches=(10, 30),
            batch_records=(1, 3),
            keys=(15, 60),
            records_per_second=(150, 300),
        ),
        job=JobRanges(sources=(1, 2), sinks=(1, 2), subtasks_max=12, drawn_per_mille=290),
        checkpoints=CheckpointRanges(
            modes=("exactly_once", "exactly_once", "unaligned", "at_least_once"),
            interval_ms=(5, 25),
            min_pause_ms=(0,),
            max_concurrent=(1, 4),
            retained=(1, 3),
            timeouts_ms=(150, 2_000),
            tolerated_failures=(1_000,),
            incremental_per_mille=1_000,
            late_part=40,
        ),
        faults=FaultRanges(restore_per_mille=380),
        savepoints=SavepointRanges(claim_per_mille=160),
        scenarios=(
            ("in_flight", 120),
            ("tiny_inputs", 23),
            ("compressed", 130),
            ("copies", 60),
            ("merged_increments", 150),
            ("overlapping_copies", 30),
            ("refused_deletions", 60),
            ("savepoints", 130),
            ("restored_savepoints", 100),
            ("from_savepoint", 30),
            ("rocksdb", 200),
            ("zombies", 300),
            ("windows", 280),
        ),
    ),
    Profile(
        name="object-store",
        description="As standard, with increments and savepoints, for checkpoints in an object store or in HDFS, whose "
        "servers die in uploads, refuse requests, are slow and are cut off: 1 to 4 faults.",
        workload=WorkloadRanges(keys=(4, 40)),
        checkpoints=CheckpointRanges(incremental_per_mille=380, storages=SERVED),
        faults=FaultRanges(number=(1, 4), kinds=(*EVERY_KIND, *_OF_SERVICES)),
        savepoints=SavepointRanges(claim_per_mille=160, rescale_per_mille=380),
        scenarios=(
            ("in_flight", 60),
            ("savepoints", 130),
            ("from_savepoint", 30),
            # They would leave few plans to the faults of the service.
            *((name, 0) for name in _WITHOUT_SERVICES),
            ("outages_in_restore", 100),
            ("outages_in_publication", 60),
        ),
    ),
    Profile(
        name="large-state",
        description="Fewer keys in memory than there are, on every state backend, with 0 to 3 faults.",
        workload=WorkloadRanges(
            names=(*["keyed-totals", "lineage"] * 4, "event-time"), batches=(10, 30), keys=(5, 40)
        ),
        job=JobRanges(drawn_per_mille=160),
        deployment=DeploymentRanges(cached_keys=(1, 2, 3, 8, None)),
        checkpoints=CheckpointRanges(
            modes=("exactly_once", "exactly_once", "unaligned", "at_least_once"),
            incremental_per_mille=160,
            late_part=40,
        ),
        faults=FaultRanges(number=(0, 3), restore_per_mille=290),
        scenarios=(
            ("in_flight", 60),
            ("refused_deletions", 40),
        ),
    ),
    *SPARK_PROFILES,
)
"""Every profile there is."""

OF_WORLD: dict[str, tuple[str, ...]] = {
    "simulated": (
        "standard",
        "graphs",
        "modes",
        "at-least-once",
        "rescale",
        "incremental",
        "savepoints",
        "ends",
        "loops",
        "chandy-lamport",
        "object-store",
        "large-state",
        "heavy",
        "chains",
    ),
    "spark": ("spark-explore", "spark-graphs", "spark-savepoints", "spark-rescale", "spark-loops"),
}
"""World -> the profiles of the default campaigns, which hunts draw from in turn unless a bug's file says otherwise."""


def profile_named(name: str) -> Profile:
    """Return a profile; raises UsageProblem with the nearest name if there is none."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise UsageProblem(f"there is no profile {name!r}{nearest(name, [profile.name for profile in PROFILES])}")
