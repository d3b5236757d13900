"""What is in flight waits through several restores: it is part of a checkpoint again before it was read (UNA-4, RSC-3).

A checkpoint whose barriers overtake holds what lies in full queues. A restore puts that back, and a rescaled start
deals it out. Then the next checkpoint takes what is left of it, with what came behind it. By chance all of it was
read by then, or nothing is restored any more. Here one vertex is slow and the queues before it are long, batches
are cut into small buffers, few keys have many records, and what ends an attempt comes after one checkpoint at the
most. A job without loops is stopped first. Where there are loops, the slow vertex is in one of them as often as
not.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios import conditions
from barrier_tck.harness.draw.scenarios.conditions import AGAIN, Act, Link, chained
from barrier_tck.harness.plan.job_graph import SOURCE, Spread
from barrier_tck.harness.plan.trial_plan import OVERTAKING, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_STOP = Link(1, Act.STOP)
_LINKS = (Link(1, Act.SUBTASK_DIES), Link(1, Act.SUBTASK_DIES), _STOP, AGAIN)
_LENGTH = (2, 3)
_WIDE = (2, 3)
"""How many subtasks send: what is dealt out comes on one channel, and what they send behind it on others."""
_IN_LOOP_PER_MILLE = 500
"""In how many jobs with loops, of 1,000, the slow vertex is sure to be in one of them."""
_BY_KEY_PER_MILLE = 600
"""How many slow vertices read records by key, if any does: those keep their order whoever sends and receives them."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    """Return whether barriers may overtake, and attempts end in every way."""
    overtakes = any(mode in OVERTAKING for mode in profile.checkpoints.modes)
    able = {Capability.SAVEPOINTS, Capability.WORKER_KILL} <= capabilities
    return overtakes and able and profile.faults.number[1] >= _LENGTH[0]


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(
        counted,
        workload=replace(
            counted.workload, batches=(8, 16), batch_records=(2, 4), keys=(1, 3), records_per_second=(400,)
        ),
        job=replace(
            counted.job,
            sources=_WIDE,
            subtasks_max=10,
            # Eleven sources give more records than can be judged in time.
            shapes_left_out=(*counted.job.shapes_left_out, "fan-in"),
        ),
        deployment=replace(counted.deployment, slow_batch_ms=(12, 20)),
        checkpoints=replace(
            counted.checkpoints,
            modes=tuple(mode for mode in counted.checkpoints.modes if mode in OVERTAKING),
            alignment_timeouts_ms=(0, 5),
            interval_ms=(6, 15),
            min_pause_ms=(0, 5),
            async_ms_max=(0, 4),
        ),
        network=replace(
            counted.network, latency_ms_max=(0, 2), channel_capacities=(2, 4, 8), buffer_bytes=(None, 400, 90)
        ),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Give the plan a slow vertex that reads what barriers overtake."""
    draw, job = drawing.draw, plan.job
    receivers = [vertex.name for vertex in job.vertices if vertex.kind != SOURCE]
    by_key = list(dict.fromkeys(edge.target for edge in job.edges if edge.by is Spread.HASH))
    looped = [name for loop in job.loops for name in loop if name in receivers]
    able = receivers
    if by_key and chance(draw, _BY_KEY_PER_MILLE):
        able = by_key
    if looped and chance(draw, _IN_LOOP_PER_MILLE):
        able = looped
    deployment = msgspec.structs.replace(
        plan.deployment,
        slow_vertex=draw(st.sampled_from(able)),
        slow_batch_ms=draw(st.sampled_from(drawing.profile.deployment.slow_batch_ms)),
    )
    return msgspec.structs.replace(plan, deployment=deployment)


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Draw what ends attempts; a job without loops is stopped first, and goes on wider or narrower."""
    links = [drawing.draw(st.sampled_from(_LINKS)) for _ in range(drawing.draw(numbers(*_LENGTH)))]
    if Capability.RESCALING in drawing.capabilities and not plan.job.loops:
        links[0] = _STOP
    return chained(drawing, plan, links)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SLOW_VERTEX, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    savepoints=_savepoints,
    faults=conditions.SCENARIO.faults,
)
