"""A stop fails while timers of operators are due, and nothing else happens for long (STA-1, COO-5).

Behind the barrier of a savepoint with which the job is to stop, no timer goes off; if the savepoint fails, they do so
then. Whether one was forgotten shows only if it stays away for longer than full buffers can hold it up. In other plans
the next stop, a failure or the end of the input comes before, and sets all timers again. Here one stop is asked for, as
in plans with failing stops, some operators hold records back, no fault strikes, and the input goes on for long.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios import failing_stops, windows
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_AFTER, _DELAY_MS = (1, 4), (0, 25)
"""After how many completed checkpoints the stop is asked for, and how long after the last of them."""
_READS_MS = 1_300
"""How long a source reads at least: longer than a timer may be late, after the stop has failed."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    parts = (failing_stops.SCENARIO, windows.SCENARIO)
    return all(scenario.possible(profile, capabilities) for scenario in parts)


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    stopping = failing_stops.SCENARIO.profile(draw, profile)
    return replace(
        stopping,
        # Of its jobs every other one has an operator that can hold records back, and of those with totals none.
        workload=replace(stopping.workload, names=("lineage",)),
        # With an input that goes on for so long, eleven sources give more records than can be judged in time.
        job=replace(stopping.job, shapes_left_out=(*stopping.job.shapes_left_out, "fan-in")),
        # A slow channel may hold timers up for as long as the trial allows for progress.
        network=replace(stopping.network, slow_channel_per_mille=0),
        faults=replace(stopping.faults, number=(0, 0)),
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for one stop, and let the input go on for long after it."""
    stop = SavepointPlan(between(drawing.draw, _AFTER), between(drawing.draw, _DELAY_MS), stop=True)
    workload = plan.workload
    records = -(-_READS_MS * (workload.records_per_second or 0) // 1_000)
    batches = max(workload.batches, -(-records // workload.batch_records))
    return msgspec.structs.replace(
        plan, savepoints=(stop,), workload=msgspec.structs.replace(workload, batches=batches)
    )


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.OPERATORS, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=failing_stops.SCENARIO.load,
    savepoints=_savepoints,
    last=windows.SCENARIO.last,
)
