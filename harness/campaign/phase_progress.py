"""What a long phase of a command is at: a status line on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.text import Text

APPEARS_AFTER_S = 2.0
"""A quick phase prints nothing of its progress in a log."""
LINE_EVERY_S = 10.0
"""In a log there is at most one line in so many seconds."""


class PhaseProgress:
    """Use as a context manager; without a console it does nothing.

    ``slow`` says that each step takes seconds, so that the first one is said at once. ``clock`` gives seconds.
    """

    def __init__(
        self,
        console: Console | None,
        identifier: str,
        clock: Callable[[], float] = time.monotonic,
        slow: bool = False,
    ) -> None:
        self._console = console
        self._identifier = identifier
        self._clock = clock
        # ``is_terminal`` is not used, because a log that shows colours claims to be a terminal.
        draws = console is not None and console.file.isatty()
        self._status = console.status(Text(identifier)) if console is not None and draws else None
        self._started = clock()
        self._next_line = self._started + (0.0 if slow else APPEARS_AFTER_S)

    def __enter__(self) -> PhaseProgress:
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
            self._status.update(Text(f"{self._identifier}: {what}"))
        elif self._console is not None and now >= self._next_line:
            self._next_line = now + LINE_EVERY_S
            after = f", after {now - self._started:.0f} s" if now - self._started >= 1.0 else ""
            self._console.print(f"{self._identifier}: {what}{after}", markup=False)
