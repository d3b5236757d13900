"""How far a job came, according to what its history shows: positions of checkpoints, checkpoints, commits, output.

If checkpoints were opened, their positions show exactly how many records they cover. If a system does not show
positions, the completed checkpoints are counted; if it has no checkpoints, its commits are. Nothing counts twice: a
job that restores a checkpoint and commits for it again runs in circles.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import AttemptStarted, CheckpointCompleted, Committed
from barrier_tck.harness.workloads.workload import split_name


def input_is_empty(trial_input: TrialInput) -> bool:
    """Return whether the input has no record at all, so that nothing has to be covered."""
    return all(extent.end <= extent.start for extent in trial_input.extents.values())


def completions(history: History) -> dict[int, float]:
    """Return checkpoint -> when it was first reported as complete, in milliseconds."""
    found: dict[int, float] = {}
    for line in history.of(CheckpointCompleted):
        found.setdefault(line.operation.checkpoint, line.time_ms)
    return found


def restored_last(history: History) -> int | None:
    """Return the checkpoint that was restored last; None if none ever was."""
    restored = [line.operation.restored_checkpoint for line in history.of(AttemptStarted)]
    return next((checkpoint for checkpoint in reversed(restored) if checkpoint is not None), None)


def advanced_since(since_ms: float, history: History, trial_input: TrialInput) -> str | None:
    """Say how a job advanced after a time, or return None if it stood still or ran in circles."""
    completed = completions(history)
    seen = {view.checkpoint: sum(view.positions.values()) for view in history.checkpoints}
    begin = sum(extent.start for extent in trial_input.extents.values())
    earlier, later = begin, begin
    for checkpoint, position in seen.items():
        if completed.get(checkpoint, 0.0) < since_ms:
            earlier = max(earlier, position)
        else:
            later = max(later, position)
    if later > earlier:
        return f"{later - earlier} records were added to checkpoints"
    unseen = [n for n, time_ms in completed.items() if n not in seen and time_ms >= since_ms]
    if unseen:
        return f"{len(unseen)} checkpoints completed"
    # A checkpoint that was opened and held no more than an earlier one covers nothing new.
    news = [checkpoint for time_ms, checkpoint in _first_commits(history) if time_ms >= since_ms]
    new = sum(checkpoint is None or checkpoint not in seen for checkpoint in news)
    return f"{new} commits made something visible" if new else None


def covers_the_input(context: TrialContext, trial_input: TrialInput) -> bool | None:
    """Return whether the checkpoint that was restored last covers the whole input; None if nothing shows it.

    If it was opened, its positions show it. Otherwise the output does: the input is covered if all output is there
    and completed checkpoints cover everything that was committed.
    """
    history = context.history
    last = restored_last(history)
    for view in history.checkpoints:
        if last is not None and view.checkpoint == last:
            positions = {split_name(name): position for name, position in view.positions.items()}
            return all(positions.get(name, 0) >= extent.end for name, extent in trial_input.extents.items())
    whole = output_is_whole(history, trial_input)
    return whole if not whole else not _committed_beyond(history)


def output_is_whole(history: History, trial_input: TrialInput) -> bool | None:
    """Return whether every record of the input has a row in the output; None if nothing shows it.

    Nothing shows it if the output was not read, or if the workload's rows do not say from which record they come.
    """
    model = trial_input.workload.spec
    if history.output is not None and model is not None:
        column = model.id_column
        shown = (row.get(column) for row in history.output)
        there = dict.fromkeys(identifier for identifier in shown if isinstance(identifier, Hashable))
        return all(identifier in there for identifier in trial_input.records)
    if history.output_query is not None and history.output_query.counts is not None:
        return history.output_query.counts.lost == 0
    return None


def _committed_beyond(history: History) -> bool:
    """Return whether anything was committed after the last restore that no completed checkpoint covers."""
    starts = [line.time_ms for line in history.of(AttemptStarted)]
    known = [*completions(history), restored_last(history)]
    newest = max((checkpoint for checkpoint in known if checkpoint is not None), default=None)
    return any(
        time_ms >= starts[-1] and (checkpoint is None or newest is None or checkpoint > newest)
        for time_ms, checkpoint in _first_commits(history)
        if starts
    )


def _first_commits(history: History) -> Iterator[tuple[float, int | None]]:
    """Yield (time, checkpoint) of each commit, except those that repeat a commit of the same subtask."""
    known: dict[tuple[str, int], None] = {}
    for line in history.of(Committed):
        checkpoint = line.operation.checkpoint
        if checkpoint is not None:
            place = (line.operation.subtask, checkpoint)
            if place in known:
                continue
            known[place] = None
        yield line.time_ms, checkpoint
