"""A snapshot of one subtask under way: its operators' futures, its result, its measurements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import (
    ChannelState,
    LocalCopyReport,
    OperatorSnapshot,
    SnapshotMetrics,
    StateHandle,
)
from barrier_tck.reference_impl.protocol.watermarks import EventTimeSnapshot
from barrier_tck.reference_impl.runtime_errors import SnapshotCancelled
from barrier_tck.reference_impl.state.backend import SnapshotFuture


class SnapshotInProgress:
    """Collects the operators' snapshots; ``run`` does all asynchronous parts, one after another.

    ``run`` is for a background thread, everything else for the subtask's. Whichever of ``run`` and ``cancel``
    comes last removes what was written: a cancelled snapshot leaves no file (SNP-2).
    """

    def __init__(
        self,
        checkpoint: CheckpointId,
        started_at_ms: float,
        alignment_ms: float,
        buffered_bytes: int,
        discard: Callable[[Sequence[StateHandle]], None],
        files: Sequence[StateHandle],
        with_channels: bool = False,
    ) -> None:
        """Begin with the synchronous part; times in milliseconds. ``discard`` deletes files.

        ``files``: those of its operators that are written so far; it grows as they are written.

        ``with_channels``: the snapshot is whole only after ``run_channels`` too.
        """
        self._discard = discard
        self._files = files
        self._unfinished = self._untold = 2 if with_channels else 1
        self._lock = threading.Lock()
        self._cancelled = False
        self._written: list[StateHandle] = []
        self.checkpoint = checkpoint
        self.channels: ChannelState | None = None
        self.event_time: EventTimeSnapshot | msgspec.UnsetType = msgspec.UNSET
        self.parts: tuple[OperatorSnapshot, ...] = ()
        self._futures: list[SnapshotFuture[OperatorSnapshot] | OperatorSnapshot] = []
        self._started_at_ms = started_at_ms
        self._alignment_ms = alignment_ms
        self._buffered_bytes = buffered_bytes
        self._sync_ended_ms = 0.0
        self._async_ended_ms = 0.0

    def add(self, future: SnapshotFuture[OperatorSnapshot]) -> None:
        """Add an operator's snapshot, its synchronous part done."""
        self._futures.append(future)

    def add_finished(self, part: OperatorSnapshot) -> None:
        """Add a part that has no asynchronous side."""
        self._futures.append(part)

    @property
    def done(self) -> bool:
        """Whether no asynchronous part is left to do."""
        return not [one for one in self._futures if not (isinstance(one, OperatorSnapshot) or one.done)]

    def run(self) -> tuple[OperatorSnapshot, ...]:
        """Do the asynchronous parts; raises SnapshotCancelled or StorageError, and leaves no file then."""
        try:
            parts = [
                future if isinstance(future, OperatorSnapshot) else future.run() for future in self._futures
            ]
        except BaseException:
            # Also what the part that failed had written before.
            self._discard(self._files)
            raise
        self._keep(self._written_by(parts))
        return tuple(parts)

    def run_channels(self, write: Callable[[], ChannelState]) -> ChannelState:
        """Write the channel state; raises SnapshotCancelled or StorageError, and leaves no file then."""
        state = write()
        self._keep([state.file])
        return state

    def _keep(self, handles: list[StateHandle]) -> None:
        with self._lock:
            if not self._cancelled:
                self._written += handles
                return
        self._discard(handles)
        raise SnapshotCancelled(f"the snapshot for checkpoint {self.checkpoint} was cancelled")

    def part_ended(self) -> bool:
        """Count a part that is stored; tell whether it was the last one. Both threads may call it."""
        with self._lock:
            self._unfinished -= 1
            return self._unfinished == 0

    def cancel(self) -> None:
        """Cancel every asynchronous part, and remove what was written (SNP-2)."""
        with self._lock:
            self._cancelled = True
            written, self._written = self._written, []
        for future in self._futures:
            if not isinstance(future, OperatorSnapshot):
                future.cancel()
        if written:
            self._discard(written)

    def sync_ended(self, now_ms: float) -> None:
        """Take the time at the end of the synchronous part."""
        self._sync_ended_ms = now_ms

    def async_ended(self, now_ms: float, parts: tuple[OperatorSnapshot, ...]) -> None:
        """Take the result and the time at the end of the asynchronous part."""
        self._async_ended_ms = max(now_ms, self._async_ended_ms)
        self.parts = parts
        self._untold -= 1

    def channels_ended(self, now_ms: float, channels: ChannelState | None) -> None:
        """Take the channel state, None if no record was in flight, and the time at which it was stored."""
        self._async_ended_ms = max(now_ms, self._async_ended_ms)
        self.channels = channels
        self._untold -= 1

    @property
    def is_stored(self) -> bool:
        """Whether all of it is stored, as far as the subtask has learned."""
        return not self._untold

    def metrics(self, local: LocalCopyReport | None = None) -> SnapshotMetrics:
        """Return what is reported with the acknowledgement (ALN-3, SNP-7); ``local`` is about the secondary copy."""
        in_flight = self.channels.file.size if self.channels is not None else 0
        return SnapshotMetrics(
            alignment_ms=self._alignment_ms,
            alignment_buffered_bytes=self._buffered_bytes,
            sync_ms=self._sync_ended_ms - self._started_at_ms - self._alignment_ms,
            async_ms=self._async_ended_ms - self._sync_ended_ms,
            bytes_written=in_flight + sum(handle.size for handle in self._written_by(self.parts)),
            channel_bytes=in_flight,
            started_at_ms=self._started_at_ms,
            local=local,
        )

    def _written_by(self, parts: Sequence[OperatorSnapshot]) -> list[StateHandle]:
        """Return the files that were written for the snapshot; those that it reuses are not its own (SNP-5)."""
        handles = [handle for part in parts for handle in part.handles]
        return [handle for handle in handles if handle.is_written_for(self.checkpoint)]
