"""Replays event time in a whole trial: every subtask of every attempt, in the order in which elements came to it.

A step is what a subtask took, and what it sent because of that. A model of the subtask (``replayed_subtask``) says what
that must be. A model begins where the model of the checkpoint that is restored stood. What is taken from a channel must
be what was sent on it, in order, behind what the restored checkpoint had in flight. So by induction over the graph, all
that reaches the sinks is right, whatever was late; and the committed output must be what reached them (SNK-1).
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from itertools import zip_longest
from typing import Any

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.aligned_sources import (
    AlignedSource,
    announcement_problem,
    groups_of,
    held_for_nothing,
    learned_problem,
)
from barrier_tck.harness.oracle.evidence.key_groups import owner_of_group, owner_of_text
from barrier_tck.harness.oracle.evidence.recoveries import fell_back
from barrier_tck.harness.oracle.evidence.replayed_subtask import (
    BEGINNING,
    END,
    Due,
    Floor,
    InputTime,
    ReplayedSubtask,
    SavedSubtask,
    Valve,
    WatermarkDue,
    as_it_was,
    by_edge,
    edge_of_input,
    kept_in,
    merged_kept,
)
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.elements import (
    AllOver,
    Allowed,
    ElementEntry,
    InputOver,
    Polled,
    ReadClock,
    Sent,
    SentWatermark,
    SplitsIdle,
    Stood,
    SubtaskElements,
    ToldTime,
    Took,
    TookWatermark,
)
from barrier_tck.harness.record.history import End, InFlight, Row, SnapshotView, WatermarkInFlight
from barrier_tck.harness.record.operations import SourcesAligned
from barrier_tck.harness.workloads.event_time_parameters import BOUND, DRIFT, IDLE_AFTER
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.workload import split_name


class Wrong(Enum):
    """Kinds of what can be wrong."""

    EMITTED = auto()
    """An operator emitted something else than its model."""
    ORDER = auto()
    """What was emitted is right, but stands on the wrong side of a watermark."""
    WATERMARK = auto()
    """A watermark is sent that must not be, or not sent, or another one."""
    READ = auto()
    """A source read something else than its split has there."""
    IDLE = auto()
    """A split counts as idle, or as ended, and is not."""
    CHANNEL = auto()
    """What was taken from a channel is not what was sent on it."""
    CUT = auto()
    """A snapshot does not fit those of its neighbours: elements are in flight that must not be, or were taken early."""
    ROUTED = auto()
    """A row was sent to a subtask that does not own its key."""
    STATE = auto()
    """A snapshot shows another state than the model has."""
    STATE_TIME = auto()
    """A snapshot shows another watermark than the model has."""
    OUTPUT = auto()
    """The committed output is not what reached the sinks."""
    AHEAD = auto()
    """An aligned source read what is further ahead than was allowed."""
    HELD = auto()
    """An aligned source was held back for nothing, or something that its group must know was not said or not right."""
    LEFT = auto()
    """Something is left that must have been taken or emitted by the end."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One thing that is wrong."""

    wrong: Wrong
    sentence: str
    place: str
    kind: str = ""
    """The kind of the operator that is concerned, if it is one."""
    attempt: int | None = None
    checkpoint: int | None = None
    overtaken: bool = False
    """Whether its attempt began with records in flight that a barrier had overtaken."""
    restored: bool = False
    """Whether its attempt began with a checkpoint."""


Atom = tuple[str, Any]
"""One row, or one watermark, on a channel: ``("row", row)`` or ``("watermark", (at, idle))``."""


def _atoms(entry: ElementEntry) -> Iterator[Atom]:
    match entry:
        case Took(rows=rows) | Sent(rows=rows):
            yield from (("row", row) for row in rows)
        case TookWatermark(at_ms=at, idle=idle) | SentWatermark(at_ms=at, idle=idle):
            yield "watermark", (at, idle)


Labelled = tuple[str, Atom]
"""What is in flight, and on which channels it was before the job was rescaled, the first one first, with ``|`` between
them; empty if it is on the channel on which it was sent."""


def _may_be(atom: Atom, came: str, label: str) -> bool:
    """Return whether an element that shows ``came`` may be one of a former channel: rows do not show it."""
    return came == label or (atom[0] == "row" and not came)


class _Queues:
    """What is on one channel: what former channels had in flight, each in its order, and what was sent on it."""

    def __init__(self, pre: Sequence[Labelled], sent: Sequence[Atom]) -> None:
        self._former: dict[str, deque[Atom]] = {}
        first: list[Atom] = []
        for label, atom in pre:
            if label:
                self._former.setdefault(label, deque()).append(atom)
            else:
                first.append(atom)
        self._begun = len(first)
        self._sent = [*first, *sent]
        self._place = 0

    @property
    def next_sent(self) -> Atom | None:
        """What comes next of what was sent on the channel."""
        return self._sent[self._place] if self._place < len(self._sent) else None

    @property
    def sent_and_taken(self) -> int:
        """How much was taken of what was sent in the attempt."""
        return self._place - self._begun

    def take(self, atom: Atom, came: str) -> bool:
        """Take an element out, and tell whether it may come next; ``came`` is the label that it shows, if any."""
        for label, queue in self._former.items():
            if queue and queue[0] == atom and _may_be(atom, came, label):
                queue.popleft()
                return True
        if came or self.next_sent != atom:
            return False
        self._place += 1
        return True

    def taken_first(self, taken: Sequence[tuple[Atom, str]]) -> Iterator[Labelled]:
        """Take out what was taken first, as long as it was in flight on former channels."""
        for atom, came in taken:
            label = next(
                (
                    label
                    for label, queue in self._former.items()
                    if queue and queue[0] == atom and _may_be(atom, came, label)
                ),
                None,
            )
            if label is None:
                return
            yield label, self._former[label].popleft()

    def left(self, until: int | None = None) -> list[Labelled]:
        """Return what is left of it, of what was sent in the attempt only the first ``until``."""
        former = [(label, atom) for label, queue in self._former.items() for atom in queue]
        end = len(self._sent) if until is None else self._begun + until
        return [*former, *(("", atom) for atom in self._sent[self._place : end])]


@dataclass
class _Trace:
    """One subtask of one attempt."""

    of: SubtaskElements
    vertex: VertexPlan
    sent: dict[str, list[Atom]] = field(default_factory=dict)
    """Output channel -> what was sent on it."""
    taken: dict[str, list[tuple[Atom, str]]] = field(default_factory=dict)
    """Input channel -> what was taken, each with the channel that it was on before a rescale."""
    sent_at: dict[int, dict[str, int]] = field(default_factory=dict)
    """Checkpoint -> output channel -> how much was sent before its snapshot."""
    taken_at: dict[int, dict[str, int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """Input channel -> how much was taken before its end."""
    over: bool = False
    """Whether its whole input has ended."""

    @property
    def index(self) -> int:
        return _index_of(self.of.subtask)


@dataclass
class EventTimeReplay:
    """Replays one trial. ``divergences`` has what is wrong; the counts say what was looked at."""

    input: TrialInput
    context: TrialContext
    elements: Sequence[SubtaskElements]
    divergences: list[Divergence] = field(default_factory=list)
    steps: int = 0
    firings: int = 0
    """Rows that operators with windows or timers emitted."""
    late: int = 0
    """Rows that they emitted on side outputs."""
    watermarks: int = 0
    states: int = 0
    """Entries of state that were compared."""
    held: int = 0
    """How often aligned sources looked at their splits and passed over some."""
    in_flight: int = 0
    """Watermarks that restored checkpoints had in flight."""
    stored: int = 0
    """Elements in flight that completed checkpoints hold, all of them compared."""
    _saved: dict[tuple[int, str], SavedSubtask] = field(default_factory=dict)
    _states: dict[tuple[int, str], dict[tuple[str, str], dict[str, Any]]] = field(default_factory=dict)
    _traces: dict[tuple[int, str], _Trace] = field(default_factory=dict)
    _pre: dict[tuple[int, str], Sequence[Labelled]] = field(default_factory=dict)
    """(attempt, channel) -> what was in flight on it when the attempt began."""
    _attempt_of: dict[int, int] = field(default_factory=dict)
    """Checkpoint -> the attempt in which it was taken."""
    _flying: dict[int, dict[str, list[Labelled]]] = field(default_factory=dict)
    """Checkpoint -> channel -> what it had in flight."""
    _aligned: dict[int, dict[str, AlignedSource]] = field(default_factory=dict)
    """Attempt -> subtask -> what an aligned source did."""
    _reached: dict[tuple[int | None, str], Counter[bytes]] = field(default_factory=dict)
    """(checkpoint, sink vertex) -> what had reached it."""

    def run(self) -> None:
        """Replay all attempts, in their order."""
        for one in self.elements:
            vertex = self._plan(one.attempt).job.vertex(one.subtask.rpartition("[")[0])
            self._traces[one.attempt, one.subtask] = self._read(one, vertex)
        for view in self.context.history.checkpoints:
            if view.attempt is not None:  # if all subtasks had finished before, none of them stood at it
                self._attempt_of.setdefault(view.checkpoint, view.attempt)
        attempts = sorted({one.attempt for one in self.elements})
        for attempt in attempts:
            self._check_channels(attempt)
            order = {vertex.name: place for place, vertex in enumerate(self._plan(attempt).job.vertices)}
            traces = [trace for (number, _), trace in self._traces.items() if number == attempt]
            for trace in sorted(traces, key=lambda trace: (order[trace.vertex.name], trace.index)):
                self._replay(trace)
                self._collect(trace)
            self._check_groups(attempt)
        for view in self.context.history.checkpoints:
            self._check_state(view)
            self._check_stored(view)
        if attempts:
            self._check_output(attempts[-1])

    # --- reading --------------------------------------------------------------------------------------------

    def _plan(self, attempt: int | None) -> TrialPlan:
        return self.context.plan_of(attempt)

    @cached_property
    def _needed(self) -> frozenset[int]:
        """The checkpoints from which attempts started."""
        return frozenset(one.restored for one in self.elements if one.restored is not None)

    def _read(self, one: SubtaskElements, vertex: VertexPlan) -> _Trace:
        trace = _Trace(one, vertex)
        trace.sent = {channel: [] for channel in one.outputs}
        trace.taken = {channel: [] for channel in one.inputs}
        for entry in one.entries:
            match entry:
                case Took(channel=channel):
                    trace.taken[one.inputs[channel]] += [(atom, "") for atom in _atoms(entry)]
                case TookWatermark(channel=channel, origin=origin):
                    trace.taken[one.inputs[channel]] += [(atom, origin) for atom in _atoms(entry)]
                case Sent(channel=channel) | SentWatermark(channel=channel):
                    trace.sent[one.outputs[channel]] += _atoms(entry)
                case InputOver(channel=channel):
                    trace.ends[one.inputs[channel]] = len(trace.taken[one.inputs[channel]])
                case Stood(checkpoint=checkpoint):
                    self._attempt_of[checkpoint] = one.attempt
                    trace.sent_at[checkpoint] = {name: len(sent) for name, sent in trace.sent.items()}
                    trace.taken_at[checkpoint] = {name: len(taken) for name, taken in trace.taken.items()}
                case AllOver():
                    trace.over = True
        return trace

    # --- channels -------------------------------------------------------------------------------------------

    def _check_channels(self, attempt: int) -> None:
        """Compare what was taken from each channel with what was in flight and sent on it."""
        traces = {trace.of.subtask: trace for (number, _), trace in self._traces.items() if number == attempt}
        restored = next(iter(trace.of.restored for trace in traces.values()), None)
        before = self._in_flight(restored) if restored is not None else {}
        if restored is not None:
            before = self._taken_over(traces, before)
        for trace in traces.values():
            for channel, taken in trace.taken.items():
                pre = before.get(channel, [])
                self._pre[attempt, channel] = pre
                self.in_flight += sum(kind == "watermark" for _, (kind, _) in pre)
                sender = traces.get(channel.partition("->")[0])
                queues = _Queues(pre, sender.sent.get(channel, ()) if sender is not None else ())
                self._compare_taken(trace, channel, taken, queues)

    def _compare_taken(
        self, trace: _Trace, channel: str, taken: Sequence[tuple[Atom, str]], queues: _Queues
    ) -> None:
        for place, (atom, came) in enumerate(taken):
            if place == trace.ends.get(channel):
                break
            expected = queues.next_sent
            if not queues.take(atom, came):
                was = f"it was {_shown(expected)}" if expected is not None else "nothing more was sent"
                sentence = (
                    f"{trace.of.subtask} took {_shown(atom)} from {channel} as element {place}, and {was}"
                )
                self._add(Wrong.CHANNEL, sentence, channel, trace)
                return
        left = queues.left()
        if channel in trace.ends and left:
            sentence = (
                f"{channel} ended at {trace.of.subtask} before {_shown(left[0][1])}, which was sent on it"
            )
            self._add(Wrong.LEFT, sentence, channel, trace)

    def _taken_over(
        self, traces: Mapping[str, _Trace], before: Mapping[str, Sequence[Labelled]]
    ) -> dict[str, list[Labelled]]:
        """Return channel -> what of the records in flight comes first on it, in part by what was taken.

        Where neither end of an edge has another parallelism, what was sent on a channel comes again on it. Elsewhere,
        what one channel had in flight comes in its order, mixed with that of others, and on any channel. So does what
        had been in flight when the job was rescaled before. What was not taken before the attempt ended stands last, on
        one of the channels.
        """
        found: dict[str, list[Labelled]] = {}
        shared: dict[str, _Queues] = {}
        """Edge -> records without keys: those of a channel go to one receiver whole."""
        for trace in traces.values():
            plan = self._plan(trace.of.attempt)
            channels_of: dict[str, list[str]] = {}
            for channel in trace.taken:
                channels_of.setdefault(edge_of_input(channel), []).append(channel)
            for name, channels in channels_of.items():
                edge = _edge_of(plan.job, channels[0])
                if self._is_as_it_was(edge, trace):
                    mixed = [pair for channel in channels for pair in before.get(channel, ()) if pair[0]]
                    queues = _Queues(mixed, ())
                    for channel in channels:
                        sent_on_it = [pair for pair in before.get(channel, ()) if not pair[0]]
                        found[channel] = [*queues.taken_first(trace.taken[channel]), *sent_on_it]
                    found[channels[0]] += queues.left()
                    continue
                own = [
                    (f"{label}|{origin}" if label else origin, atom)
                    for origin, atoms in before.items()
                    if edge_of_input(origin) == name and _receiver_vertex(origin) == trace.vertex.name
                    for label, atom in self._own(origin, atoms, trace, edge, plan)
                ]
                queues = _Queues(own, ())
                if edge.by is not Spread.HASH:
                    queues = shared.setdefault(f"{name}->{trace.vertex.name}", queues)
                for channel in channels:
                    found[channel] = list(queues.taken_first(trace.taken[channel]))
                found[channels[0]] += [
                    one
                    for one in queues.left()
                    if edge.by is Spread.HASH or self._is_heir(one[0].rpartition("|")[2], trace)
                ]
        return found

    def _is_as_it_was(self, edge: EdgePlan, trace: _Trace) -> bool:
        """Return whether neither end of an edge has another parallelism than in the job of the checkpoint."""
        restored, attempt = trace.of.restored, trace.of.attempt
        if restored is None or self._is_same_job(restored, attempt):
            return True
        was, now = self._plan(self._attempt_of[restored]).job, self._plan(attempt).job
        return all(
            was.vertex(name).parallelism == now.vertex(name).parallelism
            for name in (edge.source, edge.target)
        )

    def _is_heir(self, origin: str, trace: _Trace) -> bool:
        """Return whether a subtask takes the place of a former receiver, whose records have no key."""
        assert trace.of.restored is not None, "there is something in flight"
        before = self._plan(self._attempt_of[trace.of.restored]).job.vertex(trace.vertex.name).parallelism
        return _index_of(_receiver(origin)) * trace.vertex.parallelism // before == trace.index

    def _own(
        self, origin: str, atoms: Sequence[Labelled], trace: _Trace, edge: EdgePlan, plan: TrialPlan
    ) -> list[Labelled]:
        """Return what of a former channel's records in flight goes to a subtask, and its watermarks if it takes over
        any key group of the former receiver.
        """
        if edge.by is not Spread.HASH:
            return [(label, atom) for label, atom in atoms if atom[0] == "row"]
        width, groups = trace.vertex.parallelism, plan.deployment.max_parallelism
        restored = trace.of.restored
        assert restored is not None, "there is something in flight"
        before = self._plan(self._attempt_of[restored]).job.vertex(trace.vertex.name).parallelism
        former = _index_of(_receiver(origin))
        takes_over = any(
            owner_of_group(group, before, groups) == former
            and owner_of_group(group, width, groups) == trace.index
            for group in range(groups)
        )
        return [
            (label, atom)
            for label, atom in atoms
            if (
                takes_over
                if atom[0] == "watermark"
                else owner_of_text(atom[1]["key"], width, groups) == trace.index
            )
        ]

    def _in_flight(self, checkpoint: int) -> dict[str, list[Labelled]]:
        """Return channel -> what a checkpoint had in flight, by what its senders had sent and its receivers taken."""
        if checkpoint in self._flying:
            return self._flying[checkpoint]
        took = self._attempt_of.get(checkpoint)
        found: dict[str, list[Labelled]] = {}
        for (number, _), sender in self._traces.items():
            if number != took:
                continue
            for channel, sent in sender.sent.items():
                receiver = self._traces.get((number, _receiver(channel)))
                marks = sender.sent_at.get(checkpoint)
                until = marks[channel] if marks is not None else len(sent)
                queues = _Queues(self._pre.get((number, channel), ()), sent)
                for atom, came in _taken_until(receiver, channel, checkpoint):
                    queues.take(atom, came)
                found[channel] = queues.left(until)
                self._check_cut(checkpoint, channel, found[channel], queues.sent_and_taken > until)
        self._flying[checkpoint] = found
        return found

    def _check_stored(self, view: SnapshotView) -> None:
        """Compare what a completed checkpoint holds of each channel with what was in flight."""
        attempt = self._attempt_of.get(view.checkpoint)
        if view.problem is not None or attempt is None:
            return
        stored = {f"{one.sender}->{one.receiver}#{one.edge}": list(_stored(one)) for one in view.in_flight}
        due = self._in_flight(view.checkpoint)
        edges: dict[tuple[str, str], list[str]] = {}
        for channel in dict.fromkeys((*due, *stored)):
            edges.setdefault((edge_of_input(channel), _receiver(channel)), []).append(channel)
        for channels in edges.values():
            # What was in flight when the job was rescaled may be on any channel of its edge.
            is_mixed = any(label for channel in channels for label, _ in due.get(channel, ()))
            for together in [channels] if is_mixed else [[channel] for channel in channels]:
                wanted, got = (
                    [pair for one in together for pair in held.get(one, ())] for held in (due, stored)
                )
                self.stored += len(got)
                problem = _mixed_problem(wanted, got) if is_mixed else _stored_problem(wanted, got)
                if problem is not None:
                    sentence = f"checkpoint {view.checkpoint} has what was in flight on {together[0]} wrong: {problem}"
                    self.divergences.append(
                        Divergence(
                            Wrong.CUT, sentence, together[0], attempt=attempt, checkpoint=view.checkpoint
                        )
                    )

    def _check_cut(self, checkpoint: int, channel: str, left: Sequence[Labelled], is_ahead: bool) -> None:
        checkpoints = self.context.plan.checkpoints
        recorded = checkpoints.overtakes or checkpoints.records_all
        # What was in flight before barriers came in line again stays so until it is read.
        if any(not label for label, _ in left) and not recorded:
            shown = next(_shown(atom) for label, atom in left if not label)
            sentence = f"{shown} is in neither part of checkpoint {checkpoint}: it was sent on {channel}"
        elif is_ahead and not self._at_least_once:
            sentence = f"the receiver of {channel} has taken more for checkpoint {checkpoint} than its sender had sent"
        else:
            return
        attempt = self._attempt_of[checkpoint]
        self.divergences.append(
            Divergence(Wrong.CUT, sentence, channel, attempt=attempt, checkpoint=checkpoint)
        )

    @property
    def _at_least_once(self) -> bool:
        return self.context.plan.checkpoints.mode == "at_least_once"

    # --- subtasks -------------------------------------------------------------------------------------------

    def _replay(self, trace: _Trace) -> None:
        """Replay one subtask. At the first thing that is wrong, nothing more can be said of it."""
        if trace.vertex.kind == SINK and len(trace.vertex.operators) == 1:
            return
        model = self._begun(trace)
        if model is None:
            return
        aligned = self._aligned_source(trace, model)
        clocks: dict[str, int] = {}
        """Operator -> what the clock showed when it was snapshotted."""
        for begin, sends in self._steps(trace):
            if isinstance(begin, ReadClock):
                clocks[begin.operator] = begin.at_ms
                continue
            if isinstance(begin, Stood):
                model.stand(clocks)
                self._stand(trace, model, begin.checkpoint)
                continue
            clocks.clear()
            problem = self._alignment_problem(trace, aligned, begin)
            if problem is not None:
                self.divergences.append(problem)
                return
            if isinstance(begin, ToldTime | Allowed):
                continue
            self.steps += 1
            problem = self._problem_of(trace, model, begin, sends)
            if problem is not None:
                self.divergences.append(problem)
                return
        if trace.over:
            self._finish(trace, model)

    def _steps(self, trace: _Trace) -> Iterator[tuple[ElementEntry, list[ElementEntry]]]:
        begin: ElementEntry | None = None
        behind: list[ElementEntry] = []
        for entry in trace.of.entries:
            if _is_behind(entry):
                behind.append(_with_plain_names(entry))
                continue
            if begin is not None:
                yield begin, behind
            begin, behind = _with_plain_names(entry), []
        if begin is not None:
            yield begin, behind

    def _problem_of(
        self, trace: _Trace, model: ReplayedSubtask, begin: ElementEntry, behind: Sequence[ElementEntry]
    ) -> Divergence | None:
        for entry in behind:
            if isinstance(entry, ReadClock):
                model.clock_shows(entry.at_ms)
        match begin:
            case Took(channel=channel, rows=rows):
                number = _edge_of(self._plan(trace.of.attempt).job, trace.of.inputs[channel]).input
                due = model.take(number, rows)
            case TookWatermark(channel=_, at_ms=at, idle=idle, origin=origin) if origin:
                way = origin.split("|")
                due = model.take_inherited(tuple(map(_receiver, way)), way[0], at, idle)
            case TookWatermark(channel=channel, at_ms=at, idle=idle):
                due = model.take_watermark(trace.of.inputs[channel], at, idle)
            case InputOver(channel=channel):
                due = model.end_input(trace.of.inputs[channel])
            case AllOver():
                due = [] if trace.of.finished else model.end()
            case Polled():
                idle_splits = [entry for entry in behind if isinstance(entry, SplitsIdle)]
                problem = self._read_problem(trace, model, begin, idle_splits)
                if problem is not None:
                    return problem
                now_idle = idle_splits[-1].idle if idle_splits else _idle_splits(model, begin.split)
                bound = trace.vertex.parameters[BOUND]
                due = model.read(begin.split, begin.rows, bound, begin.open_splits, now_idle)
            case _:
                raise AssertionError(begin)
        is_last = begin == _with_plain_names(_last_begin(trace.of.entries))
        return self._compare_sent(trace, model, due, behind, is_last and not self._ended_well(trace), begin)

    def _ended_well(self, trace: _Trace) -> bool:
        """Return whether the subtask did its last step whole: it was not killed or cancelled in it."""
        return self.context.history.end is End.FINISHED and trace.of.attempt == self._last_attempt

    @property
    def _last_attempt(self) -> int:
        return max(number for number, _ in self._traces)

    def _read_problem(
        self, trace: _Trace, model: ReplayedSubtask, polled: Polled, idle: Sequence[SplitsIdle]
    ) -> Divergence | None:
        """Return what is wrong with what a source says that it read, or that its splits are idle or have ended."""
        rows = self._splits.get(polled.split, ())
        expected = model.offsets.get(polled.split, 0)
        if polled.rows and (
            polled.offset != expected or polled.rows != rows[polled.offset : polled.offset + len(polled.rows)]
        ):
            sentence = f"{trace.of.subtask} read {polled.split}@{polled.offset}, and record {expected} of it comes next"
            return self._made(Wrong.READ, sentence, trace.of.subtask, trace)
        read = {**model.offsets, polled.split: polled.offset + len(polled.rows)}
        for split in model.valve.inputs:
            if split not in polled.open_splits and read.get(split, 0) < len(self._splits[split]):
                sentence = f"{trace.of.subtask} counts {split} as ended at record {read.get(split, 0)}"
                return self._made(Wrong.IDLE, sentence, split, trace)
        for entry in idle:
            for split in entry.idle:
                fresh = not model.valve.inputs[split].idle
                if fresh and split in polled.held:
                    sentence = (
                        f"{trace.of.subtask} counts {split} as idle, which is held back and was not asked"
                    )
                    return self._made(Wrong.HELD, sentence, split, trace)
                if fresh and (split not in polled.quiet or IDLE_AFTER not in trace.vertex.parameters):
                    sentence = (
                        f"{trace.of.subtask} counts {split} as idle, and that had a record when it was asked"
                    )
                    return self._made(Wrong.IDLE, sentence, split, trace)
        return None

    @cached_property
    def _splits(self) -> Mapping[str, tuple[Row, ...]]:
        return {split.name: tuple(split.rows) for split in self.input.splits}

    def _compare_sent(
        self,
        trace: _Trace,
        model: ReplayedSubtask,
        due: Sequence[Due],
        behind: Sequence[ElementEntry],
        may_lack: bool,
        begin: ElementEntry,
    ) -> Divergence | None:
        """Compare what was sent in one step with what is due, edge by edge, between one watermark and the next."""
        job = self._plan(trace.of.attempt).job
        parts = _between_watermarks(due)
        marks = [one for one in due if isinstance(one, WatermarkDue)]
        self.watermarks += len(marks)
        for output, _ in (row for part in parts for row in part):
            self.late += bool(output)
            self.firings += not output
        for number, edge in enumerate(job.outputs_of(trace.vertex.name)):
            channels = [
                place for place, name in enumerate(trace.of.outputs) if _is_on(name, edge, number, job)
            ]
            seen = {place: _split_sends(behind, place) for place in channels}
            for place, (watermarks, _) in seen.items():
                wanted = [(one.at, one.idle) for one in marks]
                fits = watermarks == wanted[: len(watermarks)] if may_lack else watermarks == wanted
                if not fits:
                    sentence = (
                        f"{trace.of.subtask} sent the watermarks {_times(watermarks)} on {trace.of.outputs[place]} "
                        f"behind {_begun_by(begin)}, and must send {_times(wanted)}"
                    )
                    return self._made(Wrong.WATERMARK, sentence, trace.of.outputs[place], trace)
            wanted_rows = [
                Counter(_frozen(row) for output, row in rows if output == edge.output) for rows in parts
            ]
            got = [
                Counter(
                    _frozen(row)
                    for _, segments in seen.values()
                    for row in (segments[part] if part < len(segments) else ())
                )
                for part in range(len(parts))
            ]
            for part in range(len(parts)):
                problem = self._rows_problem(trace, edge, wanted_rows[part], got[part], may_lack, begin)
                if problem is not None and _added_up(wanted_rows) == _added_up(got):
                    return replace(problem, wrong=Wrong.ORDER)
                if problem is not None:
                    return problem
            problem = self._route_problem(trace, edge, behind, channels)
            if problem is not None:
                return problem
        return None

    def _rows_problem(
        self,
        trace: _Trace,
        edge: EdgePlan,
        wanted: Counter[bytes],
        got: Counter[bytes],
        may_lack: bool,
        begin: ElementEntry,
    ) -> Divergence | None:
        extra, missing = got - wanted, wanted - got
        if not extra and (may_lack or not missing):
            return None
        to = f"to {edge.target}" + (f" ({edge.output})" if edge.output else "")
        behind = f"behind {_begun_by(begin)}"
        if extra:
            row = msgspec.msgpack.decode(next(iter(extra)))
            instead = f", and must emit {msgspec.msgpack.decode(next(iter(missing)))}" if missing else ""
            sentence = f"{trace.of.subtask} emitted {row} {to} {behind}{instead or ', which it must not'}"
        else:
            row = msgspec.msgpack.decode(next(iter(missing)))
            sentence = f"{trace.of.subtask} did not emit {row} {to} {behind}"
        return self._made(Wrong.EMITTED, sentence, trace.of.subtask, trace, self._kind_of(trace, row))

    def _kind_of(self, trace: _Trace, row: Row) -> str:
        """Return the kind of the operator that concerns a row: the one that made it, if that is of this vertex."""
        by_name = {one.name: one.kind for one in trace.vertex.operators}
        made_by = re.split(r"[\[@(:]", row["how"], maxsplit=1)[0]
        kinds = [one.kind for one in trace.vertex.operators if one.kind not in (SOURCE, SINK)]
        keeping = [kind for kind in kinds if kind_named(kind).keeps_by_key]
        return by_name.get(made_by, next(iter([*keeping, *kinds]), ""))

    def _route_problem(
        self, trace: _Trace, edge: EdgePlan, behind: Sequence[ElementEntry], channels: Sequence[int]
    ) -> Divergence | None:
        if edge.by is not Spread.HASH:
            return None
        plan = self._plan(trace.of.attempt)
        width, groups = plan.job.vertex(edge.target).parallelism, plan.deployment.max_parallelism
        for entry in behind:
            if isinstance(entry, Sent) and entry.channel in channels:
                receiver = _receiver(trace.of.outputs[entry.channel])
                for row in entry.rows:
                    owner = f"{edge.target}[{owner_of_text(row['key'], width, groups)}]"
                    if owner != receiver:
                        sentence = f"{trace.of.subtask} sent {row} to {receiver}, and {owner} owns its key"
                        return self._made(Wrong.ROUTED, sentence, trace.of.outputs[entry.channel], trace)
        return None

    def _stand(self, trace: _Trace, model: ReplayedSubtask, checkpoint: int) -> None:
        self._states[checkpoint, trace.of.subtask] = model.entries()
        self._saved[checkpoint, trace.of.subtask] = model.saved()

    def _finish(self, trace: _Trace, model: ReplayedSubtask) -> None:
        if not trace.of.finished and model.open_keys:
            sentence = f"{trace.of.subtask} has ended, and {model.open_keys[0]} still holds something"
            self._add(Wrong.LEFT, sentence, trace.of.subtask, trace)

    # --- aligned sources ------------------------------------------------------------------------------------

    def _aligned_source(self, trace: _Trace, model: ReplayedSubtask) -> AlignedSource | None:
        if trace.vertex.kind != SOURCE or DRIFT not in trace.vertex.parameters:
            return None
        lengths = {name: len(self._splits[name]) for name in self._splits_of(trace)}
        found = AlignedSource(trace.of.subtask, model, trace.of.finished, lengths)
        self._aligned.setdefault(trace.of.attempt, {})[trace.of.subtask] = found
        return found

    def _alignment_problem(
        self, trace: _Trace, aligned: AlignedSource | None, begin: ElementEntry
    ) -> Divergence | None:
        """Return what is wrong with an aligned source ahead of a step."""
        wrong, sentence = Wrong.HELD, None
        if aligned is None:
            if isinstance(begin, ToldTime | Allowed) or (isinstance(begin, Polled) and begin.held):
                sentence = f"{trace.of.subtask} is held back, and is not aligned with others"
        elif isinstance(begin, ToldTime):
            sentence = aligned.report_problem(begin)
        elif isinstance(begin, Allowed):
            aligned.learn(begin.largest_ms)
        elif isinstance(begin, Polled):
            self.held += bool(begin.held)
            sentence = aligned.held_problem(begin)
            if sentence is None:
                wrong, sentence = Wrong.AHEAD, aligned.ahead_problem(begin)
        if sentence is None:
            return None
        return self._made(wrong, sentence, trace.of.subtask, trace)

    def _check_groups(self, attempt: int) -> None:
        """Compare what was announced to groups with the reports of their members, and what these learned with that."""
        members = self._aligned.get(attempt, {})
        is_stuck = self.context.history.end is End.STUCK and attempt == self._last_attempt
        for group, vertices in groups_of(self._plan(attempt).job).items():
            own = [members[one] for vertex in vertices for one in vertex.subtasks if one in members]
            said = [
                line.operation
                for line in self.context.history.of(SourcesAligned)
                if (line.operation.attempt, line.operation.group) == (attempt, f"group {group}")
            ]
            places: dict[str, int] = {}
            problems = [announcement_problem(one, vertices, places, members) for one in said]
            problems += [learned_problem(one, [each.largest_ms for each in said]) for one in own]
            if is_stuck:
                problems += held_for_nothing(own, vertices[0].parameters[DRIFT])
            for sentence in filter(None, problems):
                divergence = Divergence(Wrong.HELD, f"{sentence} (attempt {attempt})", vertices[0].name)
                self.divergences.append(replace(divergence, attempt=attempt))
                break

    # --- where models begin ---------------------------------------------------------------------------------

    def _begun(self, trace: _Trace) -> ReplayedSubtask | None:
        """Return the model with which an attempt begins; None if what it began with is not known."""
        groups = self._plan(trace.of.attempt).deployment.max_parallelism
        names = self._splits_of(trace) if trace.vertex.kind == SOURCE else list(trace.of.inputs)
        restored = trace.of.restored
        fresh = Valve({name: InputTime() for name in names})
        start = self.context.plan.workload.start_offset
        offsets = (
            {name: min(start, len(self._splits[name])) for name in names}
            if trace.vertex.kind == SOURCE
            else {}
        )
        if restored is None:
            return ReplayedSubtask(trace.vertex, groups, fresh, offsets=offsets)
        former = self._former(restored, trace.vertex.name)
        if former is None:
            return None
        if self._is_same_job(restored, trace.of.attempt):
            saved = former[trace.of.subtask]
            return as_it_was(trace.vertex, groups, saved)
        return self._redistributed(trace, former, names, groups, restored)

    def _former(self, checkpoint: int, vertex: str) -> dict[str, SavedSubtask] | None:
        """Return subtask -> what its model held at a checkpoint; None if that of one is not known."""
        attempt = self._attempt_of.get(checkpoint)
        if attempt is None:
            return None
        found = {}
        for subtask in self._plan(attempt).job.vertex(vertex).subtasks:
            saved = self._saved.get((checkpoint, subtask))
            trace = self._traces.get((attempt, subtask))
            if saved is None and trace is not None and trace.over and checkpoint not in trace.sent_at:
                # It had finished before: nothing of it is kept but how far it was read.
                names = self._splits_of(trace) if trace.vertex.kind == SOURCE else list(trace.of.inputs)
                ended = {name: InputTime(END, ended=True) for name in names}
                offsets = (
                    {name: len(self._splits[name]) for name in names} if trace.vertex.kind == SOURCE else {}
                )
                kept = msgspec.msgpack.encode(
                    [{} for one in trace.vertex.operators if one.kind not in (SOURCE, SINK)]
                )
                saved = SavedSubtask(kept, Valve(ended, END), (), offsets, {}, finished=True)
            if saved is None:
                return None
            found[subtask] = saved
        return found

    def _is_same_job(self, checkpoint: int, attempt: int) -> bool:
        took = self._attempt_of.get(checkpoint)
        return took is None or self._plan(took).job == self._plan(attempt).job

    def _redistributed(
        self,
        trace: _Trace,
        former: Mapping[str, SavedSubtask],
        names: Sequence[str],
        groups: int,
        restored: int,
    ) -> ReplayedSubtask:
        """Return the model of a subtask whose vertex, or whose senders, have another parallelism than before."""
        before = self._plan(self._attempt_of[restored]).job
        own_width = trace.vertex.parallelism
        changed = len(former) != own_width
        senders_changed = any(
            before.vertex(edge.source).parallelism
            != self._plan(trace.of.attempt).job.vertex(edge.source).parallelism
            for edge in self._plan(trace.of.attempt).job.inputs_of(trace.vertex.name)
        )
        operators = sum(one.kind not in (SOURCE, SINK) for one in trace.vertex.operators)
        if not changed and not senders_changed:
            model = as_it_was(trace.vertex, groups, former[trace.of.subtask])
            model.repeats = True
            return model
        pool = list(former.values()) if changed else [former[trace.of.subtask]]
        running = [one for one in pool if one.valve.at != END] or pool
        valve = Valve({}, min(one.valve.at for one in running), all(one.valve.idle for one in running))
        offsets: dict[str, int] = {}
        if trace.vertex.kind == SOURCE:
            known = {
                split: (one.valve.inputs[split], one.offsets[split])
                for one in former.values()
                for split in one.offsets
            }
            for split in names:
                time, offsets[split] = known[split]
                at = time.at if time.at != END else BEGINNING
                valve.inputs[split] = InputTime(at, time.idle, ended=valve.at == END)
        else:
            edges = by_edge([one.valve for one in running])
            valve.inputs = {name: _copy_of(edges.get(edge_of_input(name), InputTime())) for name in names}
        floors = []
        for index, one in enumerate(former.values()):
            owner = index, len(former)
            floors.append(Floor((owner,), one.valve.at))
            floors += [Floor((*floor.owners, owner), floor.at) for floor in one.floors]
        kept = (
            merged_kept(
                former.values(), operators, lambda key: owner_of_text(key, own_width, groups) == trace.index
            )
            if changed
            else kept_in(former[trace.of.subtask])
        )
        valve.look()
        model = ReplayedSubtask(trace.vertex, groups, valve, floors, kept, offsets, repeats=True)
        for index, (subtask, one) in enumerate(former.items()):
            owner = index, len(former)
            model.inherited[(subtask,)] = Floor((owner,), one.valve.at), Valve(one.valve.copy().inputs)
            for path, (floor, valve) in one.inherited.items():
                model.inherited[(*path, subtask)] = Floor((*floor.owners, owner), floor.at), valve.copy()
        return model

    def _splits_of(self, trace: _Trace) -> list[str]:
        width = trace.vertex.parallelism
        listed = [split.name for split in self.input.splits if split.vertex == trace.vertex.name]
        return listed[trace.index :: width]

    # --- snapshots ------------------------------------------------------------------------------------------

    def _check_state(self, view: SnapshotView) -> None:
        """Compare what a completed checkpoint shows with the models of its subtasks."""
        if view.problem is not None:
            return
        shown: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        for part in view.state:
            entries = {_key_of(text): entry for text, entry in part.entries.items()}
            shown.setdefault(part.subtask, {})[part.operator, part.name] = entries
        times = {one.subtask: one for one in view.event_time}
        for (checkpoint, subtask), expected in self._states.items():
            if checkpoint != view.checkpoint or subtask in view.finished:
                continue
            saved, attempt = self._saved[checkpoint, subtask], self._attempt_of[checkpoint]
            trace = self._traces[attempt, subtask]
            names = dict.fromkeys((*expected, *shown.get(subtask, {})))
            for operator, state in names:
                wanted = {key: _as_shown(held) for key, held in expected.get((operator, state), {}).items()}
                got = shown.get(subtask, {}).get((operator, state), {})
                self.states += len(wanted)
                if wanted != got:
                    key = next(key for key in (*wanted, *got) if wanted.get(key) != got.get(key))
                    sentence = (
                        f"checkpoint {checkpoint} has {got.get(key, 'nothing')} in the state {state!r} of {operator} "
                        f"in {subtask} for {key}, and must have {wanted.get(key, 'nothing')}"
                    )
                    kind = next(one.kind for one in trace.vertex.operators if one.name == operator)
                    self._add(Wrong.STATE, sentence, subtask, trace, kind, checkpoint)
            time = times.get(subtask)
            if time is None or (time.at_ms, time.idle) != (saved.valve.at, saved.valve.idle):
                got_at = f"{time.at_ms}{' (idle)' if time.idle else ''}" if time is not None else "none"
                sentence = (
                    f"checkpoint {checkpoint} has the watermark {got_at} of {subtask}, and it stood at "
                    f"{saved.valve.at}{' (idle)' if saved.valve.idle else ''}"
                )
                self._add(Wrong.STATE_TIME, sentence, subtask, trace, "", checkpoint)
                continue
            for name, one in saved.valve.inputs.items():
                at = {split_name(shown_name): state for shown_name, state in time.inputs.items()}.get(name)
                wanted_time = one.at, one.idle, one.ended
                # That a split has ended is known by its position.
                if at is None or (at if trace.vertex.kind != SOURCE else (*at[:2], one.ended)) != wanted_time:
                    sentence = f"checkpoint {checkpoint} has {at} of {name} in {subtask}, and must have {wanted_time}"
                    self._add(Wrong.STATE_TIME, sentence, subtask, trace, "", checkpoint)
            ahead = self._ahead(saved, trace)
            for group in dict.fromkeys((*ahead, *time.ahead)):
                at_of, wanted_of = time.ahead.get(group, time.at_ms), ahead.get(group, saved.valve.at)
                if at_of != wanted_of:
                    sentence = (
                        f"checkpoint {checkpoint} has the watermark {at_of} of key group {group} in {subtask}, and "
                        f"must have {wanted_of}"
                    )
                    self._add(Wrong.STATE_TIME, sentence, subtask, trace, "", checkpoint)
                    break

    def _ahead(self, saved: SavedSubtask, trace: _Trace) -> dict[int, int]:
        """Return key group -> its watermark, of those of a subtask that are further than it."""
        groups = self._plan(trace.of.attempt).deployment.max_parallelism
        found: dict[int, int] = {}
        for floor in (one for one in saved.floors if one.at > saved.valve.at):
            for group in range(groups):
                owners = (*floor.owners, (trace.index, trace.vertex.parallelism))
                if all(owner_of_group(group, width, groups) == index for index, width in owners):
                    found[group] = max(floor.at, found.get(group, floor.at))
        return found

    # --- the output -----------------------------------------------------------------------------------------

    def _collect(self, trace: _Trace) -> None:
        """Count what reached a sink, up to each checkpoint and in all."""
        if trace.vertex.kind != SINK:
            return
        taken: Counter[bytes] = Counter()
        base = self._base(trace)
        name = trace.vertex.name
        for entry in trace.of.entries:
            if isinstance(entry, Took):
                taken.update(_frozen(row) for row in entry.rows)
            elif isinstance(entry, Stood):
                reached = self._reached.setdefault((entry.checkpoint, name), Counter(base))
                reached.update(taken)
        total = self._reached.setdefault((-trace.of.attempt, name), Counter(base))
        total.update(taken)
        for checkpoint in self._needed:
            # What had finished before a checkpoint has no part in it, and all of it reached the sink.
            if (
                self._attempt_of.get(checkpoint) == trace.of.attempt
                and checkpoint not in trace.taken_at
                and trace.over
            ):
                self._reached.setdefault((checkpoint, name), Counter(base)).update(taken)

    def _base(self, trace: _Trace) -> Counter[bytes]:
        if trace.of.restored is None:
            return Counter()
        return self._reached.get((trace.of.restored, trace.vertex.name), Counter())

    def _check_output(self, last: int) -> None:
        output = self.context.history.output
        if output is None or fell_back(self.context) is not None:
            return
        due: Counter[bytes] = Counter()
        for (number, _), rows in self._reached.items():
            if number == -last:
                due.update(rows)
        got = Counter(_frozen(row) for row in output)
        extra, missing = got - due, due - got
        if extra:
            first = next(iter(extra))
            row, times, reached = msgspec.msgpack.decode(first), got[first], due[first]
            sentence = f"{row} is in the output {times} times, and reached the sinks {reached} times"
            self.divergences.append(Divergence(Wrong.OUTPUT, sentence, "output", restored=True))
        if missing and self.context.history.end is End.FINISHED:
            row = msgspec.msgpack.decode(next(iter(missing)))
            sentence = f"{row} reached the sinks and is not in the output"
            self.divergences.append(Divergence(Wrong.OUTPUT, sentence, "output", restored=True))

    # --- findings -------------------------------------------------------------------------------------------

    def _made(
        self,
        wrong: Wrong,
        sentence: str,
        place: str,
        trace: _Trace,
        kind: str = "",
        checkpoint: int | None = None,
    ) -> Divergence:
        restored = trace.of.restored
        overtaken = (
            restored is not None
            and self.context.plan.checkpoints.overtakes
            and any(self._pre.get((trace.of.attempt, channel)) for channel in trace.of.inputs)
        )
        return Divergence(
            wrong,
            f"{sentence} (attempt {trace.of.attempt})",
            place,
            kind,
            trace.of.attempt,
            checkpoint,
            overtaken,
            restored is not None,
        )

    def _add(
        self,
        wrong: Wrong,
        sentence: str,
        place: str,
        trace: _Trace,
        kind: str = "",
        checkpoint: int | None = None,
    ) -> None:
        self.divergences.append(self._made(wrong, sentence, place, trace, kind, checkpoint))


def _taken_until(receiver: _Trace | None, channel: str, checkpoint: int) -> Sequence[tuple[Atom, str]]:
    """Return what a subtask had taken from a channel at a checkpoint: all of it, if it had finished before."""
    if receiver is None:
        return ()
    marks = receiver.taken_at.get(checkpoint)
    return receiver.taken[channel][: marks[channel]] if marks is not None else receiver.taken[channel]


def _idle_splits(model: ReplayedSubtask, read: str) -> list[str]:
    return [name for name, one in model.valve.inputs.items() if one.idle and name != read]


def _is_behind(entry: ElementEntry) -> bool:
    """Return whether an entry says what a step did, and not what began it."""
    at_a_step = isinstance(entry, ReadClock) and not entry.operator
    return at_a_step or isinstance(entry, Sent | SentWatermark | SplitsIdle)


def _last_begin(entries: Sequence[ElementEntry]) -> ElementEntry:
    for entry in reversed(entries):
        if not _is_behind(entry) and not isinstance(entry, ReadClock):
            return entry
    raise ValueError("there is no step")


def _with_plain_names(entry: ElementEntry) -> ElementEntry:
    """Return an entry with the names of splits as the input has them: a system may show those of files."""
    match entry:
        case Polled():
            return msgspec.structs.replace(
                entry,
                split=split_name(entry.split),
                open_splits=tuple(map(split_name, entry.open_splits)),
                quiet=tuple(map(split_name, entry.quiet)),
                held=tuple(map(split_name, entry.held)),
            )
        case SplitsIdle():
            return SplitsIdle(tuple(map(split_name, entry.idle)))
    return entry


def _begun_by(entry: ElementEntry) -> str:
    match entry:
        case Took(rows=rows):
            return f"{len(rows)} records, the first of them {rows[0] if rows else None}"
        case TookWatermark(at_ms=at, idle=idle):
            return f"the watermark {at}{' (idle)' if idle else ''}"
        case InputOver():
            return "the end of an input"
        case AllOver():
            return "the end of all input"
        case Polled(split=split, offset=offset, rows=rows):
            return (
                f"{split}@{offset} and {max(0, len(rows) - 1)} more" if split else "a poll that gave nothing"
            )
    return str(entry)


def _split_sends(
    behind: Sequence[ElementEntry], channel: int
) -> tuple[list[tuple[int, bool]], list[list[Row]]]:
    """Return the watermarks that were sent on a channel, and the rows before, between and behind them."""
    watermarks: list[tuple[int, bool]] = []
    segments: list[list[Row]] = [[]]
    for entry in behind:
        if isinstance(entry, SentWatermark) and entry.channel == channel:
            watermarks.append((entry.at_ms, entry.idle))
            segments.append([])
        elif isinstance(entry, Sent) and entry.channel == channel:
            segments[-1] += entry.rows
    return watermarks, segments


def _between_watermarks(due: Sequence[Due]) -> list[list[tuple[str, Row]]]:
    parts: list[list[tuple[str, Row]]] = [[]]
    for one in due:
        if isinstance(one, WatermarkDue):
            parts.append([])
        else:
            parts[-1].append(one)
    return parts


def _times(watermarks: Sequence[tuple[int, bool]]) -> str:
    return ", ".join(f"{at}{' (idle)' if idle else ''}" for at, idle in watermarks) or "none"


def _is_on(channel: str, edge: EdgePlan, number: int, job: JobPlan) -> bool:
    """Return whether an output channel belongs to an edge, which is the ``number``-th that leaves its vertex."""
    outputs = job.outputs_of(edge.source)
    same = [one for one in outputs[:number] if one.target == edge.target]
    return _receiver_vertex(channel) == edge.target and channel.rpartition("#")[2] == str(len(same))


def _edge_of(job: JobPlan, channel: str) -> EdgePlan:
    sender, receiver = channel.partition("->")[0].rpartition("[")[0], _receiver_vertex(channel)
    among = [edge for edge in job.edges if (edge.source, edge.target) == (sender, receiver)]
    return among[int(channel.rpartition("#")[2])]


def _index_of(subtask: str) -> int:
    return int(subtask.rpartition("[")[2][:-1])


def _receiver(channel: str) -> str:
    return channel.partition("->")[2].rpartition("#")[0]


def _receiver_vertex(channel: str) -> str:
    return _receiver(channel).rpartition("[")[0]


def _copy_of(one: InputTime) -> InputTime:
    return InputTime(one.at, one.idle, one.ended)


_freeze = msgspec.msgpack.Encoder(order="deterministic").encode


def _frozen(row: Row) -> bytes:
    return _freeze(row)


def _added_up(parts: Iterable[Counter[bytes]]) -> Counter[bytes]:
    return sum(parts, Counter[bytes]())


def _stored(channel: InFlight) -> Iterator[Labelled]:
    for one in channel.elements:
        if isinstance(one, WatermarkInFlight):
            yield one.origin, ("watermark", (one.at_ms, one.idle))
        else:
            yield "", ("row", one)


def _stored_problem(wanted: Sequence[Labelled], got: Sequence[Labelled]) -> str | None:
    """Return what is wrong with what a checkpoint holds of a channel."""
    for place, (must, found) in enumerate(zip_longest(wanted, got, fillvalue=("", None))):
        if must != found:
            return f"element {place} is {_shown(found[1])}, and must be {_shown(must[1])}"
    return None


def _mixed_problem(wanted: Sequence[Labelled], got: Sequence[Labelled]) -> str | None:
    """Return what is wrong with what a checkpoint holds of channels, if the order of each former channel is known, and
    not that of all of them together. Rows do not show from which of them they came.
    """
    for label in dict.fromkeys(label for label, _ in (*wanted, *got)):
        must, found = (
            [atom for name, atom in one if name == label and atom[0] == "watermark"] for one in (wanted, got)
        )
        # Those that were sent in the attempt are in line on several channels.
        if must != found if label else Counter(must) != Counter(found):
            return f"it has the watermarks {_times_of(found)}, and must have {_times_of(must)}"
    rows = [[atom[1] for _, atom in one if atom[0] == "row"] for one in (wanted, got)]
    for verb, ours, others in (("lacks", *rows), ("has too many of", rows[1], rows[0])):
        left = Counter(map(_frozen, others))
        for row in ours:
            left[_frozen(row)] -= 1
            if left[_frozen(row)] < 0:
                return f"it {verb} {row}"
    return None


def _times_of(marks: Sequence[Atom]) -> str:
    return ", ".join(map(_shown, marks)) or "none"


def _shown(atom: Atom | None) -> str:
    if atom is None:
        return "nothing"
    kind, what = atom
    if kind == "row":
        return f"{what}"
    at, idle = what
    return f"the watermark {at}{' (idle)' if idle else ''}"


def _key_of(text: str) -> str:
    key: str = msgspec.json.decode(text)[0]
    return key


def _as_shown(held: Any) -> Any:
    """Return the content of a state in the form of views: a map is a list of pairs."""
    if isinstance(held, dict):
        return [[number, content] for number, content in sorted(held.items())]
    return held
