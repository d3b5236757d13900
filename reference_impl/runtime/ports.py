"""The ports: everything the shell needs from a world. Spark and the simulator each supply a set.

The shell is single-threaded: a world calls one subtask driver (or the coordinator driver) from one thread at a
time, and every outcome of a background task comes back through the driver's own entry points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from barrier_tck.reference_impl.ids import CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.protocol.messages import ChannelControl, CheckpointBarrier
from barrier_tck.reference_impl.storage.channel_state import Fragment

Buffer = Payload | Fragment
"""What a channel holds: a whole batch in the plane's own form, or bytes of one, which may be a part of it."""


class RuntimePoint(Enum):
    """Moments of the protocol that a world can observe, and at which a fault harness may strike."""

    RECORDS_PROCESSED = "records_processed"
    """A subtask finished processing a batch of records."""
    BARRIER_RECEIVED = "barrier_received"
    """A barrier was read from a channel (for a source: the trigger arrived)."""
    ALIGNMENT_STARTED = "alignment_started"
    """The first barrier of a checkpoint arrived while others are missing."""
    ALIGNMENT_COMPLETED = "alignment_completed"
    """The last barrier arrived; the snapshot is not yet taken."""
    SNAPSHOT_TAKEN = "snapshot_taken"
    """The synchronous part ended; the asynchronous part has not begun."""
    BARRIER_FORWARDED = "barrier_forwarded"
    """The barrier was sent to every output."""
    SNAPSHOT_STORED = "snapshot_stored"
    """The asynchronous part ended; the acknowledgement is not yet sent."""
    ACKNOWLEDGED = "acknowledged"
    """The acknowledgement was sent."""
    COMPLETION_NOTIFIED = "completion_notified"
    """The subtask learned that a checkpoint completed; nothing is committed yet."""
    COMMIT_STEP = "commit_step"
    """The subtask's sink took one step of a commit and has not begun the next: a file has its name, or names are
    durable. The last step of each commit is that nothing is left to do."""
    TRANSACTIONS_COMMITTED = "transactions_committed"
    """The subtask's sink committed what the checkpoint had prepared."""
    RESTORE_STARTED = "restore_started"
    """A subtask of a later attempt starts to restore its state."""
    RESTORED = "restored"
    """The subtask has its state and is about to run."""
    CLOSING = "closing"
    """The subtask ends in good order. It stands here twice: before it cancels what is under way, and before it releases
    what its operators hold."""
    CHECKPOINT_TRIGGERED = "checkpoint_triggered"
    """Coordinator: the sources were asked to inject barriers."""
    ALL_ACKNOWLEDGED = "all_acknowledged"
    """Coordinator: the last acknowledgement came; the metadata is not yet durable."""
    PUBLICATION_STEP = "publication_step"
    """Coordinator: one step towards durable metadata was taken, and the next has not begun."""
    CHECKPOINT_COMPLETED = "checkpoint_completed"
    """Coordinator: the metadata is durable; no subtask was notified."""
    CHECKPOINT_ABORTED = "checkpoint_aborted"
    """Coordinator: the checkpoint was given up."""
    COORDINATOR_STARTING = "coordinator_starting"
    """Coordinator: it is about to read what durable storage holds, or has read it; nothing is deployed yet."""
    WAITING_FOR_SLOTS = "waiting_for_slots"
    """Coordinator: slots are missing for the next attempt, and may still come; nothing is deployed."""
    ATTEMPT_STARTED = "attempt_started"
    """Coordinator: a deployment of the dataflow begins."""
    ATTEMPT_RUNNING = "attempt_running"
    """Coordinator: every subtask of the attempt runs."""
    ATTEMPT_FAILED = "attempt_failed"
    """Coordinator: a failure ended the attempt."""


RECORDS_PROCESSED = RuntimePoint.RECORDS_PROCESSED
"""Looked up once: looking up a member of an enum costs more than a call (Python 3.11), and every batch needs it."""


class Clock(Protocol):
    """The world's time."""

    def now_ms(self) -> float:
        """Return milliseconds since some fixed moment; never goes back."""


class Probe(Protocol):
    """Called at every protocol point; may not return if the process is killed at that point."""

    def reach(self, point: RuntimePoint, checkpoint: CheckpointId | None = None, attempt: int = 0) -> None:
        """Report that this subtask stands at a point, or that the coordinator does, which names the ``attempt``."""


class ChannelOutput(Protocol):
    """The output channels of one subtask, numbered in the order of the deployment."""

    def send_data(self, channel: int, payload: Payload) -> None:
        """Append a batch to a channel; may block while the channel is full (backpressure)."""

    def send_control(self, channel: int, element: ChannelControl) -> None:
        """Append a control element to a channel, behind everything sent before (BAR-2)."""


class OutputBuffers(Protocol):
    """What one subtask has sent and is not yet on its way, by channel, for worlds and modes with channel state.

    Nothing blocks then: the world stops reading and polling while a buffer is over its bound, but still passes
    barriers, messages and timers on. Each time a barrier that was sent in line leaves its buffer, the world calls the
    driver's ``on_sent(channel, checkpoint)``.
    """

    def send_ahead(self, channel: int, barrier: CheckpointBarrier) -> tuple[Buffer, ...]:
        """Put a barrier before everything that waits in the output buffer except older barriers (UNA-1).

        If the barrier waits there already, in line, it is moved. Returns the data that it overtook, oldest first,
        which stays in the buffer. If a part of a batch is on its way already, the first of it is the rest.
        """

    def holds(self, channel: int, checkpoint: CheckpointId) -> bool:
        """Return whether the barrier of a checkpoint waits in the output buffer of a channel."""

    def recover(self, channel: int, fragments: Sequence[Fragment]) -> None:
        """Put data of a checkpoint first into a channel, before anything was sent on it (UNA-1)."""


class InputBuffers(Protocol):
    """The unread input of one subtask, by channel, for worlds and modes with channel state.

    When a barrier arrives at the receiver's end, ahead of being read, the world calls the driver's
    ``on_announced(channel, barrier)``; it stays in the queue. While ``driver.recording[channel]`` is not 0, the world
    calls ``on_arrived(channel, buffer)`` for the data that arrives; that stays in the queue too. Each piece of data is
    either returned by ``overtake`` or passed to ``on_arrived``, never both. A barrier is read at its place even if the
    batch around it is incomplete.
    """

    def overtake(self, channel: int, checkpoint: CheckpointId) -> tuple[Buffer, ...]:
        """Return all data that is unread ahead of the barrier of a checkpoint, oldest first; it stays queued.

        If the barrier has not arrived: all that is unread. If it was read in line already: only the beginning of a
        batch whose rest lies behind it, if there is one. A barrier that lies in the queue is taken out.
        """

    def recover(self, channel: int, fragments: Sequence[Fragment], before_all: int = 0) -> None:
        """Put data of a checkpoint first into a queue of which nothing was read (UNA-1).

        The first ``before_all`` of it are whole batches. As long as any of these is unread, nothing else is read, on
        any channel (RSC-3).
        """

    def hold(self, held: bool) -> None:
        """Take in whatever arrives, whether or not there is room, since nothing is read while the input is held.

        Behind a terminal barrier nothing is read, and what comes before the barriers of others must not wait for that:
        a sender that waits for room could not read up to its own barriers on channels that are aligned.
        """

    def before_all(self, channel: int) -> int:
        """Return how many unread batches of a channel come before everything on other channels."""


class CoordinatorLink(Protocol):
    """The way from a subtask to the coordinator."""

    def send(self, message: Any) -> None:
        """Send one of ``protocol.messages.FromSubtask``."""


class BackgroundExecutor(Protocol):
    """Runs asynchronous parts. The outcome returns to the driver on the driver's own thread."""

    def submit(self, task: Callable[[], Any], on_done: Callable[[Any, BaseException | None], None]) -> None:
        """Run ``task`` elsewhere, then call ``on_done(result, error)`` on the owner's thread."""


class SubtaskDirectory(Protocol):
    """The coordinator's way to subtasks of the current attempt."""

    def send(self, subtask: SubtaskId, message: Any) -> None:
        """Send one of ``protocol.messages.ToSubtask``; a lost subtask is not an error here."""


class Timers(Protocol):
    """The timers of one driver: the coordinator's, or a subtask's."""

    def set(self, name: str, at_ms: float) -> None:
        """Call the driver's ``on_timer(name)`` at this time; a timer of the same name is replaced."""


class Deployer(Protocol):
    """Starts and ends attempts."""

    def slots(self) -> int | None:
        """Return how many subtasks fit now; None: any number. Only elastic jobs ask."""

    def deploy(self, attempt: int, graph: Any, restore: Any) -> None:
        """Start every subtask of the attempt's job (JobGraph), each with its part of ``restore`` (CompletedCheckpoint
        or None).

        Returns at once; subtasks report through the coordinator link, failures through the driver.
        """

    def stop(self, attempt: int, reason: str) -> None:
        """End the attempt; returns at once, ``on_attempt_stopped`` follows."""
