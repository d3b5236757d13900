"""When a loop has ended: Mattern's four counters, in waves through the coordinator.

Theory of operation. A record in a loop may make others for as long as it goes round, so the end of all input from
outside does not end the loop; nor do quiet members, because a record may be under way between them. Once everything
that feeds the loop from outside has ended, the coordinator asks all members in *waves* how many elements they sent to
members and how many they took from members, since the attempt began. A member answers between two elements, so it has
sent all that follows from what it counts as taken.

One wave proves nothing: its counts are of different moments, so that an element that was counted when it was taken
and not when it was sent can hide another one that is under way. Counts only grow. So if two waves in a row give the
same two sums, no member sent or took anything between its two answers, and all held at once in the moment between the
waves. If these sums are equal to each other as well, nothing was under way at that moment, and nothing can ever come
again. Then the feedback channels end, and the members get the end of their input in the usual way.

After a wave whose sums differ, records are under way; the next wave comes after a pause, so that a long-lived loop
costs little. How long the pause is decides how soon the end is noticed, but never whether it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.loop_commands import CloseLoop, LoopCommand, RestLoop, StartWave
from barrier_tck.reference_impl.protocol.loop_events import LoopEvent, WaveDue
from barrier_tck.reference_impl.protocol.loop_states import LoopState
from barrier_tck.reference_impl.protocol.messages import LoopCounted, LoopInputEnded, SubtaskRunning
from barrier_tck.reference_impl.protocol.table import TableMachine, leads

LoopCommands = tuple[LoopCommand, ...]

PAUSE_MS = 20.0
"""The pause after a wave that found records under way."""


class LoopTermination(TableMachine[LoopState, LoopCommand]):
    """Finds the end of one loop in one attempt. ``handle`` is the only entry point."""

    def __init__(self, name: str, members: Sequence[SubtaskId], fed: Sequence[SubtaskId]) -> None:
        super().__init__(f"the loop {name}", LoopState.FED)
        self.members = tuple(members)
        self._not_running = dict.fromkeys(members)
        self._fed = dict.fromkeys(fed)
        self._wave = 0
        self._unanswered: dict[SubtaskId, None] = {}
        self._sums = (0, 0)
        """Elements sent and taken, as reported in the present wave so far."""
        self._sums_before: tuple[int, int] | None = None
        """The sums of the wave before."""

    def handle(self, event: LoopEvent) -> LoopCommands:
        """Handle one event and return the commands, in order; raises ProtocolError if the event is illegal."""
        return self._take(event)

    def waiting_for(self) -> str:
        """Say what the loop waits for, for liveness findings (REC-6); empty if it has ended."""
        match self.state:
            case LoopState.FED:
                return f"{self.name} waits for the end of the input of " + ", ".join(map(str, self._fed))
            case LoopState.COUNTING:
                return f"{self.name} waits for the counts of " + ", ".join(map(str, self._unanswered))
            case LoopState.RESTING:
                sent, taken = self._sums_before or (0, 0)
                return f"{self.name}: {sent} elements were sent round it and {taken} taken"
        return ""

    def _on_running(self, event: SubtaskRunning) -> LoopCommands:
        self._not_running.pop(event.subtask, None)
        return self._count_if_closed()

    def _on_input_ended(self, event: LoopInputEnded) -> LoopCommands:
        self._check_fed(event)
        self._fed.pop(event.subtask)
        return self._count_if_closed()

    def _check_fed(self, event: LoopInputEnded) -> None:
        """The input of a member from outside ends once, and only if it has any."""
        if event.subtask not in self._fed:
            raise self.illegal(event, f"still fed: {list(map(str, self._fed))}")

    def _count_if_closed(self) -> LoopCommands:
        """The first wave starts once every member runs and nothing feeds the loop any more."""
        return () if self._fed or self._not_running else self._start_wave()

    def _start_wave(self) -> LoopCommands:
        self.state = LoopState.COUNTING
        self._wave += 1
        self._unanswered = dict.fromkeys(self.members)
        self._sums = (0, 0)
        return (StartWave(self._wave),)

    def _on_counted(self, event: LoopCounted) -> LoopCommands:
        self._check_asked(event)
        del self._unanswered[event.subtask]
        self._sums = self._sums[0] + event.sent, self._sums[1] + event.taken
        return () if self._unanswered else self._end_wave()

    def _check_asked(self, event: LoopCounted) -> None:
        """A member answers each wave once."""
        if event.wave != self._wave or event.subtask not in self._unanswered:
            raise self.illegal(event, f"wave {self._wave} waits for {list(map(str, self._unanswered))}")

    def _end_wave(self) -> LoopCommands:
        before, self._sums_before = self._sums_before, self._sums
        if self._is_over(before, self._sums):
            self.state = LoopState.ENDED
            return (CloseLoop(),)
        sent, taken = self._sums
        if sent == taken:
            return self._start_wave()
        self.state = LoopState.RESTING
        return (RestLoop(PAUSE_MS),)

    def _is_over(self, before: tuple[int, int] | None, now: tuple[int, int]) -> bool:
        """The loop is over if two waves in a row gave the same sums, and as much was taken as was sent."""
        return before == now and now[0] == now[1]

    def _on_due(self, event: WaveDue) -> LoopCommands:
        return self._start_wave()

    RULES: ClassVar = (_check_fed, _count_if_closed, _check_asked, _is_over)

    TABLE: ClassVar = {
        LoopState.FED: {
            SubtaskRunning: leads(_on_running, LoopState.COUNTING),
            LoopInputEnded: leads(_on_input_ended, LoopState.COUNTING),
        },
        LoopState.COUNTING: {
            LoopCounted: leads(_on_counted, LoopState.RESTING, LoopState.ENDED),
        },
        LoopState.RESTING: {
            WaveDue: leads(_on_due, LoopState.COUNTING),
        },
        LoopState.ENDED: {},
    }
