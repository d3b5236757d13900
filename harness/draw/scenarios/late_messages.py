"""What coordinator and one subtask say to each other is late, for longer than a checkpoint takes (BAR-4, COO-2, CHL-5).

The subtask is triggered when others have taken their snapshots, learns that a checkpoint is complete when newer ones
are under way, and hears of the end of its loop when the others have left it. By chance most delays hit connections
between subtasks, and are over before anybody has waited. Here one control connection is late by more than an interval,
of a member of a loop if there is one, while several checkpoints may be in flight. Often something dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios.overlapping import SCENARIO as OVERLAPPING
from barrier_tck.harness.system.system_under_test import Capability

_DELAYS = ("delay",)
"""The kinds of faults that make a connection late."""
_INTERVALS = (1, 4)
"""By how many intervals between checkpoints the connection is late."""
_LASTS_MS = (100, 400)
"""How long that lasts; the latest, behind the end of the input."""
_KILL_PER_MILLE = 400
_BEGINS = (ProtocolPoint.ATTEMPT_RUNNING, ProtocolPoint.CHECKPOINT_TRIGGERED)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    drawn = any(weight for name, weight in profile.faults.kinds if name in _DELAYS)
    fewest, most = profile.faults.number
    return Capability.CHANNEL_FAULTS in capabilities and drawn and fewest <= 1 < most


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    """Let several checkpoints be in flight, as in plans with overlapping ones."""
    return OVERLAPPING.profile(draw, profile)


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw the delay, and perhaps something that dies; nothing if no subtask has such a connection."""
    draw, plan, view = drawing.draw, job.plan, job.view
    delays = [kind for kind in kinds if kind.name in _DELAYS]
    if not (delays and view.control_links):
        return ()
    in_loops = [name for loop in plan.job.loops for name in loop]
    members = [name for name in view.control_links if view.by_name[name].vertex in in_loops]
    interval_ms = plan.checkpoints.interval_ms
    aim = Aim(
        draw(st.sampled_from(members or view.control_links)),
        receivers=(COORDINATOR,),
        latency_ms=(_INTERVALS[0] * interval_ms, _INTERVALS[1] * interval_ms),
        duration_ms=(_LASTS_MS[0], _LASTS_MS[1] + (job.reads_ms or 0)),
    )
    late = ScheduledFault(
        draw(st.sampled_from(delays)).fault.drawn(DrawnChoices(draw), aim),
        After(draw(st.sampled_from(_BEGINS))),
    )
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    if not (killers and job.committing and chance(draw, _KILL_PER_MILLE)):
        return (late,)
    sink = draw(st.sampled_from(job.committing))
    killed = draw(st.sampled_from(killers)).fault.drawn(Plainest(), Aim(sink))
    return (late, ScheduledFault(killed, After(ProtocolPoint.COMPLETION_NOTIFIED, sink)))


SCENARIO = Scenario(
    settles=OVERLAPPING.settles | {Part.FAULTS},
    possible=_possible,
    profile=_profile,
    load=OVERLAPPING.load,
    faults=_faults,
)
