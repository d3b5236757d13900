"""The cut of one checkpoint: where each subtask's snapshot lies, and what crosses from one side to the other.

A batch lies before the cut at its sender if it was sent before the sender's snapshot, and at its receiver if it was
processed before the receiver's. Sides follow from counts that the processes logged at their snapshots, not from times,
so clocks that disagree do not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from barrier_tck.harness.record.message_trace import CutTaken, InFlightKept, Sent, Taken, TraceEvent, What
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.reports.clocks import in_line
from barrier_tck.reports.wording import control_name, plural, way_name

AT_LEAST_ONCE = "at_least_once"
LATE_OUTPUT = "late"
"""The side output with the records that came behind the allowed lateness."""


class Side(Enum):
    """How a batch lies to the cut."""

    BEFORE = "before"
    """Sent and processed before it."""
    AFTER = "after"
    """Sent and processed after it, or not processed at all."""
    IN_FLIGHT = "flight"
    """Sent before the cut and not processed before it; the snapshot holds it, in its channel's state."""
    LOST = "lost"
    """The same, but the snapshot does not hold it: a restore would lose it."""
    EXTRA = "extra"
    """Held by the snapshot as in flight, though it lies on one side at both ends: a restore would process it twice."""
    EARLY = "early"
    """Processed before the cut and sent after it: the line goes backwards across the cut."""
    UNKNOWN = "unknown"
    """One of its ends took no snapshot."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One subtask."""

    subtask: str
    at_ms: float | None
    """When it took its snapshot; None if it took none."""
    finished: bool = False
    """Whether it took none because it had finished before (BAR-6)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on its way through a channel."""

    position: int
    records: int
    side: Side
    sent_ms: float | None
    """None if the note is missing."""
    taken_ms: float | None
    """None if it was not taken, or much later."""
    watermark_ms: int | None = None
    """What it says if it is a watermark, which has its place among the batches: an event time in ms of the epoch."""
    idle: bool = False
    """A watermark: whether its sender is idle from here on."""

    @property
    def is_watermark(self) -> bool:
        """Whether it is a watermark, and holds no records."""
        return self.watermark_ms is not None


@dataclass(frozen=True, slots=True)
class Idle:
    """For some time a subtask had said that it is idle, so that no watermark waited for it (EVT-1)."""

    subtask: str
    from_ms: float
    until_ms: float | None
    """None if it did not end while this was logged."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """The checkpoint's barrier, or marker, on its way through a channel."""

    sent_ms: float | None
    taken_ms: float | None


@dataclass(frozen=True, slots=True)
class ChannelCut:
    """One channel with the batches near the cut, in their order."""

    name: str
    sender: str
    receiver: str
    sent: int | None
    """Batches sent before the sender's snapshot; None if it took none."""
    taken: int | None
    """Batches processed before the receiver's snapshot; None if it took none."""
    kept: int
    """Batches of the channel that the snapshot holds."""
    batches: tuple[Batch, ...]
    barriers: tuple[Barrier, ...]
    output: str = ""
    """The side output that it carries, for instance ``late``; empty: the main output."""

    @property
    def crossing(self) -> int:
        """Return how many batches cross the cut: above 0 forwards, below 0 backwards."""
        return 0 if self.sent is None or self.taken is None else self.sent - self.taken

    @property
    def lost(self) -> int:
        """Return how many batches cross it forwards and are not in the snapshot."""
        return max(0, self.crossing - self.kept)

    @property
    def early(self) -> int:
        """Return how many batches cross it backwards."""
        return max(0, -self.crossing)

    @property
    def kept_twice(self) -> int:
        """Return how many batches the snapshot holds although they do not cross the cut forwards."""
        if self.sent is None or self.taken is None:
            return 0
        return max(0, self.kept - max(0, self.crossing))

    @property
    def watermark_sent(self) -> int | None:
        """Return the last watermark (ms) that was sent before the cut; None if none was, or it was not logged."""
        return self._last_watermark(self.sent)

    @property
    def watermark_taken(self) -> int | None:
        """Return the last watermark (ms) that was taken before the cut; None if none was, or it was not logged."""
        return self._last_watermark(self.taken)

    def _last_watermark(self, before: int | None) -> int | None:
        passed = [
            batch.watermark_ms
            for batch in self.batches
            if before is not None and batch.position < before and batch.is_watermark
        ]
        return passed[-1] if passed else None


@dataclass(frozen=True, slots=True)
class CheckpointCut:
    """The cut of one checkpoint of one trial."""

    trial: int
    checkpoint: int
    attempt: int
    status: str
    """``completed`` or ``aborted``, or empty if the checkpoint did not end."""
    mode: str
    """How barriers work, as the plan names it."""
    way: str
    """The same for people, or the name of the protocol, if it is not that of barriers."""
    control: str
    """What passes the channels for the checkpoint: ``barrier`` or ``marker``."""
    lanes: tuple[Lane, ...]
    channels: tuple[ChannelCut, ...]
    shifted_ms: float = 0.0
    """By how much the clocks of processes were adjusted, at most."""
    idle: tuple[Idle, ...] = ()
    """When which subtask was idle, as far as that was logged."""

    @property
    def has_event_time(self) -> bool:
        """Whether watermarks passed its channels."""
        return any(batch.is_watermark for channel in self.channels for batch in channel.batches)

    @property
    def without_snapshot(self) -> tuple[str, ...]:
        """Return the subtasks that had not finished and took no snapshot."""
        return tuple(lane.subtask for lane in self.lanes if lane.at_ms is None and not lane.finished)

    @property
    def finished(self) -> tuple[str, ...]:
        """Return the subtasks that had finished before."""
        return tuple(lane.subtask for lane in self.lanes if lane.finished)

    @property
    def is_sound(self) -> bool:
        """Whether nothing crosses the cut that this mode does not allow."""
        early = 0 if self.mode == AT_LEAST_ONCE else sum(channel.early for channel in self.channels)
        return not early and not any(channel.lost or channel.kept_twice for channel in self.channels)

    def rendered(self) -> str:
        """Return what the cut shows, in sentences."""
        early, lost, kept, twice = (
            sum(getattr(channel, name) for channel in self.channels)
            for name in ("early", "lost", "kept", "kept_twice")
        )
        sentences = []
        if early and self.mode == AT_LEAST_ONCE:
            sentences.append(
                f"{plural(early, 'batch', 'batches')} came early: processed before the cut and sent after it. "
                "At-least-once mode allows this; a restore processes them again."
            )
        elif early:
            sentences.append(
                f"Not a consistent cut: {plural(early, 'batch', 'batches')} processed before it, but sent after it."
            )
        if lost:
            sentences.append(
                f"{plural(lost, 'batch', 'batches')} in flight that the snapshot does not hold: a restore loses them."
            )
        if twice:
            sentences.append(f"The snapshot holds {plural(twice, 'batch', 'batches')} too many as in flight.")
        if not sentences:
            flight = (
                f"and the snapshot holds the {plural(kept, 'batch', 'batches')} in flight"
                if kept
                else "and none forwards: no channel holds anything"
            )
            sentences.append(f"A consistent cut: no batch crosses it backwards, {flight}.")
        watermarks = sum(
            batch.is_watermark and batch.side is Side.IN_FLIGHT
            for channel in self.channels
            for batch in channel.batches
        )
        if watermarks:
            sentences.append(
                f"{plural(watermarks, 'watermark is', 'watermarks are')} among what is in flight: the "
                f"{self.control} overtook {'it' if watermarks == 1 else 'them'} together with the records."
            )
        for what, subtasks in (
            ("Finished before it", self.finished),
            ("Without a snapshot", self.without_snapshot),
        ):
            if subtasks:
                sentences.append(f"{what}: {', '.join(subtasks[:5])}{', ...' if len(subtasks) > 5 else ''}.")
        return " ".join(sentences)


class NoCut(Exception):
    """Nothing was logged of this checkpoint."""


def cut_of(record: TrialRecord, trace_events: Iterable[TraceEvent], checkpoint: int) -> CheckpointCut:
    """Return the cut of a checkpoint; raises NoCut if no subtask logged a snapshot for it."""
    trace_events = tuple(trace_events)
    attempts = [
        event.attempt
        for event in trace_events
        if isinstance(event, CutTaken) and event.checkpoint == checkpoint
    ]
    if not attempts:
        raise NoCut(f"no subtask took a snapshot for checkpoint {checkpoint} of trial {record.trial}")
    ended = next((item for item in record.checkpoints if item.checkpoint == checkpoint), None)
    attempt = ended.attempt if ended is not None else attempts[0]
    mine, shifted_ms = in_line([entry for entry in trace_events if entry.attempt == attempt])
    cuts = [event for event in mine if isinstance(event, CutTaken) and event.checkpoint == checkpoint]
    of_subtask = {cut.subtask: cut for cut in reversed(cuts)}
    subtasks = tuple(dict.fromkeys((*record.subtasks, *(event.subtask for event in mine))))
    # A checkpoint completes without a part only if its subtask had finished; the note of a cut may have been lost.
    parts = {snapshot.subtask for snapshot in record.snapshots if snapshot.checkpoint == checkpoint}
    completed = ended is not None and ended.status == "completed"
    return CheckpointCut(
        trial=record.trial,
        checkpoint=checkpoint,
        attempt=attempt,
        status=ended.status if ended is not None else "",
        mode=record.plan.checkpoints.mode,
        way=way_name(record.plan),
        control=control_name(record.plan),
        lanes=tuple(
            Lane(name, of_subtask[name].at_ms)
            if name in of_subtask
            else Lane(name, None, finished=completed and name not in parts)
            for name in subtasks
        ),
        channels=_channels(mine, of_subtask, checkpoint, _side_outputs(record)),
        shifted_ms=shifted_ms,
        idle=_idle(mine),
    )


def checkpoints_traced(trace_events: Iterable[TraceEvent]) -> tuple[int, ...]:
    """Return the checkpoints for which a subtask logged a snapshot, in order."""
    return tuple(sorted({event.checkpoint for event in trace_events if isinstance(event, CutTaken)}))


def _side_outputs(record: TrialRecord) -> dict[tuple[str, str, int], str]:
    """Return the side output that each edge carries: by both vertices, and its number between them."""
    found: dict[tuple[str, str, int], str] = {}
    numbers: Counter[tuple[str, str]] = Counter()
    for edge in record.plan.job.edges:
        ends = (edge.source, edge.target)
        found[(*ends, numbers[ends])] = edge.output
        numbers[ends] += 1
    return found


def _idle(trace_events: Sequence[TraceEvent]) -> tuple[Idle, ...]:
    """Return when each subtask was idle: from a watermark that says so to one that says otherwise, or its end."""
    since: dict[str, float] = {}
    found: list[Idle] = []
    for event in trace_events:
        if not isinstance(event, Sent) or (event.watermark_ms is None and event.what is not What.END):
            continue
        if event.idle:
            since.setdefault(event.subtask, event.at_ms)
        elif event.subtask in since:
            found.append(Idle(event.subtask, since.pop(event.subtask), event.at_ms))
    return (*found, *(Idle(subtask, from_ms, None) for subtask, from_ms in since.items()))


def _channels(
    trace_events: Sequence[TraceEvent],
    cuts: dict[str, CutTaken],
    checkpoint: int,
    side_outputs: Mapping[tuple[str, str, int], str],
) -> tuple[ChannelCut, ...]:
    sent: dict[str, list[Sent]] = {}
    taken: dict[str, list[Taken]] = {}
    kept: list[InFlightKept] = []
    for event in trace_events:
        if isinstance(event, Sent):
            sent.setdefault(event.channel, []).append(event)
        elif isinstance(event, Taken):
            taken.setdefault(event.channel, []).append(event)
        elif isinstance(event, InFlightKept) and event.checkpoint == checkpoint:
            kept.append(event)
    names = dict.fromkeys((*sent, *taken))
    for cut in cuts.values():
        names |= dict.fromkeys((*cut.sent, *cut.taken))
    return tuple(
        _channel(
            name,
            sent.get(name, []),
            taken.get(name, []),
            cuts,
            checkpoint,
            [entry for entry in kept if name in entry.inputs or name in entry.outputs],
            side_outputs.get(_edge(name), ""),
        )
        for name in names
    )


def _channel(
    name: str,
    sent: Sequence[Sent],
    taken: Sequence[Taken],
    cuts: dict[str, CutTaken],
    checkpoint: int,
    kept: Sequence[InFlightKept],
    output: str,
) -> ChannelCut:
    sender = sent[0].subtask if sent else next((cut.subtask for cut in cuts.values() if name in cut.sent), "")
    receiver = (
        taken[0].subtask if taken else next((cut.subtask for cut in cuts.values() if name in cut.taken), "")
    )
    sent_before = cuts[sender].sent.get(name) if sender in cuts else None
    taken_before = cuts[receiver].taken.get(name) if receiver in cuts else None
    held = _held(name, kept, (sent_before or 0) - (taken_before or 0))
    left = {event.position: event for event in sent if event.what is What.BATCH}
    came = {event.position: event for event in taken if event.what is What.BATCH}
    batches = []
    for position in sorted({*left, *came}):
        out, into = left.get(position), came.get(position)
        logged = out or into
        assert logged is not None
        batches.append(
            Batch(
                position,
                logged.records,
                _side(position, sent_before, taken_before, held),
                out.at_ms if out is not None else None,
                into.at_ms if into is not None else None,
                # Of a batch that was restored, its sender does not log what it is.
                logged.watermark_ms if logged.watermark_ms is not None or into is None else into.watermark_ms,
                logged.idle or (into is not None and into.idle),
            )
        )
    return ChannelCut(
        name,
        sender or _ends(name)[0],
        receiver or _ends(name)[1],
        sent_before,
        taken_before,
        sum(held),
        tuple(batches),
        _barriers(sent, taken, checkpoint),
        output,
    )


def _held(name: str, kept: Sequence[InFlightKept], crossing: int) -> tuple[int, int]:
    """Return how many batches of a channel the parts of its receiver and of its sender hold.

    What was not counted in the file is taken to hold all that cross the cut: no error is shown that was not seen.
    """
    if not all(entry.counted for entry in kept):
        return max(0, crossing), 0
    return sum(part.inputs.get(name, 0) for part in kept), sum(part.outputs.get(name, 0) for part in kept)


def _side(position: int, sent: int | None, taken: int | None, kept: tuple[int, int]) -> Side:
    """``kept`` counts what the receiver's part holds, the first to come, and the sender's part, the last to be sent."""
    if sent is None or taken is None:
        return Side.UNKNOWN
    before_at_sender, before_at_receiver = position < sent, position < taken
    held = taken <= position < taken + kept[0] or sent - kept[1] <= position < sent
    if before_at_sender and not before_at_receiver:
        return Side.IN_FLIGHT if held else Side.LOST
    if before_at_receiver and not before_at_sender:
        return Side.EARLY
    if held:
        return Side.EXTRA
    return Side.BEFORE if before_at_sender else Side.AFTER


def _barriers(sent: Sequence[Sent], taken: Sequence[Taken], checkpoint: int) -> tuple[Barrier, ...]:
    """Return the barrier of the checkpoint on a channel, if one was logged.

    One that moves ahead in its output buffer was sent twice, and what counts is when it did. One that overtakes at its
    receiver was taken twice, first when it arrived ahead of what waits there and last when it was read at its place;
    what counts is the first time, with which the snapshot began.
    """
    left = [event.at_ms for event in sent if event.what is What.BARRIER and event.checkpoint == checkpoint]
    came = [event.at_ms for event in taken if event.what is What.BARRIER and event.checkpoint == checkpoint]
    sent_ms = left[-1] if left else None
    behind = [at_ms for at_ms in came if sent_ms is None or at_ms >= sent_ms] or came[-1:]
    taken_ms = behind[0] if behind else None
    return () if sent_ms is None and taken_ms is None else (Barrier(sent_ms, taken_ms),)


def _edge(name: str) -> tuple[str, str, int]:
    """Return the edge that a channel is on: sending and receiving vertex, and its number between the two."""
    ends, _, number = name.partition("#")
    sender, receiver = (end.rpartition("[")[0] for end in _ends(ends))
    return sender, receiver, int(number) if number.isdecimal() else 0


def _ends(name: str) -> tuple[str, str]:
    """Return the ends of a channel by its name, for a channel of which only one end logged anything."""
    sender, _, receiver = name.partition("->")
    return sender, receiver.partition("#")[0]
