"""By when what the coordinator says of a checkpoint's end must have reached every subtask, where time is virtual."""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import CheckpointLife, end_of, lives_of
from barrier_tck.harness.oracle.evidence.checkpoint_obstacles import (
    NOTICED_MS,
    Backlog,
    longest_ms,
    obstacles,
)


def notices_due(context: TrialContext) -> Iterator[tuple[CheckpointLife, int, float]]:
    """Yield each checkpoint that ended, its attempt, and when all subtasks know this at the latest and have said so.

    Left out are those of which this would be after the end of the attempt, and those whose notice a lasting fault can
    have held up. Times in milliseconds of the trial's clock, which must be virtual: only there is it known how long
    messages may take.
    """
    held_up = obstacles(context)
    over_ms = end_of(context.history)
    # By then the loss of a subtask that cannot report any more has ended the attempt.
    within_ms = longest_ms(context.plan, final=True) + NOTICED_MS
    for attempt in lives_of(context):
        backlog = Backlog(context.plan_of(attempt.number), attempt)
        for life in attempt.checkpoints:
            if life.ended_ms is None:
                continue
            due_ms = life.ended_ms + within_ms + backlog.at(life.ended_ms)
            if due_ms >= min(attempt.ended_ms, over_ms):
                continue
            if not any(
                obstacle.refused is None and obstacle.overlaps(life.ended_ms, due_ms) for obstacle in held_up
            ):
                yield life, attempt.number, due_ms
