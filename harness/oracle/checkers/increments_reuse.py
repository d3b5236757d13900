"""Increments cost what the change explains: the first snapshot after a restore reuses what is stored (SNP-5).

The state that was restored is in files that stay until a newer checkpoint is complete. So a subtask that restored its
own part of a checkpoint, and of whose entries most are still the same, names some of those files again. A full snapshot
is explained by a change of half of the entries; by a chain that has become long, of many files or of increments that
are larger than what they build on; or by snapshots that were taken meanwhile and came to nothing. Neither output nor
state shows a snapshot that is larger than it must be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.recoveries import restored_checkpoints
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import NamedFile, SnapshotView
from barrier_tck.harness.record.operations import CheckpointTriggered
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.operator_kind import TIMERS

CHAIN_MAX = 6
"""Shared files of one subtask's part with which its chain counts as short. Backends may make longer chains whole."""
TABLES_MAX = 3
"""The same for a backend that is a database: RocksDB merges four tables into a new one unasked."""
ENTRIES_MIN = 4
"""Entries of a subtask from which on a full snapshot costs more than an increment."""


class IncrementsReuse(StandardChecker):
    """After a restore, an incremental snapshot is not a full one."""

    name = "increments-reuse"
    requires = (
        "The first incremental checkpoint after a restore names files of the restored one for each subtask of which "
        "most entries are the same."
    )
    judges = "systems whose checkpoints can be opened, if the plan asks for incremental checkpoints"
    covers = {"SNP-5": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    rank = 271

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and trial.plan.checkpoints.incremental

    def check(self, context: TrialContext) -> Finding:
        """Compare each restored checkpoint with the first one that was taken after it."""
        looked_at, written = 0, 0
        problems: list[str] = []
        first_named: dict[str, int] = {}
        for view in context.history.checkpoints:
            for file in (entry for files in view.files.values() for entry in files):
                first_named.setdefault(file.path, view.checkpoint)
        chain_max = CHAIN_MAX if context.plan.state_backend == TrialPlan().state_backend else TABLES_MAX
        for before, after in _pairs(context):
            for subtask in _that_hardly_changed(before, after, first_named, chain_max):
                looked_at += 1
                names = {file.path for file in before.files[subtask] if file.shared}
                files = after.files.get(subtask, ())
                if any(file.path in names for file in files):
                    continue
                size = sum(file.size for file in files)
                written += size
                problems.append(
                    f"checkpoint {after.checkpoint} holds {size} bytes of {subtask} anew, and none of the "
                    f"{len(names)} shared files of checkpoint {before.checkpoint}, from which it was restored"
                )
        counts = {"increments": looked_at, "full": len(problems), "bytes_written_anew": written}
        if problems:
            summary = (
                f"{len(problems)} first snapshots after a restore reuse nothing; the first: {problems[0]}"
            )
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"{looked_at} first snapshots after a restore reused what was stored"
        return Finding(self.name, self.clauses if looked_at else (), Verdict.VALID, summary, counts)


def _pairs(context: TrialContext) -> Iterator[tuple[SnapshotView, SnapshotView]]:
    """Yield each checkpoint that was restored by a job of the same shape, and the first one that completed after it."""
    first: dict[int | None, int] = {}
    for line in context.history.of(CheckpointTriggered):
        first.setdefault(line.operation.attempt, line.operation.checkpoint)
    views = {view.checkpoint: view for view in context.history.checkpoints if view.problem is None}
    for attempt, restored in restored_checkpoints(context.history).items():
        before = views.get(restored) if restored is not None else None
        after = next((view for view in context.history.checkpoints if view.attempt == attempt), None)
        if after is not None and after.checkpoint != first.get(attempt):
            continue
        if before is None or after is None or after.problem is not None:
            continue
        if before.savepoint is None and after.savepoint is None and _same_job(context, before, after):
            yield before, after


def _same_job(context: TrialContext, before: SnapshotView, after: SnapshotView) -> bool:
    """Return whether every subtask owned the same key groups."""
    return before.subtasks == after.subtasks and context.job_of(before.attempt) == context.job_of(
        after.attempt
    )


def _is_mostly_increments(chain: Sequence[NamedFile], first_named: Mapping[str, int]) -> bool:
    """Return whether the files that came later are larger than what they build on."""
    oldest = min(first_named[file.path] for file in chain)
    base = sum(file.size for file in chain if first_named[file.path] == oldest)
    return sum(file.size for file in chain) > 2 * base


def _that_hardly_changed(
    before: SnapshotView, after: SnapshotView, first_named: Mapping[str, int], chain_max: int
) -> Iterator[str]:
    """Yield the subtasks with a short chain of files, of which less than half of the entries changed.

    Timers come and go unseen between two checkpoints, and records in flight have files of their own: where there are
    some, nothing is said.
    """
    old, new = _entries(before), _entries(after)
    left_out = {part.subtask for part in before.state if part.name == TIMERS}
    left_out |= {channel.receiver for channel in before.in_flight}
    for subtask, files in before.files.items():
        if subtask in left_out:
            continue
        chain = [file for file in files if file.shared]
        if not chain or len(chain) > chain_max or _is_mostly_increments(chain, first_named):
            continue
        kept, now = old.get(subtask, {}), new.get(subtask, {})
        changed = sum(kept.get(name) != now.get(name) for name in {**kept, **now})
        if len(kept) >= ENTRIES_MIN and 2 * changed < min(len(kept), len(now)):
            yield subtask


def _entries(view: SnapshotView) -> Mapping[str, Mapping[tuple[str, str, str], Any]]:
    """Return subtask -> (operator, state, key) -> what is kept by key."""
    found: dict[str, dict[tuple[str, str, str], Any]] = {}
    for part in view.state:
        if part.keyed:
            for key, kept in part.entries.items():
                found.setdefault(part.subtask, {})[part.operator, part.name, key] = kept
    return found
