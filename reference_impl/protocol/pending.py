"""A checkpoint in flight: who has acknowledged, who has not (COO-1)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, Savepoint, SubtaskSnapshot


class AcknowledgeResult(Enum):
    """The four outcomes of an acknowledgement (COO-3)."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """This subtask had acknowledged it already: ignored, and nothing is discarded, since its files are in use."""
    UNKNOWN = "unknown"
    """The checkpoint was never triggered, or by another attempt, or needs no such part: what was written is removed."""
    LATE = "late"
    """The checkpoint has ended: what was written is removed."""


class PendingCheckpoint:
    """Collects the acknowledgements of one checkpoint of one attempt."""

    def __init__(
        self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        triggered_at_ms: float,
        subtasks: Sequence[SubtaskId],
        final: bool,
        savepoint: Savepoint | None = None,
        finished: Sequence[SubtaskSnapshot] = (),
        reuse_from: int = 0,
    ) -> None:
        """Wait for every one of ``subtasks``, except those that have finished: theirs are ``finished`` parts."""
        self.checkpoint = checkpoint
        self.attempt = attempt
        self.triggered_at_ms = triggered_at_ms
        self.final = final
        """Whether it was triggered after all input had been consumed."""
        self.savepoint = savepoint
        """The savepoint that is taken; None: an ordinary checkpoint."""
        self.reuse_from = reuse_from
        """The oldest completed checkpoint whose files it may use (SNP-5); 0 if it shares none."""
        self.completing = False
        """Whether the metadata is being written; from then on only the outcome of that write decides."""
        self._order = tuple(subtasks)
        self.awaiting = dict.fromkeys(self._order)
        self.parts: dict[SubtaskId, SubtaskSnapshot] = {}
        for part in finished:
            self.finish(part)

    def acknowledge(self, subtask: SubtaskId, snapshot: SubtaskSnapshot) -> AcknowledgeResult:
        """Take one subtask's part."""
        if subtask in self.awaiting:
            del self.awaiting[subtask]
            self.parts[subtask] = snapshot
            return AcknowledgeResult.ACCEPTED
        return (
            AcknowledgeResult.DUPLICATE if self.parts.get(subtask) == snapshot else AcknowledgeResult.UNKNOWN
        )

    def finish(self, part: SubtaskSnapshot) -> None:
        """Wait no longer for a subtask that has finished (BAR-6); a part that it had acknowledged stays."""
        if part.subtask in self.awaiting:
            del self.awaiting[part.subtask]
            self.parts[part.subtask] = part

    @property
    def ends_the_job(self) -> bool:
        """Whether the job is over once it is complete and committed."""
        return self.final or (self.savepoint is not None and self.savepoint.stop)

    @property
    def fully_acknowledged(self) -> bool:
        """Whether every acknowledgement has arrived."""
        return not self.awaiting

    def complete(self, now_ms: float) -> CompletedCheckpoint:
        """Return the checkpoint to publish, its parts in the job's order."""
        return CompletedCheckpoint(
            self.checkpoint,
            self.attempt,
            int(self.triggered_at_ms),
            int(now_ms),
            tuple(self.parts[subtask] for subtask in self._order if subtask in self.parts),
            savepoint=self.savepoint,
        )
