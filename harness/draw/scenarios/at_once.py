"""Two faults strike one target at one moment: it is paused or disturbed, and then hit again before it goes on (REC-1).

By chance two faults of a plan have different targets and different moments. Here both are drawn for one subtask, and
for the point at which it stands; the first one lasts, so that the second one finds its target.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.system.system_under_test import Capability

_FAULTS_MIN = 2
_OF_PROCESSES = (
    TargetKind.WORKER,
    TargetKind.EXECUTOR,
    TargetKind.HOST,
    TargetKind.PAUSE,
    TargetKind.CHANNEL,
)
"""What faults need that can hit a subtask, or a connection of it, which another fault has just hit."""
_MOMENTS = (
    ProtocolPoint.BARRIER_RECEIVED,
    ProtocolPoint.SNAPSHOT_TAKEN,
    ProtocolPoint.SNAPSHOT_STORED,
    ProtocolPoint.COMPLETION_NOTIFIED,
    ProtocolPoint.COMMIT_STEP,
)


def _possible(profile: Profile, _: frozenset[Capability]) -> bool:
    return profile.faults.number[1] >= _FAULTS_MIN


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw both faults; none if no subtask passes such a point, or nothing that lasts can hit it."""
    draw, ranges = drawing.draw, drawing.profile.faults
    of_processes = [kind for kind in kinds if kind.fault.needs in _OF_PROCESSES]
    possible = [
        (subtask, point)
        for point in _MOMENTS
        for subtask in job.view.passing(point)
        if any(_lasts(kind) and subtask in job.hit_by(kind) for kind in of_processes)
    ]
    if not possible:
        return ()
    subtask, point = draw(st.sampled_from(possible))
    able = [kind for kind in of_processes if subtask in job.hit_by(kind)]
    chosen = (draw(st.sampled_from([kind for kind in able if _lasts(kind)])), draw(st.sampled_from(able)))
    return tuple(
        ScheduledFault(
            kind.fault.drawn(
                DrawnChoices(draw),
                Aim(
                    subtask,
                    receivers=job.view.ends_of(subtask),
                    outlasts_heartbeat=kind.drawn_as.outlasts_heartbeat,
                    duration_ms=ranges.zombie_ms if kind.drawn_as.outlasts_heartbeat else ranges.duration_ms,
                    latency_ms=ranges.latency_ms,
                    bytes_per_second=ranges.bytes_per_second,
                    lose_unsynced_per_mille=ranges.lose_unsynced_per_mille,
                    returns_per_mille=ranges.returns_per_mille,
                ),
            ),
            After(point, subtask),
        )
        for kind in chosen
    )


def _lasts(kind: FaultKind) -> bool:
    return kind.fault.ends is None


SCENARIO = Scenario(
    settles=frozenset({Part.FAULTS}),
    per_mille=30,
    possible=_possible,
    faults=_faults,
)
