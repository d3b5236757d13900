"""The observer of a job: what is reported while it runs, in every world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AbortNoted,
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    Savepoint,
    SourceWatermark,
    StateRestored,
    SubtaskFailed,
)
from barrier_tck.reference_impl.protocol.slots import Placement


class JobObserver:
    """Notified of what happens to a job, for histories and reports. Does nothing: inherit and override what is of
    interest.

    Every call comes on the coordinator's thread, which stands still until it returns.
    """

    def attempt_narrowed(self, attempt: int, slots: int, widths: Mapping[str, int]) -> None:
        """A deployment is about to begin that is narrower than the job is meant to be, because there were only so many
        slots; ``widths`` is the parallelism of every vertex."""

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        """A deployment begins."""

    def attempt_running(self, attempt: int) -> None:
        """Every subtask runs."""

    def attempt_ended(self, attempt: int, cause: Cause, reason: str) -> None:
        """An attempt ended; ``reason`` is a sentence (empty if it finished).

        One whose number could not be made durable has ended, and never started.
        """

    def subtask_crashed(self, message: SubtaskFailed) -> None:
        """A subtask died of an exception that stands for no failure of the world; its attempt ends because of it."""

    def subtasks_assigned(self, attempt: int, placement: Placement) -> None:
        """With local recovery on: where every subtask of an attempt goes, and where it could have gone (LOC-9)."""

    def state_restored(self, message: StateRestored) -> None:
        """A subtask has its state, with local recovery on: which copy served what (LOC-4)."""

    def checkpoint_triggered(
        self, checkpoint: int, attempt: int, final: bool, savepoint: Savepoint | None, reserving_ms: float
    ) -> None:
        """The sources are asked to inject barriers; ``final`` says whether all input had been consumed before.

        Before, its id was made durable, which took ``reserving_ms`` milliseconds; its timeout has begun already.
        """

    def savepoint_requested(self, savepoint: Savepoint) -> None:
        """A savepoint was asked for; whether it is taken is not decided yet."""

    def savepoint_refused(self, savepoint: Savepoint, reason: str) -> None:
        """A savepoint was asked for and will not be taken; the job goes on."""

    def acknowledged(self, message: AcknowledgeCheckpoint) -> None:
        """An acknowledgement arrived, with its metrics (accepted or not)."""

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        """The metadata is durable; nothing has been discarded for it yet, and no subtask has been notified."""

    def checkpoint_aborted(self, checkpoint: int, attempt: int, cause: Cause, reason: str) -> None:
        """A checkpoint was given up."""

    def abort_learned(self, message: AbortNoted) -> None:
        """A subtask was notified of an abort (COO-2)."""

    def sources_aligned(self, group: str, largest_ms: int, reports: Sequence[SourceWatermark]) -> None:
        """From now on the sources of a group may read up to another watermark (EVT-6); ``reports`` are the last ones of
        all its members, of which this follows."""

    def committed(self, subtask: SubtaskId, attempt: int, checkpoint: int) -> None:
        """A terminal subtask committed."""

    def subtask_finished(self, subtask: SubtaskId, attempt: int) -> None:
        """A subtask has done and committed all that it ever will; checkpoints complete without it (BAR-6)."""

    def discard_failed(self, what: str, reason: str) -> None:
        """Garbage could not be removed; the job goes on."""

    def job_ended(self, state: JobState, cause: Cause, reason: str) -> None:
        """The job finished, was stopped, or failed."""
