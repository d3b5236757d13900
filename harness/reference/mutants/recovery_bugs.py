"""Planted bugs of recovery as a whole: what control trials break, beside bugs that are planted elsewhere."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator import Commands, CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_events import CoordinatorEvent
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.pending import PendingCheckpoint
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


class DropsRestoredState(SubtaskDriver):
    """RE-01: operators are opened as if the restored checkpoint named no state file."""

    def open(self) -> None:
        """Open with the positions and the transactions of the checkpoint, and none of its state."""
        restore = self.deployment.restore
        if restore is not None:
            bare = tuple(msgspec.structs.replace(part, handles=()) for part in restore.operators)
            restore = msgspec.structs.replace(restore, operators=bare)
            self.deployment = replace(self.deployment, restore=restore)
        super().open()


class CarriesThePending(CoordinatorMachine):
    """FE-03: what a failed attempt left pending is given up only when the next one runs; till then it may complete."""

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Give up nothing."""
        return ()

    def complete_when_acknowledged(self, pending: PendingCheckpoint, now_ms: float) -> Commands:
        """Complete also what an older attempt took, while somebody waits for its metadata."""
        waits = self.state in (JobState.RUNNING, JobState.STOPPING)
        return super().complete_when_acknowledged(pending, now_ms) if waits else ()

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Give up what older attempts took, at the first event after a newer one has come to run."""
        late: Commands = ()
        if self.state is JobState.RUNNING:
            for pending in list(self.pending.values()):
                if pending.attempt < self.attempt and not pending.completing:
                    late += self._abort(pending, now_ms, Cause.ATTEMPT_FAILED, "its attempt failed long ago")
        return late + super().handle(event, now_ms)
