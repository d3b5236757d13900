"""Snapshots cost few files and few requests, however many keys and key groups a subtask has (SNP-8).

The requests of each subtask to checkpoint storage are counted where it sends them. For each checkpoint, a stateful
operator may write as many files as its backend needs for one snapshot, and not one for each key or key group. A file
takes two requests: one writes its bytes, the other makes its name durable. The directory of a checkpoint's files has a
name, too, and so has that of its shared files. It is made durable with the first of them, as are those above it in a
new process. No listing is needed, because the barrier says which earlier files a snapshot may refer to. A restore reads
each file at most once. The files of a snapshot that failed are deleted with one request each.

For each checkpoint the coordinator makes an id durable, and later the metadata. To drop a checkpoint takes three
deletions, whatever the number of its files: of its metadata, its own files and its shared files. A part that is
acknowledged when its checkpoint was aborted takes one for each of its files, and one lookup: nobody deletes files of a
complete savepoint. It looks into storage when it starts, when a savepoint is taken, and, for increments, to see which
shared files are not needed any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

from barrier_tck.faults.targets import COORDINATOR, TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.recoveries import restored_checkpoints
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptStarted,
    CheckpointAborted,
    CheckpointTriggered,
    SavepointRequested,
    StorageAsked,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

ONE_FILE = 1
"""The most files of one operator's snapshot, for a backend that is not a database."""
SPLIT_MAX = 4
"""The same with local recovery: state is split over several files, so a copy that lost one still serves the others
(LOC-6)."""
DATABASE_MAX = 12
"""The same for a backend that is an embedded database: its own files, and tables that are not compacted yet. After a
restore it may keep all tables that it took over, too, which may be those of several subtasks."""
LOOKUPS_MAX = 1
"""The most listings and existence checks, together, for one checkpoint or one restore."""

DIRECTORIES_ABOVE = 4
"""How many directories there are above those of state files, with the root: a new process makes all of their names
durable, once."""

STARTING = 10
"""The most lookups, and the most reads beside those of retained metadata, of a coordinator that starts."""
OLDER_MAX = 64
"""The most checkpoints that a coordinator drops although it knows only that their ids were used before."""
DELETIONS = 3
"""The most requests that drop a checkpoint, besides one for each shared file that goes."""

_OF_STORAGE = (TargetKind.STORAGE, TargetKind.OBJECT_STORE, TargetKind.WRITES, TargetKind.DELETIONS)
"""Faults after which the coordinator deletes again what could not be deleted, and takes back what it could not put."""
_OF_DELETING = ("list", "exists", "delete")

_FILES = Sign("a snapshot has more files than its operators need", "SNP-8")
_REQUESTS = Sign("a subtask sends more requests to checkpoint storage than its files need", "SNP-8")
_COORDINATOR = Sign(
    "the coordinator sends more requests to checkpoint storage than its checkpoints need", "SNP-8"
)


class SnapshotCosts(StandardChecker):
    """Compares the requests of subtasks to checkpoint storage with what their snapshots need."""

    name = "snapshot-costs"
    requires = (
        "For a checkpoint, a subtask writes as many files as its stateful operators need, with two requests each. The "
        "number of its lookups does not depend on its keys, and a restore reads no file twice. The "
        "coordinator's requests are bounded by the number of checkpoints."
    )
    judges = "systems whose checkpoints can be opened and whose requests for files were counted"
    covers = {"SNP-8": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION, Capability.REQUEST_LOG})
    signs = (_FILES, _REQUESTS, _COORDINATOR)
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
        coordinator = _Coordinator(context)
        breaches: dict[tuple[str, int, str], Breach] = {}
        files, requests, subtasks = 0, 0, {}
        for line in context.history.of(StorageAsked):
            asked = line.operation
            vertex = asked.subtask.partition("[")[0]
            if asked.subtask == COORDINATOR:
                for sentence in coordinator.problems(line):
                    place = (asked.subtask, asked.attempt, _COORDINATOR.seen)
                    breaches.setdefault(place, _breach(line, _COORDINATOR, sentence))
            if vertex not in operators:
                continue
            begun = bisect_right(triggered.get(asked.attempt, ()), line.time_ms)
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
            summary = f"{len(found)} times storage was asked for more than was needed; the first: {found[0].sentence}"
            return self.broken(context, summary, counts, found)
        summary = f"{files} files were written with {requests} requests"
        return Finding(self.name, self.clauses if files else (), Verdict.VALID, summary, counts)


def _breach(line: Recorded[StorageAsked], sign: Sign, sentence: str) -> Breach:
    asked = line.operation
    return Breach(sign, sentence, line.index, asked.subtask, asked.checkpoint, asked.attempt)


def _stateful(context: TrialContext) -> Mapping[str, int]:
    """Return vertex -> how many of its operators have keyed state; a vertex without any is left out."""
    found: dict[str, dict[str, None]] = {}
    for view in context.history.checkpoints:
        for part in view.state:
            if part.keyed:
                found.setdefault(part.subtask.partition("[")[0], {})[part.operator] = None
    return {vertex: len(operators) for vertex, operators in found.items()}


def _files_restored(context: TrialContext) -> Mapping[int, int]:
    """Return attempt -> the number of files in the checkpoint from which it started."""
    sizes = {
        view.checkpoint: sum(len(files) for files in view.files.values())
        for view in context.history.checkpoints
        if view.problem is None
    }
    restored = restored_checkpoints(context.history)
    return {attempt: sizes[each] for attempt, each in restored.items() if each is not None and each in sizes}


def _files_max(plan: TrialPlan, operators: int, restored: int) -> int:
    """Return the most files that ``operators`` need for one snapshot, after a restore of ``restored`` files."""
    if plan.state_backend != TrialPlan().state_backend:
        return operators * DATABASE_MAX + restored
    return operators * (SPLIT_MAX if plan.local_recovery else ONE_FILE)


def _problems(
    context: TrialContext, asked: StorageAsked, operators: int, begun: int, restored: int
) -> Iterator[tuple[Sign, str]]:
    """Yield the kinds of requests that one subtask sent too often; ``begun`` is the number of its checkpoints."""
    plan, requests = context.plan, asked.requests
    written = requests.get("write", 0)
    holds_records = plan.records_channels or plan.checkpoints.overtakes
    each = _files_max(plan, operators, restored) + int(holds_records)
    operators_named = f"{operators} stateful operators{' and records in flight' if holds_records else ''}"
    who = f"{asked.subtask} of attempt {asked.attempt}, until it acknowledged checkpoint {asked.checkpoint},"
    if written > each * begun:
        yield (
            _FILES,
            f"{who} wrote {written} files for {begun} checkpoints; {operators_named} need {each} for each at most",
        )
    lookups = requests.get("list", 0) + requests.get("exists", 0)
    # Before a file of a savepoint is deleted, it is checked that the savepoint is not complete: then it is the user's.
    if lookups > LOOKUPS_MAX * (begun + 1) + (written if plan.savepoints else 0):
        yield _REQUESTS, f"{who} listed or looked up files {lookups} times for {begun} checkpoints"
    directories = begun * (2 if plan.checkpoints.incremental else 1) + DIRECTORIES_ABOVE
    if requests.get("sync", 0) > written + directories:
        yield _REQUESTS, f"{who} made names durable {requests['sync']} times, for {written} files"
    if requests.get("delete", 0) > written + begun:
        yield _REQUESTS, f"{who} deleted files {requests['delete']} times, and wrote {written}"
    if restored and requests.get("read", 0) > restored:
        yield _REQUESTS, f"{who} read {requests['read']} files, and restored a checkpoint of {restored}"


def _late_acknowledgements(context: TrialContext) -> list[float]:
    """Return when parts of checkpoints were acknowledged that had been aborted: no checkpoint uses their files."""
    aborted = {line.operation.checkpoint: line.index for line in context.history.of(CheckpointAborted)}
    return [
        line.time_ms
        for line in context.history.of(Acknowledged)
        if line.index > aborted.get(line.operation.checkpoint, line.index)
    ]


class _Coordinator:
    """What the coordinator of a trial may ask of checkpoint storage, until some moment."""

    def __init__(self, context: TrialContext) -> None:
        history, plan = context.history, context.plan
        self._plan = plan
        self._begun = [line.time_ms for line in history.of(CheckpointTriggered)]
        self._attempts = [line.time_ms for line in history.of(AttemptStarted)]
        self._savepoints = [line.time_ms for line in history.of(SavepointRequested)]
        self._files = sum(len(files) for view in history.checkpoints for files in view.files.values())
        needs = [each.fault.needs for each in plan.faults]
        continues = plan.checkpoints.first_id > 1 or TargetKind.COORDINATOR in needs or context.later_jobs
        self._older = OLDER_MAX if continues else 0
        self._deletes_again = any(kind in _OF_STORAGE for kind in needs)
        self._late = _late_acknowledgements(context)
        # Its operators' files, and that of the records in flight.
        most = max(_stateful(context).values(), default=0)
        self._files_each = _files_max(plan, most, self._files if most else 0) + 1

    def problems(self, line: Recorded[StorageAsked]) -> Iterator[str]:
        """Yield what one coordinator asked too often, until it completed a checkpoint."""
        asked, until_ms = line.operation.requests, line.time_ms
        begun, attempts, savepoints, late = (
            bisect_right(times_ms, until_ms)
            for times_ms in (self._begun, self._attempts, self._savepoints, self._late)
        )
        dropped = 2 * begun + self._older  # what an attempt aborted is dropped once more after it
        bounds = {
            "write": 2 * begun + attempts + 3 * savepoints + STARTING,
            "sync": begun + 3 * savepoints + STARTING,
            "list": 2 * savepoints + 2 * begun * self._plan.checkpoints.incremental + STARTING,
            "exists": 3 * begun + 4 * savepoints + late * (savepoints > 0) + self._older + STARTING,
            "read": attempts + savepoints + self._plan.checkpoints.retained + STARTING,
            "delete": DELETIONS * (dropped + savepoints) + self._files + late * self._files_each + STARTING,
        }
        for kind, most in bounds.items():
            if asked.get(kind, 0) > most and not (self._deletes_again and kind in _OF_DELETING):
                yield (
                    f"the coordinator, until it completed checkpoint {line.operation.checkpoint}, sent {asked[kind]} "
                    f"requests of the kind {kind}; {begun} checkpoints need {most} at most"
                )
