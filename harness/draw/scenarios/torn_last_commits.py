"""A sink's host or its executor dies inside of the job's only commit (SNK-1).

Nothing follows that would commit again what is missing: whoever took the commit for done has lost its output. By
chance a process dies there with one of many checkpoints, and the next attempt gives all that was lost once more, or
another sink still commits. Here the input is read before the first checkpoint is due, so that the one at the end of the
input is the only one, and most jobs have one sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.system.system_under_test import Capability

_ALWAYS = 1_000
_INTERVAL_MS = (600, 1_200)
"""Longer than it takes to read the input."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    return Capability.UNSYNCED_LOSS in capabilities and fewest <= 1 <= most


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(
        profile,
        workload=replace(profile.workload, batches=(2, 8), records_per_second=(None,)),
        job=replace(profile.job, sinks=(1, 1)),
        checkpoints=replace(profile.checkpoints, interval_ms=_INTERVAL_MS),
        # What a process reports just before it dies mostly arrives before its death is noticed.
        network=replace(profile.network, latency_ms_max=(0, 1), slow_channel_per_mille=0),
    )


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw the failure; none if no sink is sure to commit, or nothing may take its files along."""
    draw = drawing.draw
    sinks = job.view.passing(ProtocolPoint.COMMIT_STEP)
    # What a process wrote survives its own death.
    losing = [
        kind
        for kind in kinds
        if kind.fault.ends is Ends.SUBTASKS and kind.fault.needs is not TargetKind.WORKER
    ]
    if not (sinks and losing):
        return ()
    sink = draw(st.sampled_from(sinks))
    aim = Aim(sink, lose_unsynced_per_mille=_ALWAYS)
    fault = draw(st.sampled_from(losing)).fault.drawn(DrawnChoices(draw), aim)
    return (ScheduledFault(fault, After(ProtocolPoint.COMMIT_STEP, sink)),)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    per_mille=30,
    possible=_possible,
    profile=_profile,
    faults=_faults,
)
