"""Snapshots cost few files and few requests, however many keys and key groups a subtask has (SNP-8).

What a subtask asks of checkpoint storage was counted there. For each checkpoint, each of its stateful operators may
write as many files as its backend needs for one snapshot, not one for each key or key group. Each file is written with
two requests, one for its bytes and one for its name. Nothing has to be looked for: the barrier says what may be named
again. A restore reads each file once at most. Files of snapshots that came to nothing are deleted one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.recoveries import restored_checkpoints
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import CheckpointTriggered, StorageAsked
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

ONE_FILE = 1
"""Files of one operator's snapshot in a backend that is no database."""
SPLIT_MAX = 4
"""The same if copies are kept on hosts: a copy that lost one file still serves the others (LOC-6)."""
DATABASE_MAX = 12
"""The same for a backend that is a database: its own files, and tables that were not merged yet. It may also keep the
tables of which it was restored, if it took over those of several subtasks."""
LOOKED_FOR_MAX = 1
"""Listings, and questions whether a file exists, for one checkpoint or one restore."""

_FILES = Sign("a snapshot has more files than its operators need", "SNP-8")
_REQUESTS = Sign("a subtask asks more of checkpoint storage than its files need", "SNP-8")


class SnapshotCosts(StandardChecker):
    """Compares what subtasks asked of checkpoint storage with what their snapshots need."""

    name = "snapshot-costs"
    requires = (
        "For a checkpoint, a subtask writes as many files as its stateful operators need, with two requests each; it "
        "lists nothing for each key, and a restore reads no file twice."
    )
    judges = "systems whose checkpoints can be opened and whose requests for files were counted"
    covers = {"SNP-8": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION, Capability.REQUEST_LOG})
    signs = (_FILES, _REQUESTS)
    rank = 272

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge the last count of each subtask of each attempt, and those before it."""
        operators, restored = _stateful(context), _files_restored(context)
        triggered: dict[int, list[float]] = {}
        for trigger in context.history.of(CheckpointTriggered):
            triggered.setdefault(trigger.operation.attempt, []).append(trigger.time_ms)
        breaches: dict[tuple[str, int, str], Breach] = {}
        files, requests, subtasks = 0, 0, {}
        for line in context.history.of(StorageAsked):
            asked = line.operation
            vertex = asked.subtask.partition("[")[0]
            if vertex not in operators:
                continue
            begun = sum(at <= line.time_ms for at in triggered.get(asked.attempt, ()))
            subtasks[asked.subtask, asked.attempt] = asked
            for sign, sentence in _problems(
                context, asked, operators[vertex], max(1, begun), restored.get(asked.attempt, 0)
            ):
                place = (asked.subtask, asked.attempt, sign.seen)
                breaches.setdefault(place, _breach(line, sign, sentence))
        for asked in subtasks.values():
            files += asked.requests.get("write", 0)
            requests += sum(asked.requests.values())
        counts = {"subtasks": len(subtasks), "files": files, "requests": requests, "wrong": len(breaches)}
        if breaches:
            found = list(breaches.values())
            summary = f"{len(found)} subtasks ask more of storage than snapshots need; the first: {found[0].sentence}"
            return self.broken(context, summary, counts, found)
        summary = f"{files} files were written with {requests} requests"
        return Finding(self.name, self.clauses if files else (), Verdict.VALID, summary, counts)


def _breach(line: Recorded[StorageAsked], sign: Sign, sentence: str) -> Breach:
    asked = line.operation
    return Breach(sign, sentence, line.index, asked.subtask, asked.checkpoint, asked.attempt)


def _stateful(context: TrialContext) -> Mapping[str, int]:
    """Return vertex -> how many of its operators keep state by key; vertices of which none was seen are left out."""
    found: dict[str, dict[str, None]] = {}
    for view in context.history.checkpoints:
        for part in view.state:
            if part.keyed:
                found.setdefault(part.subtask.partition("[")[0], {})[part.operator] = None
    return {vertex: len(operators) for vertex, operators in found.items()}


def _files_restored(context: TrialContext) -> Mapping[int, int]:
    """Return attempt -> how many files the checkpoint has from which it started."""
    sizes = {
        view.checkpoint: sum(len(files) for files in view.files.values())
        for view in context.history.checkpoints
        if view.problem is None
    }
    restored = restored_checkpoints(context.history)
    return {attempt: sizes[each] for attempt, each in restored.items() if each is not None and each in sizes}


def _files_max(plan: TrialPlan, operators: int, restored: int) -> int:
    """Return how many files so many operators need for one snapshot, after a restore of so many files."""
    if plan.state_backend != TrialPlan().state_backend:
        return operators * DATABASE_MAX + restored
    return operators * (SPLIT_MAX if plan.local_recovery else ONE_FILE)


def _problems(
    context: TrialContext, asked: StorageAsked, operators: int, begun: int, restored: int
) -> Iterator[tuple[Sign, str]]:
    """Yield what was asked for too often by one subtask, for so many checkpoints."""
    plan, of = context.plan, asked.requests
    written = of.get("write", 0)
    holds_records = plan.records_channels or plan.checkpoints.overtakes
    each = _files_max(plan, operators, restored) + int(holds_records)
    needing = f"{operators} stateful operators{' and records in flight' if holds_records else ''}"
    until = (
        f"{asked.subtask} of attempt {asked.attempt}, until it acknowledged checkpoint {asked.checkpoint},"
    )
    if written > each * begun:
        yield (
            _FILES,
            f"{until} wrote {written} files for {begun} checkpoints; {needing} need {each} for each at most",
        )
    looked_for = of.get("list", 0) + of.get("exists", 0)
    # What is deleted of a savepoint is asked about first: once it is complete, it is the user's.
    if looked_for > LOOKED_FOR_MAX * (begun + 1) + (written if plan.savepoints else 0):
        yield _REQUESTS, f"{until} listed or looked for files {looked_for} times for {begun} checkpoints"
    if of.get("sync", 0) > written + begun:
        yield _REQUESTS, f"{until} asked {of['sync']} times to make names durable, of {written} files"
    if of.get("delete", 0) > written + begun:
        yield _REQUESTS, f"{until} asked {of['delete']} times for files to be deleted, and wrote {written}"
    if restored and of.get("read", 0) > restored:
        yield _REQUESTS, f"{until} read {of['read']} files, and restored a checkpoint of {restored}"
