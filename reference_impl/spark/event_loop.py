"""The event loop of the coordinator: one thread makes all calls, one at a time, including those of timers.

No other thread calls the coordinator driver. A thread that has something for it posts a call here: readers of control
connections, the thread that waits for the Spark stage, background tasks.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_log = logging.getLogger(__name__)


class MonotonicClock:
    """Milliseconds that never go back, anchored to the wall clock once so that they read as times of day."""

    def __init__(self, start_ms: float | None = None) -> None:
        self._offset_ms = (time.time() * 1000.0 if start_ms is None else start_ms) - time.monotonic() * 1000.0

    def now_ms(self) -> float:
        return time.monotonic() * 1000.0 + self._offset_ms


class EventLoop:
    """A queue of calls and a heap of timers, and the one thread that makes the calls of both."""

    def __init__(
        self,
        clock: MonotonicClock,
        after_each: Callable[[], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """Timers follow ``clock``. Both functions run on the loop's thread; ``on_crash`` gets what a call raised."""
        self._clock = clock
        self._after_each = after_each
        self._on_crash = on_crash
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, str, Callable[[], None]]] = []
        self._current: dict[str, int] = {}
        self._serials = itertools.count()
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Make no further call and wait for the one under way, unless called from the loop itself.

        Returns False if it is still under way at the timeout.
        """
        self._calls.put(None)
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def post(self, call: Callable[[], None]) -> None:
        """Make a call on the loop's thread, after those posted before."""
        self._calls.put(call)

    def set_timer(self, name: str, at_ms: float, call: Callable[[], None]) -> None:
        """Make a call at a time; replaces the timer of the same name. Only from the loop's thread."""
        serial = next(self._serials)
        self._current[name] = serial
        heapq.heappush(self._timers, (at_ms, serial, name, call))

    def _run(self) -> None:
        while True:
            call = self._pop_due()
            if call is None:
                try:
                    call = self._calls.get(timeout=self._wait_s())
                except queue.Empty:
                    continue
                if call is None:
                    return
            try:
                call()
                self._after_each()
            except BaseException as error:  # noqa: BLE001 - handed on: the job fails with it
                self._on_crash(error)

    def _wait_s(self) -> float | None:
        if not self._timers:
            return None
        return max(0.0, (self._timers[0][0] - self._clock.now_ms()) / 1000.0)

    def _pop_due(self) -> Callable[[], None] | None:
        while self._timers and self._timers[0][0] <= self._clock.now_ms():
            _, serial, name, call = heapq.heappop(self._timers)
            if self._current.get(name) == serial:
                del self._current[name]
                return call
        return None


class LoopBackground:
    """The ``BackgroundExecutor`` port: runs tasks on threads, delivers outcomes through ``deliver``."""

    def __init__(self, deliver: Callable[[Callable[[], None]], None], threads: int, name: str) -> None:
        self._deliver = deliver
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, task: Callable[[], Any], on_done: Callable[[Any, BaseException | None], None]) -> None:
        """Run a task, then ``on_done(result, error)`` on the owner's thread."""

        def run() -> None:
            try:
                result, error = task(), None
            except BaseException as caught:  # noqa: BLE001 - handed on: the owner decides
                result, error = None, caught
            self._deliver(lambda: on_done(result, error))

        self._pool.submit(run)

    def close(self) -> None:
        """Start no further task; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
