"""A copy of state is hit by a fault, and a restore or a checkpoint that needs it shows it (LOC-1, REC-4).

Such plans are longer than others, most have local recovery, and their only other faults are kills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.copy_faults import (
    SURE_CHECKPOINTS,
    damages_local_copies,
    draw_storage_faults,
    hits_copies,
)
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import CheckpointRanges, NetworkRanges, Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.exposed_targets import targets_among
from barrier_tck.harness.system.system_under_test import Capability

_RETAINED_MIN = 2
"""The smallest number of checkpoints that a plan for faults of copies retains, so that an older one can be restored."""
_TOLERATED = (1_000, 3, 1, 1, 0)
"""How many checkpoints in a row may fail: often as many as a fault lets fail, so that one more would end an attempt."""
_MANY_KEYS, _MANY_GROUPS, _FEW_SUBTASKS = (20, 40), 64, 12
_SOME_FILES_PER_MILLE = 600
"""How many full disks in 1,000 are full for some files only, where a system can show that."""
_DAMAGED_PER_MILLE = 350
"""In how many plans in 1,000 with local recovery a copy on a host is damaged: it must not be believed (LOC-4)."""
_LOCAL_RECOVERY_PER_MILLE = 570
"""How many of these plans in 1,000 have local recovery, at least."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    hit = any(hits_copies(KINDS[name]) for name, _ in profile.faults.kinds)
    return hit and profile.faults.number[1] > 0 and Capability.STORAGE_FAULTS in capabilities


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Let checkpoints come one by one, often and reliably, and each subtask have state, in several files if it keeps
    copies.
    """
    many = tuple(groups for groups in profile.deployment.max_parallelism if groups >= _MANY_GROUPS)
    local_per_mille = max(_LOCAL_RECOVERY_PER_MILLE, profile.storage.local_recovery_per_mille)
    return replace(
        profile,
        workload=replace(profile.workload, keys=_MANY_KEYS, records_per_second=profile.workload.slowest),
        job=replace(profile.job, subtasks_max=min(_FEW_SUBTASKS, profile.job.subtasks_max)),
        deployment=replace(profile.deployment, max_parallelism=many or (_MANY_GROUPS,)),
        checkpoints=_checkpoints(profile.checkpoints),
        network=_network(profile.network),
        storage=replace(profile.storage, local_recovery_per_mille=local_per_mille),
        # A savepoint would take the place of a checkpoint that a fault counts, and of which hosts keep copies.
        savepoints=replace(profile.savepoints, number=(0, 0)),
    )


def _checkpoints(ranges: CheckpointRanges) -> CheckpointRanges:
    earliest, latest = ranges.interval_ms
    quickest, slowest = ranges.async_ms_max
    fewest, most = ranges.retained
    return replace(
        ranges,
        max_concurrent=(1, 1),
        interval_ms=(earliest, (earliest + latest) // 2),
        min_pause_ms=(0,),
        timeouts_ms=(max(ranges.timeouts_ms),),
        tolerated_failures=_TOLERATED if len(ranges.tolerated_failures) > 1 else ranges.tolerated_failures,
        async_ms_max=(quickest, (quickest + slowest) // 2),
        retained=(max(_RETAINED_MIN, fewest), max(_RETAINED_MIN, most)),
    )


def _network(ranges: NetworkRanges) -> NetworkRanges:
    least, most = ranges.latency_ms_max
    return replace(
        ranges,
        latency_ms_max=(least, max(least, most // 4)),
        slow_factors=(min(ranges.slow_factors),),
        slow_channel_per_mille=ranges.slow_channel_per_mille if ranges.slow_channel_into_keyed else 0,
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return long_enough(plan, drawing.profile.limits.settle_ms, SURE_CHECKPOINTS)


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw faults around one of a copy; none if the job cannot show any."""
    if not is_long_enough(job, drawing.profile.limits.settle_ms, SURE_CHECKPOINTS):
        return ()
    exposed = targets_among(drawing.capabilities)
    fewest, most = drawing.profile.faults.number
    some_files = _SOME_FILES_PER_MILLE if Capability.FILE_FAULTS in drawing.capabilities else 0
    of_copies = list(filter(hits_copies, kinds))
    damaging = [kind for kind in of_copies if damages_local_copies(kind)]
    if damaging and job.plan.local_recovery and chance(drawing.draw, _DAMAGED_PER_MILLE):
        of_copies = damaging
    return draw_storage_faults(drawing.draw, job, of_copies, exposed, fewest, most, some_files)


SCENARIO = Scenario(
    # Its faults need subtasks that still write, and that have written state by then.
    settles=frozenset({Part.INPUT, Part.OPERATORS, Part.PACE, Part.FAULTS}),
    per_mille=70,
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
