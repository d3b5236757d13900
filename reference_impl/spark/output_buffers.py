"""The sending side of a subtask: an output buffer for each channel, which a thread of its own empties.

The subtask's loop never stands in a blocked send. It appends to buffers and stops taking data while one of them is over
its bound, but barriers, messages and timers are handled all the time. A batch goes on the wire only if the receiver
has granted a credit for it; control elements need none. A barrier that overtakes (``send_ahead``) goes before
everything that waits, so at most one batch or fragment, which is being sent, delays it (UNA-1).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.elements import encode_watermark
from barrier_tck.reference_impl.protocol.messages import ChannelControl, CheckpointBarrier
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime_errors import JobUsageError, ProtocolError, RuntimeFailure
from barrier_tck.reference_impl.spark.batch_serializer import DictionaryDecoder
from barrier_tck.reference_impl.spark.control_wire import ConnectionLost
from barrier_tck.reference_impl.spark.fragments import cut
from barrier_tck.reference_impl.spark.frames import MAX_BATCH_BYTES
from barrier_tck.reference_impl.spark.transport import ChannelSender
from barrier_tck.reference_impl.storage.channel_state import Fragment

_JOIN_TIMEOUT_S = 5.0
_log = logging.getLogger(__name__)


class _Leaves:
    """The last element of a buffer: the sender leaves in good order."""


class OutputBuffer:
    """What waits for one channel. The loop's thread appends; two threads of the buffer's own send and take credits."""

    def __init__(
        self,
        sender: ChannelSender,
        most_batches: int,
        most_bytes: int,
        on_capacity: Callable[[], None],
        on_sent: Callable[[CheckpointId], None],
        on_failure: Callable[[RuntimeFailure], None],
    ) -> None:
        """Take the connection, and the bounds above which ``full`` holds.

        ``on_capacity`` is called when it no longer does, ``on_sent`` when a barrier that waited in line is on its way,
        and ``on_failure`` when the channel failed; all from other threads.
        """
        self._sender = sender
        self._most_batches = most_batches
        self._most_bytes = most_bytes
        self._on_room = on_capacity
        self._on_sent = on_sent
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._ahead: deque[CheckpointBarrier] = deque()
        """Barriers that overtook, and older ones that had to come along."""
        self._queue: deque[tuple[Any, int]] = deque()
        self._last_sent = 0
        """The newest checkpoint whose barrier is on its way."""
        self._credits = 0
        self._batches = 0
        self._bytes = 0
        self._receiver_left = False
        self._leaving = False
        self._closed = False
        name = f"output-{sender.channel}"
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for work in (self._send_each, self._take_credits)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def full(self) -> bool:
        """Whether the loop should take no more data that may end here."""
        return self._batches >= self._most_batches or self._bytes >= self._most_bytes

    def append(self, element: Any, size: int) -> None:
        """Append a batch, a fragment or a control element, with its size in bytes."""
        with self._changed:
            self._queue.append((element, size))
            self._count(element, size, 1)
            self._changed.notify_all()

    def put_ahead(self, barrier: CheckpointBarrier) -> tuple[Any, ...]:
        """Put a barrier before everything that waits, behind older barriers; return the data that it overtakes.

        If it waits already, it is taken from its place and overtakes what is before it. Older barriers before it go
        along, since barriers stay in order (BAR-2). If it went on its way a moment ago, it overtakes nothing.
        """
        with self._changed:
            if barrier.checkpoint <= self._last_sent:
                return ()
            overtaken: list[Any] = []
            stays: deque[tuple[Any, int]] = deque()
            while self._queue:
                element, size = self._queue.popleft()
                if not isinstance(element, CheckpointBarrier):
                    stays.append((element, size))
                    if not isinstance(element, ChannelControl):
                        overtaken.append(element)
                elif element.checkpoint < barrier.checkpoint:
                    self._ahead.append(element)
                elif element.checkpoint == barrier.checkpoint:
                    break
                else:
                    raise ProtocolError(f"{barrier} comes after {element} in {self._sender.channel}")
            self._queue.extendleft(reversed(stays))
            self._ahead.append(barrier)
            self._changed.notify_all()
            return tuple(overtaken)

    def holds(self, checkpoint: CheckpointId) -> bool:
        """Return whether the barrier of a checkpoint waits here."""
        with self._changed:
            waiting = (*self._ahead, *(element for element, _ in self._queue))
        return any(isinstance(one, CheckpointBarrier) and one.checkpoint == checkpoint for one in waiting)

    def leave(self) -> None:
        """Send what waits, then the orderly end; returns at once."""
        with self._changed:
            self._leaving = True
            self._queue.append((_Leaves(), 0))
            self._changed.notify_all()

    def wait_until_left(self) -> None:
        """Wait until all is sent, and a moment until the receiver has hung up.

        A connection that is closed while credits are on their way breaks, and could take the end of the stream along.
        """
        sending, taking_credits = self._threads
        sending.join()
        taking_credits.join(_JOIN_TIMEOUT_S)

    def close(self) -> None:
        """End the connection and both threads, whatever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._sender.shut()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_JOIN_TIMEOUT_S)

    def _count(self, element: Any, size: int, sign: int) -> None:
        self._bytes += sign * size
        if isinstance(element, pa.RecordBatch) or (isinstance(element, Fragment) and not element.more):
            self._batches += sign

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except RuntimeFailure as error:
            with self._changed:
                expected = self._leaving or self._closed
            if expected:
                _log.debug("%s: %s", self._sender.channel, error)
            else:
                self._on_failure(error)
        except JobUsageError as error:
            self._on_failure(RuntimeFailure(str(error)))

    def _send_each(self) -> None:
        while True:
            element = self._next()
            match element:
                case None:
                    return
                case _Leaves():
                    self._sender.finish()
                    return
                case pa.RecordBatch():
                    self._sender.send_batch(element)
                case Fragment():
                    self._sender.send_fragment(element)
                case _:
                    self._sender.send_control(element)

    def _next(self) -> Any:
        """Wait for the next element that may be sent and take it out; returns None once the buffer is closed."""
        with self._changed:
            while not self._closed:
                if self._ahead:
                    barrier = self._ahead.popleft()
                    self._last_sent = barrier.checkpoint
                    return barrier
                if self._queue:
                    if not isinstance(self._queue[0][0], pa.RecordBatch | Fragment):
                        return self._pop()
                    if self._receiver_left:
                        raise ConnectionLost(f"{self._sender.channel}: the receiver is gone")
                    if self._credits:
                        self._credits -= 1
                        return self._pop()
                self._changed.wait()
        return None

    def _pop(self) -> Any:
        was_full = self.full
        element, size = self._queue.popleft()
        self._count(element, size, -1)
        if isinstance(element, CheckpointBarrier):
            self._last_sent = element.checkpoint
            self._on_sent(element.checkpoint)
        if was_full and not self.full:
            self._on_room()
        return element

    def _take_credits(self) -> None:
        while True:
            count = self._sender.receive_credits()
            with self._changed:
                if count is None:
                    self._receiver_left = True
                else:
                    self._credits += count
                self._changed.notify_all()
            if count is None:
                return


class BufferedOutput:
    """The output channels of one subtask, each with its buffer: the ``ChannelOutput`` port."""

    def __init__(
        self,
        senders: Sequence[ChannelSender],
        most_batches: int,
        most_bytes: int,
        fragment_bytes: int,
        on_capacity: Callable[[], None],
        on_sent: Callable[[int, CheckpointId], None],
        on_failure: Callable[[RuntimeFailure], None],
    ) -> None:
        """Take the senders in the order of the deployment, the bounds of each buffer, and the size of a fragment.

        ``on_capacity()``, ``on_sent(channel, checkpoint)`` and ``on_failure(error)`` are called from other threads:
        when a buffer is no longer full, when a barrier that waited in line is on its way, and when a channel failed.
        """
        self._fragment_bytes = fragment_bytes
        self._decoder: DictionaryDecoder | None = None
        self._buffers = [
            OutputBuffer(sender, most_batches, most_bytes, on_capacity, partial(on_sent, number), on_failure)
            for number, sender in enumerate(senders)
        ]
        for buffer in self._buffers:
            buffer.start()

    @property
    def full(self) -> bool:
        """Whether a buffer is over its bound, so that the loop should take no data."""
        return any(buffer.full for buffer in self._buffers)

    def send_data(self, channel: int, payload: pa.RecordBatch | Watermark) -> None:
        """Append a batch to a channel, in fragments if it is large, or a watermark, which travels as one."""
        if isinstance(payload, Watermark):
            data = encode_watermark(payload)
            self._buffers[channel].append(Fragment(data), len(data))
            return
        if not isinstance(payload, pa.RecordBatch):
            raise JobUsageError(f"a channel takes Arrow record batches, not {type(payload).__name__}")
        if self._decoder is None or not self._decoder.takes(payload):
            self._decoder = DictionaryDecoder(payload.schema)
        batch = self._decoder.decoded(payload)
        size = pa.ipc.get_record_batch_size(batch)
        if size > MAX_BATCH_BYTES:
            raise JobUsageError(f"a batch of {size} bytes, above {MAX_BATCH_BYTES}; use smaller batches")
        buffer = self._buffers[channel]
        if size <= self._fragment_bytes:
            buffer.append(batch, size)
        else:
            for fragment in cut(batch, self._fragment_bytes):
                buffer.append(fragment, len(fragment.data))

    def send_control(self, channel: int, element: ChannelControl) -> None:
        """Append a control element to a channel, behind everything sent before (BAR-2)."""
        self._buffers[channel].append(element, 0)

    def send_ahead(self, channel: int, barrier: CheckpointBarrier) -> tuple[Any, ...]:
        """Put a barrier before everything that waits in a channel's buffer; return the data it overtakes (UNA-1)."""
        return self._buffers[channel].put_ahead(barrier)

    def holds(self, channel: int, checkpoint: CheckpointId) -> bool:
        """Return whether the barrier of a checkpoint waits in a channel's buffer."""
        return self._buffers[channel].holds(checkpoint)

    def recover(self, channel: int, fragments: Sequence[Fragment]) -> None:
        """Append data of a checkpoint; to be called before anything else is sent (UNA-1)."""
        for fragment in fragments:
            self._buffers[channel].append(fragment, len(fragment.data))

    def finish(self) -> None:
        """Leave every channel in good order; a receiver that left first does not matter."""
        for buffer in self._buffers:
            buffer.leave()
        for buffer in self._buffers:
            buffer.wait_until_left()

    def close(self) -> None:
        """End every connection and every thread."""
        for buffer in self._buffers:
            buffer.close()
