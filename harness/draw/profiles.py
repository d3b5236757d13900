"""Named profiles: frozen values, printed by campaigns."""

from __future__ import annotations

from dataclasses import replace

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.draw.profile import COORDINATOR_POINTS, SUBTASK_POINTS, Profile
from barrier_tck.harness.draw.spark_profiles import SPARK_PROFILES
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest

_LOOPS = Profile(
    name="loops",
    description="Generated job graphs with loops, in the exact modes, with every kind of fault: 0 to 4 faults.",
    workloads=("rounds", "rounds", "money", "components"),
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
            *SUBTASK_POINTS,
            *COORDINATOR_POINTS,
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
        recovery_per_mille=250,
    ),
    _LOOPS,
    replace(
        _LOOPS,
        name="chandy-lamport",
        description="Any graph under Chandy-Lamport, with drawn initiators and overlapping snapshots: 0 to 4 faults.",
        workloads=("rounds", "rounds", "money", "components", "lineage"),
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
    *SPARK_PROFILES,
)
"""Every profile there is."""


def profile_named(name: str) -> Profile:
    """Return a profile; raises UsageProblem with the nearest name if there is none."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise UsageProblem(f"there is no profile {name!r}{nearest(name, [profile.name for profile in PROFILES])}")
