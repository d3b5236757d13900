"""Draws faults of copies of state, each together with an event that shows it. Damage that no restore meets shows
nothing, and neither does a full disk that no checkpoint needs. So these faults are not aimed at arbitrary points.
Copies are damaged between two attempts, after a process was killed when a checkpoint was complete. Writes are refused
while further checkpoints are certain to come. The whole schedule of such a plan is drawn here, for the scenario
``copies`` and for campaigns that give the kinds of faults.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Ends
from barrier_tck.faults.targets import Damage, TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, chance
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import needed_ms
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.kind_catalogue import kind_named

SURE_CHECKPOINTS = 4
"""Checkpoints that a plan must be certain to complete: one before the fault, those that show it, one to spare."""

_OF_EVERY_COPY = (Damage.MISSING, Damage.TRUNCATED, Damage.BIT_FLIPPED)
_OF_LOCAL_COPIES = (
    *_OF_EVERY_COPY,
    *(damage for damage in Damage if damage is not Damage.PARTIAL and damage not in _OF_EVERY_COPY),
)
_WITH_STATE = 3
"""The number of the completion at which a restore is caused; earlier, a subtask may have seen no record yet."""
_GROUPS_CUT = 8
"""With this many key groups, heap state with local copies is certain to be split into several files."""
_IN_A_RESTORE = (ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED)
_TWICE_PER_MILLE = 650
"""How many refusals in 1,000 of which the last is still tolerated are reported twice."""
_TOO_MANY_PER_MILLE = 500
"""How many refusals in 1,000 last for one checkpoint more than may fail in a row, if that many are certain to come."""
_AGAIN_PER_MILLE = 290
"""How many plans in 1,000 continue with a kill if one fits: during the restore, or after the disk was full."""


def hits_copies(kind: FaultKind) -> bool:
    """Return whether faults of a kind are drawn here."""
    return kind.fault.needs is TargetKind.STORAGE


def damages_local_copies(kind: FaultKind) -> bool:
    """Return whether a kind that is drawn here damages copies on hosts."""
    hit = _hit_of(kind)
    return hit.place is CopyPlace.LOCAL and hit.damage is not None


def can_be_shown(kind: FaultKind, job: DrawnJob) -> bool:
    """Return whether a kind hits copies that a job has; it needs a committing sink, so that a restore surely follows.

    What waits for event time leaves nothing behind when it goes: no subtask is sure to have a copy of it.
    """
    if not hits_copies(kind) or not job.hit_by(kind) or not job.committing or _may_be_empty(job):
        return False
    return _hit_of(kind).place is CopyPlace.DURABLE or bool(job.plan.local_recovery)


def draw_storage_faults(
    draw: st.DrawFn,
    job: DrawnJob,
    kinds: Sequence[FaultKind],
    exposed: Collection[TargetKind],
    fewest: int,
    faults_max: int,
    some_files_per_mille: int = 0,
) -> tuple[ScheduledFault, ...]:
    """Draw a schedule around one fault of copies, of ``fewest`` to ``faults_max`` faults; nothing if none can be shown.

    ``some_files_per_mille`` says how many refusals of local copies are for some files only.
    """
    killers = _killers(exposed)
    fitting = [
        kind for kind in kinds if can_be_shown(kind, job) and _least_faults(kind, job, killers) <= faults_max
    ]
    if not fitting:
        return ()
    kind = draw(st.sampled_from(fitting))
    subtask = draw(st.sampled_from(_sure_of_state(job, job.hit_by(kind))))
    if _hit_of(kind).damage is None:
        some_files = _some_refused_files(draw, job, kind, subtask, killers, some_files_per_mille)
        if some_files and faults_max > 1:
            return some_files
        again = faults_max > 1 and (fewest > 1 or chance(draw, _AGAIN_PER_MILLE))
        return _refused_writes(draw, job, kind, subtask, killers if again else (), exposed, faults_max)
    return _damaged_copies(draw, job, kind, subtask, killers, faults_max)


def draw_storage_faults_of_kinds(
    draw: st.DrawFn, job: DrawnJob, kinds: Sequence[FaultKind], exposed: Collection[TargetKind]
) -> tuple[ScheduledFault, ...]:
    """Draw a fault of each kind; before faults that damage copies, draw one that causes a restore, if possible."""
    killers = _killers(exposed)
    damages = [_hit_of(kind) for kind in kinds if _hit_of(kind).damage is not None]
    worst = next((hit for hit in damages if _falls_back(hit, job)), damages[0] if damages else None)
    first = _before_the_restore(draw, job, worst, killers) if worst is not None and killers else []
    return (*first, *(_one(draw, job, kind, draw(st.sampled_from(job.hit_by(kind)))) for kind in kinds))


def _killers(exposed: Collection[TargetKind]) -> tuple[FaultKind, ...]:
    """Return the kinds that end processes of subtasks and leave their copies unchanged, if profiles draw them."""
    return tuple(
        kind
        for kind in KINDS.values()
        if kind.drawn_as.weight
        and kind.fault.needs in exposed
        and kind.fault.ends is Ends.SUBTASKS
        and kind.fault.drawn(Plainest(), Aim("")).copies_hit is None
    )


def _least_faults(kind: FaultKind, job: DrawnJob, killers: Sequence[FaultKind]) -> float:
    """Return how many faults are needed to show one of a kind: damage needs a restore, too."""
    hit = _hit_of(kind)
    if hit.damage is None:
        return 1
    if not killers:
        return inf
    return 1 + (len(job.committing) if _falls_back(hit, job) else 1)


def _hit_of(kind: FaultKind) -> CopiesHit:
    hit = kind.fault.drawn(Plainest(), Aim("")).copies_hit
    assert hit is not None, "a kind that needs storage says which copies it hits"
    return hit


def _falls_back(hit: CopiesHit, job: DrawnJob) -> bool:
    """Return whether an older checkpoint may be restored because of it."""
    return hit.place is CopyPlace.DURABLE and job.plan.on_unreadable == "older"


def _one(draw: st.DrawFn, job: DrawnJob, kind: FaultKind, subtask: str) -> ScheduledFault:
    """Draw a fault of copies at the moment that fits it."""
    hit = _hit_of(kind)
    local = hit.place is CopyPlace.LOCAL
    damages = _OF_LOCAL_COPIES if local else (*_OF_EVERY_COPY, Damage.PARTIAL)
    if local and _has_several_files(job, subtask):
        damages = (*damages, Damage.PARTIAL)
    fault = kind.fault.drawn(DrawnChoices(draw), Aim(subtask, damages=damages))
    if hit.damage is not None:
        return ScheduledFault(fault, After(ProtocolPoint.ATTEMPT_FAILED))
    if local:
        return ScheduledFault(fault, After(ProtocolPoint.CHECKPOINT_COMPLETED))
    # The second triggered checkpoint follows a completed one, which shows the names of the files.
    return ScheduledFault(fault, After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2))


def _sure_of_state(job: DrawnJob, stateful: Sequence[str]) -> tuple[str, ...]:
    """Return the subtasks that own many of the key groups; all subtasks if none does or the system does not say."""
    most = job.plan.deployment.max_parallelism
    return tuple(name for name in stateful if 3 * _groups_of(job, name) >= most) or tuple(stateful)


def _may_be_empty(job: DrawnJob) -> bool:
    """Return whether an operator that keeps state by key may hold none at a checkpoint, however many records came."""
    kinds = [kind_named(operator.kind) for vertex in job.plan.job.vertices for operator in vertex.operators]
    return any(kind.keeps_by_key and kind.replayed is not None for kind in kinds)


def _groups_of(job: DrawnJob, subtask: str) -> int:
    start, end = job.view.by_name[subtask].key_groups or (0, 0)
    return end - start


def _has_several_files(job: DrawnJob, subtask: str) -> bool:
    """Return whether a part can be missing: each operator has a file of its own, and heap state several of each."""
    vertices = {vertex.name: vertex for vertex in job.plan.job.vertices}
    vertex = vertices.get(job.view.by_name[subtask].vertex)
    operators = () if vertex is None else vertex.operators
    cut = job.plan.state_backend == TrialPlan().state_backend and _groups_of(job, subtask) >= _GROUPS_CUT
    return cut or sum(kind_named(operator.kind).keeps_by_key for operator in operators) > 1


def _kill(draw: st.DrawFn, killers: Sequence[FaultKind], subtask: str, trigger: After) -> ScheduledFault:
    return ScheduledFault(draw(st.sampled_from(killers)).fault.drawn(Plainest(), Aim(subtask)), trigger)


# --- damage -------------------------------------------------------------------------------------------------


def _damaged_copies(
    draw: st.DrawFn,
    job: DrawnJob,
    kind: FaultKind,
    subtask: str,
    killers: Sequence[FaultKind],
    faults_max: int,
) -> tuple[ScheduledFault, ...]:
    hit = _hit_of(kind)
    first = _before_the_restore(draw, job, hit, killers)
    harm = [_one(draw, job, kind, subtask)]
    left = faults_max - len(first) - len(harm)
    if hit.place is CopyPlace.LOCAL:
        return (*first, *harm, *_kills_in_the_restore(draw, job, killers, left))
    if left > 0 and job.plan.local_recovery and chance(draw, _AGAIN_PER_MILLE):
        # If a local copy is intact, the durable one is not needed.
        harm.insert(0, _one(draw, job, _DAMAGES_LOCAL_COPIES, subtask))
    return (*first, *harm)


def _before_the_restore(
    draw: st.DrawFn, job: DrawnJob, hit: CopiesHit, killers: Sequence[FaultKind]
) -> list[ScheduledFault]:
    """Draw the faults that end the attempt when a checkpoint is complete. Committed output cannot be taken back. So
    if an older checkpoint may be restored, all sinks are killed before they learn that the newer one is complete.
    Each is killed by itself, because the process of a sink may outlive its executor for a moment.
    """
    if not _falls_back(hit, job):
        sink = draw(st.sampled_from(job.committing))
        return [_kill(draw, killers, sink, After(ProtocolPoint.COMPLETION_NOTIFIED, sink, _WITH_STATE))]
    alone = [kind for kind in killers if kind.fault.needs is TargetKind.WORKER] or killers
    completed = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=_WITH_STATE)
    return [_kill(draw, alone, sink, completed) for sink in job.committing]


def _kills_in_the_restore(
    draw: st.DrawFn, job: DrawnJob, killers: Sequence[FaultKind], faults_max: int
) -> list[ScheduledFault]:
    """Draw at most one kill while copies are restored: at that moment they are damaged, repaired, or half read."""
    passing = [(point, name) for point in _IN_A_RESTORE for name in job.view.passing(point)]
    if faults_max < 1 or not passing or not chance(draw, _AGAIN_PER_MILLE):
        return []
    point, subtask = draw(st.sampled_from(passing))
    return [_kill(draw, killers, subtask, After(point, subtask))]


# --- writes that are refused --------------------------------------------------------------------------------


def _refused_writes(
    draw: st.DrawFn,
    job: DrawnJob,
    kind: FaultKind,
    subtask: str,
    killers: Sequence[FaultKind],
    exposed: Collection[TargetKind],
    faults_max: int,
) -> tuple[ScheduledFault, ...]:
    """Draw refused writes for checkpoints that are still to come, and a kill when those are over, or declines that
    come twice; or refuse the writes of too many checkpoints.

    If several are in flight, it is not known which one completes next, so there is no kill.
    """
    refusal = _one(draw, job, kind, subtask)
    too_many = _too_many_refusals(draw, job, kind, refusal)
    if too_many is not None:
        return (too_many,)
    declines = _repeated_declines(draw, job, kind, refusal, exposed) if faults_max > 1 else ()
    if declines or not killers or job.plan.checkpoints.max_concurrent > 1:
        return declines or (refusal,)
    sink = draw(st.sampled_from(job.committing))
    nth = 3 if _hit_of(kind).place is CopyPlace.LOCAL else 2
    return (refusal, _kill(draw, killers, sink, After(ProtocolPoint.COMPLETION_NOTIFIED, sink, nth)))


def _some_refused_files(
    draw: st.DrawFn,
    job: DrawnJob,
    kind: FaultKind,
    subtask: str,
    killers: Sequence[FaultKind],
    per_mille: int,
) -> tuple[ScheduledFault, ...]:
    """Draw a local copy that some files of one checkpoint are missing of, and a kill after which it might be used.

    Nothing if it is another kind of copy, if no restore follows for sure, or if that is not drawn.
    """
    counted = job.plan.checkpoints.max_concurrent == 1
    if _hit_of(kind).place is not CopyPlace.LOCAL or not (killers and counted and chance(draw, per_mille)):
        return ()
    refused = kind.fault.drawn(DrawnChoices(draw), Aim(subtask, some_files_per_mille=1_000))
    sink = draw(st.sampled_from(job.committing))
    return (
        ScheduledFault(refused, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=_WITH_STATE - 1)),
        _kill(draw, killers, sink, After(ProtocolPoint.COMPLETION_NOTIFIED, sink, _WITH_STATE)),
    )


def _too_many_refusals(
    draw: st.DrawFn, job: DrawnJob, kind: FaultKind, refusal: ScheduledFault
) -> ScheduledFault | None:
    """Draw refusals for one checkpoint more than may fail in a row: after the last one, the attempt must end (COO-2).

    None if failures of those writes do not count, or if the job is not certain to see as many checkpoints.
    """
    failing = job.plan.checkpoints.tolerated_failures + 1
    if _hit_of(kind).place is not CopyPlace.DURABLE or not 1 < failing <= SURE_CHECKPOINTS - 2:
        return None
    if not chance(draw, _TOO_MANY_PER_MILLE):
        return None
    (subtask,) = refusal.fault.subtasks
    refused = kind.fault.drawn(DrawnChoices(draw), Aim(subtask, checkpoints=failing))
    return ScheduledFault(refused, refusal.trigger)


def _repeated_declines(
    draw: st.DrawFn,
    job: DrawnJob,
    kind: FaultKind,
    refusal: ScheduledFault,
    exposed: Collection[TargetKind],
) -> tuple[ScheduledFault, ...]:
    """Draw as many refusals as are tolerated in a row, and let each be reported twice: one that counts twice is too
    much.

    Nothing if the job is not certain to see as many checkpoints, or if no subtask declines any.
    """
    tolerated, hit = job.plan.checkpoints.tolerated_failures, refusal.fault.copies_hit
    if hit is None or hit.place is not CopyPlace.DURABLE or TargetKind.MESSAGES not in exposed:
        return ()
    if not 1 <= tolerated < SURE_CHECKPOINTS or not chance(draw, _TWICE_PER_MILLE):
        return ()
    (subtask,) = refusal.fault.subtasks
    lasts_ms = needed_ms(job.plan, 0, SURE_CHECKPOINTS)
    aim = Aim(subtask, duration_ms=(lasts_ms, lasts_ms), checkpoints=tolerated)
    twice = _REPEATS_DECLINE.fault.drawn(DrawnChoices(draw), aim)
    refused = kind.fault.drawn(Plainest(), aim)
    return (ScheduledFault(twice, refusal.trigger), ScheduledFault(refused, refusal.trigger))


_REPEATS_DECLINE = next(
    kind
    for kind in KINDS.values()
    if kind.fault.needs is TargetKind.MESSAGES
    and kind.fault.drawn(Plainest(), Aim("")).heals_after_ms is not None
)
_DAMAGES_LOCAL_COPIES = next(
    kind
    for kind in KINDS.values()
    if hits_copies(kind) and _hit_of(kind).place is CopyPlace.LOCAL and _hit_of(kind).damage is not None
)
