"""Planted bugs of sources: what belongs to their part of a checkpoint, and where they resume.

The systems from which these bugs come have an enumerator that gives splits to sources while a job runs. Here splits are
dealt once and for all. What corresponds to a split under way between the two is said at each bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from barrier_tck.harness.reference.mutants.data_bugs import NeverReads
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import Payload, SourceReader
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import Commands
from barrier_tck.reference_impl.protocol.coordinator_commands import DeployAttempt
from barrier_tck.reference_impl.protocol.coordinator_events import (
    CoordinatorEvent,
    JobStarted,
    MetadataWritten,
)
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    SplitPosition,
    SubtaskSnapshot,
    TransactionsCommitted,
)
from barrier_tck.reference_impl.protocol.subtask_commands import ForwardBarrier
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


class SnapshotsBeforeItStops(SubtaskDriver):
    """AL-05: a source takes its snapshot first, and then does what the barrier carries. Here that is the stop: it emits
    the batch that it was about to read, stops, and forwards the barrier.
    """

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Apply the change between snapshot and barrier."""
        if command.barrier.is_terminal and self.reader is not None and not self.exhausted:
            self.run_chain(0, self.reader.poll())
        super().forward_barrier(command)


class ResumesAtTheNotified(CoordinatorMachine):
    """SO-04: sources are given back the positions of the last checkpoint whose notification was answered, not those of
    the checkpoint that is restored.
    """

    def __init__(self, *arguments: Any) -> None:
        """Start with no position."""
        super().__init__(*arguments)
        self._notified = CheckpointId(0)
        self._known: dict[CheckpointId, CompletedCheckpoint] = {}

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Remember what was answered, and deploy sources with its positions."""
        match event:
            case JobStarted(completed=completed):
                self._known = {one.checkpoint: one for one in completed}
                self._notified = max(self._known, default=CheckpointId(0))
            case MetadataWritten(completed=written):
                self._known[written.checkpoint] = written
            case TransactionsCommitted(checkpoint=checkpoint):
                self._notified = max(self._notified, checkpoint)
        return tuple(
            msgspec.structs.replace(command, restore=self._resumed(command.restore))
            if isinstance(command, DeployAttempt) and command.restore is not None
            else command
            for command in super().handle(event, now_ms)
        )

    def _resumed(self, restore: CompletedCheckpoint) -> CompletedCheckpoint:
        notified = self._known.get(self._notified)
        return msgspec.structs.replace(
            restore, snapshots=tuple(self._part(part, notified) for part in restore.snapshots)
        )

    def _part(self, part: SubtaskSnapshot, notified: CompletedCheckpoint | None) -> SubtaskSnapshot:
        then = notified.snapshot_of(part.subtask) if notified is not None else None
        known = {one.operator: one.positions for one in then.operators} if then is not None else {}
        return msgspec.structs.replace(
            part,
            operators=tuple(
                msgspec.structs.replace(one, positions=known.get(one.operator, ())) if one.positions else one
                for one in part.operators
            ),
        )


class LosesTheSplitOnItsWay(NeverReads):
    """SO-05: a split counts as handed over as soon as it is sent. Here the next split is sent when the first batch of a
    split was read and is received with its second one; a snapshot in between has it nowhere, and nobody reads it after
    a restore.
    """

    def __init__(self, inner: SourceReader) -> None:
        """Start with nothing on its way."""
        super().__init__(inner)
        self._current: str | None = None
        self._on_its_way: str | None = None

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        """Read only what somebody has."""
        if positions:
            listed = [position.split for position in positions]
            own = [position.split for position in self.inner.positions()]
            self.forgotten = tuple(split for split in own if split not in listed)
        super().restore(positions)

    def poll(self) -> Payload | None:
        """Send the next split with the first batch of a split, and receive it with the second."""
        before = self.inner.positions()
        payload = super().poll()
        now = self.inner.positions()
        moved = [number for number, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]
        if moved:
            last, following = now[moved[-1]].split, now[moved[-1] + 1 :]
            sent = last != self._current and following
            self._current, self._on_its_way = last, following[0].split if sent else None
        return payload

    def positions(self) -> tuple[SplitPosition, ...]:
        """Leave out the split that is on its way, and those that were lost."""
        missing = (self._on_its_way, *self.forgotten)
        return tuple(position for position in self.inner.positions() if position.split not in missing)
