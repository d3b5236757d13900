"""Where everything that a subtask's loop waits for comes together: elements of input channels, and calls.

A reader's thread puts an element into the *inbox*, and never waits: the sender puts no batch on the wire without a
credit, of which each channel has as many as its queue has places. So backpressure reaches the sender, and what is on
the wire always arrives. The loop takes elements out of the inbox one by one. Only then have they *arrived*: they go to
the end of their channel's queue, a barrier is announced at once, and data of a channel that is being recorded is
reported of. Arrival and reading are both events of the loop's own thread, so what is unread ahead of a barrier can be
said exactly (UNA-1).

Other threads post calls (a message of the coordinator, the outcome of a background task) that must run on the loop's
thread. The loop takes one thing at a time and never reads a channel that is blocked (BAR-5).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import ChannelControl, CheckpointBarrier, EndOfChannel
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.spark.control_wire import WireError
from barrier_tck.reference_impl.spark.fragments import Joiner
from barrier_tck.reference_impl.spark.frames import MAX_BATCH_BYTES, MAX_CREDITS
from barrier_tck.reference_impl.storage.channel_state import Fragment

Call = Callable[[], None]

_MAX_CONTROL_ELEMENTS = 4096
"""Of one channel at once. Each belongs to a checkpoint in flight, so no sender comes near it."""


class SubtaskCancelled(RuntimeFailure):
    """The attempt is over; whatever the subtask was doing ends here."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Whom a mailbox tells of arrivals, on the loop's thread."""

    announced: Callable[[int, CheckpointBarrier | EndOfChannel], None]
    """A barrier, or the end of a channel, arrived; it may still have to be read."""
    arrived: Callable[[int, Any], None]
    """Data arrived on a channel that is being recorded."""
    recorded: Callable[[int], bool]
    """Tells whether a channel is being recorded."""


class _Channel:
    """One input channel: its queue, and what its sender may send."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.queue: deque[tuple[Any, int, bool]] = deque()
        """Elements that arrived, with their size and whether their sender used a credit for them."""
        self.joiner = Joiner(MAX_BATCH_BYTES)
        self.grant: Callable[[int], None] | None = None
        self.used = 0
        """Credits that the sender used and has not got back."""
        self.due = 0
        """Those of them whose batches or fragments were read."""
        self.control = 0
        """Control elements that were not read."""
        self.size = 0
        """Bytes that were not read."""
        self.passed = 0
        """The newest checkpoint whose barrier was read."""
        self.urgent = 0
        """How many of the oldest elements are restored data that comes before everything on other channels."""

    def take_in(self, element: Any, size: int) -> None:
        """Count an element that the connection delivered; raises WireError if the sender had no right to send it."""
        if isinstance(element, ChannelControl):
            if self.control >= _MAX_CONTROL_ELEMENTS:
                raise WireError(f"more than {self.control} control elements at once")
            self.control += 1
        else:
            if self.used >= self.places:
                raise WireError(f"a batch without a credit: there is room for {self.places}")
            self.used += 1
        self.size += size

    def ahead_of(self, checkpoint: CheckpointId) -> tuple[Any, ...]:
        """Return what is unread ahead of a barrier, and take the barrier out if it has arrived."""
        ahead: list[Any] = list(self.joiner.waiting)
        if checkpoint <= self.passed:
            return tuple(ahead)
        for position, (element, size, _) in enumerate(self.queue):
            if isinstance(element, CheckpointBarrier):
                if element.checkpoint == checkpoint:
                    del self.queue[position]
                    self.control -= 1
                    self.size -= size
                    break
            elif not isinstance(element, ChannelControl):
                ahead.append(element)
        return tuple(ahead)

    def pop(self) -> Any:
        element, size, paid = self.queue.popleft()
        self.size -= size
        self.due += paid
        self.urgent -= self.urgent > 0 and not isinstance(element, ChannelControl)
        if isinstance(element, ChannelControl):
            self.control -= 1
        if isinstance(element, CheckpointBarrier):
            self.passed = max(self.passed, element.checkpoint)
        return element

    def give_back_unread(self) -> int:
        """Return the credits that were used for what is unread; it stays queued, and reading it gives none back."""
        unread = sum(paid for _, _, paid in self.queue)
        self.queue = deque((element, size, False) for element, size, _ in self.queue)
        self.used -= unread
        return unread

    def credits_due(self) -> int:
        """Return the credits to give back now: not each by itself, but never so few that the sender must wait."""
        if 2 * self.due < self.places:
            return 0
        due, self.due = self.due, 0
        self.used -= due
        return due


class Mailbox:
    """The one place on which a subtask's loop waits."""

    def __init__(
        self, channels: int, places: int, arrivals: Arrivals | None = None, feedback: Sequence[int] = ()
    ) -> None:
        """Take the number of input channels, the places of each one's queue, and the channels that close a loop.

        A place takes a batch or a fragment. The queue of a channel that closes a loop takes any number, because round a
        loop all subtasks could wait for each other; while it is over its places, only such channels are read.
        """
        self._feedback = tuple(feedback)
        self._places = places
        self._channels = [_Channel(MAX_CREDITS if n in self._feedback else places) for n in range(channels)]
        self._arrivals = arrivals
        self._inbox: deque[tuple[int, Any, int]] = deque()
        self._calls: deque[Call] = deque()
        self._lock = threading.Lock()
        self._something = threading.Condition(self._lock)
        self._failure: RuntimeFailure | None = None
        self._next = 0
        self._held = False
        """Whether nothing is read, and whatever arrives is taken in."""
        self._urgent: list[int] = []
        """The channels with restored data that comes before everything else."""
        self.reads_data = True
        """False: of the input channels only barriers are read, because output has to wait. Set by the loop."""

    # --- for reader threads ---------------------------------------------------------------------------------

    def opened(self, channel: int, grant: Callable[[int], None]) -> None:
        """Give the sender of a channel the credits for all places of its queue; ``grant`` sends them to it."""
        self._channels[channel].grant = grant
        grant(self._channels[channel].places)

    def put(self, channel: int, element: Any, size: int) -> None:
        """Take in what a channel's connection delivered; raises WireError if the sender had no right to send it.

        Raises SubtaskCancelled if the mailbox is closed.
        """
        with self._lock:
            if self._failure is not None:
                raise SubtaskCancelled(str(self._failure))
            self._channels[channel].take_in(element, size)
            self._inbox.append((channel, element, size))
            self._something.notify()

    # --- for any thread -------------------------------------------------------------------------------------

    def post(self, call: Call) -> None:
        """Have the loop's thread make a call, ahead of all elements; never made once the mailbox is closed."""
        with self._lock:
            self._calls.append(call)
            self._something.notify()

    def fail(self, error: RuntimeFailure) -> None:
        """Close the mailbox: ``take`` raises this error, readers give up. The first error counts."""
        with self._lock:
            if self._failure is None:
                self._failure = error
            self._something.notify_all()

    # --- for the loop's thread ------------------------------------------------------------------------------

    def take(self, blocked: Sequence[bool], timeout_s: float | None) -> Call | tuple[int, Any] | None:
        """Return the next call, or (channel, element) of an open channel, or None: look again, or the time is over.

        Calls come first, then arrivals are reported, then open channels take turns. Raises the error given to
        ``fail``, and WireError if fragments do not fit together.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            while True:
                if self._failure is not None:
                    raise self._failure
                call = self._next_call()
                if call is not None:
                    return call
                number = self._next_readable(blocked)
                if number is not None:
                    channel = self._channels[number]
                    element, due = channel.pop(), channel.credits_due()
                    break
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._something.wait(left)
        if due and channel.grant is not None:
            channel.grant(due)
        return self._whole(number, channel.joiner, element)

    def _next_call(self) -> Call | None:
        if self._calls:
            return self._calls.popleft()
        seen = self._arrivals
        while self._inbox:
            number, element, size = self._inbox.popleft()
            is_control, channel = isinstance(element, ChannelControl), self._channels[number]
            channel.queue.append((element, size, not is_control))
            if self._held and not is_control:
                given, grant = channel.give_back_unread(), channel.grant
                if grant is not None:
                    self._calls.append(partial(grant, given))
            if seen is None:
                continue
            if isinstance(element, CheckpointBarrier | EndOfChannel):
                return partial(seen.announced, number, element)
            if not is_control and seen.recorded(number):
                return partial(seen.arrived, number, element)
        return None

    def _next_readable(self, blocked: Sequence[bool]) -> int | None:
        # A channel that is held back does not count: what holds it may wait for an element from outside.
        crowded = [n for n in self._feedback if self._is_crowded(n) and not blocked[n] and self.reads_data]
        if self._urgent:
            self._urgent = [n for n in self._urgent if self._channels[n].urgent]
            crowded = [n for n in self._urgent if not blocked[n]] or crowded
        count = len(self._channels)
        for step in range(count):
            number = (self._next + step) % count
            if not blocked[number] and (not crowded or number in crowded) and self._may_read(number):
                self._next = number + 1
                return number
        return None

    def _is_crowded(self, number: int) -> bool:
        return len(self._channels[number].queue) >= self._places

    def _may_read(self, number: int) -> bool:
        queue = self._channels[number].queue
        return bool(queue) and (self.reads_data or isinstance(queue[0][0], CheckpointBarrier))

    def _whole(self, number: int, joiner: Joiner, element: Any) -> tuple[int, Any] | None:
        """Return an element that can be processed; a batch in fragments can once its last one was read."""
        if isinstance(element, Fragment):
            batch = joiner.add(element)
            return None if batch is None else (number, batch)
        if not isinstance(element, CheckpointBarrier):
            joiner.check_between_batches()
        return number, element

    def recover(self, channel: int, fragments: Sequence[Fragment], before_all: int = 0) -> None:
        """Put data of a checkpoint before everything that the channel brings; no credit was used for it (UNA-1).

        The first ``before_all`` of it come before everything that any other channel brings, too (RSC-3).
        """
        with self._lock:
            back = [(fragment, len(fragment.data), False) for fragment in fragments]
            self._channels[channel].queue.extendleft(reversed(back))
            self._channels[channel].size += sum(length for _, length, _ in back)
            if before_all:
                self._channels[channel].urgent = before_all
                self._urgent.append(channel)

    def hold(self, held: bool) -> None:
        """Take in whatever arrives, although nothing is read: give back every credit at once as long as that lasts."""
        with self._lock:
            self._held = held
            given = [channel.give_back_unread() for channel in self._channels] if held else []
        for channel, back in zip(self._channels, given, strict=False):
            if back and channel.grant is not None:
                channel.grant(back)

    def before_all(self, channel: int) -> int:
        return self._channels[channel].urgent

    def overtake(self, channel: int, checkpoint: CheckpointId) -> tuple[Any, ...]:
        """Return the unread data ahead of a barrier, or all if it has not arrived; the barrier is taken out (UNA-1).

        The data stays queued. Fragments that were read of a batch that is not whole are unread data. If the barrier was
        read, there is nothing else ahead of it.
        """
        with self._lock:
            return self._channels[channel].ahead_of(checkpoint)

    def buffered_bytes(self, blocked: Sequence[bool]) -> int:
        """Return the bytes that wait in the queues of the blocked channels (ALN-3)."""
        with self._lock:
            return sum(one.size for one, held in zip(self._channels, blocked, strict=True) if held)
