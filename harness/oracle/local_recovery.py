"""Local recovery: which copy served what, judged against where copies were kept and what was done to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from barrier_tck.faults.fault import CopiesHit, CopyPlace, Fault
from barrier_tck.faults.targets import Damage
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.damage import damaged_primaries
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.oracle.progress import NO_CHECKPOINT, declined_cleanly
from barrier_tck.harness.oracle.recoveries import restored_checkpoints
from barrier_tck.harness.plan.job_graph import vertex_of
from barrier_tck.harness.record.history import Operation, Outcome
from barrier_tck.harness.record.verdict import Finding, Verdict

PRIMARY, SECONDARY = "primary", "secondary"


@dataclass(frozen=True, slots=True)
class _Hit:
    """A fault that fired and took copies away. Times in milliseconds."""

    time_ms: float
    subtask: str | None
    """Whose copies; None: those of everybody on ``host``."""
    host: str | None
    damage: Damage
    certain: bool = True
    """False: copies may or may not have survived."""


@dataclass
class _Books:
    """The judgement in the making."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    clauses: dict[str, None] = field(default_factory=dict)

    def broken(self, clause: str, sentence: str) -> None:
        """Note what contradicts a clause."""
        self.problems.append(f"{clause}: {sentence}")

    def seen(self, clause: str, count: str = "") -> None:
        """Note that the trial gave a clause a chance to be broken."""
        self.clauses[clause] = None
        if count:
            self.counts[count] += 1


class LocalRecovery:
    """Every state file is restored by exactly one copy, by the secondary where it was intact and near (LOC-1 to 9).

    A secondary must serve if the subtask came back to the host that kept it, the checkpoint is the newest, and
    nothing hit the copy; it must not serve what was hit or is elsewhere. A copy that may have survived may do either.
    """

    name = "local-recovery"
    clauses = ("LOC-1", "LOC-2", "LOC-3", "LOC-4", "LOC-5", "LOC-6", "LOC-8", "LOC-9")

    def check(self, context: TrialContext) -> Finding:
        """Judge one trial."""
        books = _Books()
        operations = context.history.operations
        self._judge_acknowledgements(operations, books)
        for attempt, checkpoint in restored_checkpoints(context.history).items():
            ran = any(_is(o, "attempt", Outcome.OK) and o.value["attempt"] == attempt for o in operations)
            if checkpoint is None or not ran:
                continue
            newest = _newest_completed(operations, attempt)
            if damaged_primaries(context) and newest is not None and checkpoint < newest:
                books.seen("REC-4", "older_restores")
            self._judge_placement(operations, attempt, books)
            self._judge_restores(context, attempt, checkpoint, books)
        self._judge_failed_writes(context, books)
        if NO_CHECKPOINT in context.history.end_reason and not damaged_primaries(context):
            books.broken("LOC-5", f"every primary was intact, yet {context.history.end_reason}")
        counts = dict(sorted(books.counts.items()))
        if books.problems:
            summary = f"{len(books.problems)} contradictions; the first: {books.problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(books.problems))
        unmet = self._unmet(context, books)
        if unmet:
            summary = f"{unmet[0]} was met by no restore: nothing is shown"
            return Finding(self.name, tuple(books.clauses), Verdict.UNKNOWN, summary, counts, chosen(unmet))
        served = f"{books.counts['secondary']} state files from local copies, {books.counts['primary']} from primaries"
        return Finding(self.name, tuple(books.clauses), Verdict.VALID, served, counts)

    # --- what is kept ---------------------------------------------------------------------------------------

    def _judge_acknowledgements(self, operations: tuple[Operation, ...], books: _Books) -> None:
        """Only the newest copy is kept (LOC-3)."""
        for operation in operations:
            local = operation.value.get("local") if _is(operation, "ack", Outcome.OK) else None
            if local is None:
                continue
            subtask, confirmed = operation.value["subtask"], local["confirmed"]
            if local["kept"]:
                books.seen("LOC-1", "copies_kept")
            if local["problem"]:
                books.seen("LOC-2", "copies_failed")
            if confirmed:
                books.seen("LOC-3")
            left = [held for held in local["held"] if held < confirmed]
            if left:
                books.broken(
                    "LOC-3",
                    f"{subtask} knew at {operation.time_ms:.1f} ms that checkpoint {confirmed} is complete, and still "
                    f"had local files of checkpoint {left[0]}",
                )

    def _judge_failed_writes(self, context: TrialContext, books: _Books) -> None:
        """A failed secondary fails no checkpoint, a failed primary does (LOC-2)."""
        completed = {c.checkpoint for c in context.checkpoints if c.status == "completed"}
        for operation in context.history.operations:
            if _is(operation, "ack", Outcome.OK) and (operation.value.get("local") or {}).get("problem"):
                books.counts["completed_without_copy"] += operation.value["checkpoint"] in completed
        for _, fault in _fired(context):
            hit = fault.copies_hit
            if hit is not None and hit.place is CopyPlace.DURABLE and hit.damage is None:
                declined = [
                    c for c in context.checkpoints if c.status == "aborted" and "declined" in c.reason
                ]
                if declined:
                    books.seen("LOC-2", "checkpoints_failed_by_primaries")

    # --- placement ------------------------------------------------------------------------------------------

    def _judge_placement(self, operations: tuple[Operation, ...], attempt: int, books: _Books) -> None:
        """As many subtasks as possible go back to a copy (LOC-9)."""
        placement = _placement(operations, attempt)
        if placement is None or not placement["homes"]:
            return
        hosts, slots, homes = placement["hosts"], placement["slots"], placement["homes"]
        returned = sum(hosts[subtask] in where for subtask, where in homes.items())
        # With one home each, as many return to a host as it has slots. Copies on several hosts: a lower bound.
        wanted = Counter(where[0] for where in homes.values())
        possible = sum(min(count, slots.get(host, 0)) for host, count in wanted.items())
        books.seen("LOC-9", "placements")
        if returned < possible:
            books.broken(
                "LOC-9",
                f"in attempt {attempt} {returned} subtasks went back to their copies, where {possible} could have: "
                f"{placement}",
            )

    # --- restores -------------------------------------------------------------------------------------------

    def _judge_restores(self, context: TrialContext, attempt: int, checkpoint: int, books: _Books) -> None:
        operations = context.history.operations
        view = next((v for v in context.history.checkpoints if v.checkpoint == checkpoint), None)
        if view is None or view.problem is not None:
            return  # the snapshot oracle speaks of it
        reports = [o for o in operations if _is(o, "restore", Outcome.OK) and o.value["attempt"] == attempt]
        for subtask, files in view.files.items():
            mine = [report for report in reports if report.process == subtask]
            if len(mine) != 1:
                books.broken(
                    "LOC-4", f"attempt {attempt} of {subtask} told {len(mine)} times what it restored"
                )
                continue
            self._judge_restore(context, mine[0], files, books)

    def _judge_restore(
        self, context: TrialContext, report: Operation, files: tuple[str, ...], books: _Books
    ) -> None:
        attempt, checkpoint = report.value["attempt"], report.value["checkpoint"]
        who = f"attempt {attempt} of {report.process}, restoring checkpoint {checkpoint},"
        entries: list[dict[str, Any]] = report.value["files"]
        books.seen("LOC-4", "restores")
        told = [entry["path"] for entry in entries]
        if sorted(told) != sorted(files):
            books.broken("LOC-4", f"{who} read {told}, where the checkpoint has {list(files)}")
        own = own_key_groups(context, report.process)
        for entry in entries:
            start, end = entry["key_groups"]
            if not own[0] <= start <= end <= own[1]:
                books.broken("LOC-4", f"{who} read key groups {start} to {end}, outside of its own {own}")
            if entry["served_by"] == SECONDARY and entry.get("copy_of", checkpoint) != checkpoint:
                books.broken("LOC-4", f"{who} used a local copy of checkpoint {entry['copy_of']}")
            books.counts[entry["served_by"]] += 1
        secondaries = sum(entry["served_by"] == SECONDARY for entry in entries)
        expected, why = self._expected(context, report)
        if expected == SECONDARY and secondaries < len(entries):
            reason = next(entry["reason"] for entry in entries if entry["served_by"] != SECONDARY)
            books.broken("LOC-4", f"{who} did not use its intact local copy: {reason}")
        elif expected == PRIMARY and secondaries:
            books.broken("LOC-4", f"{who} used a local copy, although {why}")
        elif expected == "both":
            if not 0 < secondaries < len(entries):
                books.broken("LOC-6", f"{who} took {secondaries} of {len(entries)} files from a partial copy")
            books.seen("LOC-6", "partial_restores")
        if expected == PRIMARY and why:
            books.counts["fallbacks"] += 1
        if "lost" in why:
            books.seen("LOC-8")

    def _expected(self, context: TrialContext, report: Operation) -> tuple[str, str]:
        """Return which copy had to serve a subtask (empty: either may), and why not the secondary."""
        operations = context.history.operations
        subtask, attempt, checkpoint = report.process, report.value["attempt"], report.value["checkpoint"]
        ack = next(
            (
                o
                for o in operations
                if _is(o, "ack", Outcome.OK)
                and (o.value["subtask"], o.value["checkpoint"]) == (subtask, checkpoint)
            ),
            None,
        )
        placement = _placement(operations, attempt)
        if ack is None or placement is None or "local" not in ack.value:
            return "", ""
        local = ack.value["local"]
        if not local["kept"]:
            return PRIMARY, f"no copy was kept: {local['problem']}"
        deployed_ms = _deployed_ms(operations, attempt)
        hit = [
            # Before the acknowledgement arrived the copy may have been there already, or not yet; and once the
            # subtask was deployed, it may have been read already, or not yet.
            replace(hit, certain=hit.certain and ack.time_ms <= hit.time_ms <= deployed_ms)
            for hit in _hits(context)
            if hit.time_ms <= report.time_ms and (hit.subtask == subtask or hit.host == local["host"])
            if hit.time_ms >= _triggered_ms(operations, checkpoint)
        ]
        whole = [h for h in hit if h.certain and h.damage is not Damage.PARTIAL]
        if whole:
            what = "its host was lost" if whole[0].host else f"the copy was {whole[0].damage.value}"
            return PRIMARY, what
        if placement["hosts"].get(subtask) != local["host"]:
            return PRIMARY, f"its copy was on {local['host']}"
        if _newest_completed(operations, attempt) != checkpoint or any(not h.certain for h in hit):
            return "", ""
        return ("both", "the copy was partial") if hit else (SECONDARY, "")

    def _unmet(self, context: TrialContext, books: _Books) -> list[str]:
        """Return the faults of copies whose outcome no restore has shown."""
        unmet: list[str] = []
        if declined_cleanly(context):
            return unmet  # the job said itself what it could not restore
        restores = [o for o in context.history.operations if _is(o, "restore", Outcome.OK)]
        for time_ms, fault in _fired(context):
            match fault.copies_hit:
                case CopiesHit(CopyPlace.LOCAL, subtask, Damage() as damage, whole_host=False):
                    if not any(o.process == subtask and o.time_ms >= time_ms for o in restores):
                        unmet.append(f"the {damage.value} local copy of {subtask}")
                case CopiesHit(CopyPlace.LOCAL, subtask, None):
                    if not books.counts["completed_without_copy"]:
                        unmet.append(f"the full local disk of {subtask}")
                case CopiesHit(CopyPlace.DURABLE, subtask, None):
                    if not books.counts["checkpoints_failed_by_primaries"]:
                        unmet.append(f"the failing primary of {subtask}")
                case _:
                    continue
        return unmet


def own_key_groups(context: TrialContext, subtask: str) -> tuple[int, int]:
    """Return the key groups that a keyed subtask of the plan owns, the second one exclusive (RSC-1)."""
    plan = context.plan
    index = int(subtask.rpartition("[")[2].rstrip("]"))
    width, groups = plan.job.vertex(vertex_of(subtask)).parallelism, plan.deployment.max_parallelism
    return -(-index * groups // width), -(-(index + 1) * groups // width)


def _is(operation: Operation, name: str, outcome: Outcome) -> bool:
    return operation.operation == name and operation.outcome is outcome


def _newest_completed(operations: tuple[Operation, ...], attempt: int) -> int | None:
    """Return the newest checkpoint that was complete when an attempt started."""
    newest = None
    for operation in operations:
        if _is(operation, "attempt", Outcome.INVOKE) and operation.value["attempt"] == attempt:
            return newest
        if _is(operation, "checkpoint", Outcome.OK):
            newest = max(newest or 0, operation.value["checkpoint"])
    return newest


def _triggered_ms(operations: tuple[Operation, ...], checkpoint: int) -> float:
    return next(
        (
            o.time_ms
            for o in operations
            if _is(o, "checkpoint", Outcome.INVOKE) and o.value["checkpoint"] == checkpoint
        ),
        0.0,
    )


def _deployed_ms(operations: tuple[Operation, ...], attempt: int) -> float:
    return next(
        (o.time_ms for o in operations if o.operation == "placement" and o.value["attempt"] == attempt), 0.0
    )


def _placement(operations: tuple[Operation, ...], attempt: int) -> dict[str, Any] | None:
    return next(
        (o.value for o in operations if o.operation == "placement" and o.value["attempt"] == attempt), None
    )


def _fired(context: TrialContext) -> Iterator[tuple[float, Fault]]:
    """Yield (time, fault) of every fault that fired."""
    for record in context.faults:
        if record.outcome == "fired" and record.fired_at_ms is not None:
            yield record.fired_at_ms, context.planned_faults[record.index].fault


def _hits(context: TrialContext) -> list[_Hit]:
    """Return what was done to copies, in the order of the plan."""
    hits = []
    for time_ms, fault in _fired(context):
        match fault.copies_hit:
            case CopiesHit(CopyPlace.LOCAL, subtask, Damage() as damage, whole_host=False, certain=certain):
                hits.append(_Hit(time_ms, subtask, None, damage, certain))
            case CopiesHit(CopyPlace.LOCAL, subtask, Damage() as damage, whole_host=True, certain=certain):
                hits.append(_Hit(time_ms, None, _host_at(context, subtask, time_ms), damage, certain))
    return hits


def _host_at(context: TrialContext, subtask: str, time_ms: float) -> str | None:
    placements = [
        o for o in context.history.operations if o.operation == "placement" and o.time_ms <= time_ms
    ]
    return placements[-1].value["hosts"].get(subtask) if placements else None
