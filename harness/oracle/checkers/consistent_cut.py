"""Every global snapshot is a consistent cut, and its channel states are the messages between the cuts (CHL-2).

The ports of each process log which messages it sends and takes and when it records its state, in its local order.
Vector clocks are computed from these logs. A cut is consistent if no process, when it recorded its state, knew of an
event that another process did after recording its own. Moreover, the state of a channel must be exactly what was sent
before the sender recorded its state and not taken before the receiver recorded its own, in order. The messages of a
restored snapshot come first in their channels.

After a change of parallelism the system distributes the messages of the restored snapshot to other channels. The cuts
of such an attempt are not judged here; the checker ``dataflow`` judges what became of each message.

With Chandy-Lamport a process records its state only after a marker has come, unless the plan makes it an initiator
(CHL-1). If all channels to a process are closed, no marker can come; then the coordinator triggers it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.exactness import AT_LEAST_ONCE
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.sometimes import Sometimes, counted
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import InFlight, SnapshotView, WatermarkInFlight
from barrier_tck.harness.record.operations import AttemptStarted, LocalEvent, MessagesObserved
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

BEGUN_ANYWHERE = "begun_anywhere"
"""The name of the count of snapshots that were begun by the plan's own initiators, and not by all sources."""

CROSSING = "crossing"
"""The name of the count of messages that were taken after their receiver had recorded its state."""

INITIATED_MIN = 20
"""Among this many trials of Chandy-Lamport, at least one must have a snapshot that a chosen process began."""

Clock = dict[str, int]
"""Process -> how many of its events are known."""

_encode = msgspec.json.Encoder(order="sorted").encode


_NOT_INITIATOR = Sign("a process begins a snapshot although it is no initiator of it", "CHL-1")
_NOT_RECORDED = Sign("a snapshot completes although a process never recorded its state", "CHL-1")
_RECEIVED_UNSENT = Sign("a message is in the snapshot as received, and not as sent", "CHL-2")
_CHANNEL_STATE = Sign(
    "the state of a channel is not what was sent and not received between the cuts", "CHL-2"
)
_LOOP_STATE = Sign("with barriers, the records in flight in a loop are not part of the snapshot", "CHL-5")
_OVERTAKEN_STATE = Sign(
    "with barriers, the state of a channel is not what was sent and not received between the cuts", "UNA-1"
)
_NOT_HELD = Sign("a process takes what came behind the barrier on a channel before its own snapshot", "ALN-1")
_DISORDER = Sign("a process takes a message from a channel where it is not next", "CHL-2")


class ConsistentCut(StandardChecker):
    """Global snapshots are consistent cuts with exact channel states."""

    name = "consistent-cut"
    requires = (
        "Every global snapshot is a consistent cut by vector clocks, and each channel state is exactly "
        "what was sent and not taken between the cuts. Only initiators begin a snapshot. Attempts that restore "
        "messages in flight at another parallelism are left to `dataflow`."
    )
    judges = "jobs with loops, and Chandy-Lamport, where the messages of processes are logged"
    covers = {"CHL-1": ALWAYS, "CHL-2": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION, Capability.MESSAGE_LOG})
    sometimes = (
        Sometimes(
            name="sometimes-initiated",
            clauses=("CHL-1",),
            seen=counted(BEGUN_ANYWHERE),
            things={BEGUN_ANYWHERE: "with_chosen"},
            shown=(
                "in {with_chosen} of {trials} trials of Chandy-Lamport chosen processes began snapshots, "
                "{begun_anywhere} in all"
            ),
            not_shown=(
                "in none of the {trials} trials of Chandy-Lamport did any process but the sources begin a snapshot; "
                "name others in 'initiators', or draw them with the profile chandy-lamport"
            ),
            trials_min=INITIATED_MIN,
        ),
    )
    signs = (
        _NOT_INITIATOR,
        _NOT_RECORDED,
        _RECEIVED_UNSENT,
        _CHANNEL_STATE,
        _LOOP_STATE,
        _OVERTAKEN_STATE,
        _NOT_HELD,
        _DISORDER,
    )
    directness = Directness.MESSAGES
    rank = 340

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and trial.plan.records_channels

    def check(self, context: TrialContext) -> Finding:
        """Judge every completed checkpoint that could be opened."""
        views = {view.checkpoint: view for view in context.history.checkpoints if view.problem is None}
        rescaled = _rescaled_in_flight(context, views)
        runs = _runs(context, views, rescaled)
        problems: list[Breach] = []
        judged = messages = crossing = 0
        for number, view in views.items():
            if view.attempt in rescaled:
                continue
            run = next((run for run in runs.values() if number in run.cuts), None)
            if run is None and set(view.subtasks) <= set(view.finished):
                continue  # every process had finished, and none could record its state
            if run is None:
                sentence = (
                    f"checkpoint {number} completed, but no process was seen to record its state for it"
                )
                at = completed_at(context, number)
                problems.append(Breach(_NOT_RECORDED, sentence, at, checkpoint=number, attempt=view.attempt))
                continue
            judged += 1
            at = completed_at(context, number)
            problems += [
                Breach(
                    _with_barriers(context.plan_of(view.attempt), place) if sign is _CHANNEL_STATE else sign,
                    f"checkpoint {number}: {problem}",
                    at,
                    place,
                    number,
                    view.attempt,
                )
                for sign, place, problem in (
                    *_uninitiated(run, view, context),
                    *_not_held(run, view, context),
                    *run.problems_of(view),
                )
            ]
            messages += sum(len(channel.rows) for channel in view.in_flight)
            crossing += run.crossing(view)
        counts = {
            "checkpoints": judged,
            "messages": messages,
            CROSSING: crossing,
            "violations": len(problems),
        }
        if context.plan.checkpoints.protocol == "chandy_lamport":
            counts[BEGUN_ANYWHERE] = judged if context.plan.checkpoints.initiators else 0
        if problems:
            summary = (
                f"{len(problems)} times a snapshot is no consistent cut; the first: {problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
        if not judged:
            summary = "no checkpoint was completed and opened, so no cut was judged"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        summary = f"{judged} snapshots are consistent cuts, with {messages} messages in their channels"
        covered = (
            *(("CHL-1",) if context.plan.checkpoints.records_all else ()),
            *(("CHL-2",) if crossing else ()),
        )
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


@dataclass
class _Channel:
    """One channel of one attempt: what was put into it and taken from it, in order."""

    rows: list[str] = field(default_factory=list)
    """Row by row: those of the restored snapshot first, then what the sender sent."""
    sent_in: list[Clock] = field(default_factory=list)
    """The sender's clock at each of these rows; empty for one that was restored."""
    restored: int = 0
    taken: int = 0


@dataclass
class _Cut:
    """The position of one process in its log when it recorded its state."""

    clock: Clock
    put: dict[str, int]
    """Output channel -> how many rows had been put into it."""
    taken: dict[str, int]
    """Input channel -> how many rows had been taken from it."""


class _Run:
    """The events of one attempt, with their vector clocks."""

    def __init__(self, logs: Mapping[str, Sequence[LocalEvent]], restored: SnapshotView | None) -> None:
        self.cuts: dict[int, dict[str, _Cut]] = {}
        self.begun: dict[int, tuple[str, ...]] = _begun(logs)
        self.not_held: dict[int, tuple[tuple[str, str], ...]] = _taken_behind(logs)
        self._processes = tuple(logs)
        self._channels: dict[str, _Channel] = {}
        self._disorder: list[str] = []
        for channel in restored.in_flight if restored is not None else ():
            name = _channel_name(channel.sender, channel.receiver, channel.edge)
            rows = _messages(channel)
            self._channels[name] = _Channel(rows, [{} for _ in rows], len(rows))
        self._at_end: dict[str, _Cut] = {}
        """The position of each process after its last event."""
        self._replay(logs)

    def _replay(self, logs: Mapping[str, Sequence[LocalEvent]]) -> None:
        """Go through all events, each process in its order, a message never before it was sent."""
        clocks: dict[str, Clock] = {process: {process: 0} for process in logs}
        places = dict.fromkeys(logs, 0)
        moved = True
        while moved:
            moved = False
            for process, events in logs.items():
                while places[process] < len(events) and self._happens(
                    process, events[places[process]], clocks
                ):
                    places[process] += 1
                    moved = True
        self._at_end = {process: self._cut_now(process, clock) for process, clock in clocks.items()}
        for process, events in logs.items():
            if places[process] < len(events):
                event = events[places[process]]
                self._disorder.append(
                    f"{process} took {_described(event.rows)} from {event.channel}, where it was not next"
                )

    def _happens(self, process: str, event: LocalEvent, clocks: dict[str, Clock]) -> bool:
        """Carry out one event; return False if it is a message that was not sent yet."""
        clock = clocks[process]
        channel = self._channels.setdefault(event.channel, _Channel()) if event.channel else _Channel()
        if event.kind == "taken" and not self._take(channel, event, clock):
            return False
        clock[process] += 1
        if event.kind == "sent":
            channel.rows += event.rows
            channel.sent_in += [dict(clock)] * len(event.rows)
        elif event.kind == "recorded":
            self.cuts.setdefault(event.checkpoint, {})[process] = self._cut_now(process, clock)
        return True

    def _cut_now(self, process: str, clock: Clock) -> _Cut:
        return _Cut(
            dict(clock),
            {name: len(channel.rows) for name, channel in self._channels.items() if _sender(name) == process},
            {name: channel.taken for name, channel in self._channels.items() if _receiver(name) == process},
        )

    @staticmethod
    def _take(channel: _Channel, event: LocalEvent, clock: Clock) -> bool:
        """Take rows from a channel and merge the sender's clock into ``clock``; return False if they are not next."""
        begin, end = channel.taken, channel.taken + len(event.rows)
        if tuple(channel.rows[begin:end]) != event.rows:
            return False
        channel.taken = end
        for sent in channel.sent_in[begin:end]:
            for process, known in sent.items():
                clock[process] = max(clock.get(process, 0), known)
        return True

    def problems_of(self, view: SnapshotView) -> Iterator[tuple[Sign, str, str]]:
        """Yield what is wrong with one snapshot: of which kind it is, the place, and a sentence."""
        yield from ((_DISORDER, "", sentence) for sentence in self._disorder)
        # A process that has finished does nothing any more: every cut passes behind all that it did (BAR-6).
        finished = {subtask: self._at_end[subtask] for subtask in view.finished if subtask in self._at_end}
        cuts = finished | self.cuts[view.checkpoint]
        missing = [process for process in self._processes if process not in cuts]
        if missing:
            yield _NOT_RECORDED, missing[0], f"{', '.join(missing)} never recorded its state"
            return
        for process, cut in cuts.items():
            for other, known in cut.clock.items():
                if known > cuts[other].clock[other]:
                    sentence = (
                        f"{process} knew of event {known} of {other} when it recorded its state, but {other} recorded "
                        f"its own after event {cuts[other].clock[other]}: something is received that was not sent"
                    )
                    yield _RECEIVED_UNSENT, process, sentence
        yield from self._channel_problems(view, cuts)

    def crossing(self, view: SnapshotView) -> int:
        """Return how many messages were taken after their receiver had recorded its state: a wrong snapshot could have
        them in the state of the process, or lack them in the state of the channel."""
        cuts = self.cuts[view.checkpoint]
        return sum(
            len(channel.rows) - cuts[_receiver(name)].taken.get(name, 0)
            for name, channel in self._channels.items()
            if _receiver(name) in cuts
        )

    def _channel_problems(
        self, view: SnapshotView, cuts: Mapping[str, _Cut]
    ) -> Iterator[tuple[Sign, str, str]]:
        stored = {
            _channel_name(entry.sender, entry.receiver, entry.edge): _messages(entry)
            for entry in view.in_flight
        }
        for name in dict.fromkeys((*self._channels, *stored)):
            channel = self._channels.get(name, _Channel())
            put = cuts[_sender(name)].put.get(name, channel.restored)
            taken = cuts[_receiver(name)].taken.get(name, 0)
            due, seen = channel.rows[taken:put], stored.get(name, [])
            if seen != due:
                state = f"the state of {name} is {_described(seen)}, but between the cuts there was {_described(due)}"
                yield _CHANNEL_STATE, name, state


def _rescaled_in_flight(context: TrialContext, views: Mapping[int, SnapshotView]) -> tuple[int, ...]:
    """Return the attempts that restored messages in flight which a job of another parallelism had recorded."""
    return tuple(
        line.operation.attempt
        for line in context.history.of(AttemptStarted)
        if (restored := views.get(line.operation.restored_checkpoint or 0)) is not None
        and restored.in_flight
        and context.job_number(restored.attempt) != context.job_number(line.operation.attempt)
    )


def _runs(
    context: TrialContext, views: Mapping[int, SnapshotView], left_out: Collection[int]
) -> dict[int, _Run]:
    """Return attempt -> its events, for attempts that are not left out and whose restored snapshot is known."""
    logs: dict[int, dict[str, Sequence[LocalEvent]]] = {}
    for line in context.history.of(MessagesObserved):
        observed = line.operation
        logs.setdefault(observed.attempt, {})[observed.subtask] = observed.events
    restored = {
        line.operation.attempt: line.operation.restored_checkpoint
        for line in context.history.of(AttemptStarted)
    }
    found: dict[int, _Run] = {}
    for attempt, by_process in logs.items():
        if attempt in left_out:
            continue
        checkpoint = restored.get(attempt)
        if checkpoint is None or checkpoint in views:
            found[attempt] = _Run(by_process, views.get(checkpoint) if checkpoint is not None else None)
    return found


def _begun(logs: Mapping[str, Sequence[LocalEvent]]) -> dict[int, tuple[str, ...]]:
    """Return checkpoint -> the processes that recorded themselves for it before any marker and any end of a channel."""
    found: dict[int, tuple[str, ...]] = {}
    for process, events in logs.items():
        marked: dict[int, None] = {}
        for event in events:
            if event.kind == "closed":
                break
            if event.kind == "marked":
                marked[event.checkpoint] = None
            elif event.kind == "recorded" and event.checkpoint not in marked:
                found[event.checkpoint] = (*found.get(event.checkpoint, ()), process)
    return found


def _uninitiated(run: _Run, view: SnapshotView, context: TrialContext) -> Iterator[tuple[Sign, str, str]]:
    """Yield the processes that began a snapshot although the plan names others as initiators (CHL-1)."""
    plan = context.plan_of(view.attempt)
    named = plan.checkpoints.initiators
    if not plan.checkpoints.records_all or not named:
        return
    initiators = (*named[(view.checkpoint - 1) % len(named)], *plan.job.unreached)
    for process in run.begun.get(view.checkpoint, ()):
        if process not in initiators:
            sentence = f"{process} recorded its state before a marker came; the initiators are {', '.join(initiators)}"
            yield _NOT_INITIATOR, process, sentence


def _taken_behind(logs: Mapping[str, Sequence[LocalEvent]]) -> dict[int, tuple[tuple[str, str], ...]]:
    """Return checkpoint -> process and channel from which it took messages behind the barrier, before its snapshot."""
    found: dict[int, tuple[tuple[str, str], ...]] = {}
    for process, events in logs.items():
        behind: dict[str, dict[int, None]] = {}
        """Channel -> the checkpoints whose barrier has come on it, and for which the process has no snapshot yet."""
        taken: dict[int, dict[str, None]] = {}
        for event in events:
            match event.kind:
                case "marked":
                    behind.setdefault(event.channel, {})[event.checkpoint] = None
                case "taken":
                    for checkpoint in behind.get(event.channel, {}):
                        taken.setdefault(checkpoint, {})[event.channel] = None
                case "recorded":
                    for open_ones in behind.values():
                        open_ones.pop(event.checkpoint, None)
                    places = tuple((process, channel) for channel in taken.pop(event.checkpoint, {}))
                    found[event.checkpoint] = found.get(event.checkpoint, ()) + places
                case _:
                    pass
    return found


def _not_held(run: _Run, view: SnapshotView, context: TrialContext) -> Iterator[tuple[Sign, str, str]]:
    """Yield the channels that were read behind a barrier for which they were to be held back (ALN-1)."""
    checkpoints = context.plan_of(view.attempt).checkpoints
    if checkpoints.records_all or checkpoints.overtakes or checkpoints.mode == AT_LEAST_ONCE:
        return
    for process, channel in run.not_held.get(view.checkpoint, ()):
        sentence = (
            f"{process} took messages from {channel} behind the barrier, and before it recorded its state"
        )
        yield _NOT_HELD, process, sentence


def _with_barriers(plan: TrialPlan, channel: str) -> Sign:
    """Return what is broken if the state of a channel is wrong: what is recorded of it depends on the protocol."""
    if plan.checkpoints.records_all:
        return _CHANNEL_STATE
    ends = _sender(channel).rpartition("[")[0], _receiver(channel).rpartition("[")[0]
    edges = [edge for edge in plan.job.edges if (edge.source, edge.target) == ends]
    number = int(channel.partition("#")[2] or 0)
    feedback = number >= len(edges) or edges[number].feedback
    return _LOOP_STATE if feedback or not plan.checkpoints.overtakes else _OVERTAKEN_STATE


def _messages(channel: InFlight) -> list[str]:
    """Return what was in flight on a channel as it is noted when it is sent."""
    return [
        f"watermark {one.at_ms}" if isinstance(one, WatermarkInFlight) else _encode(one).decode()
        for one in channel.elements
    ]


def _channel_name(sender: str, receiver: str, edge: int) -> str:
    return f"{sender}->{receiver}" + (f"#{edge}" if edge else "")


def _sender(channel: str) -> str:
    return channel.partition("->")[0]


def _receiver(channel: str) -> str:
    return channel.partition("->")[2].partition("#")[0]


def _described(rows: Sequence[str]) -> str:
    return f"{len(rows)} messages, the first {rows[0]}" if rows else "nothing"
