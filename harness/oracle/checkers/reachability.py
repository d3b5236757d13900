"""Reachability: everything that a retained checkpoint refers to is there and intact, at any time until the end."""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.evidence.storage_damage import is_own_damage
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import CheckpointProblem
from barrier_tck.harness.record.operations import JobStopped
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_OF_SAVEPOINT = Sign("a retained checkpoint needs a file of a savepoint that is gone", "COO-5")
_INCREMENT_GONE = Sign("a file is gone that a retained incremental checkpoint needs", "SNP-5")
_FILE_GONE = Sign("a file of a retained checkpoint is missing or corrupt", "STA-3")


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
    signs = (_OF_SAVEPOINT, _INCREMENT_GONE, _FILE_GONE)
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
                _breach(f"checkpoint {found.checkpoint}: {found}", found, context, None)
                for found in storage.unreadable
                if not is_own_damage(found, context)
            ),
        ]
        if problems:
            summary = f"{len(problems)} files of retained checkpoints are missing or corrupt"
            return self.broken(context, summary, counts, problems)
        if storage.unreadable:
            summary = "only files that the trial damaged are unreadable"
            spared = set(storage.retained) - {found.checkpoint for found in storage.unreadable}
            return Finding(self.name, self.clauses if spared else (), Verdict.VALID, summary, counts)
        summary = f"all {counts['retained']} retained checkpoints can be read in full"
        return Finding(self.name, self.clauses if storage.retained else (), Verdict.VALID, summary, counts)


def _breach(sentence: str, found: CheckpointProblem, context: TrialContext, operation: int | None) -> Breach:
    shared = context.plan.checkpoints.incremental and found.reason is Reason.MISSING
    claimed = [line.operation.checkpoint for line in context.history.of(JobStopped) if line.operation.claimed]
    savepoints = [
        view.savepoint
        for view in context.history.checkpoints
        if view.savepoint is not None and view.checkpoint not in claimed
    ]
    of_claimed = any(
        (found.file or "").startswith(f"{view.savepoint}/")
        for view in context.history.checkpoints
        if view.checkpoint in claimed
    )
    of_savepoint = any((found.file or "").startswith(f"{directory}/") for directory in savepoints)
    sign = _OF_SAVEPOINT if of_savepoint else _INCREMENT_GONE if shared and not of_claimed else _FILE_GONE
    return Breach(sign, sentence, operation, found.file or "", found.checkpoint)


def _on_the_way(context: TrialContext) -> Iterator[Breach]:
    """Yield the files that were gone while their checkpoints were retained, each once."""
    problems: dict[tuple[int, str | None], Breach] = {}
    for view in context.history.checkpoints:
        for found in view.lacking:
            if not is_own_damage(found, context):
                sentence = (
                    f"checkpoint {found.checkpoint} was retained when {view.checkpoint} completed: {found}"
                )
                at = completed_at(context, view.checkpoint)
                problems.setdefault((found.checkpoint, found.file), _breach(sentence, found, context, at))
    yield from problems.values()
