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

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import lives_of
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.evidence.storage_damage import damaged_files
from barrier_tck.harness.oracle.evidence.stored_heap import PLAIN
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import CheckpointTriggered
from barrier_tck.harness.record.stored import StoredCheckpoint, StoredFile, StoredPart
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.job_view import JobView, Role
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload import split_name

_NOT_RETAINED = Sign("other checkpoints are in storage than are reported as retained", "STA-3")
_METADATA = Sign("the metadata of a retained checkpoint is not as documented", "STA-3")
_PARTS = Sign("a retained checkpoint does not have one part of each subtask", "STA-3")
_TIMES = Sign("a retained checkpoint says that it was triggered or complete at another time", "STA-3")
_POSITIONS = Sign("a retained checkpoint does not have one position of each split, or another one", "STA-3")
_NO_FILE = Sign("a retained checkpoint names no file for the state of an operator", "STA-3")
_CHANNELS = Sign("a channel of a retained checkpoint holds something else than its metadata says", "STA-3")
_FILE_GONE = Sign("a file of a retained checkpoint is missing or corrupt", "STA-3")
_MISREAD = Sign("the key groups of a retained file cannot be read one by one", "SNP-6")
_PACKED_OTHERWISE = Sign("key groups are compressed in another way than configured", "SNP-6")
_FOREIGN = Sign("the part of a subtask holds an entry of a key group that another one owns", "RSC-1")

_Found = tuple[Sign, str, str]
"""Of which kind it is, at which subtask it was seen, if at one, and what is wrong, in words."""


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
    signs = (
        _NOT_RETAINED,
        _METADATA,
        _PARTS,
        _TIMES,
        _POSITIONS,
        _NO_FILE,
        _CHANNELS,
        _FILE_GONE,
        _MISREAD,
        _PACKED_OTHERWISE,
        _FOREIGN,
    )
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
        foreign = list(_foreign(context))
        if foreign:
            first = foreign[0].sentence
            summary = f"{len(foreign)} entries are in the part of a subtask that does not own them: {first}"
            return _only_broken(self.broken(context, summary, {"wrong": len(foreign)}, foreign))
        storage = context.history.storage
        if storage is None or storage.stored is None:
            summary = "the bytes of the retained checkpoints were not read"
            return Finding(self.name, (), Verdict.VALID, summary)
        damaged = damaged_files(context)
        found = tuple(stored.checkpoint for stored in storage.stored)
        problems: list[Breach] = []
        if found != tuple(sorted(storage.retained)):
            others = f"{list(storage.retained)} are reported as retained, but storage holds {list(found)}"
            problems.append(Breach(_NOT_RETAINED, others))
        files = [file for stored in storage.stored for part in stored.parts for file in part.files]
        for stored in storage.stored:
            attempt = _attempt_of(stored, context)
            problems += [
                Breach(
                    sign,
                    f"checkpoint {stored.checkpoint}: {problem}",
                    None,
                    place,
                    stored.checkpoint,
                    attempt,
                )
                for sign, place, problem in self._problems(stored, attempt, context, damaged)
            ]
        problems += [
            Breach(sign, problem, None, place, stored.checkpoint, _attempt_of(stored, context))
            for stored in storage.stored
            for sign, place, problem in _packing(stored, damaged, context.plan.checkpoints.compression)
        ]
        counts = {"checkpoints": len(found), "files": len(files), "wrong": len(problems)}
        if problems:
            summary = f"{len(problems)} problems in storage; the first: {problems[0].sentence}"
            return _only_broken(self.broken(context, summary, counts, problems))
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
        attempt: int | None,
        context: TrialContext,
        damaged: tuple[str, ...],
    ) -> Iterator[_Found]:
        if stored.problem is not None:
            yield _METADATA, "", f"its metadata is {stored.problem.value}: {stored.detail}"
            return
        view = next((v for v in context.history.checkpoints if v.checkpoint == stored.checkpoint), None)
        job, subtasks = context.job_of(attempt), context.subtasks_of(attempt)
        yield from _parts(stored, job, subtasks)
        yield from ((_TIMES, "", problem) for problem in _times(stored, context))
        yield from self._positions(stored, view, job)
        for part in stored.parts:
            if job is not None and part.subtask in job.in_role(Role.STATEFUL):
                yield from ((_NO_FILE, part.subtask, problem) for problem in _pointers(part, view))
            yield from ((_CHANNELS, part.subtask, problem) for problem in part.miscounted)
            for file in part.files:
                if file.path not in damaged:
                    yield from ((_FILE_GONE, part.subtask, problem) for problem in _contents(file))

    def _positions(
        self, stored: StoredCheckpoint, view: SnapshotView | None, job: JobView | None
    ) -> Iterator[_Found]:
        """Yield the splits that have no position, several positions, or one in a part that is not a source's."""
        sources = job.in_role(Role.SOURCE) if job is not None else None
        shown = {split_name(split): position for split, position in view.positions.items()} if view else {}
        holders: dict[str, str] = {}
        for part in stored.parts:
            for split, position in part.positions:
                name = split_name(split)
                if sources is not None and part.subtask not in sources:
                    strange = (
                        f"the position of split {name} is in the part of {part.subtask}, which reads nothing"
                    )
                    yield _POSITIONS, part.subtask, strange
                if name in holders:
                    twice = f"split {name} has a position in the parts of {holders[name]} and {part.subtask}"
                    yield _POSITIONS, part.subtask, twice
                holders[name] = part.subtask
                if shown.get(name, position) != position:
                    other = f"split {name} is at {position} in storage, but the system showed {shown[name]}"
                    yield _POSITIONS, part.subtask, other
        yield from (
            (_POSITIONS, "", f"no source subtask has a position of split {name}")
            for name in self._input.extents
            if name not in holders
        )


def _only_broken(finding: Finding) -> Finding:
    """Return a finding for the clauses that its evidence breaks, and no other: each is judged by itself."""
    return msgspec.structs.replace(finding, clauses=tuple(entry.clause for entry in finding.evidence))


def _attempt_of(stored: StoredCheckpoint, context: TrialContext) -> int | None:
    """Return the attempt for which a checkpoint was triggered, if that is known."""
    triggers = (line.operation for line in context.history.of(CheckpointTriggered))
    return next((one.attempt for one in triggers if one.checkpoint == stored.checkpoint), None)


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


def _foreign(context: TrialContext) -> Iterator[Breach]:
    """Yield the keys that are in the part of a subtask that does not own their key group."""
    for view in context.history.checkpoints:
        at = completed_at(context, view.checkpoint)
        for part in view.state:
            for key, group in part.foreign.items():
                sentence = (
                    f"checkpoint {view.checkpoint}: key {key} of {part.operator} is in the part of {part.subtask}, "
                    f"which does not own its key group {group} (RSC-1)"
                )
                yield Breach(_FOREIGN, sentence, at, part.subtask, view.checkpoint, view.attempt)


def _is_split(view: SnapshotView) -> bool:
    """Return whether several subtasks share the key groups of an operator, as far as the system reports groups."""
    held = {(part.operator, part.subtask) for part in view.state if part.groups}
    return len(held) > len({operator for operator, _ in held})


def _parts(stored: StoredCheckpoint, job: JobView | None, subtasks: Sequence[str]) -> Iterator[_Found]:
    """Yield the subtasks that have no part or several parts, and the parts that belong to no subtask."""
    numbers = Counter([part.subtask for part in stored.parts])
    for subtask in subtasks:
        if numbers[subtask] != 1:
            yield _PARTS, subtask, f"it has {numbers[subtask]} parts of {subtask}, not one"
    for subtask in numbers:
        if subtask not in subtasks:
            yield _PARTS, subtask, f"it has a part of {subtask}, which is not in the job"
    if job is None:
        return
    known = job.by_name
    present = Counter([known[subtask].vertex for subtask in numbers if subtask in known])
    for vertex, width in stored.widths.items():
        if present[vertex] != width:
            others = f"it says that {vertex} had {width} subtasks, but has parts of {present[vertex]}"
            yield _PARTS, vertex, others


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


def _packing(stored: StoredCheckpoint, damaged: Sequence[str], wanted: str) -> Iterator[_Found]:
    """Yield the state files that are compressed otherwise than they should be, as far as the reader knows their format.

    ``damaged`` are the files that the trial damaged.
    """
    for subtask, file in ((part.subtask, file) for part in stored.parts for file in part.files):
        if file.path in damaged:
            continue
        if file.misread:
            yield _MISREAD, subtask, f"{file.path}: {file.misread}"
        elif file.codec and file.codec != wanted:
            otherwise = (
                f"the key groups in {file.path} have the compression {file.codec}, and the plan says {wanted} "
                "(SNP-6)"
            )
            yield _PACKED_OTHERWISE, subtask, otherwise
