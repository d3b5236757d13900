"""Committed transactions: a sink shows nothing but what a completed checkpoint covers (SNK-1).

What an attempt prepared for checkpoint n may become visible only if n completed: then the attempt after it starts from
n, or from a later one. So no committed transaction of an attempt is newer than what the next attempt was restored
from, and none of the last attempt is newer than the newest completed checkpoint. This holds in both modes, duplicates
or not: at-least-once mode lets records count twice, and not transactions show that were never completed.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.oracle.recoveries import fell_back, restored_checkpoints
from barrier_tck.harness.record.operations import CheckpointCompleted
from barrier_tck.harness.record.verdict import Finding, Verdict


class CommittedTransactions:
    """Compares what is committed, transaction by transaction, with where the attempts began."""

    name = "committed-transactions"
    clauses: tuple[str, ...] = ("SNK-1",)

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
                    f"{found.name} does not say which attempt prepared it, and for which checkpoint"
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
            summary = f"{len(problems)} transactions lie behind what was restored, but {back}"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        if problems:
            summary = (
                f"{len(problems)} transactions are visible that no completed checkpoint covers: {problems[0]}"
            )
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"a completed checkpoint covers each of {counts['transactions']} committed transactions"
        spoken = self.clauses if storage.transactions else ()
        return Finding(self.name, spoken, Verdict.VALID, summary, counts)


def _newest_allowed(context: TrialContext) -> dict[int, int | None]:
    """Return attempt -> the newest checkpoint whose transactions may be visible; None: those of no checkpoint."""
    completed = [told.operation.checkpoint for told in context.history.of(CheckpointCompleted)]
    restored = restored_checkpoints(context.history)
    after = list(restored.values())[1:]
    return dict(zip(restored, [*after, max(completed, default=None)], strict=True)) if restored else {}
