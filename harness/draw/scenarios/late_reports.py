"""What a subtask reports comes once more when its attempt is over, and the next one runs (REC-2).

A subtask says that it runs, that it has consumed its input, that it has finished. Taken for a report of the next
attempt, each of these lets the coordinator go on too early. By chance none is so late: a repeated message comes a few
milliseconds later, and attempts seldom end within that time. Here the input is over when the first barrier comes. Then
something dies, so that the next attempt reads all of it again, and meanwhile the reports of the one before come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import between
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.system.system_under_test import Capability

_REPEAT = "repeat"
_REPEATS = KINDS[_REPEAT].fault
_BATCHES, _BATCH_RECORDS, _RATE = (4, 10), (1, 2), 200
"""An input that is read within some 100 ms: the next attempt is amid it when reports of the one before come."""
_INTERVAL_MS = (120, 160)
_LATE_MS = (20, 160)
_LASTS_MS = 1_000
_MOMENTS = (
    ProtocolPoint.BARRIER_RECEIVED,
    ProtocolPoint.SNAPSHOT_TAKEN,
    ProtocolPoint.SNAPSHOT_STORED,
    ProtocolPoint.ACKNOWLEDGED,
)
_REPEATED_MAX = 3
"""How many sinks report twice at the most."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    drawn = any(weight for name, weight in profile.faults.kinds if name == _REPEAT)
    return Capability.MESSAGE_FAULTS in capabilities and drawn and fewest <= 2 <= most


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Let one checkpoint come, when the input is over, and let few sinks be all that the end waits for."""
    return replace(
        profile,
        workload=replace(
            profile.workload,
            batches=_BATCHES,
            batch_records=_BATCH_RECORDS,
            start_offset=(0, 0),
            records_per_second=(_RATE,),
        ),
        job=replace(profile.job, sinks=(1, 1)),
        checkpoints=replace(
            profile.checkpoints,
            interval_ms=_INTERVAL_MS,
            timeouts_ms=(max(profile.checkpoints.timeouts_ms),),
            tolerated_failures=(max(profile.checkpoints.tolerated_failures),),
        ),
        network=replace(profile.network, slow_channel_per_mille=0),
    )


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw what is repeated and what dies; nothing if no failure is certain to come before the first checkpoint."""
    draw, most = drawing.draw, drawing.profile.faults.number[1]
    sinks = [name for name in job.sinks if name in job.view.control_links][: min(_REPEATED_MAX, most - 1)]
    killers = [kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS]
    moments = [(point, sink) for point in _MOMENTS for sink in job.view.passing(point) if sink in sinks]
    if not (killers and moments):
        return ()
    late_ms = between(draw, _LATE_MS)
    aims = [Aim(sink, latency_ms=(late_ms, late_ms), duration_ms=(_LASTS_MS, _LASTS_MS)) for sink in sinks]
    point, sink = draw(st.sampled_from(moments))
    dies = draw(st.sampled_from(killers)).fault.drawn(Plainest(), Aim(draw(st.sampled_from(job.view.names))))
    repeated = [_REPEATS.drawn(_Late(), aim) for aim in aims]
    return (
        *(ScheduledFault(fault, After(ProtocolPoint.ATTEMPT_STARTED)) for fault in repeated),
        ScheduledFault(dies, After(point, sink)),
    )


class _Late(Plainest):
    """Draws messages that come later, and not at once."""

    def chance(self, per_mille: int) -> bool:
        return True


SCENARIO = Scenario(
    per_mille=45,
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    faults=_faults,
)
