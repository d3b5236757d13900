"""The dataflow at every cut: each stateful vertex, each sink and the output hold exactly what reached them (ALN-2).

This is for workloads whose operators have a meaning as functions of bags (``harness.workloads.dataflow_model``), on any
acyclic graph. For every completed checkpoint the records before its positions are sent through the model of the
graph. Its stateful operators, and the transactions that each of its sinks committed or prepared, must hold exactly
the result (ALN-2, STA-1, SNK-1). In at-least-once mode a checkpoint is compared with the one from which its attempt
started (ALO-2, ``at_least_once_flow``). Records in flight were sent and have not arrived: with them left out of what
reaches a vertex, its state must be exact too (UNA-1). Where a damaged checkpoint was given up for an older one, sinks
may also show what it had committed, once more or ahead of a later cut, but no more than that (REC-4). A finding shows
the path that a record took, subtask by subtask.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.arrivals import Arrivals
from barrier_tck.harness.oracle.evidence.at_least_once_flow import AttemptFlow, Kept
from barrier_tck.harness.oracle.evidence.cut_preconditions import (
    HELD_BACK,
    IN_A_LOOP,
    OVERTAKEN,
    OVERTAKEN_BESIDE_A_BROADCAST,
    RECORDED,
    SEVERAL_BARRIERS,
    STATE_CHANGED,
    STATE_HELD,
    STILL_REPLAYED,
)
from barrier_tck.harness.oracle.evidence.cut_signs import (
    CUT_SIGNS,
    breach_of,
    circumstances_of,
    restored_view,
    unreadable,
)
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.duplicates import DUPLICATED, SOMETIMES_DUPLICATES
from barrier_tck.harness.oracle.evidence.followed_cuts import FollowedCuts
from barrier_tck.harness.oracle.evidence.in_flight import (
    IN_FLIGHT,
    SOMETIMES_IN_FLIGHT,
    by_edge,
    in_flight_problems,
)
from barrier_tck.harness.oracle.evidence.increment_chains import named_as_skipped, owner_of, skipped
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.oracle.evidence.named_places import last_step, way_to
from barrier_tck.harness.oracle.evidence.opened_checkpoints import (
    going_back,
    misplaced,
    missing_parts,
    opened_checkpoint,
    opened_checkpoints,
    positions_of,
)
from barrier_tck.harness.oracle.evidence.preconditions import (
    COMPLETED,
    COMPLETED_BY_BARRIERS,
    OF_RESTORES,
    RAN_AGAIN,
    RECOVERED,
    RESCALED,
    SHOWN,
    of_restores,
)
from barrier_tck.harness.oracle.evidence.record_places import (
    Positions,
    RecordPlace,
    SeenCut,
    Ways,
    how_often,
    surplus,
)
from barrier_tck.harness.oracle.evidence.record_routes import RecordPaths, RouteJudge, placement_problems
from barrier_tck.harness.oracle.evidence.recoveries import (
    ancestors,
    attempt_of,
    fell_back,
    given_up,
    restored_checkpoints,
)
from barrier_tck.harness.oracle.evidence.replayed_order import REPLAYED, ReplayedOrder
from barrier_tck.harness.oracle.evidence.sent_on import SentOn
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.sign import Breach
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.record.history import End, Row, SnapshotView
from barrier_tck.harness.record.operations import AttemptStarted
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.dataflow_model import Content, DataflowModel, windows_of
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.operator_kind import TIMERS, WAITING
from barrier_tck.harness.workloads.record_forms import LINEAGE, RecordForm, form_of, without_input
from barrier_tck.harness.workloads.records import KEY, PATH, Bag, Record, union


class Dataflow(StandardChecker):
    """At every cut, every vertex of any acyclic graph holds what the records before the cut give."""

    name = "dataflow"
    requires = "Every stateful vertex, every sink and the output hold the records that belong there."
    judges = "workloads without a sequential model, on any graph"
    covers = {
        "ALN-2": COMPLETED,
        "ALN-1": HELD_BACK,
        "BAR-1": COMPLETED_BY_BARRIERS,
        "BAR-2": COMPLETED,
        "BAR-3": SEVERAL_BARRIERS,
        "STA-1": STATE_HELD,
        "STA-3": COMPLETED,
        "SNP-1": STATE_CHANGED,
        "ALO-1": COMPLETED_BY_BARRIERS,
        "ALO-2": RAN_AGAIN,
        "UNA-1": OVERTAKEN,
        "UNA-4": STILL_REPLAYED,
        "UNA-5": OVERTAKEN_BESIDE_A_BROADCAST,
        "CHL-1": RECORDED,
        "CHL-5": IN_A_LOOP,
        "SNK-1": SHOWN,
        "REC-1": RECOVERED,
        "SRC-1": RECOVERED,
        "RSC-2": RESCALED,
        "RSC-3": RESCALED,
        **OF_RESTORES,
    }
    judges_output = True
    sometimes = (SOMETIMES_DUPLICATES, SOMETIMES_IN_FLIGHT)
    signs = CUT_SIGNS
    rank = 20

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.meaning is Meaning.BY_VERTEX

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input, trial.exact)

    def __init__(self, trial_input: TrialInput, exact: bool) -> None:
        """Take the input, and whether every record must be there exactly once."""
        self._input = trial_input
        self._exact = exact
        rescaled = ("RSC-2", "RSC-3") if trial_input.plan.rescales else ()
        restores = of_restores(trial_input.plan)
        self.clauses: tuple[str, ...] = (*self._of_checkpoints, *self._of_output, *rescaled, *restores)

    @property
    def _of_checkpoints(self) -> tuple[str, ...]:
        if not self._exact:
            return ("ALO-1", "BAR-1", "STA-1", "BAR-2", "STA-3")
        if self._input.plan.checkpoints.records_all:
            return ("CHL-1", "STA-1", "SNP-1", "STA-3", *self._of_loops)
        if self._input.plan.checkpoints.overtakes:
            return ("UNA-1", "BAR-1", "BAR-3", "STA-1", "SNP-1", "UNA-4", "UNA-5", "STA-3")
        return ("ALN-2", "BAR-1", "BAR-3", "STA-1", "SNP-1", "ALN-1", "BAR-2", "STA-3", *self._of_loops)

    @property
    def _of_loops(self) -> tuple[str, ...]:
        return ("CHL-5",) if self._input.plan.job.loops else ()

    @property
    def _of_output(self) -> tuple[str, ...]:
        return ("SNK-1", "REC-1", "SRC-1", *self._of_loops) if self._exact else ("ALO-2", "REC-1", "SRC-1")

    def check(self, context: TrialContext) -> Finding:
        """Judge every completed checkpoint, and the committed output."""
        judge = _Judge(self._input, context, self._exact)
        opened = opened_checkpoints(context)
        problems: list[Breach] = []
        earlier: dict[int | None, SnapshotView] = {}
        right: list[int | None] = []
        for view in opened.judged:
            found = [
                *named_as_skipped(judge.of_checkpoint(view)),
                *going_back(earlier.get(view.attempt), view),
            ]
            problems += judge.breaches(found, view, view.attempt in right)
            right += [] if found else [view.attempt]
            earlier[view.attempt] = view
        problems += judge.breaches(list(judge.of_output()), None, judge.last_attempt in right)
        counts = {
            "checkpoints": len(opened.judged),
            "records": judge.compared,
            "violations": len(problems),
            "not_opened": len(opened.unopened),
            "harmed": len(opened.harmed),
        }
        if (
            context.plan.checkpoints.overtakes
            or context.plan.checkpoints.records_all
            or context.plan.job.loops
        ):
            counts[IN_FLIGHT] = sum(len(channel.rows) for view in opened.judged for channel in view.in_flight)
            counts[REPLAYED] = judge.replayed.compared
        if not self._exact:
            counts[DUPLICATED] = judge.duplicates
        if problems:
            summary = f"{len(problems)} records are not where the dataflow puts them"
            return self.broken(context, summary, counts, problems)
        if opened.unopened:
            summary = f"{len(opened.unopened)} completed checkpoints were not opened: {opened.unopened[:10]}"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        if not opened.judged and context.history.output is None:
            summary = "neither a checkpoint nor the output could be read, so nothing can be said"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        covered = self.clauses if opened.judged else self._of_output
        if not any(context.job_number(line.operation.attempt) for line in context.history.of(AttemptStarted)):
            covered = tuple(clause for clause in covered if not clause.startswith("RSC"))
        cuts = f"{counts['checkpoints']} checkpoints and the output"
        summary = f"{judge.compared} records of {cuts} are where they belong"
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


ANY_SINK = ""
"""Stands for all sinks if the system does not say which of them wrote what."""


@dataclass(frozen=True, slots=True)
class _Where:
    """Where records are compared."""

    name: str
    """The operator or sink."""
    view: SnapshotView | None
    """None for the output."""
    at_sink: bool


@dataclass
class _Judge:
    """Compares what was seen with the model, and counts the comparisons."""

    input: TrialInput
    context: TrialContext
    exact: bool
    compared: int = 0
    duplicates: int = 0
    """Number of copies beyond those that a cut gives if its records count once: taken early, or read again.

    Both show that at-least-once mode differs from exactly-once. In the output the cut is the whole input.
    """
    _earlier: dict[int | None, SeenCut] = field(default_factory=dict)
    """Attempt -> its newest checkpoint so far."""
    _flows: dict[int | None, AttemptFlow] = field(default_factory=dict)
    """Attempt -> what it adds, in at-least-once mode."""
    _again: dict[tuple[int | None, bool], Mapping[str, Bag] | None] = field(default_factory=dict)
    """(attempt, whether all sinks are one) -> what sinks may show again."""
    _cuts: dict[int, SeenCut] = field(default_factory=dict)
    """Checkpoint -> what was seen in it, of those with which others are compared."""

    @cached_property
    def _model(self) -> DataflowModel:
        return DataflowModel(self.context.plan.job)

    @cached_property
    def _followed(self) -> FollowedCuts:
        """What each checkpoint holds beside what it must hold, by what changes from one to the next."""
        return FollowedCuts(self._model.flow(), self._form, self._read, self._vertices, self._apart)

    @cached_property
    def routes(self) -> RouteJudge:
        """Judges the ways on which records came."""
        return RouteJudge(RecordPaths(self.context.plan.job), self._arrivals)

    @cached_property
    def replayed(self) -> ReplayedOrder:
        """Judges the order of records after restores."""
        return ReplayedOrder([plan.job for plan in self.context.jobs.plans], self._arrivals)

    @cached_property
    def _arrivals(self) -> Arrivals:
        """Reads which records reached each place."""
        return Arrivals(self.context.plan.job)

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
    def _whole(self) -> Mapping[str, Bag]:
        """Operator or sink -> what it holds when all input has been read once."""
        return self._model.at(self._read({}, self._ends)).held

    @cached_property
    def _restored(self) -> Mapping[int, int | None]:
        return restored_checkpoints(self.context.history)

    @cached_property
    def _fell_back(self) -> bool:
        """Whether sinks may show records between two checkpoints twice, because the older one was restored (REC-4)."""
        return fell_back(self.context) is not None

    # --- checkpoints ----------------------------------------------------------------------------------------

    def breaches(
        self, found: Sequence[Difference], view: SnapshotView | None, was_right: bool
    ) -> Iterator[Breach]:
        """Yield what differences in a checkpoint or, with None, in the output break.

        ``was_right`` says whether an earlier checkpoint of its attempt was right.
        """
        if not found:
            return
        circumstances = circumstances_of(self.context, view, was_right)
        yield from (breach_of(difference, circumstances, self.context, view) for difference in found)

    @cached_property
    def last_attempt(self) -> int | None:
        """The attempt that gave the last of the output."""
        return max(self._restored, default=None)

    def of_checkpoint(self, view: SnapshotView) -> Iterator[Difference]:
        """Yield what is wrong with one checkpoint; nothing if it is right."""
        if view.problem is not None:
            yield unreadable(view, self.context, self._stateful)
            return
        yield from missing_parts(view, self.context)
        unfit = list(misplaced(view, self.input.extents, self.input.start_offset))
        if unfit:
            yield from unfit
            return
        agreed = self._followed.agrees(view) if self.exact else None
        if agreed is not None:
            self.compared += agreed
        else:
            yield from self._of_content(view)
        job = self.context.job_of(view.attempt)
        yield from placement_problems(job, view)
        yield from in_flight_problems(self.context.plan_of(view.attempt), view)
        if self._form is not LINEAGE:
            return
        # The paths of records name subtasks, and after a rescale those of several jobs.
        if not self.context.later_jobs:
            once = not self._fell_back if self.exact else not any(self._restored.values())
            yield from self.routes.problems(job, view, once)
        if self.exact and not self._fell_back:
            yield from self.replayed.problems(view, job, self._ancestors(view))

    def _of_content(self, view: SnapshotView) -> Iterator[Difference]:
        """Yield what is not where the dataflow puts it in one checkpoint, all of which is read for that."""
        cut = self._cut_of(view)
        content = self._content_of(cut) if self.exact else None
        places = self._at_least_once(view, cut) if content is None else self._exactly(view, cut, content)
        for name, place in places.items():
            seen = cut.held.get(name, {}) if name in self._stateful else (cut.at_sinks or {}).get(name, {})
            yield from self._compare(place, seen, _Where(name, view, name not in self._stateful))
        self._earlier[view.attempt] = cut
        if content is not None:
            yield from self._unsent(content)
        else:
            self.duplicates += self._followed.duplicates(view)
        for name in cut.held:
            if name not in self._stateful:
                yield Difference(Kind.STRANGE, f"{name} holds state, but no such operator keeps any", name)
        if cut.at_sinks is not None:
            yield from self._strange_sinks(cut.at_sinks)

    def _content_of(self, cut: SeenCut) -> Content:
        """Return what there must be at a cut if every record counts once."""
        return self._model.at(self._read({}, cut.positions), cut.in_flight, cut.waiting)

    def _exactly(self, view: SnapshotView, cut: SeenCut, content: Content) -> dict[str, RecordPlace]:
        """Return what must be in each place if every record counts once (ALN-2): what was sent and is not in flight."""
        places = {name: RecordPlace.of(f"the state of {name}", content.kept[name]) for name in self._stateful}
        if cut.at_sinks is not None:
            again = self._committed_again(attempt_of(self.context.history, view), cut.at_sinks)
            places |= {
                name: self._sink_place(name, "committed or prepared", bag, _plus(bag, again, name))
                for name, bag in self._by_sink(content.held, cut.at_sinks).items()
            }
        return places

    def _committed_again(self, attempt: int | None, seen: Mapping[str, Ways]) -> Mapping[str, Bag] | None:
        """Return what sinks may show in an attempt beyond its cuts: what checkpoints had committed that were given up.

        Every stretch that was given up for an older checkpoint can have committed its records once (REC-4). None means
        that a stretch could not be opened.
        """
        asked = attempt, ANY_SINK in seen
        if asked not in self._again:
            self._again[asked] = self._found_again(attempt, seen)
        return self._again[asked]

    def _found_again(self, attempt: int | None, seen: Mapping[str, Ways]) -> Mapping[str, Bag] | None:
        whole = self._by_sink(self._whole, seen)
        again: dict[str, Bag] = {name: Counter() for name in whole}
        for stretch in given_up(self.context, attempt):
            first = self._came_to_sinks(stretch.start, seen) or {}
            last = self._came_to_sinks(stretch.end, seen) or (whole if self.exact else None)
            if last is None:
                return None
            for name, bag in again.items():
                bag.update(last[name] - first.get(name, Counter()))
        return again

    def _came_to_sinks(self, checkpoint: int | None, seen: Mapping[str, Ways]) -> Mapping[str, Bag] | None:
        """Return what had come to each sink at a checkpoint, in at-least-once mode as was seen; None if unknown."""
        cut = self._cut_at(checkpoint)
        if cut is None or (not self.exact and cut.at_sinks is None):
            return None
        if not self.exact:
            return {name: cut.reached(name) for name in self._by_sink(self._whole, seen)}
        return self._by_sink(self._content_of(cut).held, seen)

    def _at_least_once(self, view: SnapshotView, cut: SeenCut) -> dict[str, RecordPlace]:
        """Return what must and what may be in each place, given from where the attempt started (ALO-1, ALO-2)."""
        attempt = attempt_of(self.context.history, view)
        base = self._restored_cut(attempt)
        if base is None:
            return {}
        flow = self._flow_of(attempt, base)
        now = {name: Kept.at(cut, name) for name in self._stateful}
        added = dict(flow.by_barrier(self._read(base.positions, cut.positions), now))
        before = flow.before
        # A later checkpoint of the attempt contains everything that an earlier one contains.
        earlier = self._earlier.get(view.attempt, base)
        places = {
            name: RecordPlace(
                f"the state of {name}",
                before[name].all + added[name].least | earlier.holds(name),
                before[name].all + added[name].most,
            )
            for name in self._stateful
        }
        if cut.at_sinks is not None and base.at_sinks is not None:
            least = self._by_sink({name: stretch.least for name, stretch in added.items()}, cut.at_sinks)
            most = self._by_sink({name: stretch.most for name, stretch in added.items()}, cut.at_sinks)
            again = self._committed_again(attempt, cut.at_sinks)
            places |= {
                name: self._sink_place(
                    name,
                    "committed or prepared",
                    base.reached(name) + bag | earlier.reached(name),
                    _plus(base.reached(name) + most[name], again, name),
                )
                for name, bag in least.items()
            }
        return places

    def _flow_of(self, attempt: int | None, base: SeenCut) -> AttemptFlow:
        """Return what an attempt adds that started from a cut."""
        if attempt not in self._flows:
            rest = self._read(base.positions, self._ends)
            before = {name: Kept.at(base, name) for name in self._stateful}
            self._flows[attempt] = AttemptFlow(self.context.plan_of(attempt).job, rest, before)
        return self._flows[attempt]

    def _restored_cut(self, attempt: int | None) -> SeenCut | None:
        """Return the cut from which an attempt started; None if its checkpoint could not be opened."""
        return self._cut_at(self._restored.get(attempt) if attempt is not None else None)

    def _cut_at(self, checkpoint: int | None) -> SeenCut | None:
        """Return a checkpoint as a cut, or the beginning of the input; None if it could not be opened."""
        if checkpoint is None:
            return SeenCut(dict.fromkeys(self._ends, 0), {}, {})
        view = opened_checkpoint(self.context, checkpoint)
        return self._cut_of(view) if view and view.problem is None and self._is_whole(view) else None

    def _ancestors(self, view: SnapshotView) -> list[tuple[SnapshotView, JobPlan]]:
        found = ancestors(self.context.history, view.attempt)
        return [(entry, self.context.plan_of(entry.attempt).job) for entry in found]

    def _is_whole(self, view: SnapshotView) -> bool:
        return not list(misplaced(view, self.input.extents, self.input.start_offset))

    # --- the output -----------------------------------------------------------------------------------------

    def of_output(self) -> Iterator[Difference]:
        """Yield what is wrong with the committed output."""
        history = self.context.history
        if history.output is None:
            return
        seen = self._by_writer(history.output, history.output_by)
        due = self._whole
        begun: SeenCut | None = None
        last = max(self._restored, default=None)
        again = self._committed_again(last, seen)
        if not self.exact:
            begun = self._restored_cut(last)
            if begun is None or begun.at_sinks is None:
                return
            due = self._flow_of(last, begun).ever
        for name, bag in self._by_sink(due, seen).items():
            whole = bag if begun is None else begun.reached(name) + bag
            place = self._sink_place(name, "committed", whole, _plus(whole, again, name))
            where = _Where(name, None, True)
            yield from self._compare(place, seen.get(name, {}), where, history.end is not End.FINISHED)
            self._count_duplicates(self._whole, name, seen.get(name, {}))
        yield from self._strange_sinks(seen)

    # --- comparing ------------------------------------------------------------------------------------------

    def _sink_place(self, name: str, did: str, least: Bag, most: Bag | None) -> RecordPlace:
        shown_name = name if name != ANY_SINK else "sinks"
        return RecordPlace(f"what {shown_name} {did}", least, most)

    def _compare(
        self, place: RecordPlace, seen: Ways, where: _Where, may_lack: bool = False
    ) -> Iterator[Difference]:
        """Yield which records are missing from a place, and which are there although they must not be."""
        for record, times in place.least.items():
            self.compared += times
            found = len(seen.get(record, ()))
            if found < times and not may_lack:
                count = f": {found} of {times} are there" if times > 1 else ""
                sentence = f"{self._shown(record)} is missing from {place.name}{count}"
                yield self._difference(Kind.MISSING, sentence, record, where)
        if place.most is None:
            return
        for record, paths in seen.items():
            leave = place.most.get(record, 0)
            if len(paths) > leave:
                too_many = surplus(len(paths), leave, place.name, leave == place.least.get(record, 0))
                sentence = f"{self._shown(record, paths)} {too_many}"
                yield self._difference(Kind.SURPLUS, sentence, record, where, paths[-1])

    def _difference(
        self, kind: Kind, sentence: str, record: Record, where: _Where, came: str = ""
    ) -> Difference:
        """Return that a record is not where it belongs, with what the other checkpoints say about it.

        ``came`` is the path on which it came, subtask by subtask, if it is there.
        """
        attempt = (
            attempt_of(self.context.history, where.view) if where.view is not None else self.last_attempt
        )
        restored = restored_view(self.context, attempt)
        bare = without_input(record)
        identity = self._form.identity(bare)
        split, offset = self._offsets.get(identity, ("", -1))
        before = self._cut_before(restored)
        held = bool((before.held if before is not None else {}).get(where.name, {}).get(record))
        flying = self._is_in(before.in_flight if before is not None else {}, identity, bare)
        vertices = self._passed(bare, where.name)
        later = kind is Kind.MISSING and self._comes_later(record, where)
        left_out = self._skipped(record, where, later) if kind is Kind.MISSING else ""
        return Difference(
            kind,
            f"{sentence}, {left_out}" if left_out else sentence,
            where.name,
            self._way(bare, where, came),
            at_sink=where.at_sink,
            in_flight_before=flying and not held,
            held_before=held
            or (
                not flying and before is not None and bool(split) and offset < before.positions.get(split, 0)
            ),
            behind=where.view is not None
            and bool(split)
            and offset >= positions_of(where.view).get(split, 0),
            unsent=kind is Kind.SURPLUS and self._is_unsent(record, where),
            cleared=kind is Kind.SURPLUS and self._was_cleared(record, where),
            after_end=kind is Kind.SURPLUS and self._was_sent_after_end(identity, where),
            comes_later=later,
            skipped=bool(left_out),
            listed=self._is_listed(where.name),
            looped=any(name in loop for loop in self.context.plan.job.loops for name in vertices),
            timed=any(name in self._windows for name in vertices),
        )

    def _way(self, bare: Record, where: _Where, came: str) -> str:
        """Return the channel or edge on which a record comes to where it belongs, or came; "" if it is not known."""
        path = came or (bare[PATH] if self._form is LINEAGE and len(bare) > PATH else "")
        job = self.context.plan_of(where.view.attempt if where.view is not None else self.last_attempt).job
        key = (bare[KEY],) if self._form is LINEAGE else ()
        view = where.view if not where.at_sink else None
        receiver = owner_of(self.context, view, where.name, key) if view is not None else ""
        return way_to(job, where.name, last_step(path), receiver)

    def _cut_before(self, restored: SnapshotView | None) -> SeenCut | None:
        if restored is None:
            return None
        if restored.checkpoint not in self._cuts:
            self._cuts[restored.checkpoint] = self._cut_of(restored)
        return self._cuts[restored.checkpoint]

    def _is_in(
        self, in_flight: Mapping[tuple[str, str, int], Bag], identity: int | None, bare: Record
    ) -> bool:
        """Return whether a record, or one that it came from, is in flight."""
        return any(
            self._form.identity(other) == identity if identity is not None else other == bare
            for bag in in_flight.values()
            for other in bag
        )

    def _is_unsent(self, record: Record, where: _Where) -> bool:
        """Return whether its operator has a record, and the same checkpoint nothing that it sends because of it."""
        if self._form is not LINEAGE or where.at_sink:
            return False
        cut = self._cut_before(where.view)
        return cut is not None and self._sent_on.is_unseen(record, where.name, cut)

    def _skipped(self, record: Record, where: _Where, comes_later: bool) -> str:
        """Return in words from which checkpoint an increment has the entries that lack a record; "" if none has."""
        cut = self._cut_before(where.view) if not where.at_sink and self._form is LINEAGE else None
        if where.view is None or cut is None:
            return ""
        key, seen = (without_input(record)[KEY],), partial(self._sent_on.is_seen, record, where.name, cut)
        return skipped(self.context, where.view, where.name, key, sent=seen, comes_later=comes_later)

    @cached_property
    def _sent_on(self) -> SentOn:
        return SentOn(self._whole)

    def _was_cleared(self, record: Record, where: _Where) -> bool:
        """Return whether its operator holds a record as one that waits for a timer, and as one that was passed on."""
        cut = self._cut_before(where.view) if not where.at_sink else None
        waits = cut.waiting.get(where.name, Bag())[record] if cut is not None else 0
        return cut is not None and 0 < waits < cut.holds(where.name)[record]

    def _was_sent_after_end(self, identity: int | None, where: _Where) -> bool:
        """Return whether a record still waits for a timer in the last part of a subtask that has finished."""
        view = where.view
        if view is None or identity is None:
            return False
        rows = (
            row
            for part in view.state
            if part.name == WAITING and part.subtask in view.finished
            for text, entry in part.entries.items()
            for _, row in self._form.kept(part.name, key_of_text(text), entry)
        )
        return any(self._form.identity(self._form.read(row)) == identity for row in rows)

    def _comes_later(self, record: Record, where: _Where) -> bool:
        """Return whether a later checkpoint of the same attempt has a record in the same place."""
        if where.view is None or where.at_sink:
            return False
        return any(
            bool(cut.held.get(where.name, {}).get(record))
            for view in self.context.history.checkpoints
            if view.checkpoint > where.view.checkpoint
            and view.attempt == where.view.attempt
            and view.problem is None
            and (cut := self._cut_before(view)) is not None
        )

    def _passed(self, bare: Record, name: str) -> tuple[str, ...]:
        """Return the operators and vertices that a record has passed, as far as it says, and where it is."""
        path = bare[PATH] if self._form is LINEAGE and len(bare) > PATH else ""
        return (*re.split(r"[>/]", path), name)

    @cached_property
    def _windows(self) -> tuple[str, ...]:
        return tuple(windows_of(self.context.plan.job))

    def _is_listed(self, name: str) -> bool:
        """Return whether an operator keeps lists without keys."""
        return any(
            part.operator == name and not part.keyed
            for view in self.context.history.checkpoints
            for part in view.state
        )

    def _count_duplicates(self, once: Mapping[str, Bag], name: str, seen: Ways) -> None:
        """Count the copies beyond those that the records before a cut give if each counts once."""
        due = self._by_sink(once, {name: seen}).get(name) or once.get(name) or Bag()
        self.duplicates += sum(max(0, len(paths) - due.get(record, 0)) for record, paths in seen.items())

    def _strange_sinks(self, seen: Mapping[str, Ways]) -> Iterator[Difference]:
        """Yield the rows that were written by something that is no sink of the job."""
        known = (ANY_SINK, *(vertex.name for vertex in self.context.plan.job.sinks))
        for name, rows in seen.items():
            if name not in known and rows:
                written = (
                    f"{self._shown(next(iter(rows)))} was written by {name}, which is no sink of the job"
                )
                yield Difference(Kind.STRANGE, written, name, at_sink=True)

    def _shown(self, record: Record, ways: Sequence[str] = ()) -> str:
        """Return a record for a finding, with the place where it was read and the last path on which it came."""
        bare = without_input(record)
        split, offset = self._offsets.get(self._form.identity(bare), ("", -1))
        read = f" ({split}@{offset})" if split else ""
        came = f", which came as {ways[-1]}," if ways and ways[-1] else ""
        return f"{self._form.rendered(bare)}{read}{came}"

    @cached_property
    def _apart(self) -> tuple[str, ...]:
        """The operators whose state another checker judges."""
        operators = [entry for vertex in self.context.plan.job.vertices for entry in vertex.operators]
        return tuple(operator.name for operator in operators if kind_named(operator.kind).judged_apart)

    # --- what is due ----------------------------------------------------------------------------------------

    @cached_property
    def _stateful(self) -> tuple[str, ...]:
        return tuple(self._model.at(self._read(self._ends, self._ends)).kept)

    def _unsent(self, content: Content) -> Iterator[Difference]:
        """Yield the records that are in flight although nothing before the cut was sent there as often."""
        for vertex, bag in content.unsent.items():
            for record, times in bag.items():
                sent = f"{self._shown(record)} is in flight to {vertex} {how_often(times)} more than it was sent there"
                looped = any(vertex in loop for loop in self.context.plan.job.loops)
                yield Difference(Kind.IN_FLIGHT, sent, vertex, looped=looped)

    def _read(self, start: Positions, end: Positions) -> dict[str, Bag]:
        """Return what each source vertex reads between two cuts."""
        read: dict[str, Bag] = {vertex.name: Counter() for vertex in self.context.plan.job.sources}
        for split in self.input.splits:
            first = max(split.start_offset, start.get(split.name, 0))
            read[split.vertex].update(map(self._form.read, split.rows[first : max(first, end[split.name])]))
        return read

    def _by_sink(self, content: Mapping[str, Bag], seen: Mapping[str, Ways]) -> dict[str, Bag]:
        """Return what reached each sink, or all sinks together if the system does not say which of them wrote what."""
        reached = {vertex.name: content[vertex.name] for vertex in self.context.plan.job.sinks}
        return {ANY_SINK: union(list(reached.values()))} if ANY_SINK in seen else reached

    # --- what was seen --------------------------------------------------------------------------------------

    def _cut_of(self, view: SnapshotView) -> SeenCut:
        at_sinks = (
            None if view.reached_sinks is None else self._by_writer(view.reached_sinks, view.reached_by)
        )
        held: dict[str, dict[Record, list[str]]] = {}
        waiting: dict[str, Bag] = {name: Counter() for name in windows_of(self.context.plan.job)}
        for part in view.state:
            if part.operator in self._apart or part.name == TIMERS:
                continue
            records = held.setdefault(part.operator, {})
            for text, entry in part.entries.items():
                for number, row in self._form.kept(part.name, key_of_text(text), entry):
                    record = number, self._form.read(row)
                    records.setdefault(record, []).append(self._form.way(row))
                    if part.operator in waiting and part.name == WAITING:
                        waiting[part.operator][record] += 1
        return SeenCut(positions_of(view), held, at_sinks, by_edge(view, self._form), waiting)

    def _by_writer(self, rows: Sequence[Row], writers: Sequence[str]) -> dict[str, dict[Record, list[str]]]:
        """Return sink -> record -> the full paths on which it came."""
        vertex_of = self._vertices
        found: dict[str, dict[Record, list[str]]] = {} if writers or not rows else {ANY_SINK: {}}
        sinks = [vertex_of.get(writer, writer or "no subtask") for writer in writers] or [ANY_SINK] * len(
            rows
        )
        for sink, row in zip(sinks, rows, strict=True):
            found.setdefault(sink, {}).setdefault(self._form.read(row), []).append(self._form.way(row))
        return found

    @cached_property
    def _vertices(self) -> Mapping[str, str]:
        """Sink subtask -> vertex, as the system says or else as in the plan."""
        jobs, plan = (self.context.job, *self.context.later_jobs), self.context.plan.job
        vertices = {
            entry.name: entry.vertex
            for job in jobs
            if job is not None
            for entry in job.subtasks
            if entry.vertex
        }
        return vertices or {subtask: vertex.name for vertex in plan.sinks for subtask in vertex.subtasks}


def _plus(bag: Bag, again: Mapping[str, Bag] | None, sink: str) -> Bag | None:
    """Return a bag with what a sink may show again; None if that is not known."""
    return bag + again[sink] if again is not None else None
