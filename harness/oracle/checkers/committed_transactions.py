"""Committed transactions: a sink shows only what a completed checkpoint covers (SNK-1).

What an attempt prepared for checkpoint n may become visible only if n completed; then the next attempt starts from n,
or from a later checkpoint. So no committed transaction of an attempt is newer than the checkpoint from which the next
attempt was restored, and none of the last attempt is newer than the newest completed checkpoint. This holds in both
modes, with or without duplicates: at-least-once mode allows records to count twice, but it does not allow
transactions to be visible whose checkpoint never completed.
"""

from __future__ import annotations

from collections.abc import Mapping

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.recoveries import fell_back, restored_checkpoints
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import Acknowledged, CheckpointCompleted, CheckpointTriggered
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability


class CommittedTransactions(StandardChecker):
    """Compares each committed transaction with the checkpoints from which attempts started."""

    name = "committed-transactions"
    requires = "A sink shows only what a completed checkpoint covers."
    judges = "systems whose checkpoints can be opened"
    covers = {"SNK-1": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    rank = 250

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge the transactions that one trial left."""
        storage = context.history.storage
        if storage is None:
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, "the system did not show its storage")
        bounds = _newest_allowed(context)
        problems: list[str] = []
        for found in storage.transactions:
            if found.attempt is None or found.checkpoint is None:
                problems.append(
                    f"{found.name} does not say which attempt prepared it and for which checkpoint"
                )
                continue
            if found.attempt not in bounds:
                problems.append(f"{found.name} is of attempt {found.attempt}, which never started")
                continue
            bound = bounds[found.attempt]
            if bound is None or found.checkpoint > bound:
                what = "nothing" if bound is None else f"nothing after checkpoint {bound}"
                problems.append(
                    f"{found.name} was prepared for checkpoint {found.checkpoint} in attempt {found.attempt}, of "
                    f"which {what} may be visible"
                )
        counts = {"transactions": len(storage.transactions), "uncovered": len(problems)}
        back = fell_back(context)
        if problems and back is not None:
            summary = f"{len(problems)} transactions are newer than the restored checkpoint, but {back}"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        if problems:
            summary = f"{len(problems)} visible transactions are not covered by a completed checkpoint: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"a completed checkpoint covers each of {counts['transactions']} committed transactions"
        covered = self.clauses if _some_must_not_be_visible(context, bounds) else ()
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


def _some_must_not_be_visible(context: TrialContext, bounds: Mapping[int, int | None]) -> bool:
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
        (bound := bounds[attempt]) is None or checkpoint > bound
        for attempt, checkpoint in prepared
        if attempt in bounds
    )


def _newest_allowed(context: TrialContext) -> dict[int, int | None]:
    """Return attempt -> the newest checkpoint whose transactions may be visible; None if none may be."""
    completed = [line.operation.checkpoint for line in context.history.of(CheckpointCompleted)]
    restored = restored_checkpoints(context.history)
    after = list(restored.values())[1:]
    return dict(zip(restored, [*after, max(completed, default=None)], strict=True)) if restored else {}
