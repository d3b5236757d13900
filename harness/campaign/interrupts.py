"""Ctrl-C and SIGTERM during a campaign: the running trial is abandoned, and finished trials are kept."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ONE_SIGNAL_S = 1.0
"""Signals that follow each other so closely are one."""


class Interrupts:
    """Raises KeyboardInterrupt while a trial runs, and otherwise only notes that the campaign must end."""

    def __init__(self) -> None:
        self.requested = False
        self._in_trial = False
        self._last = -ONE_SIGNAL_S

    @contextmanager
    def during_trial(self) -> Iterator[None]:
        """Let a signal abandon the code inside; raises KeyboardInterrupt at once if a signal came before."""
        if self.requested:
            raise KeyboardInterrupt
        self._in_trial = True
        try:
            yield
        finally:
            self._in_trial = False

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal; between two trials, while results are being written, only note it.

        A signal to a group of processes may reach this one twice, directly and by way of the command's parent: the
        second signal must not break what the first one set going.
        """
        now = time.monotonic()
        same, self._last = now - self._last < ONE_SIGNAL_S, now
        self.requested = True
        if self._in_trial and not same:
            raise KeyboardInterrupt


@contextmanager
def caught(interrupts: Interrupts) -> Iterator[None]:
    """Route SIGINT and SIGTERM to ``interrupts``; outside the main thread signals stay as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, interrupts.on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
