"""The dataflow at every cut: each stateful vertex, each sink and the output hold exactly what reached them (ALN-2).

For workloads whose operators have a meaning as functions of bags (``harness.workloads.meaning``), on any acyclic graph.
For every completed checkpoint the records before its positions are sent through the model of the graph; what its
stateful operators hold, and what its sinks committed or prepared, must be that, both ways (ALN-2, STA-1, SNK-1). In
at-least-once mode more is allowed, if it lies behind the barriers and could have been processed early or again (ALO-2).
A record is told with the path that it took, subtask by subtask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from barrier_tck.harness.oracle.at_least_once_output import DUPLICATED
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.oracle.record_routes import placement_problems, route_problems
from barrier_tck.harness.oracle.recoveries import attempts_that_ran, restored_checkpoints
from barrier_tck.harness.oracle.snapshot_formula import key_of_text
from barrier_tck.harness.oracle.trial_input import TrialInput
from barrier_tck.harness.record.history import End, Row, SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.meaning import Bag, Content, DataflowModel, Record
from barrier_tck.harness.workloads.record_forms import LINEAGE, RecordForm, form_of
from barrier_tck.harness.workloads.workload import split_name

Positions = Mapping[str, int]
"""Split -> number of its records before the barrier."""


class Dataflow:
    """Every vertex of any acyclic graph holds, at every cut, what the records before the cut give."""

    name = "dataflow"
    judges_output = True

    def __init__(self, trial_input: TrialInput, exact: bool) -> None:
        """Take the input, and whether every record must be there exactly once."""
        self._input = trial_input
        self._exact = exact
        checkpoints = ("ALN-2", "BAR-1", "BAR-3", "STA-1", "SNP-1") if exact else ("ALO-1", "BAR-1", "STA-1")
        self.clauses: tuple[str, ...] = (*checkpoints, *(("ALN-1",) if exact else ()), *self._of_output)

    @property
    def _of_output(self) -> tuple[str, ...]:
        return ("SNK-1", "REC-1", "SRC-1") if self._exact else ("ALO-2", "REC-1", "SRC-1")

    def check(self, context: TrialContext) -> Finding:
        """Judge every opened checkpoint, and the committed output."""
        judge = _Judge(self._input, context, self._exact)
        counts = {"checkpoints": 0, "records": 0, "violations": 0}
        problems: list[str] = []
        for view in context.history.checkpoints:
            if view.problem is not None:
                continue  # the snapshot formula of files: another checker's matter
            counts["checkpoints"] += 1
            problems += [f"checkpoint {view.checkpoint}: {problem}" for problem in judge.of_checkpoint(view)]
        problems += list(judge.of_output())
        counts |= {"records": judge.compared, "violations": len(problems)}
        if not self._exact:
            counts[DUPLICATED] = judge.duplicates
        if problems:
            summary = f"{len(problems)} records are not where the dataflow puts them"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        if not counts["checkpoints"] and context.history.output is None:
            summary = "neither a checkpoint nor the output could be read, so nothing can be said"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        spoken = self.clauses if counts["checkpoints"] else self._of_output
        cuts = f"{counts['checkpoints']} checkpoints and the output"
        summary = f"{judge.compared} records of {cuts} are where they belong"
        return Finding(self.name, spoken, Verdict.VALID, summary, counts)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where records are looked for."""

    name: str
    whole: Bag
    """What it holds when all input has been read: how often each record can get there at all."""


@dataclass
class _Judge:
    """Compares what was seen with the model; counts what it compared."""

    input: TrialInput
    context: TrialContext
    exact: bool
    compared: int = 0
    duplicates: int = 0
    _restored: list[Positions] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find out which cuts were restored: what lies behind one may have been processed twice.

        An attempt that began at the beginning of the input gives no leave: nothing of the attempts before it is left.
        A checkpoint that was restored twice counts once, for what was done in between belongs to no later one.
        """
        views = {view.checkpoint: view for view in self.context.history.checkpoints}
        ran = attempts_that_ran(self.context.history)
        started = restored_checkpoints(self.context.history).items()
        for checkpoint in dict.fromkeys(restored for attempt, restored in started if attempt in ran):
            if checkpoint is not None:
                view = views.get(checkpoint)
                self._restored.append(_positions(view) if view is not None else {})

    @cached_property
    def _model(self) -> DataflowModel:
        return DataflowModel(self.context.plan.job)

    @cached_property
    def _form(self) -> RecordForm:
        return form_of(self.input.workload)

    @cached_property
    def _offsets(self) -> dict[int | None, tuple[str, int]]:
        """Id -> split and offset of the source record."""
        return {
            self._form.identity(self._form.read(row)): (split.name, offset)
            for split in self.input.splits
            for offset, row in enumerate(split.input, split.start_offset)
        }

    @cached_property
    def _ends(self) -> dict[str, int]:
        return {split.name: len(split.rows) for split in self.input.splits}

    @cached_property
    def _whole(self) -> Content:
        """What the graph holds when all input has been read."""
        return self._model.at(self._read(self._ends))

    def of_checkpoint(self, view: SnapshotView) -> Iterator[str]:
        """Say what is wrong with one checkpoint; nothing if it is right."""
        positions = _positions(view)
        missing = [name for name in self._ends if name not in positions]
        if missing:
            yield f"the split {missing[0]} has no position"
            return
        content, seen = self._model.at(self._read(positions)), self._seen(view)
        for operator, expected in content.kept.items():
            place = _Place(f"the state of {operator}", self._whole.kept[operator])
            yield from self._compare(place, expected, seen.pop(operator, {}), positions)
        yield from (f"{operator} holds state, but no such operator keeps any" for operator in seen)
        if view.reached_sinks is not None:
            place = _Place("what sinks committed or prepared", self._whole.at_sinks)
            yield from self._compare(place, content.at_sinks, self._by_way(view.reached_sinks), positions)
        yield from placement_problems(self.context.job, view)
        if self._form is LINEAGE:
            yield from route_problems(
                self.context.plan.job, self.context.job, view, ordered=self.exact or not self._restored
            )

    def of_output(self) -> Iterator[str]:
        """Say what is wrong with the committed output."""
        history = self.context.history
        if history.output is not None:
            place = _Place("the output", self._whole.at_sinks)
            lacks = history.end is not End.FINISHED
            yield from self._compare(place, place.whole, self._by_way(history.output), self._ends, lacks)

    def _read(self, positions: Positions) -> dict[str, Bag]:
        """Return what each source vertex has emitted before a cut."""
        read: dict[str, Bag] = {vertex.name: Counter() for vertex in self.context.plan.job.sources}
        for split in self.input.splits:
            rows = split.rows[split.start_offset : max(split.start_offset, positions[split.name])]
            read[split.vertex].update(map(self._form.read, rows))
        return read

    def _compare(
        self,
        place: _Place,
        expected: Bag,
        seen: Mapping[Record, list[str]],
        positions: Positions,
        may_lack: bool = False,
    ) -> Iterator[str]:
        """Say which records are missing from a place, and which are there without leave.

        ``seen``: record -> the full paths by which it came.
        """
        for record, times in expected.items():
            self.compared += times
            found = len(seen.get(record, ()))
            if found < times and not may_lack:
                count = f": {found} of {times} are there" if times > 1 else ""
                yield f"{self._told(record)} is missing from {place.name}{count}"
        for record, paths in seen.items():
            due = expected.get(record, 0)
            surplus = len(paths) - due
            if surplus <= 0:
                continue
            if not self.exact and surplus <= self._leave(record, place, positions):
                self.duplicates += surplus
                continue
            yield f"{self._told(record, paths)} is in {place.name} {len(paths)} times instead of {due}"

    def _leave(self, record: Record, place: _Place, positions: Positions) -> int:
        """Return how often more at-least-once mode lets a record be there.

        A record behind the barriers may have come early, once by each of its ways; one behind a cut that was restored
        may have come again, for each such restore. Of a record that came from several nothing so exact is known.
        """
        times = place.whole.get(record, 0)
        identity = self._form.identity(_unnumbered(record))
        if identity is None:
            return times * len(self._ends) * (2 + len(self._restored))
        split, offset = self._offsets.get(identity, ("", -1))
        if not split:
            return 0
        early = offset >= positions[split]
        again = sum(offset >= restored.get(split, 0) for restored in self._restored)
        return (again + early) * times

    def _told(self, record: Record, ways: Sequence[str] = ()) -> str:
        """Return a record for a finding, with where it was read and the last way by which it came."""
        bare = _unnumbered(record)
        split, offset = self._offsets.get(self._form.identity(bare), ("", -1))
        read = f" ({split}@{offset})" if split else ""
        came = f", which came as {ways[-1]}," if ways and ways[-1] else ""
        return f"{self._form.told(bare)}{read}{came}"

    def _seen(self, view: SnapshotView) -> dict[str, dict[Record, list[str]]]:
        """Return stateful operator -> record (with the number of its input) -> the full ways by which it came."""
        found: dict[str, dict[Record, list[str]]] = {}
        for part in view.state:
            records = found.setdefault(part.operator, {})
            for text, entry in part.entries.items():
                for number, row in self._form.kept(part.name, key_of_text(text), entry):
                    records.setdefault((number, self._form.read(row)), []).append(self._form.way(row))
        return found

    def _by_way(self, rows: Iterable[Row]) -> dict[Record, list[str]]:
        found: dict[Record, list[str]] = {}
        for row in rows:
            found.setdefault(self._form.read(row), []).append(self._form.way(row))
        return found


def _unnumbered(record: Record) -> Record:
    """Return a record without the number of the input that stands before it in a state."""
    if len(record) == 2 and isinstance(record[0], int) and isinstance(record[1], tuple):
        bare: Record = record[1]
        return bare
    return record


def _positions(view: SnapshotView) -> dict[str, int]:
    return {split_name(split): position for split, position in view.positions.items()}
