"""Increments cost what the change explains: a snapshot reuses what is stored already (SNP-5).

The state that was restored is in files that stay until a newer checkpoint is complete. So a subtask that restored its
own part of a checkpoint, and of whose entries most are still the same, names some of those files again in its first
snapshot. So it does later, if it knew, when it took a snapshot, that an older checkpoint is complete and that its files
stay. A full snapshot is explained by a change of half of the entries; by a chain that has become long, of many files or
of increments that are larger than what they build on; or by snapshots that were taken meanwhile and came to nothing.
An increment is as large as the entries that have changed since what it builds on. Neither output nor state shows a
snapshot that is larger than it must be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.recoveries import restored_checkpoints
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import NamedFile, SnapshotView
from barrier_tck.harness.record.operations import CheckpointTriggered, StorageAsked
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS, TIMERS

CHAIN_MAX = 6
"""Shared files of one subtask's part with which its chain counts as short. Backends may make longer chains whole."""
TABLES_MAX = 2
"""The same for a backend that is a database: RocksDB merges four tables into a new one unasked, and the newest of them
may be that of the later checkpoint. Each checkpoint in between may have made another table."""
LARGER_MAX = 3
"""How many times as much an entry may take in an increment as in a full snapshot."""
INCREMENT_MIN_BYTES = 256
"""What an increment may take for no entry at all."""
ENTRIES_MIN = 4
"""Entries of a subtask from which on a full snapshot costs more than an increment."""


_FULL = Sign("an incremental snapshot stores anew what is stored already", "SNP-5")
_TOO_LARGE = Sign("an increment is larger than what has changed explains", "SNP-5")


class IncrementsReuse(StandardChecker):
    """Where an older checkpoint can be built on, an incremental snapshot is not a full one."""

    name = "increments-reuse"
    requires = (
        "An incremental checkpoint names files of the restored one, or of the newest one that it could build on, for "
        "each subtask of which most entries are the same, and its own file is no larger than what has changed explains."
    )
    judges = "systems whose checkpoints can be opened, if the plan asks for incremental checkpoints"
    covers = {"SNP-5": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    signs = (_FULL, _TOO_LARGE)
    rank = 271

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and trial.plan.checkpoints.incremental

    def check(self, context: TrialContext) -> Finding:
        """Compare each checkpoint that could be built on with the one that was taken next."""
        looked_at, written = 0, 0
        problems: list[Breach] = []
        first_named: dict[str, int] = {}
        for view in context.history.checkpoints:
            for file in (entry for files in view.files.values() for entry in files):
                first_named.setdefault(file.path, view.checkpoint)
        chain_max = CHAIN_MAX if context.plan.state_backend == TrialPlan().state_backend else TABLES_MAX
        sizes = _Sizes(context, first_named)
        pairs = (*_after_restores(context), *_known_complete(context))
        for before, after, of, between, since in pairs:
            for subtask in _that_hardly_changed(before, after, of, first_named, chain_max - between):
                looked_at += 1
                names = {file.path for file in before.files[subtask] if file.shared}
                files = after.files.get(subtask, ())
                if any(file.path in names for file in files):
                    heavier = sizes.excess_of(before, after, subtask)
                    if heavier is not None:
                        sentence = f"checkpoint {after.checkpoint} {heavier}"
                        problems.append(_breach(_TOO_LARGE, sentence, subtask, after, context))
                    continue
                size = sum(file.size for file in files)
                written += size
                sentence = (
                    f"checkpoint {after.checkpoint} holds {size} bytes of {subtask} anew, and none of the "
                    f"{len(names)} shared files of checkpoint {before.checkpoint}, {since}"
                )
                problems.append(_breach(_FULL, sentence, subtask, after, context))
        counts = {
            "increments": looked_at,
            "measured": sizes.measured,
            "full": len(problems),
            "bytes_written_anew": written,
        }
        if problems:
            summary = (
                f"{len(problems)} increments store what is stored already; the first: {problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"{looked_at} snapshots could reuse what was stored, and did"
        return Finding(self.name, self.clauses if looked_at else (), Verdict.VALID, summary, counts)


def _breach(sign: Sign, sentence: str, subtask: str, view: SnapshotView, context: TrialContext) -> Breach:
    at = completed_at(context, view.checkpoint)
    return Breach(sign, sentence, at, subtask, view.checkpoint, view.attempt)


class _Sizes:
    """Compares the bytes of an increment with the entries that have changed.

    A full snapshot tells how many bytes an entry takes. So it is for files of the heap that are not compressed: a
    database merges its tables when it likes, and what is compressed has no size for each entry. And so it is for
    totals, which every record changes: other operators write entries that come and go unseen between two checkpoints.
    """

    def __init__(self, context: TrialContext, first_named: Mapping[str, int]) -> None:
        """``first_named``: the checkpoint in which each file was seen first, by its path."""
        plan, default = context.plan, TrialPlan()
        self._applies = (plan.workload.name, plan.state_backend, plan.checkpoints.compression) == (
            KeyedTotals.name,
            default.state_backend,
            default.checkpoints.compression,
        )
        self._views = {view.checkpoint: view for view in context.history.checkpoints}
        self._first_named = first_named
        self.measured = 0

    def excess_of(self, before: SnapshotView, after: SnapshotView, subtask: str) -> str | None:
        """Return by how much the file of a later checkpoint is larger than it may be, in words; None if it is not."""
        own = sum(
            file.size
            for file in after.files[subtask]
            # Records in flight are in a file of their own, which no later checkpoint shares.
            if file.shared and self._first_named[file.path] == after.checkpoint
        )
        bytes_each = self._bytes_for_each_character(before.files[subtask], subtask) if self._applies else None
        if bytes_each is None or not own:
            return None
        self.measured += 1
        kept, now = _entries(before, subtask), _entries(after, subtask)
        changed = {
            name: now.get(name, kept.get(name)) for name in {**kept, **now} if kept.get(name) != now.get(name)
        }
        explained = INCREMENT_MIN_BYTES + LARGER_MAX * bytes_each * _characters(changed)
        if own <= explained:
            return None
        return (
            f"holds an increment of {own} bytes of {subtask} on checkpoint {before.checkpoint}, since which "
            f"{len(changed)} of {len(now)} entries have changed"
        )

    def _bytes_for_each_character(self, files: Sequence[NamedFile], subtask: str) -> float | None:
        """Return what a character of an entry takes in the full snapshot of a chain; None if that was not opened."""
        chain = [file for file in files if file.shared]
        oldest = min(self._first_named[file.path] for file in chain)
        full = self._views[oldest]
        # If increments are on it already, it was written for an earlier checkpoint, whose entries nobody has seen.
        if len(full.files[subtask]) != 1:
            return None
        characters = _characters(_entries(full, subtask))
        return full.files[subtask][0].size / characters if characters else None


def _characters(entries: Mapping[tuple[str, str, str], Any]) -> int:
    return sum(len(repr(entry)) for entry in entries.items())


_Pair = tuple[SnapshotView, SnapshotView, tuple[str, ...], int, str]
"""A checkpoint that could be built on, one that was taken after it, by which subtasks, how many there were in between,
and why it could, in words."""


def _after_restores(context: TrialContext) -> Iterator[_Pair]:
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
            yield before, after, before.subtasks, 0, "from which it was restored"


def _known_complete(context: TrialContext) -> Iterator[_Pair]:
    """Yield each snapshot of a subtask that knew of a complete checkpoint whose files stay, and that checkpoint."""
    views = {view.checkpoint: view for view in context.history.checkpoints if view.problem is None}
    for line in context.history.of(StorageAsked):
        asked = line.operation
        before = views.get(asked.reusable) if asked.reusable is not None else None
        after = views.get(asked.checkpoint)
        if before is None or after is None or after.attempt != asked.attempt:
            continue
        if before.savepoint is None and after.savepoint is None and _same_job(context, before, after):
            between = after.checkpoint - before.checkpoint - 1
            yield before, after, (asked.subtask,), between, "of which it knew that it was complete"


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
    before: SnapshotView,
    after: SnapshotView,
    subtasks: Collection[str],
    first_named: Mapping[str, int],
    chain_max: int,
) -> Iterator[str]:
    """Yield those of some subtasks with a short chain of files, of which less than half of the entries changed.

    Timers come and go unseen between two checkpoints, and records in flight have files of their own: where there are
    some, nothing is said.
    """
    left_out = {part.subtask for part in before.state if part.name in (TIMERS, EVENT_TIMERS)}
    left_out |= {channel.receiver for channel in before.in_flight}
    for subtask in subtasks:
        files = before.files.get(subtask, ())
        if subtask in left_out:
            continue
        chain = [file for file in files if file.shared]
        if not chain or len(chain) > chain_max or _is_mostly_increments(chain, first_named):
            continue
        kept, now = _entries(before, subtask), _entries(after, subtask)
        changed = sum(kept.get(name) != now.get(name) for name in {**kept, **now})
        if len(kept) >= ENTRIES_MIN and 2 * changed < min(len(kept), len(now)):
            yield subtask


def _entries(view: SnapshotView, subtask: str) -> Mapping[tuple[str, str, str], Any]:
    """Return (operator, state, key) -> what a subtask keeps by key."""
    return {
        (part.operator, part.name, key): kept
        for part in view.state
        if part.keyed and part.subtask == subtask
        for key, kept in part.entries.items()
    }
