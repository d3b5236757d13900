"""What a hunt for a planted bug is at, on standard error: a status line on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console

APPEARS_AFTER_S = 2.0
"""A quick hunt prints nothing of its progress."""
LINE_EVERY_S = 10.0
"""In a log there is at most one line in so many seconds."""


class HuntProgress:
    """Use as a context manager; ``clock`` gives seconds."""

    def __init__(
        self, console: Console, identifier: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._identifier = identifier
        self._clock = clock
        # ``is_terminal`` is not used, because a log that shows colours claims to be a terminal.
        self._status = console.status(identifier) if console.file.isatty() else None
        self._started = clock()
        self._next_line = self._started + APPEARS_AFTER_S

    def __enter__(self) -> HuntProgress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, what: str) -> None:
        """Say what begins."""
        now = self._clock()
        if self._status is not None:
            self._status.update(f"{self._identifier}: {what}")
        elif now >= self._next_line:
            self._next_line = now + LINE_EVERY_S
            self._console.print(
                f"{self._identifier}: {what}, after {now - self._started:.0f} s", markup=False
            )
