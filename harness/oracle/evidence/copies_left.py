"""Local copies that should be gone while a job runs: of failed checkpoints, and of subtasks that moved (LOC-3).

What a subtask reports shows its own copies on its own host. What it left on another one, only that host shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from barrier_tck.faults.fault import CopyPlace, OnProgress
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import (
    AbortLearned,
    Acknowledged,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CopiesSeen,
    CopySeen,
    LocalCopyReported,
    Operation,
    Placed,
)


@dataclass(frozen=True, slots=True)
class CopyLeft:
    """A copy that was looked for."""

    line: Recorded[Operation]
    sentence: str
    """What is wrong; empty if it is gone, as it should be."""


def copies_of_failed_checkpoints(context: TrialContext) -> Iterator[CopyLeft]:
    """Yield the acknowledgements of subtasks that had learned before that other checkpoints failed.

    A disk that is full or damaged may refuse to delete, so nothing is said then. Of an acknowledgement that is repeated
    only the first counts.
    """
    if _copies_are_hit(context):
        return
    failed: dict[tuple[str, int], dict[int, None]] = {}
    came: dict[tuple[str, int, int], None] = {}
    for line in context.history.operations:
        match line.operation:
            case AbortLearned(checkpoint=checkpoint, attempt=attempt, subtask=subtask):
                failed.setdefault((subtask, attempt), {})[checkpoint] = None
            case Acknowledged(local=LocalCopyReported() as local, forged=False) as ack:
                part = ack.subtask, ack.attempt, ack.checkpoint
                known = failed.get((ack.subtask, ack.attempt), {})
                if part not in came and known:
                    left = [held for held in local.held if held in known]
                    yield CopyLeft(line, _held_by(ack, left[0]) if left else "")
                came[part] = None


def copies_of_older_attempts(context: TrialContext) -> Iterator[CopyLeft]:
    """Yield what older attempts had left on hosts, once an attempt runs there that started from a newer checkpoint, or
    once a subtask there knows that a newer one is complete.

    Only copies of checkpoints that had completed before count, as no subtask writes them any more. But a process that a
    fault stops or cuts off may come back, so nothing is said of trials with such a fault, or with one that hits copies.
    """
    lasting = any(
        planned.fault.heals_after_ms is not None and planned.fault.on_progress is not OnProgress.NOTHING
        for planned in context.planned_faults
    )
    if lasting or _copies_are_hit(context):
        return
    before: dict[CopySeen, None] = {}
    """What was seen before the newest attempt started."""
    now: dict[CopySeen, None] = {}
    attempt, running = 0, False
    restored: int | None = None
    completed: dict[int, None] = {}
    hosts: dict[str, str] = {}
    confirmed: dict[str, int] = {}
    """Host -> the newest checkpoint that a subtask of the newest attempt knows there to be complete."""
    for line in context.history.operations:
        match line.operation:
            case CheckpointCompleted(checkpoint=checkpoint):
                completed[checkpoint] = None
            case AttemptStarted(attempt=attempt, restored_checkpoint=restored):
                before = {copy: None for copy in (*before, *now) if copy.checkpoint in completed}
                running, hosts, confirmed = False, {}, {}
            case Placed(attempt=placed, hosts=where) if placed == attempt:
                hosts = where
            case AttemptRunning(attempt=ran) if ran == attempt:
                running = True
            case Acknowledged(attempt=by, local=LocalCopyReported() as local, forged=False) if by == attempt:
                confirmed[local.host] = max(confirmed.get(local.host, 0), local.confirmed or 0)
            case CopiesSeen(copies=copies):
                now = dict.fromkeys(copies)
                due = dict.fromkeys(hosts.values(), restored or 0) if running else {}
                for host, checkpoint in confirmed.items():
                    due[host] = max(due.get(host, 0), checkpoint)
                looked_for = [copy for copy in before if copy.checkpoint < due.get(copy.host, 0)]
                for copy in looked_for:
                    gone = copy not in now
                    yield CopyLeft(line, "" if gone else _described(copy, due[copy.host], hosts))
                    del before[copy]


def _held_by(ack: Acknowledged, failed: int) -> str:
    return (
        f"{ack.subtask} knew that checkpoint {failed} had failed, and still had local files of it when it "
        f"acknowledged checkpoint {ack.checkpoint}"
    )


def _described(copy: CopySeen, newest: int, hosts: dict[str, str]) -> str:
    runs_on = hosts.get(copy.subtask)
    moved = f", which runs on {runs_on} now" if runs_on not in (None, copy.host) else ""
    return (
        f"{copy.host} still has local files of checkpoint {copy.checkpoint} of {copy.subtask}{moved}, and subtasks "
        f"there started from checkpoint {newest}, or know that it is complete"
    )


def _copies_are_hit(context: TrialContext) -> bool:
    hits = [planned.fault.copies_hit for planned in context.planned_faults]
    return any(hit is not None and hit.place is not CopyPlace.DURABLE and not hit.whole_host for hit in hits)
