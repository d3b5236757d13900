"""Stored checkpoints: retained checkpoints are in storage, byte for byte, and contain all that a restore needs (STA-3).

What the system reports about its checkpoints was read with its own code. Here the judge looks at what its own reader
found in the bytes: the position of every split, in the part of a source subtask; for every subtask that keeps state,
its files; for each file the size and the checksum that the metadata names; when the checkpoint was triggered and had
all acknowledgements; and how much each channel holds. The key groups of a heap's file must be compressed as configured,
each by itself (SNP-6). No part holds an entry of a key group that another subtask owns (RSC-1): a part that is restored
for all key groups shows what else is in its files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import lives_of
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.evidence.storage_damage import damaged_files
from barrier_tck.harness.oracle.evidence.stored_heap import PLAIN
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import CheckpointTriggered
from barrier_tck.harness.record.stored import StoredCheckpoint, StoredFile, StoredPart
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.job_view import JobView, Role
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload import split_name


class StoredCheckpoints(StandardChecker):
    """Every retained checkpoint is complete in storage, as read by the judge itself."""

    name = "stored-checkpoints"
    requires = (
        "The bytes in storage contain everything that a restore needs, and files of the heap are "
        "compressed as the plan says, each key group by itself. The checker's reader shares no code with "
        "the writer. No part of a checkpoint holds an entry of a key group that its subtask does not own."
    )
    judges = "systems whose checkpoints can be opened"
    covers = {"STA-3": COMPLETED, "SNP-6": ALWAYS, "RSC-1": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    rank = 230

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        self._input = trial_input

    def check(self, context: TrialContext) -> Finding:
        """Judge what one trial left in durable storage."""
        foreign = list(_foreign(context.history.checkpoints))
        if foreign:
            summary = (
                f"{len(foreign)} entries are in the part of a subtask that does not own them: {foreign[0]}"
            )
            counts = {"wrong": len(foreign)}
            return Finding(self.name, ("RSC-1",), Verdict.INVALID, summary, counts, chosen(foreign))
        storage = context.history.storage
        if storage is None or storage.stored is None:
            summary = "the bytes of the retained checkpoints were not read"
            return Finding(self.name, (), Verdict.VALID, summary)
        damaged = damaged_files(context)
        found = tuple(stored.checkpoint for stored in storage.stored)
        problems: list[str] = []
        if found != tuple(sorted(storage.retained)):
            problems.append(
                f"{list(storage.retained)} are reported as retained, but storage holds {list(found)}"
            )
        files = [file for stored in storage.stored for part in stored.parts for file in part.files]
        for stored in storage.stored:
            view = next((v for v in context.history.checkpoints if v.checkpoint == stored.checkpoint), None)
            problems += [
                f"checkpoint {stored.checkpoint}: {problem}"
                for problem in self._problems(stored, view, context, damaged)
            ]
        otherwise = [
            problem
            for file in files
            if file.path not in damaged
            for problem in _packing(file, context.plan.checkpoints.compression)
        ]
        broken = (*(("STA-3",) if problems else ()), *(("SNP-6",) if otherwise else ()))
        problems += otherwise
        counts = {"checkpoints": len(found), "files": len(files), "wrong": len(problems)}
        if problems:
            summary = f"{len(problems)} problems in storage; the first: {problems[0]}"
            return Finding(self.name, broken, Verdict.INVALID, summary, counts, chosen(problems))
        packed = any(file.codec not in ("", PLAIN) for file in files if file.path not in damaged)
        covered = (
            *(("STA-3",) if found else ()),
            *(("SNP-6",) if packed else ()),
            *(("RSC-1",) if any(map(_is_split, context.history.checkpoints)) else ()),
        )
        summary = f"{len(found)} retained checkpoints with {len(files)} files are complete in storage"
        return Finding(self.name, covered, Verdict.VALID, summary, counts)

    def _problems(
        self,
        stored: StoredCheckpoint,
        view: SnapshotView | None,
        context: TrialContext,
        damaged: tuple[str, ...],
    ) -> Iterator[str]:
        if stored.problem is not None:
            yield f"its metadata is {stored.problem.value}: {stored.detail}"
            return
        attempt = next(
            (
                line.operation.attempt
                for line in context.history.of(CheckpointTriggered)
                if line.operation.checkpoint == stored.checkpoint
            ),
            None,
        )
        job, subtasks = context.job_of(attempt), context.subtasks_of(attempt)
        yield from _parts(stored, job, subtasks)
        yield from _times(stored, context)
        yield from self._positions(stored, view, job)
        for part in stored.parts:
            if job is not None and part.subtask in job.in_role(Role.STATEFUL):
                yield from _pointers(part, view)
            yield from part.miscounted
            for file in part.files:
                if file.path not in damaged:
                    yield from _contents(file)

    def _positions(
        self, stored: StoredCheckpoint, view: SnapshotView | None, job: JobView | None
    ) -> Iterator[str]:
        """Yield the splits that have no position, several positions, or one in a part that is not a source's."""
        sources = job.in_role(Role.SOURCE) if job is not None else None
        shown = {split_name(split): position for split, position in view.positions.items()} if view else {}
        holders: dict[str, str] = {}
        for part in stored.parts:
            for split, position in part.positions:
                name = split_name(split)
                if sources is not None and part.subtask not in sources:
                    yield f"the position of split {name} is in the part of {part.subtask}, which reads nothing"
                if name in holders:
                    yield f"split {name} has a position in the parts of {holders[name]} and {part.subtask}"
                holders[name] = part.subtask
                if shown.get(name, position) != position:
                    yield f"split {name} is at {position} in storage, but the system showed {shown[name]}"
        yield from (
            f"no source subtask has a position of split {name}"
            for name in self._input.extents
            if name not in holders
        )


def _times(stored: StoredCheckpoint, context: TrialContext) -> Iterator[str]:
    """Yield which times of a checkpoint are not those at which it was triggered and had all acknowledgements.

    Only virtual time is the same for the coordinator and for the history; there the metadata has whole milliseconds.
    """
    triggered_ms, completed_ms = stored.triggered_at_ms, stored.completed_at_ms
    if triggered_ms is None or completed_ms is None:
        return
    if completed_ms < triggered_ms:
        yield f"it says that it was complete at {completed_ms:g} ms, and was triggered at {triggered_ms:g}"
    life = next(
        (
            life
            for attempt in lives_of(context)
            for life in attempt.checkpoints
            if life.number == stored.checkpoint
        ),
        None,
    )
    if life is None or Capability.DETERMINISTIC_REPLAY.name not in context.capabilities:
        return
    first_ms, last_ms = life.triggered_ms - life.reserving_ms, max(life.acknowledged.values(), default=None)
    if not first_ms - 1 < triggered_ms <= life.triggered_ms:
        yield f"it says that it was triggered at {triggered_ms:g} ms, and that was at {life.triggered_ms:g}"
    if last_ms is not None and not last_ms - 1 < completed_ms <= last_ms:
        yield f"it says that it was complete at {completed_ms:g} ms, and the last acknowledgement came at {last_ms:g}"


def _foreign(views: Sequence[SnapshotView]) -> Iterator[str]:
    """Yield the keys that are in the part of a subtask that does not own their key group."""
    for view in views:
        for part in view.state:
            for key, group in part.foreign.items():
                yield (
                    f"checkpoint {view.checkpoint}: key {key} of {part.operator} is in the part of {part.subtask}, "
                    f"which does not own its key group {group} (RSC-1)"
                )


def _is_split(view: SnapshotView) -> bool:
    """Return whether several subtasks share the key groups of an operator, as far as the system reports groups."""
    held = {(part.operator, part.subtask) for part in view.state if part.groups}
    return len(held) > len({operator for operator, _ in held})


def _parts(stored: StoredCheckpoint, job: JobView | None, subtasks: Sequence[str]) -> Iterator[str]:
    """Yield the subtasks that have no part or several parts, and the parts that belong to no subtask."""
    numbers = Counter([part.subtask for part in stored.parts])
    for subtask in subtasks:
        if numbers[subtask] != 1:
            yield f"it has {numbers[subtask]} parts of {subtask}, not one"
    for subtask in numbers:
        if subtask not in subtasks:
            yield f"it has a part of {subtask}, which is not in the job"
    if job is None:
        return
    known = job.by_name
    present = Counter([known[subtask].vertex for subtask in numbers if subtask in known])
    for vertex, width in stored.widths.items():
        if present[vertex] != width:
            yield f"it says that {vertex} had {width} subtasks, but has parts of {present[vertex]}"


def _pointers(part: StoredPart, view: SnapshotView | None) -> Iterator[str]:
    """Yield the state of a subtask for which no file is named; an operator that holds nothing needs none."""
    if not part.operators:
        yield f"{part.subtask} keeps state, but none of its operators is named"
    named = {operator.operator: operator.files for operator in part.operators}
    for state in view.state if view is not None else ():
        if state.subtask == part.subtask and state.entries and not named.get(state.operator):
            yield f"operator {state.operator} of {part.subtask} has state, but no file of it is named"


def _contents(file: StoredFile) -> Iterator[str]:
    """Yield how a file differs from what the metadata says."""
    if file.found_size is None:
        yield f"{file.path} cannot be read"
    elif file.found_size != file.size:
        yield f"{file.path} has {file.found_size} bytes, but the metadata says {file.size}"
    elif file.found_checksum != file.checksum:
        yield f"{file.path} has the checksum {file.found_checksum}, but the metadata says {file.checksum}"


def _packing(file: StoredFile, wanted: str) -> Iterator[str]:
    """Yield how a state file is compressed otherwise than it should be, as far as the reader knows its format."""
    if file.misread:
        yield f"{file.path}: {file.misread}"
    elif file.codec and file.codec != wanted:
        yield f"the key groups in {file.path} have the compression {file.codec}, and the plan says {wanted} (SNP-6)"
