"""Which completed checkpoints can be judged by their content, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.prefix import Extent
from barrier_tck.harness.oracle.evidence.storage_damage import is_own_damage
from barrier_tck.harness.record.history import SnapshotView, StateView
from barrier_tck.harness.record.operations import CheckpointCompleted
from barrier_tck.harness.workloads.workload import split_name


@dataclass(frozen=True, slots=True)
class OpenedCheckpoints:
    """The completed checkpoints of one trial."""

    judged: tuple[SnapshotView, ...]
    """The checkpoints to judge, by number, including those that could not be opened unless the trial damaged them.

    A subtask that had finished holds in each of them what it held in its last own part (BAR-6).
    """
    harmed: tuple[SnapshotView, ...]
    """Those that could not be opened because the trial had damaged them, or what they rely on; they show nothing."""
    unopened: tuple[int, ...]
    """Those that completed but were not opened."""


def opened_checkpoints(context: TrialContext) -> OpenedCheckpoints:
    """Sort the checkpoints of one trial by what can be said about them."""
    completed = dict.fromkeys(line.operation.checkpoint for line in context.history.of(CheckpointCompleted))
    opened = {view.checkpoint for view in context.history.checkpoints}
    judged: list[SnapshotView] = []
    harmed: list[SnapshotView] = []
    for view, relied_on in _filled(context):
        problems = [entry.problem for entry in (view, *relied_on) if entry.problem is not None]
        (harmed if any(is_own_damage(problem, context) for problem in problems) else judged).append(view)
    return OpenedCheckpoints(
        tuple(judged),
        tuple(harmed),
        tuple(checkpoint for checkpoint in completed if checkpoint not in opened),
    )


def opened_checkpoint(context: TrialContext, checkpoint: int) -> SnapshotView | None:
    """Return one checkpoint with the state of the subtasks that had finished; None if it was never opened."""
    return next((view for view, _ in _filled(context) if view.checkpoint == checkpoint), None)


def _filled(context: TrialContext) -> Iterator[tuple[SnapshotView, list[SnapshotView]]]:
    """Yield every checkpoint, by number, with the state of the subtasks that had finished, and where that came from.

    When a job is rescaled, subtasks of other key groups get their names; what they held at the end is kept apart.
    """
    last_own: dict[str, SnapshotView] = {}
    kept_apart: tuple[StateView, ...] = ()
    newest: SnapshotView | None = None
    number: int | None = None
    for view in sorted(context.history.checkpoints, key=lambda entry: entry.checkpoint):
        before, number = number, context.job_number(view.attempt)
        if newest is not None and number != before:
            gone = tuple(state for state in newest.state if state.keyed and state.subtask in newest.finished)
            # Who has these names now owns other key groups.
            kept_apart += tuple(msgspec.structs.replace(state, groups={}) for state in gone)
            last_own = {}
        relied_on = [last_own[subtask] for subtask in view.finished if subtask in last_own]
        newest = _with_finished(view, last_own)
        yield msgspec.structs.replace(newest, state=(*newest.state, *kept_apart)), relied_on
        last_own |= {subtask: view for subtask in view.subtasks if subtask not in view.finished}


def _with_finished(view: SnapshotView, last_own: Mapping[str, SnapshotView]) -> SnapshotView:
    """Return a checkpoint with the keyed state of the subtasks that had finished: none of it can have changed since."""
    kept = [
        state
        for subtask in view.finished
        if subtask in last_own
        for state in last_own[subtask].state
        if state.keyed and state.subtask == subtask
    ]
    return msgspec.structs.replace(view, state=(*view.state, *kept)) if kept else view


def missing_parts(view: SnapshotView, context: TrialContext) -> Iterator[Difference]:
    """Yield the subtasks that have no part in a checkpoint (STA-3)."""
    parts = set(view.subtasks)
    for subtask in context.subtasks_of(view.attempt):
        if subtask not in parts:
            yield Difference(Kind.NO_PART, f"subtask {subtask} has no part in it", subtask)


def misplaced(view: SnapshotView, extents: Mapping[str, Extent], start_offset: int) -> Iterator[Difference]:
    """Yield the splits that have no position, or one outside the split; every split begins at ``start_offset``."""
    positions = positions_of(view)
    for name, extent in extents.items():
        position = positions.get(name)
        if position is None:
            yield Difference(Kind.NO_POSITION, f"split {name} has no position", name)
        # 0 may mean that a split is not begun yet, even if its input starts later.
        elif position != 0 and not extent.start <= position <= max(extent.end, start_offset):
            outside = f"outside its input from {extent.start} to {extent.end}"
            yield Difference(Kind.NO_POSITION, f"split {name} is at {position}, {outside}", name)
    for name in positions:
        if name not in extents:
            yield Difference(Kind.NO_POSITION, f"split {name} is not part of the input", name)


def going_back(earlier: SnapshotView | None, view: SnapshotView) -> Iterator[Difference]:
    """Yield the splits that were further on in an earlier checkpoint of the same attempt (BAR-2)."""
    for name, position in view.positions.items():
        before = earlier.positions.get(name, 0) if earlier is not None else 0
        if earlier is not None and position < before:
            yield Difference(
                Kind.BACKWARDS,
                f"split {name} is at {position}, but was at {before} in the earlier checkpoint "
                f"{earlier.checkpoint}: one barrier overtook the other",
                name,
            )


def positions_of(view: SnapshotView) -> dict[str, int]:
    """Return split -> number of records before the barrier, by the names that workloads use."""
    return {split_name(split): position for split, position in view.positions.items()}
