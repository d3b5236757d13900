"""How near a subtask is to its end: which inputs have ended, and whether all that it did is committed (BAR-6).

Theory of operation. An input *ends* when its last record was read, and barriers still pass. When all inputs have ended,
the subtask stays until it is *covered*: until a checkpoint is complete for which it took its snapshot after the end:
then all that it did is committed. A channel is *closed* when its sender has finished. A subtask that is covered, and of
which all channels are closed, finishes too. So subtasks finish one after the other, sources first.

A subtask that had finished in the restored checkpoint is covered from the beginning: it processes nothing, and only
passes the end of input on. Members of a loop stay until the job is over, since round a loop no channel is closed first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from barrier_tck.reference_impl.ids import CheckpointId


class Ending:
    """How near a subtask is to its end."""

    def __init__(
        self, channels: int, own_input: bool, feedback: Collection[int] | None, finished_before: bool
    ) -> None:
        """Take the number of channels, and whether there is an input of the subtask's own beside them.

        ``feedback``: the feedback channels of a subtask in a loop; None if it is in no loop.
        """
        self.open_inputs = [True] * max(channels + own_input, 1)
        """The inputs of which records may still come."""
        self.open_channels = [number not in (feedback or ()) for number in range(channels)]
        """The channels on which barriers may still begin a checkpoint here."""
        self.leaves_alone = feedback is None
        """Whether the subtask may finish before the job does."""
        self.finished_before = finished_before
        self.covered = finished_before
        """Whether a complete checkpoint has all that the subtask did."""
        self.closed_reported = False
        """Whether it was reported to the coordinator that no barrier reaches the subtask any more, so that the
        coordinator triggers it."""
        self._first_after_end: CheckpointId | None = None

    @property
    def is_drained(self) -> bool:
        """Whether every input has ended."""
        return not any(self.open_inputs)

    def take_closed_report(self, announced: Callable[[int], bool] | None) -> bool:
        """Return True once: when no barrier can begin a checkpoint here any more.

        ``announced`` says whether the end of a channel has arrived, even if it was not read yet; None where only what
        was read counts.
        """
        missing = [n for n, is_open in enumerate(self.open_channels) if is_open]
        if announced is not None:
            missing = [channel for channel in missing if not announced(channel)]
        if missing or self.closed_reported or self.finished_before:
            return False
        self.closed_reported = True
        return True

    def snapshot_taken(self, checkpoint: CheckpointId) -> None:
        """Remember the first snapshot that was taken after the end of all input; they are taken in the order of ids."""
        if self._first_after_end is None and self.is_drained:
            self._first_after_end = checkpoint

    def is_covered_by(self, checkpoint: CheckpointId) -> bool:
        """Return whether the snapshot for a checkpoint was taken after the end of all input."""
        return self._first_after_end is not None and checkpoint >= self._first_after_end
