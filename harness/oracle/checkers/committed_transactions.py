"""Committed transactions: a sink shows only what a completed checkpoint covers (SNK-1).

What an attempt prepared for checkpoint n may become visible only if n completed; then the next attempt starts from n,
or from a later checkpoint. So no committed transaction of an attempt is newer than the checkpoint from which the next
attempt was restored, and none of the last attempt is newer than the newest completed checkpoint. This holds in both
modes, with or without duplicates: at-least-once mode allows records to count twice, but it does not allow
transactions to be visible whose checkpoint never completed.

A job that is started from an older checkpoint than the newest one (from a savepoint, or because the newest cannot be
read) leaves what was committed meanwhile. That excuses transactions of checkpoints that completed, and no others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.moments import started_at
from barrier_tck.harness.oracle.evidence.recoveries import fell_back, restored_checkpoints
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import Transaction
from barrier_tck.harness.record.operations import (
    Acknowledged,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_OF_NOBODY = Sign("what is visible does not say for which checkpoint it was prepared", "SNK-1")
_OF_NO_ATTEMPT = Sign("what is visible was prepared by an attempt that never started", "SNK-1")
_UNCOVERED = Sign("a sink shows what no completed checkpoint covers", "SNK-1")


class CommittedTransactions(StandardChecker):
    """Compares each committed transaction with the checkpoints from which attempts started."""

    name = "committed-transactions"
    requires = "A sink shows only what a completed checkpoint covers."
    judges = "systems whose checkpoints can be opened"
    covers = {"SNK-1": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    signs = (_OF_NOBODY, _OF_NO_ATTEMPT, _UNCOVERED)
    rank = 250

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge the transactions that one trial left."""
        storage = context.history.storage
        if storage is None:
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, "the system did not show its storage")
        bounds, back = _newest_allowed(context), fell_back(context)
        ever, completed = _completed(context), frozenset[int]()
        if back is not None:
            completed = ever
        problems: list[Breach] = []
        left = 0
        for found in storage.transactions:
            if found.checkpoint is None:
                silent = f"{found.name} does not say for which checkpoint it was prepared"
                problems.append(_breach(_OF_NOBODY, silent, found))
                continue
            if found.attempt is None:
                if found.checkpoint not in ever:
                    never = f"{found.name} was prepared for checkpoint {found.checkpoint}, which was never complete"
                    problems.append(_breach(_UNCOVERED, never, found))
                continue
            if found.attempt not in bounds:
                strange = f"{found.name} is of attempt {found.attempt}, which never started"
                problems.append(_breach(_OF_NO_ATTEMPT, strange, found))
                continue
            bound = bounds[found.attempt]
            if _is_covered(found.checkpoint, bound):
                continue
            if found.checkpoint in completed:
                left += 1
            else:
                what = "nothing" if bound is None else f"nothing after checkpoint {bound}"
                uncovered = (
                    f"{found.name} was prepared for checkpoint {found.checkpoint} in attempt {found.attempt}, of "
                    f"which {what} may be visible"
                )
                problems.append(_breach(_UNCOVERED, uncovered, found, _shown_at(found, bounds, context)))
        counts = {"transactions": len(storage.transactions), "uncovered": len(problems)}
        if problems:
            first = problems[0].sentence
            summary = (
                f"{len(problems)} visible transactions are not covered by a completed checkpoint: {first}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"a completed checkpoint covers each of {counts['transactions']} committed transactions"
        if left:
            summary += f"; {left} of them are newer than the restored checkpoint, but {back}"
        covered = self.clauses if _some_must_not_be_visible(context, bounds, completed) else ()
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


def _breach(sign: Sign, sentence: str, found: Transaction, operation: int | None = None) -> Breach:
    return Breach(sign, sentence, operation, found.name, found.checkpoint, found.attempt)


def _shown_at(found: Transaction, attempts: Iterable[int], context: TrialContext) -> int | None:
    """Return the line that shows that a transaction is visible although it may not be.

    A sink has reported then that it committed, and the next attempt has started from an older checkpoint. Of what no
    sink has reported, and of what the last attempt did, only the end shows it.
    """
    committed_at = next(
        (
            line.index
            for line in context.history.of(Committed)
            if (line.operation.attempt, line.operation.checkpoint) == (found.attempt, found.checkpoint)
        ),
        None,
    )
    later = [started_at(context, attempt) or 0 for attempt in attempts if attempt > (found.attempt or 0)]
    return max(committed_at, later[0]) if committed_at is not None and later else None


def _is_covered(checkpoint: int, bound: int | None) -> bool:
    return bound is not None and checkpoint <= bound


def _completed(context: TrialContext) -> frozenset[int]:
    return frozenset(line.operation.checkpoint for line in context.history.of(CheckpointCompleted))


def _some_must_not_be_visible(
    context: TrialContext, bounds: Mapping[int, int | None], excused: Collection[int]
) -> bool:
    """Return whether something was prepared beyond what may be visible: as sinks report it or, where none does, by the
    checkpoints that began."""
    history = context.history
    prepared = [
        (line.operation.attempt, line.operation.checkpoint)
        for line in history.of(Acknowledged)
        if line.operation.prepared
    ]
    if Capability.BARRIERS.name not in context.capabilities:
        # No acknowledgement is reported, so it is not known what is prepared.
        prepared = [
            (line.operation.attempt, line.operation.checkpoint) for line in history.of(CheckpointTriggered)
        ]
    return any(
        attempt in bounds and checkpoint not in excused and not _is_covered(checkpoint, bounds[attempt])
        for attempt, checkpoint in prepared
    )


def _newest_allowed(context: TrialContext) -> dict[int, int | None]:
    """Return attempt -> the newest checkpoint whose transactions may be visible; None if none may be."""
    restored = restored_checkpoints(context.history)
    after = list(restored.values())[1:]
    return (
        dict(zip(restored, [*after, max(_completed(context), default=None)], strict=True)) if restored else {}
    )
