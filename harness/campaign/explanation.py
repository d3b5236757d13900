"""Explains a trial by one record: where it was at each cut, and what happened before it was first where it must not be.

This is for workloads whose records carry an id: those with a sequential model, and those of drawn graphs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import History, Recorded, Row, SnapshotView
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptStarted,
    CheckpointCompleted,
    FaultFired,
    FaultHealed,
    JobFailed,
    JobFinished,
    JobStopped,
    Operation,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.first_line import first_line
from barrier_tck.harness.workloads.operator_kind import TIMERS
from barrier_tck.harness.workloads.record_forms import LINEAGE, form_of
from barrier_tck.harness.workloads.workload import Workload, read_splits
from barrier_tck.harness.workloads.workload_names import filled, workload_named

_BY_WAY = re.compile(r"\brecord (\d+) by way of (\S+)")
_BY_ID = re.compile(r"\bid (\d+) (?:\(|is not)")
_AT_A_CUT = re.compile(r"checkpoint (\d+): (?:key (\[.*?\]) )?")
_SUBTASK = re.compile(r"\[\d+\]")
"""How findings name a record, its way through the graph, and the checkpoint at which it is not where it belongs."""


class Followed(msgspec.Struct, frozen=True):
    """What is followed through a trial."""

    record: int
    """Its id."""
    way: str = ""
    """The operators that it passes, for a graph in which there are several; empty if all are followed."""

    def is_row(self, column: str, row: Row) -> bool:
        """Whether a row is the record, at its end or on its way."""
        way = _way_of(row)
        return row.get(column) == self.record and (
            not self.way or f"{self.way}>".startswith(f"{way}>") or not way
        )

    def is_at_its_end(self, column: str, row: Row) -> bool:
        """Whether a row of the output is the record, by the way that is followed."""
        return row.get(column) == self.record and (not self.way or _way_of(row) == self.way)


class Place(msgspec.Struct, frozen=True):
    """Where a record begins: in the input."""

    split: str
    offset: int
    """Its number in the split; a cut with a position above it has the record before it."""
    key: str = ""
    """The key under which it is counted, as checkpoints write it; empty if state has the record itself."""


class Step(msgspec.Struct, frozen=True):
    """Something that happened in the trial, and where the record was, if it is a checkpoint."""

    at_ms: float
    what: str
    checkpoint: int | None = None
    before_the_cut: bool = False
    """Whether the source had read the record before the checkpoint's barrier."""
    places: tuple[str, ...] = ()
    """Where the checkpoint has the record: in states, on channels, at sinks, with the number of times, if several; or
    what it holds under the record's key, if state has only totals."""


class Explanation(msgspec.Struct, frozen=True):
    """The life of one record in a trial."""

    followed: Followed
    place: Place | None
    """None if it is not in the input."""
    in_output: int
    """How often it is in the committed output, by one way."""
    steps: tuple[Step, ...]
    right: Step | None = None
    """The last checkpoint at which nothing was wrong with the record; None if there is none."""
    wrong: Step | None = None
    """The first checkpoint at which it was not where it belongs, or more often; None if only the output shows it."""

    @property
    def sentence(self) -> str:
        """What became of the record."""
        name = f"record {self.followed.record}" + (
            f" by way of {self.followed.way}" if self.followed.way else ""
        )
        if self.place is None:
            return f"{name} is not in the input, and {_times(self.in_output)} in the output"
        where = f"{name} ({self.place.split} at offset {self.place.offset})"
        if not self.in_output:
            return f"{where} is in the input, and not in the output"
        return f"{where} is {_times(self.in_output)} in the output"

    @property
    def between(self) -> tuple[Step, ...]:
        """What happened after the last right checkpoint and before the first wrong one, or the end."""
        begin = self.steps.index(self.right) + 1 if self.right is not None else 0
        end = self.steps.index(self.wrong) if self.wrong is not None else len(self.steps)
        return self.steps[begin:end]


def explained(record: TrialRecord, history: History, identifier: int | None = None) -> Explanation:
    """Explain a trial by the record with an id; None: by the first one that its findings name.

    Raises UsageProblem if the workload's records have no ids, or no finding names one.
    """
    if history.output is None:
        raise UsageProblem(
            "this trial has no output that was read row by row, so no record can be followed; look at its findings"
        )
    plan = filled(record.plan)
    workload = workload_named(plan.workload.name)
    column = _id_column(workload)
    texts = tuple(_texts(record))
    followed = _first_named(texts) if identifier is None else Followed(identifier)
    place = _place_of(workload, plan, column, followed.record)
    labels = {fault.index: fault.label for fault in record.faults}
    views = {view.checkpoint: view for view in history.checkpoints}
    steps = tuple(
        step for line in history.operations for step in _steps(line, labels, views, place, column, followed)
    )
    in_output = _most_often(column, followed, history.output or ())
    cuts = [step for step in steps if step.checkpoint is not None]
    wrong = _first_wrong(
        [cut for cut in cuts if cut.before_the_cut],
        in_output,
        _cuts_named(texts, followed, None if in_output == 1 else place),
    )
    before = cuts[: cuts.index(wrong)] if wrong is not None else cuts
    return Explanation(followed, place, in_output, steps, before[-1] if before else None, wrong)


def _id_column(workload: Workload) -> str:
    if workload.spec is not None:
        return workload.spec.id_column
    if form_of(workload) is LINEAGE:
        return "id"
    raise UsageProblem(
        f"the records of the workload {workload.name!r} have no ids, so that none can be followed; look at its findings"
    )


def _texts(record: TrialRecord) -> Iterator[str]:
    """Yield what findings say of single records, the most telling first."""
    for finding in record.findings:
        if finding.verdict is Verdict.INVALID:
            yield from (evidence.sentence for evidence in finding.evidence)
            yield from finding.examples


def _first_named(texts: Sequence[str]) -> Followed:
    for text in texts:
        if (by_way := _BY_WAY.search(text)) is not None:
            return Followed(int(by_way[1]), by_way[2])
        if (by_id := _BY_ID.search(text)) is not None:
            return Followed(int(by_id[1]))
    raise UsageProblem("no finding of this trial names a record; choose one with --record ID")


def _cuts_named(texts: Sequence[str], followed: Followed, place: Place | None) -> frozenset[int]:
    """Return the checkpoints at which findings say that the record, or the total of its key, is not as it should be.

    Without a place, totals do not count: that of a record that came out once is wrong because of other records.
    """
    found = set()
    for text in texts:
        cut, named = _AT_A_CUT.match(text), _BY_WAY.search(text)
        if cut is None:
            continue
        of_record = named is not None and Followed(int(named[1]), named[2]) == followed
        if of_record or (place is not None and place.key and cut[2] == place.key):
            found.add(int(cut[1]))
    return frozenset(found)


def _place_of(workload: Workload, plan: TrialPlan, column: str, number: int) -> Place | None:
    for split in read_splits(workload, plan):
        for offset, row in enumerate(split.input, split.start_offset):
            if row[column] == number:
                spec = workload.spec
                key = "" if spec is None else json.dumps([row[name] for name in spec.key_columns])
                return Place(split.name, offset, key)
    return None


def _steps(
    line: Recorded[Operation],
    labels: dict[int, str],
    views: dict[int, SnapshotView],
    place: Place | None,
    column: str,
    followed: Followed,
) -> Iterator[Step]:
    operation = line.operation
    if isinstance(operation, CheckpointCompleted):
        view = views.get(operation.checkpoint)
        before = view is not None and place is not None and view.positions.get(place.split, 0) > place.offset
        places: tuple[str, ...] = ()
        if view is not None and place is not None:
            places = tuple(_totals(view, place.key) if place.key else _places(view, column, followed))
        what = f"checkpoint {operation.checkpoint} completes"
        yield Step(line.time_ms, what, operation.checkpoint, before, places)
    elif (happened := what_happened(operation, labels)) is not None:
        yield Step(line.time_ms, happened)


def what_happened(operation: Operation, labels: dict[int, str]) -> str | None:
    """Return what happened in words; None if it says nothing about a record."""
    if isinstance(operation, AttemptStarted):
        restored = operation.restored_checkpoint
        where = "at the beginning of the input" if restored is None else f"from checkpoint {restored}"
        return f"attempt {operation.attempt} starts {where}"
    if isinstance(operation, AttemptEnded):
        return f"attempt {operation.attempt} ends: {first_line(operation.detail) or _plain(operation.reason)}"
    if isinstance(operation, FaultFired):
        label = labels.get(operation.fault, f"fault {operation.fault}")
        return f"fault: {label}" + (f" ({operation.target})" if operation.target else "")
    if isinstance(operation, FaultHealed):
        return f"healed: {labels.get(operation.fault, f'fault {operation.fault}')}"
    if isinstance(operation, JobFinished):
        return "the job finishes"
    if isinstance(operation, JobStopped):
        return "the job is stopped with a savepoint"
    if isinstance(operation, JobFailed):
        return f"the job gives up: {first_line(operation.detail) or _plain(operation.reason)}"
    return None


def _plain(reason: Reason) -> str:
    """Return a reason as a phrase: ``process lost`` for ``process_lost``."""
    return reason.value.replace("_", " ")


def _places(view: SnapshotView, column: str, followed: Followed) -> Iterator[str]:
    """Yield where a checkpoint has a record."""
    found: Counter[str] = Counter()
    for part in view.state:
        if part.name == TIMERS:
            continue
        for text, kept in part.entries.items():
            rows = _kept_rows(part.name, text, kept)
            times = sum(followed.is_row(column, row) for row in rows)
            found[f"in {part.name or 'state'} of {part.operator} ({part.subtask}), key {text}"] += times
    for channel in view.in_flight:
        times = sum(followed.is_row(column, row) for row in channel.rows)
        found[f"on the channel {channel.sender} \N{RIGHTWARDS ARROW} {channel.receiver}"] += times
    sinks = view.reached_by or ("sink",) * len(view.reached_sinks or ())
    for sink, row in zip(sinks, view.reached_sinks or (), strict=True):
        found[f"at {sink}"] += followed.is_at_its_end(column, row)
    yield from (
        where + (f", {_times(times)}" if times > 1 else "") for where, times in found.items() if times
    )


def _totals(view: SnapshotView, key: str) -> Iterator[str]:
    """Yield what a checkpoint holds under a key."""
    for part in view.state:
        if part.name != TIMERS and key in part.entries:
            yield f"{part.operator} ({part.subtask}) holds {part.entries[key]} under the record's key {key}"


def _kept_rows(state: str, text: str, kept: Sequence[object]) -> Sequence[Row]:
    """Return the records of an entry of a graph's state; none if it does not hold records."""
    try:
        return [row for _, row in LINEAGE.kept(state, key_of_text(text), kept)]
    except (TypeError, ValueError, IndexError):
        return ()  # a total, for instance, which says nothing of single records


def _most_often(column: str, followed: Followed, rows: Sequence[Row]) -> int:
    """Return how often the record is in the output; if all ways are followed, by the one on which it is most often."""
    ways = Counter(_way_of(row) for row in rows if followed.is_at_its_end(column, row))
    return max(ways.values(), default=0)


def _way_of(row: Row) -> str:
    """Return the operators that a row passed, without subtasks; empty if it does not show them."""
    return _SUBTASK.sub("", str(row.get("path", "")))


def _first_wrong(cuts: Sequence[Step], in_output: int, named: frozenset[int]) -> Step | None:
    """Return the first cut that a finding names, that lacks a lost record from then on, or has one twice at a sink."""
    if named:
        return next((cut for cut in cuts if cut.checkpoint in named), None)
    if in_output > 1:
        twice = (cut for cut in cuts if any(place.endswith(" times") for place in cut.places))
        return next(twice, None)
    gone: Step | None = None
    for cut in cuts if not in_output else ():
        gone = None if cut.places else gone or cut
    return gone


def _times(number: int) -> str:
    return {0: "no times", 1: "once"}.get(number, f"{number} times")
