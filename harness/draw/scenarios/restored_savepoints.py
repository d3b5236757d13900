"""A job fails just when a savepoint has completed, restores it, and goes on with checkpoints (COO-5, SNP-5, REC-2).

A savepoint belongs to the user, and is restored like a checkpoint if it is the newest. No checkpoint may use its files
again, and the older checkpoints, whose files may be used again, are retained beside it. By chance a savepoint is next
to never the newest when something fails, because a checkpoint follows at once; and where most keys change, increments
are not worth it. Here checkpoints are mostly incremental, keys are many of which few change, and something dies as the
savepoint completes. Often something dies once more, so that what was stored behind it is restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_AFTER = (2, 6)
"""After how many completed checkpoints the savepoint is asked for: increments are small once there are most keys."""
_BEHIND = (1, 3)
"""How many more complete until something dies once more, if anything does."""
_AGAIN_PER_MILLE = 500
_INCREMENTAL_PER_MILLE = 850


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    """Return whether something can die as a savepoint completes, and before the next checkpoint: in virtual time."""
    able = capabilities >= {Capability.SAVEPOINTS, Capability.DETERMINISTIC_REPLAY}
    fewest, most = profile.faults.number
    return able and fewest <= 1 <= most


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    incremental_per_mille = max(_INCREMENTAL_PER_MILLE, counted.checkpoints.incremental_per_mille)
    return replace(
        counted,
        workload=replace(
            counted.workload,
            batches=(16, 30),
            batch_records=(1, 2),
            keys=(16, 40),
            records_per_second=(200, 300),
        ),
        job=replace(
            counted.job,
            sources=(1, 2),
            keyed=(1, 2),
            sinks=(1, 2),
            shapes_left_out=(*counted.job.shapes_left_out, "fan-in", "mixed"),
        ),
        checkpoints=replace(
            counted.checkpoints,
            interval_ms=(10, 25),
            retained=(1, 3),
            async_ms_max=(0, 5),
            incremental_per_mille=incremental_per_mille,
        ),
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for the savepoint as soon as some checkpoints have completed."""
    if not plan.checkpoints.enabled:
        return plan
    plan = msgspec.structs.replace(plan, savepoints=(SavepointPlan(between(drawing.draw, _AFTER)),))
    return long_enough(plan, drawing.profile.limits.settle_ms, _checkpoints(plan))


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw what dies as the savepoint completes, and perhaps later; nothing if the input is too short."""
    draw, plan = drawing.draw, job.plan
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    counted = plan.checkpoints.max_concurrent == 1 and is_long_enough(
        job, drawing.profile.limits.settle_ms, _checkpoints(plan)
    )
    if not (plan.savepoints and counted and killers):
        return ()
    numbers = [plan.savepoints[0].after_checkpoints + 1]
    if drawing.profile.faults.number[1] > 1 and chance(draw, _AGAIN_PER_MILLE):
        numbers.append(numbers[0] + between(draw, _BEHIND))
    return tuple(
        ScheduledFault(
            draw(st.sampled_from(killers)).fault.drawn(
                Plainest(), Aim(draw(st.sampled_from(job.view.names)))
            ),
            After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=number),
        )
        for number in numbers
    )


def _checkpoints(plan: TrialPlan) -> int:
    """Return how many checkpoints must come while there is input: those that are counted, and two to spare."""
    return max((asked.after_checkpoints for asked in plan.savepoints), default=0) + 3 + _BEHIND[1]


SCENARIO = Scenario(
    per_mille=35,
    settles=frozenset({Part.INPUT, Part.OPERATORS, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    faults=_faults,
)
