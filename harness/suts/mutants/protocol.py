"""Planted bugs of alignment, barrier emission and coordination."""

from __future__ import annotations

from typing import Any

from reference_impl.ids import SubtaskId
from reference_impl.protocol.coordinator import Commands, CoordinatorMachine
from reference_impl.protocol.messages import ChannelControl, SubtaskSnapshot
from reference_impl.protocol.subtask import ForwardBarrier
from reference_impl.runtime.ports import Payload
from reference_impl.runtime.subtask_driver import SubtaskDriver


class EmitsWhileDrawingCheckpoint(SubtaskDriver):
    """AL-01: the source reads its offset, drains one more poll batch, then emits the barrier."""

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Emit a batch between the snapshot and the barrier."""
        if self.reader is not None and not self.exhausted:
            self.run_chain(0, self.reader.poll())
        super().forward_barrier(command)


class ReadsBehindTheBarrier(SubtaskDriver):
    """UC-03, aligned: a channel that delivered its barrier is read for one more batch before it is held."""

    def __init__(self, *arguments: Any) -> None:
        """Start with no channel that is held too late."""
        super().__init__(*arguments)
        self._late: list[int] = []

    def on_control(self, channel: int, element: ChannelControl) -> None:
        """Let the channel go on although it was just held."""
        super().on_control(channel, element)
        if self.blocked[channel]:
            self.blocked[channel] = False
            self._late.append(channel)

    def on_data(self, channel: int, payload: Payload) -> None:
        """Hold the channel after the batch that it should not have delivered."""
        super().on_data(channel, payload)
        if channel in self._late:
            self._late.remove(channel)
            aligner = self.machine.aligner
            self.blocked[channel] = aligner is not None and aligner.current is not None


class KeepsLateState(CoordinatorMachine):
    """CO-01: a late acknowledgement is ignored together with the files that it names."""

    def discard_late(self, snapshot: SubtaskSnapshot) -> Commands:
        """Forget the files."""
        return ()


class WaitsForTheDead(CoordinatorMachine):
    """CO-03: a failed task's missing acknowledgement does not abort the pending checkpoint."""

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Keep every pending checkpoint pending."""
        return ()


class CountsTheDeadAsDone(CoordinatorMachine):
    """CO-08: a failed task is removed from those awaited, as if it had acknowledged."""

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Complete what now lacks nobody; abort the rest as the product does."""
        commands: Commands = ()
        for pending in list(self.pending.values()):
            if failed in pending.awaiting and not pending.completing:
                del pending.awaiting[failed]
                if pending.fully_acknowledged:
                    commands += self.complete_when_acknowledged(pending, now_ms)
        return commands + super().abort_on_failure(now_ms, reason, failed)
