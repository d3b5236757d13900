"""Local recovery: which copy served what, compared with where copies were kept and what was done to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from typing import Any

from barrier_tck.faults.fault import CopiesHit, CopyPlace
from barrier_tck.faults.targets import Damage, TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import lives_of
from barrier_tck.harness.oracle.evidence.checkpoint_obstacles import obstacles
from barrier_tck.harness.oracle.evidence.copies_left import (
    copies_of_failed_checkpoints,
    copies_of_older_attempts,
)
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.explained_failures import declined_cleanly
from barrier_tck.harness.oracle.evidence.local_copy_damage import (
    fired,
    given_up_unacknowledged,
    hits_of,
    stored_nothing_new,
    was_full,
)
from barrier_tck.harness.oracle.evidence.record_routes import key_groups_of
from barrier_tck.harness.oracle.evidence.recoveries import attempts_that_ran, restored_checkpoints
from barrier_tck.harness.oracle.evidence.rescaled_restores import problems_of
from barrier_tck.harness.oracle.evidence.restore_reads import contradictions, in_another_format, reads_of
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.sometimes import Sightings, Sometimes
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.notes import DROPPED, is_listed
from barrier_tck.harness.record.history import History, NamedFile, Recorded
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptEnded,
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobFailed,
    JobStopped,
    LocalCopyReported,
    Placed,
    ReadsObserved,
    Restored,
    ServedFile,
    ServedFrom,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

MET, DONE = "met_", "done_"
"""What the counts of damage begin with: restores that met it, and faults that did it."""
OTHER_FORMAT = "other_format"
"""Count of local files that restores read and that had another format than the primary."""
RESCALED = "rescaled"
"""Count of restores of subtasks whose job has another parallelism than the one that took the checkpoint."""
COPIES_GONE = "copies_looked_for"
"""Count of copies of failed checkpoints, and of subtasks of older attempts, that had to be gone."""
MEMORY_LOST = "memory_lost"
"""What is counted as damage if a copy was in the memory of an executor that is gone."""
FROM_MEMORY = "from_memory"
"""Count of files that a copy in memory served."""
FULL_DISK = "full_disk"
"""What is counted as damage if there was no room for a copy."""


class _Due(Enum):
    """Which copy had to serve a restore."""

    PRIMARY = "primary"
    SECONDARY = "secondary"
    BOTH = "both"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class _Expected:
    """Which copy had to serve a restore and, for people, why not the secondary."""

    due: _Due
    why: str = ""
    host_lost: bool = False
    met: str = ""
    """What was wrong with the copy, if the restore met it: on the copy's host, or because no host has a copy that
    could show it."""


@dataclass
class _Tally:
    """What was found so far: problems, counts, and clauses that could have been violated."""

    problems: list[Breach] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    clauses: dict[str, None] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    """Restores whose reads were not observed, although those of others were."""

    line: Recorded[Any] | None = None
    """The line of the history that is judged; None if it is the end."""

    def broken(self, clause: str, sentence: str) -> None:
        """Note a contradiction to a clause, with the subtask, checkpoint and attempt that the line names."""
        sign, sentence = _SIGNS[clause], f"{clause}: {sentence}"
        if self.line is None:
            self.problems.append(Breach(sign, sentence))
            return
        named = self.line.operation
        self.problems.append(
            Breach(
                sign,
                sentence,
                self.line.index,
                getattr(named, "subtask", self.line.process),
                getattr(named, "checkpoint", None),
                getattr(named, "attempt", None),
            )
        )

    def seen(self, clause: str, count: str = "") -> None:
        """Note that the trial exercised a clause: it could have been violated."""
        self.clauses[clause] = None
        if count:
            self.counts[count] += 1


_SIGNS = {
    "LOC-1": Sign("a subtask stores state and keeps no copy of it on its host", "LOC-1"),
    "LOC-2": Sign("a checkpoint fails because a local copy could not be written", "LOC-2"),
    "LOC-3": Sign(
        "a host has local files of older or failed checkpoints, or lacks those of a copy that is kept",
        "LOC-3",
    ),
    "LOC-4": Sign("a restore uses a local copy that it must not use, or not the one that it should", "LOC-4"),
    "LOC-5": Sign("a restore fails although the primary is intact", "LOC-5"),
    "LOC-6": Sign("a restore takes too much or too little from a partial copy", "LOC-6"),
    "LOC-7": Sign("a local copy in another format does not hold what the primary holds", "LOC-7"),
    "LOC-9": Sign("subtasks that could go back to their copies are placed elsewhere", "LOC-9"),
}
_PARTS = 2
"""How often a process writes to one copy: the state, and the records in flight."""


@dataclass
class _WrittenLate:
    """Copies that processes of older attempts wrote: a newer one may have tidied up before that, and does so again.

    Such a process may be unable to acknowledge, because it is cut off or its coordinator is dead.
    """

    attempt: int = 0
    completed_ms: dict[int, float] = field(default_factory=dict)
    taken_by: dict[int, int] = field(default_factory=dict)
    """Checkpoint -> the attempt that began it."""
    written_ms: dict[tuple[str, int], float] = field(default_factory=dict)
    """Subtask and checkpoint -> when its process reported its copy; -inf if it was in time."""
    seen: dict[tuple[str, int, int], dict[int | None, None]] = field(default_factory=dict)
    """Subtask, attempt and checkpoint -> what the attempt's process knew to be complete whenever it reported that files
    of the checkpoint are there."""

    def follow(self, operation: object, time_ms: float) -> None:
        """Take the next operation."""
        match operation:
            case AttemptStarted(attempt=attempt):
                self.attempt = attempt
            case CheckpointTriggered(checkpoint=checkpoint, attempt=attempt):
                self.taken_by[checkpoint] = attempt
            case CheckpointCompleted(checkpoint=checkpoint):
                self.completed_ms[checkpoint] = time_ms
            case Acknowledged(checkpoint=checkpoint, attempt=attempt, subtask=subtask, forged=False):
                if attempt < self.attempt:
                    self.written_ms[subtask, checkpoint] = time_ms
                else:
                    self.written_ms.setdefault((subtask, checkpoint), -inf)
                if operation.local is not None:
                    for held in operation.local.held:
                        self.seen.setdefault((subtask, attempt, held), {})[operation.local.confirmed] = None

    def was_after(self, confirmed: int, report: Acknowledged, left: Sequence[int]) -> bool:
        """Return whether all these copies may have been written after a checkpoint was known to be complete."""
        return all(self._was_after_report(confirmed, report, held) for held in left)

    def _was_after_report(self, confirmed: int, report: Acknowledged, held: int) -> bool:
        written_ms = self.written_ms.get((report.subtask, held))
        if written_ms is not None:
            return written_ms >= self.completed_ms.get(confirmed, inf)
        # It was not reported. A clean-up finds it again no more often than its writer adds to it.
        older = self.taken_by.get(held, report.attempt) < report.attempt
        return older and len(self.seen.get((report.subtask, report.attempt, held), {})) <= _PARTS


def _met_listed_damage(finding: Finding, trial: TrialSummary) -> Sightings | None:
    """Return, for each damage that a listed trial did, how many restores met it.

    Trials with one note and one setup are the repetitions of one cell of a matrix: one of them is enough. Drawn trials
    owe nothing, because no note says what they are to show.
    """
    if not is_listed(trial.note):
        return None
    setup = f" with {trial.setup}" if trial.setup else ""
    done = [name.removeprefix(DONE) for name in finding.counts if name.startswith(DONE)]
    return {f"{trial.note!r} ({damage}){setup}": finding.counts.get(f"{MET}{damage}", 0) for damage in done}


class LocalRecovery(StandardChecker):
    """Exactly one copy serves every restored state file: the secondary one if it was intact and on the same host
    (LOC-1 to 9).

    A secondary copy must serve if the subtask returned to the host that kept it, the checkpoint is the newest, and no
    fault hit the copy. A copy that was hit, or is on another host, must not serve. A copy that may have survived may
    or may not serve. If the reads of a restore were observed, its report must agree with them.
    """

    name = "local-recovery"
    requires = "Each restore read the copy that it should have read."
    judges = "plans with local recovery"
    covers = {
        "LOC-1": ALWAYS,
        "LOC-2": ALWAYS,
        "LOC-3": ALWAYS,
        "LOC-4": ALWAYS,
        "LOC-5": ALWAYS,
        "LOC-6": ALWAYS,
        "LOC-7": ALWAYS,
        "LOC-8": ALWAYS,
        "LOC-9": ALWAYS,
        "REC-4": ALWAYS,
    }
    needs = frozenset({Capability.LOCAL_RECOVERY})
    sometimes = (
        Sometimes(
            name="sometimes-falls-back",
            clauses=("LOC-4",),
            seen=_met_listed_damage,
            shown="in each of {cells} listed cases a restore met the damaged copy",
            not_shown=(
                "in {missed} of {cells} listed cases no restore came to the host of the damaged copy, first of all in "
                "{first}; repeat it more often, or kill only the process of one subtask"
            ),
        ),
    )
    rank = 350
    signs = tuple(_SIGNS.values())
    directness = Directness.OPERATIONS
    clauses = ("LOC-1", "LOC-2", "LOC-3", "LOC-4", "LOC-5", "LOC-6", "LOC-7", "LOC-8", "LOC-9")

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and bool(trial.plan.local_recovery)

    def check(self, context: TrialContext) -> Finding:
        tally = _Tally()
        history = context.history
        self._judge_acknowledgements(history, tally)
        self._judge_kept(context, tally)
        self._judge_lists(context, tally)
        for found in (*copies_of_failed_checkpoints(context), *copies_of_older_attempts(context)):
            tally.line = found.line
            tally.seen("LOC-3", COPIES_GONE)
            if found.sentence:
                tally.broken("LOC-3", found.sentence)
        tally.line = None
        ran = attempts_that_ran(history)
        for attempt, checkpoint in restored_checkpoints(history).items():
            if checkpoint is None or attempt not in ran:
                continue
            newest = _newest_completed(history, attempt)
            if primaries_damaged(context) and newest is not None and checkpoint < newest:
                tally.seen("REC-4", "older_restores")
            self._judge_placement(history, attempt, tally)
            self._judge_restores(context, attempt, checkpoint, tally)
        self._count_refusals(context, tally)
        self._judge_failed_writes(context, tally)
        if history.reason is Reason.CHECKPOINT_UNREADABLE and not primaries_damaged(context):
            tally.line = next(history.of(JobFailed), None)
            if any(
                hit.place is CopyPlace.LOCAL
                for _, fault in fired(context)
                if (hit := fault.copies_hit) is not None
            ):
                tally.broken(
                    "LOC-4", f"a local copy was damaged, its primary was not, and {history.explanation}"
                )
            tally.broken("LOC-5", f"every primary was intact, yet {history.explanation}")
            tally.line = None
        # The restore was to follow a fault whose moment never came, as may happen to a drawn plan.
        unmet = [] if context.plan.note.endswith(DROPPED) else self._unmet(context, tally)
        counts = dict(sorted(tally.counts.items()))
        if tally.problems:
            summary = f"{len(tally.problems)} contradictions; the first: {tally.problems[0].sentence}"
            return self.broken(context, summary, counts, tally.problems)
        if unmet:
            summary = f"no restore met {unmet[0]}: nothing is shown"
            return Finding(self.name, tuple(tally.clauses), Verdict.UNKNOWN, summary, counts, chosen(unmet))
        if tally.unseen:
            summary = f"{tally.unseen[0]}, so there is only its own report"
            return Finding(
                self.name, tuple(tally.clauses), Verdict.UNKNOWN, summary, counts, chosen(tally.unseen)
            )
        served = f"{tally.counts['secondary']} state files from local copies, {tally.counts['primary']} from primaries"
        return Finding(self.name, tuple(tally.clauses), Verdict.VALID, served, counts)

    # --- what is kept ---------------------------------------------------------------------------------------

    def _judge_acknowledgements(self, history: History, tally: _Tally) -> None:
        """Only the newest copy is kept (LOC-3)."""
        late = _WrittenLate()
        kept: dict[tuple[str, str], list[int]] = {}
        """Subtask and host -> the checkpoints of which it kept a copy there."""
        for line in history.operations:
            late.follow(line.operation, line.time_ms)
            tally.line = line
            if isinstance(line.operation, Acknowledged) and line.operation.local is not None:
                local, place = line.operation.local, (line.operation.subtask, line.operation.local.host)
                if any(older < (local.confirmed or 0) for older in kept.get(place, ())):
                    tally.seen("LOC-3")
                self._judge_held(line.operation, local, line.time_ms, late, tally)
                if local.kept:
                    kept.setdefault(place, []).append(line.operation.checkpoint)
        tally.line = None

    @staticmethod
    def _judge_kept(context: TrialContext, tally: _Tally) -> None:
        """Who stores state also keeps a copy of it, or says why it could not (LOC-1).

        In virtual time nothing but a fault makes a host refuse a copy on its disk. Only an increment may lack the copy
        of what it builds on.
        """
        history = context.history
        stored = {
            (subtask, view.checkpoint)
            for view in history.checkpoints
            for subtask, files in view.files.items()
            if files
        }
        hits = [fault.copies_hit for _, fault in fired(context)]
        checkpoints = context.plan.checkpoints
        refused = (
            checkpoints.local_copies != "disk"
            or checkpoints.incremental
            or any(hit is not None and hit.place is not CopyPlace.DURABLE for hit in hits)
        )
        repeatable = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        for line in history.of(Acknowledged):
            ack, local = line.operation, line.operation.local
            if local is None or ack.forged or (ack.subtask, ack.checkpoint) not in stored:
                continue
            if local.confirmed is not None and local.confirmed > ack.checkpoint:
                continue  # a savepoint was overtaken by a newer checkpoint, which makes copies of older ones stale
            tally.seen("LOC-1")
            tally.line = line
            what = f"{ack.subtask} stored state for checkpoint {ack.checkpoint} and kept no copy of it on its host"
            if not local.kept and local.reason is None:
                tally.broken("LOC-1", f"{what}, for no reason")
            elif not local.kept and repeatable and not refused:
                tally.broken("LOC-1", f"{what}, which nothing had refused: {local.detail or local.reason}")
        tally.line = None

    @staticmethod
    def _judge_lists(context: TrialContext, tally: _Tally) -> None:
        """A copy that is kept is among those of which there are files, unless a fault hits copies on hosts (LOC-3).

        A process that was replaced may find its copies gone: its successor on that host has tidied up.
        """
        hits = [planned.fault.copies_hit for planned in context.planned_faults]
        if any(hit is not None and hit.place is not CopyPlace.DURABLE for hit in hits):
            return
        newest = 0
        for line in context.history.operations:
            match line.operation:
                case AttemptStarted(attempt=attempt):
                    newest = attempt
                case Acknowledged(
                    subtask=subtask,
                    checkpoint=checkpoint,
                    attempt=attempt,
                    local=LocalCopyReported() as local,
                    forged=False,
                ) if attempt == newest and local.kept and checkpoint not in local.held:
                    tally.line = line
                    tally.broken(
                        "LOC-3",
                        f"{subtask} says that its copy of checkpoint {checkpoint} is kept, and that it has files of "
                        f"{list(local.held)} only",
                    )
        tally.line = None

    @staticmethod
    def _judge_held(
        report: Acknowledged, local: LocalCopyReported, time_ms: float, late: _WrittenLate, tally: _Tally
    ) -> None:
        tally.counts["copies_kept"] += local.kept
        tally.counts["copies_failed"] += local.reason is not None
        confirmed = local.confirmed
        if confirmed is None:
            return
        left = [held for held in local.held if held < confirmed]
        if left and not late.was_after(confirmed, report, left):
            tally.broken(
                "LOC-3",
                f"{report.subtask} knew at {time_ms:.1f} ms that checkpoint {confirmed} is complete, and still had "
                f"local files of checkpoint {left[0]}",
            )

    def _judge_failed_writes(self, context: TrialContext, tally: _Tally) -> None:
        """A failed secondary copy fails no checkpoint; a failed primary copy does (LOC-2)."""
        history = context.history
        completed = [report.operation.checkpoint for report in history.of(CheckpointCompleted)]
        for acknowledged in history.of(Acknowledged):
            local = acknowledged.operation.local
            if (
                local is not None
                and local.reason is not None
                and acknowledged.operation.checkpoint in completed
            ):
                tally.seen("LOC-2", "completed_without_copy")
        for checkpoint, subtask in _failed_for_copies(context):
            tally.line = next(
                (line for line in history.of(CheckpointAborted) if line.operation.checkpoint == checkpoint),
                None,
            )
            tally.broken(
                "LOC-2", f"checkpoint {checkpoint} failed when {subtask} had no room for its local copy"
            )
        tally.line = None
        declined = any(report.operation.reason is Reason.DECLINED for report in history.of(CheckpointAborted))
        for time_ms, fault in fired(context):
            hit = fault.copies_hit
            if hit is None or hit.place is not CopyPlace.DURABLE or hit.damage is not None:
                continue
            tally.counts["checkpoints_failed_by_primaries"] += declined
            if any(
                life.failed is Reason.DECLINED
                and (life.ended_ms or 0.0) >= time_ms
                and hit.subtask not in life.acknowledged
                for attempt in lives_of(context)
                for life in attempt.checkpoints
            ):
                tally.seen("LOC-2")

    # --- placement ------------------------------------------------------------------------------------------

    def _judge_placement(self, history: History, attempt: int, tally: _Tally) -> None:
        """As many subtasks as possible go back to a copy (LOC-9)."""
        placement = _placement(history, attempt)
        if placement is None or not placement.operation.homes:
            return
        hosts, slots = placement.operation.hosts, placement.operation.slots
        homes = placement.operation.homes
        returned = sum(hosts[subtask] in where for subtask, where in homes.items())
        # If each subtask has one home, as many return to a host as it has slots. With copies on several hosts this is
        # a lower bound.
        wanted = Counter(where[0] for where in homes.values())
        possible = sum(min(count, slots.get(host, 0)) for host, count in wanted.items())
        tally.counts["placements"] += 1
        if possible and len(slots) > 1:
            tally.seen("LOC-9")
        if returned < possible:
            tally.line = placement
            tally.broken(
                "LOC-9",
                f"in attempt {attempt} {returned} subtasks went back to their copies, but {possible} could have: "
                f"{placement.operation}",
            )
            tally.line = None

    # --- restores -------------------------------------------------------------------------------------------

    def _judge_restores(self, context: TrialContext, attempt: int, checkpoint: int, tally: _Tally) -> None:
        view = next((v for v in context.history.checkpoints if v.checkpoint == checkpoint), None)
        if view is None or view.problem is not None:
            return  # the snapshot oracle reports it
        reports = [line for line in context.history.of(Restored) if line.operation.attempt == attempt]
        if context.job_number(attempt) != context.job_number(view.attempt):
            for restored in [line.operation for line in reports]:
                tally.seen("LOC-4", RESCALED)
                tally.line = next(line for line in reports if line.operation is restored)
                for problem in problems_of(context, view, restored):
                    label = f"attempt {attempt} of {restored.subtask}, rescaled from checkpoint {checkpoint},"
                    tally.broken("LOC-4", f"{label} {problem}")
            tally.line = None
            return
        for subtask, files in view.files.items():
            mine = [report for report in reports if report.operation.subtask == subtask]
            tally.line = next(iter(mine), None)
            if len(mine) != 1:
                tally.broken(
                    "LOC-4", f"attempt {attempt} of {subtask} reported {len(mine)} times what it restored"
                )
                continue
            self._judge_restore(context, mine[0], files, tally)
        tally.line = None

    def _judge_restore(
        self, context: TrialContext, report: Recorded[Restored], files: tuple[NamedFile, ...], tally: _Tally
    ) -> None:
        restored = report.operation
        label = _restore_label(restored)
        tally.counts["restores"] += 1
        read = [file.path for file in restored.files]
        named = [file.path for file in files]
        if sorted(read) != sorted(named):
            tally.broken("LOC-4", f"{label} read {read}, but the checkpoint has {named}")
        self._judge_observed_reads(context, restored, files, tally)
        self._judge_files(context, restored, tally)
        self._judge_copies(self._expected(context, report), restored, tally)

    def _judge_observed_reads(
        self, context: TrialContext, restored: Restored, files: tuple[NamedFile, ...], tally: _Tally
    ) -> None:
        """Compare what a subtask reports with the reads that were observed at its file systems, if they were."""
        reads = reads_of(context.history, restored)
        if reads is not None:
            tally.seen("LOC-4", "observed")
            other = in_another_format(reads, files)
            if other:
                tally.seen("LOC-7")
                tally.counts[OTHER_FORMAT] += other
            clause = "LOC-4" if context.plan.checkpoints.local_compression is None else "LOC-7"
            for contradiction in contradictions(restored, reads, files):
                tally.broken(clause, f"{_restore_label(restored)} {contradiction}")
        elif any(context.history.of(ReadsObserved)):
            tally.unseen.append(f"the reads of {_restore_label(restored)} were not observed")

    def _judge_files(self, context: TrialContext, restored: Restored, tally: _Tally) -> None:
        """Judge each file by itself: its key groups, and from which checkpoint a copy came."""
        own = key_groups_of(restored.subtask, context.job_of(restored.attempt))
        for file in restored.files:
            start, end = file.key_groups
            if own is not None and start < end and not own.start <= start <= end <= own.stop:
                outside = f"outside of its own {own.start, own.stop}"
                tally.broken(
                    "LOC-4", f"{_restore_label(restored)} read key groups {start} to {end}, {outside}"
                )
            if file.copy_of is not None and file.copy_of != restored.checkpoint:
                tally.broken(
                    "LOC-4", f"{_restore_label(restored)} used a local copy of checkpoint {file.copy_of}"
                )
            tally.counts[file.served_by.value] += 1
            if file.served_by is ServedFrom.SECONDARY and context.plan.checkpoints.local_copies == "memory":
                tally.seen("LOC-7", FROM_MEMORY)

    def _judge_copies(self, expected: _Expected, restored: Restored, tally: _Tally) -> None:
        """Compare the copy that served with the one that had to."""
        label = _restore_label(restored)
        local = [file for file in restored.files if file.served_by is ServedFrom.SECONDARY]
        others = [file for file in restored.files if file.served_by is not ServedFrom.SECONDARY]
        if expected.due is _Due.SECONDARY and others:
            tally.broken("LOC-4", f"{label} did not use its intact local copy: {_refusal(others[0])}")
        elif expected.due is _Due.PRIMARY and local:
            tally.broken("LOC-4", f"{label} used a local copy, although {expected.why}")
        elif expected.due is _Due.BOTH:
            if len(others) != 1:
                tally.broken(
                    "LOC-6",
                    f"{label} took {len(local)} of {len(restored.files)} files from a copy that lacked one",
                )
            tally.seen("LOC-6", "partial_restores")
        if expected.due is _Due.PRIMARY:
            tally.counts["fallbacks"] += 1
        if expected.due is _Due.SECONDARY or expected.host_lost:
            tally.seen("LOC-4")
        if expected.met:
            # It could have taken the damaged copy, or have given up although the other one was intact.
            tally.seen("LOC-4", f"{MET}{expected.met}")
            tally.seen("LOC-5")
        if expected.host_lost:
            tally.seen("LOC-8")

    def _count_refusals(self, context: TrialContext, tally: _Tally) -> None:
        """Count the damaged copies that a subtask met whose attempt failed because its primary was damaged as well.

        Such a subtask reports no restore. It met its copy if it was where the copy was.
        """
        history, hits = context.history, [fault.copies_hit for _, fault in fired(context)]
        local, durable = (
            {hit.subtask for hit in hits if hit is not None and hit.place is place and hit.damage is not None}
            for place in (CopyPlace.LOCAL, CopyPlace.DURABLE)
        )
        began = restored_checkpoints(history)
        for ended in history.of(AttemptEnded):
            attempt, checkpoint = ended.operation.attempt, began.get(ended.operation.attempt)
            if ended.operation.reason is not Reason.CHECKPOINT_UNREADABLE or checkpoint is None:
                continue
            for subtask in sorted(local & durable):
                refused = Restored(subtask, attempt, checkpoint, ())
                met = self._expected(context, Recorded(ended.index, ended.time_ms, subtask, refused)).met
                if met:
                    tally.seen("LOC-4", f"{MET}{met}")

    def _expected(self, context: TrialContext, report: Recorded[Restored]) -> _Expected:
        """Return which copy had to serve a subtask."""
        history, restored = context.history, report.operation
        acknowledged = next(
            (
                line
                for line in history.of(Acknowledged)
                if (line.operation.subtask, line.operation.checkpoint)
                == (restored.subtask, restored.checkpoint)
            ),
            None,
        )
        placement = _placement(history, restored.attempt)
        local = acknowledged.operation.local if acknowledged is not None else None
        if acknowledged is None or placement is None or local is None:
            return _Expected(_Due.EITHER)
        if not local.kept:
            met = FULL_DISK if local.reason is not None and was_full(context, restored.subtask) else ""
            return _Expected(_Due.PRIMARY, f"no copy was kept: {local.detail or local.reason}", met=met)
        returned = placement.operation.hosts.get(restored.subtask) == local.host
        hit = [
            # Before the acknowledgement arrived, the copy may or may not have existed; and after the subtask was
            # deployed, it may or may not have been read already.
            replace(
                hit,
                certain=hit.certain
                and acknowledged.time_ms <= hit.time_ms
                and hit.was_before_placement(restored.attempt, placement.time_ms),
            )
            for hit in hits_of(context)
            if hit.time_ms <= report.time_ms
            and (hit.everywhere or hit.subtask == restored.subtask or hit.host == local.host)
            if hit.time_ms >= _triggered_ms(history, restored.checkpoint)
        ]
        whole = [h for h in hit if h.certain and h.damage is not Damage.PARTIAL]
        if whole:
            lost = whole[0].host is not None
            why = "its host was lost" if lost else f"the copy was {whole[0].damage.value}"
            homeless = restored.subtask not in placement.operation.homes
            met = whole[0].damage.value if (returned or homeless) and not lost else ""
            return _Expected(_Due.PRIMARY, why, lost, met)
        if not returned:
            # The memory of each executor has a name of its own, so a new executor on the host is another place.
            in_memory = context.plan.checkpoints.local_copies == "memory"
            met = MEMORY_LOST if in_memory and local.host not in placement.operation.slots else ""
            return _Expected(_Due.PRIMARY, f"its copy was on {local.host}", met=met)
        newest = _newest_completed(history, restored.attempt)
        # A job that stops removes its copies; a subtask that is cut off from it at that moment does not.
        stopped = any(acknowledged.index < line.index < placement.index for line in history.of(JobStopped))
        if newest != restored.checkpoint or stopped or any(not h.certain for h in hit):
            return _Expected(_Due.EITHER)
        if hit:
            return _Expected(_Due.BOTH, "the copy was partial", met=Damage.PARTIAL.value)
        return _Expected(_Due.SECONDARY)

    def _unmet(self, context: TrialContext, tally: _Tally) -> list[str]:
        """Return the faults that hit copies and whose outcome no restore has shown."""
        unmet: list[str] = []
        restores = list(context.history.of(Restored))
        in_memory = context.plan.checkpoints.local_copies == "memory"
        for time_ms, fault in fired(context):
            if in_memory and fault.needs is TargetKind.EXECUTOR:
                tally.counts[f"{DONE}{MEMORY_LOST}"] += 1
            match fault.copies_hit:
                case CopiesHit(CopyPlace.LOCAL, subtask, Damage() as damage, whole_host=False):
                    tally.counts[f"{DONE}{damage.value}"] += 1
                    if not any(
                        line.operation.subtask == subtask and line.time_ms >= time_ms for line in restores
                    ):
                        unmet.append(f"the {damage.value} local copy of {subtask}")
                case CopiesHit(CopyPlace.LOCAL, subtask, None):
                    tally.counts[f"{DONE}{FULL_DISK}"] += 1
                    refused = tally.counts["completed_without_copy"]
                    if not refused and not given_up_unacknowledged(context, subtask, time_ms):
                        unmet.append(f"the full local disk of {subtask}")
                case CopiesHit(CopyPlace.DURABLE, subtask, None):
                    refused = tally.counts["checkpoints_failed_by_primaries"]
                    shown = refused or stored_nothing_new(context, subtask, time_ms)
                    if not shown and not given_up_unacknowledged(context, subtask, time_ms):
                        unmet.append(f"the failing primary of {subtask}")
                case _:
                    continue
        # If the job itself reported what it could not restore, no restore could show more.
        return [] if declined_cleanly(context) else unmet


def _restore_label(restored: Restored) -> str:
    return f"attempt {restored.attempt} of {restored.subtask}, restoring checkpoint {restored.checkpoint},"


def _refusal(file: ServedFile) -> str:
    """Return, for people, why a local copy did not serve a file."""
    return file.detail or (file.reason.value if file.reason is not None else "it does not say why")


def _newest_completed(history: History, attempt: int) -> int | None:
    """Return the newest checkpoint that was complete when an attempt started."""
    newest: int | None = None
    for line in history.operations:
        match line.operation:
            case AttemptStarted(attempt=started) if started == attempt:
                return newest
            case CheckpointCompleted(checkpoint=checkpoint):
                newest = checkpoint if newest is None else max(newest, checkpoint)
    return newest


def _triggered_ms(history: History, checkpoint: int) -> float:
    triggered = [
        line.time_ms for line in history.of(CheckpointTriggered) if line.operation.checkpoint == checkpoint
    ]
    return triggered[0] if triggered else 0.0


def _placement(history: History, attempt: int) -> Recorded[Placed] | None:
    return next((line for line in history.of(Placed) if line.operation.attempt == attempt), None)


def _failed_for_copies(context: TrialContext) -> Iterator[tuple[int, str]]:
    """Yield (checkpoint, subtask) of each checkpoint that was declined although only a local disk was full.

    Only in a world with virtual time is it known what else can have made a checkpoint fail.
    """
    if Capability.DETERMINISTIC_REPLAY.name not in context.capabilities:
        return
    full = [
        (time_ms, hit.subtask)
        for time_ms, fault in fired(context)
        if (hit := fault.copies_hit) is not None and hit.place is CopyPlace.LOCAL and hit.damage is None
    ]
    causes = obstacles(context) if full else []
    for attempt in lives_of(context) if full else ():
        for life in attempt.checkpoints:
            if life.failed is Reason.DECLINED and not any(cause.explains(life) for cause in causes):
                for time_ms, subtask in full:
                    if time_ms <= (life.ended_ms or 0.0) and subtask not in life.acknowledged:
                        yield life.number, subtask
