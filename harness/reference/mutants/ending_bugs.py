"""Planted bugs of subtasks that finish before the job does (BAR-6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import AlignmentCommands, BarrierAligner
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import Commands
from barrier_tck.reference_impl.protocol.coordinator_events import CoordinatorEvent
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import SubtaskFinished
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from barrier_tck.reference_impl.protocol.subtask import SubtaskCommands, SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import SendAcknowledge, SubtaskCommand
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


class ForgetsWhoHadFinished(SubtaskDriver):
    """FI-01: the part of a subtask that had finished is taken for no part at all, and the subtask starts afresh."""

    def __init__(self, deployment: SubtaskDeployment, *arguments: Any) -> None:
        """Deploy it without its part."""
        if deployment.finished_before:
            deployment = replace(deployment, restore=None)
        super().__init__(deployment, *arguments)


class WaitsForTheFinished(CoordinatorMachine):
    """FI-02: a checkpoint that is under way goes on waiting for a subtask that finishes meanwhile."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Only later checkpoints do without it."""
        if isinstance(event, SubtaskFinished) and self.state is JobState.RUNNING:
            return () if self.is_of_another_attempt(event) else self.on_early_finished(event, now_ms)
        return super().handle(event, now_ms)


class FinishesWithAnEarlierSnapshot(SubtaskMachine):
    """FI-03: after the end of its input any checkpoint that completes will do, also one from before the end."""

    def is_covered_by(self, checkpoint: CheckpointId) -> bool:
        """Look at the end alone."""
        return self.ending.is_drained


class FinishesBeforeItCommits(SubtaskMachine):
    """FI-04: a subtask finishes when it has acknowledged its last part, and does not wait for the completion."""

    def _then_finish(self, *commands: SubtaskCommand) -> SubtaskCommands:
        for command in commands:
            if isinstance(command, SendAcknowledge) and self.is_covered_by(command.checkpoint):
                self.ending.covered = True
        return super()._then_finish(*commands)


class _WaitsForTheEnded(BarrierAligner):
    def count_closed(self, channel: int) -> AlignmentCommands:
        return ()


class _StillCountsTheEnded(BarrierTracker):
    def count_closed(self, channel: int) -> None:
        """Leave it missing."""


class _StillRecordsTheEnded(BarrierRecorder):
    def count_closed(self, channel: int, reached: bool) -> AlignmentCommands:
        return ()


class EndedChannelsBlock(SubtaskMachine):
    """FI-05: an alignment that has begun waits for the barrier of a channel that ends meanwhile."""

    def new_aligner(
        self, channels: int, mode: CheckpointMode
    ) -> BarrierAligner | BarrierTracker | BarrierRecorder:
        """Build one for which the end of a channel stands for no barrier that others have delivered."""
        made = super().new_aligner(channels, mode)
        if isinstance(made, BarrierTracker):
            return _StillCountsTheEnded(channels, self.name)
        if isinstance(made, BarrierAligner):
            return _WaitsForTheEnded(channels, self.name)
        return _StillRecordsTheEnded(self.policies, self.name, patient=made.patient)
