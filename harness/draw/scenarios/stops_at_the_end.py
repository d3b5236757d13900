"""Stops are asked for just when the input ends, and some of them fail (COO-5, CHL-5).

A subtask that has its part of a savepoint with which the job is to stop is held, and what the end of its input brings
along waits. It is still due if the savepoint fails. By chance that is next to never drawn: stops are asked for amid the
input, and a channel ends within a moment. Here they are asked for one after the other around the time at which the
sources end, and checkpoints have hardly the time that they need, as in plans with failing stops. A channel of a source
that ends last is slow: its end and its marker come late, to a subtask that has markers from others by then, if one can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.draw.scenarios import failing_stops
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan

_STOPS = (5, 8)
_FIRST_MS = (-12, 15)
"""When the first stop is asked for, after the time at which the longest source has read its input at the earliest."""
_NEXT_MS = (12, 30)
"""How much later each further one: full queues and loops hold the end up, and a stop that succeeds does so, too."""
_SLOW_FACTORS = (8, 16)
_CAPACITY = 32
"""Room for all that a source reads: then the slow channel holds no source up. So stops and the end meet, and its last
records are still under way, to a subtask that is held."""
_PAUSES = 3
"""How many times as long as a checkpoint may take it is until the next one begins, so that stops need not wait."""
_SOURCES_MIN = 2
_INTO_LOOPS_PER_MILLE = 500
"""In how many of these plans in 1,000 the slow channel leads into a loop, if one does."""
_IN_TIME, _ON_SLOW_CHANNEL = 0.02, 0.25


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    stopping = failing_stops.SCENARIO.profile(draw, profile)
    return replace(
        stopping,
        workload=replace(stopping.workload, batches=(12, 30)),
        job=replace(stopping.job, sources=(_SOURCES_MIN, max(_SOURCES_MIN, stopping.job.sources[1]))),
        network=replace(
            stopping.network,
            slow_channel_per_mille=1_000,
            slow_factors=_SLOW_FACTORS,
            channel_capacities=(_CAPACITY,),
        ),
        faults=replace(stopping.faults, number=(0, 0)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with short timeouts, with checkpoints that come seldom, and with an end that comes late."""
    slow = draw_late_end(drawing, plan)
    plan = msgspec.structs.replace(plan, network=msgspec.structs.replace(plan.network, slow_channel=slow))
    plan = failing_stops.with_short_timeout(plan, _IN_TIME, _ON_SLOW_CHANNEL)
    checkpoints = plan.checkpoints
    interval_ms = _PAUSES * checkpoints.timeout_ms
    return msgspec.structs.replace(
        plan, checkpoints=msgspec.structs.replace(checkpoints, interval_ms=interval_ms)
    )


def draw_late_end(drawing: Drawing, plan: TrialPlan) -> int:
    """Draw a channel of a source that reads as long as any other, by its number.

    If there is one, it leads to a subtask that has other inputs from outside its loop, whose markers come before.
    Now and then it leads into a loop.
    """
    job, view = plan.job, drawing.view(plan)
    reads = {
        name: view.times(ProtocolPoint.RECORDS_PROCESSED, name)
        for vertex in job.sources
        for name in vertex.subtasks
    }
    last = [name for name, batches in reads.items() if batches == max(reads.values())]
    rounds = [[name for vertex in loop for name in job.vertex(vertex).subtasks] for loop in job.loops]
    ends = [number for number, (sender, _) in enumerate(job.channels) if sender in last]
    into_loops = [number for number in ends if any(job.channels[number][1] in members for members in rounds)]
    if into_loops and chance(drawing.draw, _INTO_LOOPS_PER_MILLE):
        ends = into_loops
    beside = [number for number in ends if _has_other_inputs(job, rounds, job.channels[number][1])]
    return drawing.draw(st.sampled_from(beside or ends))


def _has_other_inputs(job: JobPlan, rounds: Sequence[Sequence[str]], receiver: str) -> bool:
    """Return whether a subtask has several channels from outside its own loop."""
    own = next((members for members in rounds if receiver in members), ())
    return sum(end == receiver and sender not in own for sender, end in job.channels) > 1


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for stops around the end of the input; for none if its time is not known."""
    draw, ends_ms = drawing.draw, DrawnJob(plan, drawing.view(plan)).reads_ms
    if ends_ms is None:
        return plan
    asked: list[SavepointPlan] = []
    delay_ms = max(0, ends_ms + between(draw, _FIRST_MS))
    for _ in range(between(draw, _STOPS)):
        asked.append(SavepointPlan(0, delay_ms, stop=True))
        delay_ms += between(draw, _NEXT_MS)
    return msgspec.structs.replace(plan, savepoints=tuple(asked))


SCENARIO = Scenario(
    settles=failing_stops.SCENARIO.settles,
    possible=failing_stops.SCENARIO.possible,
    profile=_profile,
    load=_load,
    savepoints=_savepoints,
)
