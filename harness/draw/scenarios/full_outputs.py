"""Sources are much faster than what reads from them: their output buffers are full when barriers come (UNA-2, UNA-3).

A barrier that may overtake goes ahead of what waits there, at once or after a timeout. By chance little waits: a source
that is held back reads no more, and the channels are short, so that a barrier that waits for its turn is hardly late.
Here the channels are long, a vertex right behind a source is slow, and there is input for several checkpoints.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.job_graph import Spread
from barrier_tck.harness.plan.trial_plan import OVERTAKING, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_WORKLOADS = ("lineage", "keyed-totals")
"""What these read is not multiplied on its way."""
_PATIENT, _PATIENT_TIMES = "aligned_timeout", 3
"""In this mode more can be late: a barrier that cannot overtake yet, and one that never will."""
_DRAWN_JOBS_PER_MILLE = 100
"""In many of these there are loops or broadcast edges, where a barrier does wait for data."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    overtakes = any(mode in OVERTAKING for mode in profile.checkpoints.modes)
    # Only where time is virtual is it known how long a barrier may take, and where few faults hold it up.
    known = Capability.DETERMINISTIC_REPLAY in capabilities and profile.faults.number[0] == 0
    return overtakes and known and bool(_workloads(profile))


def _workloads(profile: Profile) -> tuple[str, ...]:
    return tuple(name for name in profile.workload.names if name in _WORKLOADS)


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(
        profile,
        workload=replace(
            profile.workload,
            names=_workloads(profile) or profile.workload.names,
            batches=(80, 140),
            batch_records=(1, 3),
            records_per_second=(2_000,),
        ),
        job=replace(
            profile.job,
            drawn_per_mille=min(_DRAWN_JOBS_PER_MILLE, profile.job.drawn_per_mille),
            subtasks_max=8,
            # Eleven sources give more records than can be judged in time.
            shapes_left_out=(*profile.job.shapes_left_out, "fan-in"),
        ),
        deployment=replace(profile.deployment, slow_batch_ms=(8, 12, 16)),
        checkpoints=replace(
            profile.checkpoints,
            modes=tuple(
                mode
                for mode in profile.checkpoints.modes
                if mode in OVERTAKING
                for _ in range(_PATIENT_TIMES if mode == _PATIENT else 1)
            ),
            alignment_timeouts_ms=(0, 2, 5),
            interval_ms=(40, 80),
            min_pause_ms=(0,),
            timeouts_ms=(max(profile.checkpoints.timeouts_ms),),
            async_ms_max=(0, 2),
        ),
        network=replace(
            profile.network, latency_ms_max=(0, 1), slow_channel_per_mille=0, channel_capacities=(8, 12, 16)
        ),
        faults=replace(profile.faults, number=(0, 1)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Make a vertex slow that reads from a source, if one does that gets barriers in turn with records."""
    sources = [vertex.name for vertex in plan.job.sources]
    behind = [
        edge.target for edge in plan.job.edges if edge.source in sources and edge.by is not Spread.BROADCAST
    ]
    if not behind:
        return plan
    deployment = msgspec.structs.replace(
        plan.deployment,
        slow_vertex=drawing.draw(st.sampled_from(behind)),
        slow_batch_ms=drawing.draw(st.sampled_from(drawing.profile.deployment.slow_batch_ms)),
    )
    return msgspec.structs.replace(plan, deployment=deployment)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SLOW_VERTEX, Part.FAULTS}),
    per_mille=60,
    possible=_possible,
    profile=_profile,
    load=_load,
)
