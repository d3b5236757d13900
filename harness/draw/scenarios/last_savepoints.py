"""Savepoints are under way when all input is consumed and the last checkpoint is due (COO-5, BAR-4, REC-6).

Whatever is pending then must come to its end, and the job to its own. By chance a savepoint is next to never asked for
in the moments before the end, and is over soon. Here several are asked for around the time at which the end reaches the
sinks, one after the other, and parts of checkpoints are stored slowly, some of them much more so than others: so some
savepoint has a subtask whose part takes longer than all parts of the last checkpoint.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios.early_ends import with_early_ends
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_ASKED = (6, 8)
_FIRST_MS = (-1, 5)
"""When the first one is asked for, after the time at which the longest source has read its input at the earliest."""
_NEXT_MS = (0, 2)
"""How much later each further one: what is asked for once the last checkpoint is under way is refused."""
_ASYNC_MS = (30, 60)
"""How long parts take at the most: much longer than the time from such a savepoint to the last checkpoint."""
_INTERVAL_MS = (30, 80)
_ORDINARY = 0.6
"""The part of the input behind which the ordinary checkpoint is triggered. It should be over when the input is: the
last one is taken alone, and would wait for it."""
_SUBTASKS_MAX = 8
_CAPACITY = 32
"""Room for all that a source reads, so that it is known when the input ends."""
_EARLY_ENDS_PER_MILLE = 200


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    """Return whether there may be no fault, and the end of the input can be met to the millisecond: in virtual time."""
    able = capabilities >= {
        Capability.SAVEPOINTS,
        Capability.SLOW_SNAPSHOTS,
        Capability.DETERMINISTIC_REPLAY,
    }
    return able and profile.faults.number[0] == 0


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(
        profile,
        workload=replace(
            profile.workload,
            batches=(12, 30),
            batch_records=(1, 2),
            start_offset=(0, 0),
            records_per_second=(200, 300),
        ),
        job=replace(
            profile.job,
            sources=(1, 2),
            keyed=(1, 2),
            sinks=(1, 2),
            # Of few parts the slowest differ more from one checkpoint to the next.
            subtasks_max=min(_SUBTASKS_MAX, profile.job.subtasks_max),
            shapes_left_out=(*profile.job.shapes_left_out, "fan-in", "mixed"),
        ),
        checkpoints=replace(
            profile.checkpoints,
            interval_ms=_INTERVAL_MS,
            min_pause_ms=(0,),
            max_concurrent=(1, 2),
            timeouts_ms=(max(profile.checkpoints.timeouts_ms),),
            tolerated_failures=(max(profile.checkpoints.tolerated_failures),),
            async_ms_max=_ASYNC_MS,
        ),
        network=replace(
            profile.network, latency_ms_max=(0, 3), slow_channel_per_mille=0, channel_capacities=(_CAPACITY,)
        ),
        # A failure would end the savepoints, and the input would end at another time.
        faults=replace(profile.faults, number=(0, 0)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with an ordinary checkpoint that is over before the input is."""
    if chance(drawing.draw, _EARLY_ENDS_PER_MILLE):
        plan = with_early_ends(drawing, plan)
    checkpoints, ends_ms = plan.checkpoints, DrawnJob(plan, drawing.view(plan)).reads_ms or 0
    interval_ms = max(checkpoints.interval_ms, int(_ORDINARY * ends_ms))
    return msgspec.structs.replace(
        plan, checkpoints=msgspec.structs.replace(checkpoints, interval_ms=interval_ms)
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for savepoints around the end of the input; for none if its time is not known."""
    draw, ends_ms = drawing.draw, DrawnJob(plan, drawing.view(plan)).reads_ms
    if ends_ms is None or not plan.checkpoints.enabled:
        return plan
    asked: list[SavepointPlan] = []
    delay_ms = max(0, ends_ms + between(draw, _FIRST_MS))
    for _ in range(between(draw, _ASKED)):
        asked.append(SavepointPlan(0, delay_ms))
        delay_ms += between(draw, _NEXT_MS)
    return msgspec.structs.replace(plan, savepoints=tuple(asked))


SCENARIO = Scenario(
    per_mille=45,
    settles=frozenset({Part.INPUT, Part.PACE, Part.SLOW_VERTEX, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    savepoints=_savepoints,
)
