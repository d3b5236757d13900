"""Planted bugs of the work during a checkpoint, and of measurements; no result is wrong. No checker of a campaign
finds them, because nothing is lost or counted twice. The tests of the conformance suite find them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    ToSubtask,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.subtask_commands import ForwardBarrier, StoreSnapshot
from barrier_tck.reference_impl.runtime.ports import CoordinatorLink
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure

LOOK_AGAIN_MS = 1.0


class StopsTheWorld(SubtaskDriver):
    """SW-01: from the trigger to the end of a checkpoint, sources emit nothing."""

    _stands_still = False

    def on_message(self, message: ToSubtask) -> None:
        """Stop or continue."""
        match message:
            case TriggerCheckpoint():
                self._stands_still = True
            case NotifyCheckpointComplete() | NotifyCheckpointAborted():
                self._stands_still = False
        super().on_message(message)

    def poll_source(self) -> float | None:
        """Emit nothing meanwhile."""
        return LOOK_AGAIN_MS if self._stands_still else super().poll_source()


class StoresInItsOwnThread(SubtaskDriver):
    """BL-01: the asynchronous part runs where records are processed."""

    def store_snapshot(self, command: StoreSnapshot) -> None:
        """Do all of it now."""
        snapshot = self._snapshots[command.checkpoint]
        try:
            self._stored(command.checkpoint, self.copies.run(snapshot), None)
        except RuntimeFailure as error:
            self._stored(command.checkpoint, None, error)


class ForwardsWhatIsStored(SubtaskDriver):
    """BF-01: a barrier is forwarded only after the part has been stored; until then nothing after it is read."""

    def __init__(self, *arguments: Any) -> None:
        """Start without a held-back barrier."""
        super().__init__(*arguments)
        self._kept: dict[CheckpointId, tuple[ForwardBarrier, list[bool]]] = {}

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Hold it back, and every input too; a source has nothing to store."""
        if self.is_source:
            super().forward_barrier(command)
            return
        self._kept[command.barrier.checkpoint] = (command, list(self.blocked))
        self.blocked[:] = [True] * len(self.blocked)

    def _stored(self, checkpoint: CheckpointId, parts: Any, error: BaseException | None) -> None:
        kept = self._kept.pop(checkpoint, None)
        if kept is not None:
            self.blocked[:] = kept[1]
            super().forward_barrier(kept[0])
        super()._stored(checkpoint, parts, error)


@dataclass(frozen=True)
class _Forgetful:
    """A channel to the coordinator on which measurements become 0."""

    inner: CoordinatorLink
    fields: tuple[str, ...]

    def send(self, message: Any) -> None:
        if isinstance(message, AcknowledgeCheckpoint):
            nothing = dict.fromkeys(self.fields, 0)
            metrics = msgspec.structs.replace(message.metrics, **nothing)
            message = msgspec.structs.replace(message, metrics=metrics)
        self.inner.send(message)


class _MeasuresNot(SubtaskDriver):
    """Reports 0 for some measurements."""

    fields: tuple[str, ...] = ()

    def __init__(
        self, deployment: SubtaskDeployment, graph: Any, plane: Any, ports: SubtaskPorts, components: Any
    ) -> None:
        """Send on the channel that sets measurements to 0."""
        ports = replace(ports, coordinator=_Forgetful(ports.coordinator, self.fields))
        super().__init__(deployment, graph, plane, ports, components)


class MeasuresNoAlignment(_MeasuresNot):
    """ME-01: alignments are reported as taking no time and holding nothing back."""

    fields = ("alignment_ms", "alignment_buffered_bytes")


class CountsNoHeldBytes(_MeasuresNot):
    """ME-02: alignments are reported as holding nothing back."""

    fields = ("alignment_buffered_bytes",)


class MeasuresNoStoring(_MeasuresNot):
    """ME-03: asynchronous parts are reported as taking no time."""

    fields = ("async_ms",)


class MeasuresNoSynchronousPart(_MeasuresNot):
    """ME-05: synchronous parts are reported as taking no time."""

    fields = ("sync_ms",)


class CountsNoBytes(_MeasuresNot):
    """ME-04: parts are reported as writing nothing."""

    fields = ("bytes_written",)
