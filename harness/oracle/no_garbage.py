"""No garbage: when a job has finished, durable storage holds what is needed and nothing else."""

from __future__ import annotations

from harness.oracle.checker import TrialContext
from harness.oracle.examples import chosen
from harness.oracle.history import End
from harness.oracle.verdict import Finding, Verdict


class NoGarbage:
    """No file outlives its users: aborted, late and cancelled snapshots leave nothing (COO-3, SNP-2, SNP-5).

    A job that did not finish may have been cut off in the middle of cleaning up; it is not judged.
    """

    name = "no-garbage"
    clauses = ("COO-3", "SNP-2")

    def check(self, context: TrialContext) -> Finding:
        """Judge the storage that one trial left."""
        storage = context.history.storage
        if storage is None:
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, "the system did not show its storage")
        counts = {"retained": len(storage.retained), "orphans": len(storage.orphans)}
        if context.history.end is not End.FINISHED:
            summary = f"the job ended {context.history.end.value}; what it left is not judged"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        bound = max(1, context.plan.checkpoints.retained)
        problems = [f"orphan: {path}" for path in storage.orphans]
        if len(storage.retained) > bound:
            problems.append(
                f"{len(storage.retained)} checkpoints are retained, the plan says {bound} (COO-4)"
            )
        if problems:
            summary = f"{len(problems)} things are left over; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"{counts['retained']} retained checkpoints and nothing else are left"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)
