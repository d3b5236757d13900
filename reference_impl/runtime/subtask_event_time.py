"""How far event time has come in one subtask: it combines watermarks, lets operators act, and passes them on (EVT-1).

A source has a watermark for each of its splits, which its strategy makes of what was read. Any other subtask has one
for each input channel. In a loop no watermark is passed on: what goes round would be late behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane, Operator, Payload, SourceReader
from barrier_tck.reference_impl.operators.event_time_process import FollowsEventTime
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import SplitPosition
from barrier_tck.reference_impl.protocol.watermarks import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    EventTimeSnapshot,
    GroupWatermarks,
    InheritedInputs,
    InputState,
    InputWatermark,
    Watermark,
    WatermarkValve,
)
from barrier_tck.reference_impl.runtime.ports import Clock
from barrier_tck.reference_impl.runtime.routing import Router

RunChain = Callable[[int, Payload | None], None]
"""Passes a batch through the chain from a position on."""


class SubtaskEventTime:
    """Event time in one subtask of one attempt."""

    def __init__(
        self, graph: JobGraph, subtask: SubtaskId, operators: Sequence[Operator], router: Router
    ) -> None:
        self.used = graph.has_event_time and graph.loop_of(subtask.vertex) is None
        """Whether anything of it matters here."""
        self._inputs = graph.inputs_of(subtask)
        self._valve = WatermarkValve(len(self._inputs))
        self._groups = GroupWatermarks()
        self._following = [
            (place, one) for place, one in enumerate(operators) if isinstance(one, FollowsEventTime)
        ]
        self.has_timers = self.used and bool(self._following)
        """Whether an operator may have timers in event time."""
        self._router = router
        self._inherited: dict[tuple[SubtaskId, ...], tuple[InheritedInputs, WatermarkValve]] = {}
        self._repeats = False
        """Whether the watermark must be sent once more, because the receivers may know of none from here."""

    def restore(self, snapshot: EventTimeSnapshot) -> None:
        """Go on where a snapshot stood."""
        known = {
            (one.sender.vertex if snapshot.by_edge else one.sender, one.edge): one for one in snapshot.inputs
        }
        inputs = [
            known.get(
                (channel.sender.vertex if snapshot.by_edge else channel.sender, channel.edge),
                InputWatermark(channel.sender, channel.edge),
            )
            for channel in self._inputs
        ]
        self._valve.restore(snapshot.at_ms, snapshot.idle, [one.state for one in inputs])
        self._groups = GroupWatermarks(snapshot.at_ms, snapshot.floors)
        self._repeats = snapshot.repeats
        for one in snapshot.inherited:
            valve = WatermarkValve(len(one.inputs))
            valve.restore(BEGINNING_OF_TIME, False, [each.state for each in one.inputs])
            self._inherited[one.receivers] = one, valve

    def snapshot(self) -> EventTimeSnapshot | msgspec.UnsetType:
        """Return how far event time has come; unset in a job that knows none."""
        if not self.used:
            return msgspec.UNSET
        inputs = [
            InputWatermark(channel.sender, channel.edge, *state)
            for channel, state in zip(self._inputs, self._valve.states(), strict=bool(self._inputs))
        ]
        inherited = [
            msgspec.structs.replace(
                one,
                inputs=tuple(
                    msgspec.structs.replace(each, at_ms=at_ms, idle=idle, ended=ended)
                    for each, (at_ms, idle, ended) in zip(one.inputs, valve.states(), strict=True)
                ),
            )
            for one, valve in self._inherited.values()
        ]
        at_ms, idle = self._valve.at_ms, self._valve.idle
        return EventTimeSnapshot(
            at_ms, idle, tuple(inputs), self._groups.floors, tuple(inherited), repeats=self._repeats
        )

    def at_the_end(self) -> EventTimeSnapshot | msgspec.UnsetType:
        """Return what a subtask that has finished says."""
        return EventTimeSnapshot(END_OF_TIME) if self.used else msgspec.UNSET

    def take(self, channel: int, watermark: Watermark, run_chain: RunChain) -> None:
        """Take a watermark of an input channel."""
        if not self.used:
            return
        if watermark.origin:
            self._take_inherited(watermark, run_chain)
        elif self._valve.advance(channel, watermark) or self._repeats:
            self._advance(run_chain)

    def input_ended(self, channel: int, run_chain: RunChain) -> None:
        """Take that no record follows on a channel. When all have ended, ``end`` follows, operator by operator."""
        if self.used and self._valve.end(channel) and self._valve.at_ms != END_OF_TIME:
            self._advance(run_chain)

    def end(self, operator: Operator) -> Iterable[Payload]:
        """Let event time end for an operator, and return what it emits."""
        return operator.advance_watermark(END_OF_TIME) if isinstance(operator, FollowsEventTime) else ()

    def ended(self) -> None:
        """Take that event time has ended for all operators."""
        self._valve.end_all()
        self._groups.advance(self._valve.at_ms)

    def fire_due(self, run_chain: RunChain) -> None:
        """Let timers go off that were set for a time that has passed."""
        for place, operator in self._following:
            for payload in operator.fire_due():
                run_chain(place + 1, payload)

    def _advance(self, run_chain: RunChain) -> None:
        at_ms = self._valve.at_ms
        self._groups.advance(at_ms)
        for place, operator in self._following:
            for payload in operator.advance_watermark(at_ms):
                run_chain(place + 1, payload)
        self._router.send_watermark(Watermark(at_ms, self._valve.idle))
        self._repeats = False

    def _take_inherited(self, watermark: Watermark, run_chain: RunChain) -> None:
        """Let event time advance for the key groups that were a former receiver's, by what was on its way to it."""
        found = self._inherited.get(tuple(channel.receiver for channel in watermark.origin))
        if found is None:
            return
        (one, valve), origin = found, watermark.origin[0]
        numbers = [
            number
            for number, each in enumerate(one.inputs)
            if (each.sender, each.edge) == (origin.sender, origin.edge)
        ]
        if not numbers or not valve.advance(numbers[0], watermark):
            return
        self._groups.raise_floor(one.key_groups, valve.at_ms)
        for place, operator in self._following:
            for payload in operator.raise_floor(one.key_groups, valve.at_ms):
                run_chain(place + 1, payload)


class SourceEventTime(SubtaskEventTime):
    """Event time in one subtask of a source: its inputs are its splits."""

    def __init__(
        self,
        graph: JobGraph,
        subtask: SubtaskId,
        operators: Sequence[Operator],
        router: Router,
        plane: DataPlane,
        reader: SourceReader,
        clock: Clock,
    ) -> None:
        super().__init__(graph, subtask, operators, router)
        strategy = graph.vertex(subtask.vertex).watermarks
        self._strategy = strategy if self.used else None
        self._plane = plane
        self._reader = reader
        self._clock = clock
        self._inputs = ()
        self._splits = [position.split for position in reader.positions()]
        self._valve = WatermarkValve(len(self._splits))
        self._quiet_since: dict[str, float] = {}

    def restore_splits(self, snapshot: EventTimeSnapshot, positions: Sequence[SplitPosition]) -> None:
        """Go on where a snapshot stood; the watermark of each split has moved with its position."""
        self.restore(snapshot)
        known = {position.split: position for position in positions}
        splits: list[InputState] = []
        for split in self._splits:
            position = known.get(split)
            at_ms = position.watermark_ms if position is not None else msgspec.UNSET
            idle = position is not None and position.idle is True
            reached = BEGINNING_OF_TIME if isinstance(at_ms, msgspec.UnsetType) else at_ms
            splits.append((reached, idle, snapshot.at_ms == END_OF_TIME))
        self._valve.restore(snapshot.at_ms, snapshot.idle, splits)
        if snapshot.by_edge:  # its splits may all be further than those of other subtasks
            self._valve.mark((), ())

    def positions(self) -> tuple[SplitPosition, ...]:
        """Return the position of each split, with its watermark."""
        positions = self._reader.positions()
        if self._strategy is None:
            return positions
        states = dict(zip(self._splits, self._valve.states(), strict=True))
        return tuple(
            msgspec.structs.replace(
                position,
                watermark_ms=states[position.split][0]
                if states[position.split][0] > BEGINNING_OF_TIME
                else msgspec.UNSET,
                idle=True if states[position.split][1] else msgspec.UNSET,
            )
            for position in positions
        )

    def slowest_split(self) -> InputState:
        """Return the smallest watermark (ms) of the splits that are active, and whether there is none because all
        others are idle, or have ended (EVT-6).
        """
        still_open = [
            (at_ms, idle)
            for split, (at_ms, idle, ended) in zip(self._splits, self._valve.states(), strict=True)
            if not ended and split in self._reader.open_splits
        ]
        active = [at_ms for at_ms, idle in still_open if not idle]
        return min(active, default=self._valve.at_ms), bool(still_open) and not active, not still_open

    def splits_beyond(self, largest_ms: int) -> tuple[str, ...]:
        """Return the splits whose watermark is above one (EVT-6)."""
        states = zip(self._splits, self._valve.states(), strict=True)
        return tuple(split for split, (at_ms, _, _) in states if at_ms > largest_ms)

    def before_batch(self, run_chain: RunChain) -> None:
        """Say, ahead of a batch, that its split is not idle any more."""
        if self._strategy is not None:
            number = self._splits.index(self._reader.split)
            self._quiet_since.pop(self._reader.split, None)
            changed = self._valve.states()[number][1] and self._valve.advance(
                number, Watermark(BEGINNING_OF_TIME)
            )
            if changed or self._repeats:
                self._advance(run_chain)

    def after_batch(self, payload: Payload, run_chain: RunChain) -> None:
        """Take the event times of a batch that was emitted."""
        if self._strategy is None:
            return
        number = self._splits.index(self._reader.split)
        largest_ms = self._plane.largest(payload, self._strategy.column)
        before_ms = self._valve.states()[number][0]
        at_ms = before_ms if largest_ms is None else self._strategy.after(before_ms, largest_ms)
        changed = self._valve.advance(number, Watermark(at_ms))
        if self._look_at_splits() or changed:
            self._advance(run_chain)

    def nothing_yet(self, run_chain: RunChain) -> None:
        """Take that no split had a record."""
        if self._strategy is not None and (self._look_at_splits() or self._repeats):
            self._advance(run_chain)

    def _look_at_splits(self) -> bool:
        """Let splits end or become idle; return whether the watermark has changed by that."""
        assert self._strategy is not None, "the callers look"
        open_splits, quiet = self._reader.open_splits, self._reader.quiet_splits
        now_ms, idle_after_ms = self._clock.now_ms(), self._strategy.idle_after_ms
        now_idle, now_ended = list[int](), list[int]()
        for number, split in enumerate(self._splits):
            _, idle, ended = self._valve.states()[number]
            if split not in open_splits:
                # The end of the last one is the end of the input, which is taken operator by operator.
                now_ended += [number] if open_splits else ()
            elif split in quiet and idle_after_ms is not None and not (idle or ended):
                since_ms = self._quiet_since.setdefault(split, now_ms)
                now_idle += [number] if now_ms - since_ms >= idle_after_ms else ()
            else:
                self._quiet_since.pop(split, None)  # it may be paused: that time does not count
        return self._valve.mark(now_idle, now_ended)
