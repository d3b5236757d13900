"""Reachability: everything that a retained checkpoint refers to is there and intact, however the job ended."""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.damage import is_own_damage
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.record.verdict import Finding, Verdict


class Reachability:
    """Every retained checkpoint, not only the latest, can be read in full (STA-3, REC-4)."""

    name = "reachability"
    clauses = ("STA-3",)

    def check(self, context: TrialContext) -> Finding:
        """Judge the storage that one trial left."""
        storage = context.history.storage
        if storage is None:
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, "the system did not show its storage")
        counts = {"retained": len(storage.retained), "unreadable": len(storage.unreadable)}
        unreadable = [
            f"checkpoint {found.checkpoint}: {found}"
            for found in storage.unreadable
            if not is_own_damage(found, context)
        ]
        if unreadable:
            summary = f"{len(unreadable)} files of retained checkpoints are missing or corrupt"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(unreadable))
        if storage.unreadable:
            summary = "only files that the trial damaged are unreadable"
            return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)
        summary = f"all {counts['retained']} retained checkpoints can be read in full"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)
