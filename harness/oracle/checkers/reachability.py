"""Reachability: everything that a retained checkpoint refers to is there and intact, at any time until the end."""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.evidence.storage_damage import is_own_damage
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability


class Reachability(StandardChecker):
    """Every retained checkpoint, not only the latest, can be read in full (STA-3, REC-4).

    At the end each file was read. Whenever a checkpoint completed, it was looked at whether the files of all that were
    retained then were there: one that is deleted too early is missed before its checkpoint is gone as well.
    """

    name = "reachability"
    requires = "Everything that a retained checkpoint refers to is there and intact."
    judges = "systems whose checkpoints can be opened"
    covers = {"STA-3": COMPLETED}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    rank = 220

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge the storage of one trial, as it was left and at every completion."""
        storage = context.history.storage
        if storage is None:
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, "the system did not show its storage")
        counts = {"retained": len(storage.retained), "unreadable": len(storage.unreadable)}
        problems = [
            *_on_the_way(context),
            *(
                f"checkpoint {found.checkpoint}: {found}"
                for found in storage.unreadable
                if not is_own_damage(found, context)
            ),
        ]
        if problems:
            summary = f"{len(problems)} files of retained checkpoints are missing or corrupt"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        if storage.unreadable:
            summary = "only files that the trial damaged are unreadable"
            return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)
        summary = f"all {counts['retained']} retained checkpoints can be read in full"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)


def _on_the_way(context: TrialContext) -> Iterator[str]:
    """Yield the files that were gone while their checkpoints were retained, each once."""
    problems: dict[tuple[int, str | None], str] = {}
    for view in context.history.checkpoints:
        for found in view.lacking:
            if not is_own_damage(found, context):
                problems.setdefault(
                    (found.checkpoint, found.file),
                    f"checkpoint {found.checkpoint} was retained when {view.checkpoint} completed: {found}",
                )
    yield from problems.values()
