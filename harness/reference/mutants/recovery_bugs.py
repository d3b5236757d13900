"""Planted bugs of recovery as a whole, which control trials use in addition to bugs that are planted elsewhere."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import Commands
from barrier_tck.reference_impl.protocol.coordinator_events import CoordinatorEvent, JobStarted
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.pending import PendingCheckpoint
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


class DropsRestoredState(SubtaskDriver):
    """RE-01: operators are opened as if the restored checkpoint named no state file."""

    def open(self) -> None:
        """Open with the positions and the transactions of the checkpoint, but without its state."""
        restore = self.deployment.restore
        if restore is not None:
            bare = tuple(msgspec.structs.replace(part, handles=()) for part in restore.operators)
            restore = msgspec.structs.replace(restore, operators=bare)
            self.deployment = replace(self.deployment, restore=restore)
        super().open()


class LeavesWhatTheDeadBegan(CoordinatorMachine):
    """CO-11: what an earlier coordinator had begun and not completed is nobody's, and stays."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Begin as if nothing incomplete lay in storage."""
        if isinstance(event, JobStarted):
            event = msgspec.structs.replace(event, incomplete=())
        return super().handle(event, now_ms)

    def _of_dead_coordinator(self, event: JobStarted) -> list[CheckpointId]:
        """Remember nothing."""
        return []


class CarriesThePending(CoordinatorMachine):
    """FE-03: checkpoints of a failed attempt are aborted only when the next one runs."""

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Abort nothing."""
        return ()

    def complete_when_acknowledged(self, pending: PendingCheckpoint, now_ms: float) -> Commands:
        """Complete nothing between two attempts: if all acknowledgements were there, that would be right."""
        return super().complete_when_acknowledged(pending, now_ms) if self.state is JobState.RUNNING else ()

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Abort checkpoints of older attempts at the first event after a newer attempt reached running."""
        late: Commands = ()
        if self.state is JobState.RUNNING:
            for pending in list(self.pending.values()):
                if pending.attempt < self.attempt and not pending.completing:
                    late += self._abort(pending, now_ms, Cause.ATTEMPT_FAILED, "its attempt failed long ago")
        return late + super().handle(event, now_ms)
