"""A job has as many restarts as it needs, and not one more; now and then one is missing at its end (REC-3, REC-6).

What a strategy forgets shows only next to a budget that is small: a row of failures that is over, failures that are too
old, what a coordinator that died had counted. With restarts to spare a job goes on whatever was counted. So here the
failures are a chain whose numbers are known, as are the runs between them that are long enough to begin a new row. The
budget is the most that a right runtime can count at any of them. In some plans it is one less than the last failure
needs: then the job must be given up, and no sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios import conditions
from barrier_tck.harness.draw.scenarios.conditions import AGAIN, IN_DEPLOYMENT, Act, Link, chained
from barrier_tck.harness.plan.trial_plan import RestartPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_FIRST = Link(1, Act.SUBTASK_DIES)
_OF_SUBTASKS = (_FIRST, _FIRST, Link(2, Act.SUBTASK_DIES), AGAIN, IN_DEPLOYMENT)
_LINKS = (*_OF_SUBTASKS, Link(1, Act.COORDINATOR_DIES))
"""Mostly failures after a good run; what counts them must know the others, too."""
_LATER_MAX = 4
"""How many links follow the first at the most."""
_INTERVAL_MS = (12, 30)
_COUNTED_MS = (2, 12)
"""No longer than a run in which a checkpoint completes."""
_MISSING_PER_MILLE = 250
"""Of 1,000 plans whose last failure needs the most restarts, how many have one less."""
_POINTS = (
    ProtocolPoint.CHECKPOINT_COMPLETED,
    ProtocolPoint.ATTEMPT_RUNNING,
    ProtocolPoint.RESTORE_STARTED,
    ProtocolPoint.RESTORED,
)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    """Return whether times of few milliseconds can be judged, and several faults may strike."""
    able = {Capability.WORKER_KILL, Capability.DETERMINISTIC_REPLAY} <= capabilities
    return able and profile.faults.number[1] > 1


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    exponential = tuple(name for name in profile.restarts.strategies if name == "exponential_delay")
    return replace(
        counted,
        job=replace(counted.job, shapes_left_out=(*counted.job.shapes_left_out, "fan-in")),
        checkpoints=replace(counted.checkpoints, interval_ms=_INTERVAL_MS),
        restarts=replace(
            counted.restarts,
            strategies=(*profile.restarts.strategies, *exponential),
            delay_ms=(2, 20),
            counted_ms=_COUNTED_MS,
        ),
        faults=replace(counted.faults, lose_unsynced_per_mille=0, unreadable_per_mille=0),
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Draw the failures; the first one comes after a checkpoint."""
    if not plan.checkpoints.enabled:
        return plan
    draw, most = drawing.draw, min(_LATER_MAX, drawing.profile.faults.number[1] - 1)
    later = [draw(st.sampled_from(_LINKS)) for _ in range(draw(numbers(1, most)))]
    return chained(drawing, plan, [_FIRST, *later])


def _last(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Draw the budget; it stays as it is if the plan has got other faults than those of the chain."""
    counts = list(counted_at_most(plan.restart, plan.checkpoints.interval_ms, plan.faults))
    if not counts or not all(map(_is_of_the_chain, plan.faults)):
        return plan
    *before, last = counts
    budget = max(counts)
    missing = last > max(before, default=0) and plan.faults[-1].fault.ends is Ends.SUBTASKS
    if missing and chance(drawing.draw, _MISSING_PER_MILLE):
        budget -= 1
    return msgspec.structs.replace(plan, restart=msgspec.structs.replace(plan.restart, attempts_max=budget))


def _is_of_the_chain(planned: ScheduledFault) -> bool:
    hits = planned.fault.needs in (TargetKind.WORKER, TargetKind.COORDINATOR)
    return hits and isinstance(planned.trigger, After) and planned.trigger.point in _POINTS


def counted_at_most(
    restart: RestartPlan, interval_ms: int, failures: Sequence[ScheduledFault]
) -> Iterator[int]:
    """Yield for each failure how many a right strategy counts then at the most, this one included.

    ``interval_ms``: between two checkpoints, and before the first one of an attempt. The failures are in their order;
    a coordinator that dies leaves nothing counted, and counts as 0 itself.
    """
    counted: list[int] = []  # for how many milliseconds each failure that still counts is past, at the least
    completed = 0
    for planned in failures:
        ran_ms = 0
        trigger = planned.trigger
        if isinstance(trigger, After) and trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED:
            ran_ms, completed = (trigger.nth - completed) * interval_ms, trigger.nth
        if planned.fault.ends is Ends.COORDINATOR:
            counted = []
            yield 0
            continue
        match restart.strategy:
            case "exponential_delay" if ran_ms >= restart.reset_after_ms:
                counted = [0]
            case "failure_rate":
                ages_ms = [age_ms + restart.delay_ms + ran_ms for age_ms in counted]
                counted = [0, *(age_ms for age_ms in ages_ms if age_ms < restart.interval_ms)]
            case _:
                counted = [0, *counted]
        yield len(counted)


SCENARIO = Scenario(
    per_mille=40,
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    faults=conditions.SCENARIO.faults,
    last=_last,
)
