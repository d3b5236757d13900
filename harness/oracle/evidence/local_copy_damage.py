"""What a trial did to local copies: damage by faults, full disks, and hosts that were lost with all that they kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from barrier_tck.faults.fault import CopiesHit, CopyPlace, Ends, Fault
from barrier_tck.faults.targets import Damage
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import lives_of
from barrier_tck.harness.record.operations import CheckpointTriggered, Placed
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.system.system_under_test import Capability

_GIVEN_UP = (Reason.ATTEMPT_FAILED, Reason.EXPIRED, Reason.SUBSUMED)
"""Why a checkpoint is over although no subtask declined it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault that fired and took copies away. Times in milliseconds."""

    time_ms: float
    subtask: str | None
    """Whose copies; None: those of all subtasks on ``host``."""
    host: str | None
    damage: Damage
    certain: bool = True
    """False if copies may or may not have survived."""
    attempt: int | None = None
    """The attempt at whose point it struck; None if it waited for no point."""

    def was_before_placement(self, attempt: int, placed_ms: float) -> bool:
        """Return whether it is certain to have struck before an attempt was placed.

        At the very moment of the placement only its own attempt tells: what struck at a point of this attempt came
        after it had been placed.
        """
        if self.time_ms == placed_ms:
            return self.attempt is not None and self.attempt < attempt
        return self.time_ms < placed_ms

    @property
    def everywhere(self) -> bool:
        """Whether it took the copies of all subtasks on every host."""
        return self.subtask is None and self.host is None


def fired(context: TrialContext) -> Iterator[tuple[float, Fault]]:
    """Yield (time, fault) of every fault that fired."""
    for time_ms, fault, _ in _fired_at_points(context):
        yield time_ms, fault


def _fired_at_points(context: TrialContext) -> Iterator[tuple[float, Fault, int | None]]:
    """Yield (time, fault, attempt at whose point it fired) of every fault that fired; None: it waited for no point."""
    for record in context.faults:
        if record.outcome == "fired" and record.fired_at_ms is not None:
            attempt = record.attempt if record.point is not None else None
            yield record.fired_at_ms, context.planned_faults[record.index].fault, attempt


def was_full(context: TrialContext, subtask: str) -> bool:
    """Return whether there was no room for copies of a subtask."""
    hits = [fault.copies_hit for _, fault in fired(context)]
    return any(
        hit is not None and (hit.place, hit.subtask, hit.damage) == (CopyPlace.LOCAL, subtask, None)
        for hit in hits
    )


def stored_nothing_new(context: TrialContext, subtask: str, time_ms: float) -> bool:
    """Return whether checkpoints that were triggered since then name only files of the subtask that older ones name,
    too.

    A subtask whose state does not change writes nothing if checkpoints are incremental. False if no such checkpoint was
    opened: then it is not known.
    """
    triggered = context.history.of(CheckpointTriggered)
    since = {line.operation.checkpoint for line in triggered if line.time_ms >= time_ms}
    older: set[str] = set()
    newer: set[str] = set()
    for view in context.history.checkpoints:
        named = newer if view.checkpoint in since else older
        named |= {file.path for file in view.files.get(subtask, ())}
    opened = any(view.checkpoint in since for view in context.history.checkpoints)
    return opened and newer <= older


def given_up_unacknowledged(context: TrialContext, subtask: str, time_ms: float) -> bool:
    """Return whether a checkpoint in which a subtask was to write first after that moment was over before the subtask
    had acknowledged it: with its attempt, because its time was up, or because a newer one completed.

    Whatever became of what the subtask wrote, the job then showed nothing of it.
    """
    for attempt in lives_of(context):
        for life in attempt.checkpoints:
            cut = life.failed in _GIVEN_UP or life.ended_ms is None
            ended_ms = attempt.ended_ms if life.ended_ms is None else life.ended_ms
            if cut and time_ms <= ended_ms <= life.acknowledged.get(subtask, inf):
                return True
            if life.triggered_ms >= time_ms:
                return False
    return False


def hits_of(context: TrialContext) -> list[Hit]:
    """Return what was done to copies, in the order of the plan."""
    hits = []
    real = Capability.DETERMINISTIC_REPLAY.name not in context.capabilities
    for time_ms, fault, attempt in _fired_at_points(context):
        if real and fault.ends is Ends.COORDINATOR:
            # On a cluster, hosts give an application a place for copies, and take it back some time after its driver.
            hits.append(Hit(time_ms, None, None, Damage.MISSING, certain=False))
        match fault.copies_hit:
            case CopiesHit(CopyPlace.LOCAL, subtask, Damage() as damage, whole_host=False, certain=certain):
                hits.append(Hit(time_ms, subtask, None, damage, certain, attempt))
            case CopiesHit(CopyPlace.LOCAL, subtask, Damage() as damage, whole_host=True, certain=certain):
                hosts = _hosts_at(context, subtask, time_ms)
                known = certain and len(hosts) == 1
                hits += [Hit(time_ms, None, host, damage, known, attempt) for host in hosts]
    return hits


def _hosts_at(context: TrialContext, subtask: str, time_ms: float) -> tuple[str | None, ...]:
    """Return where a subtask was; if the next attempt was placed at this very moment, also where that one has it."""
    placements = list(context.history.of(Placed))
    before = [line for line in placements if line.time_ms < time_ms][-1:]
    now = [line for line in placements if line.time_ms == time_ms]
    return tuple(dict.fromkeys(line.operation.hosts.get(subtask) for line in (*before, *now))) or (None,)
