"""What a signal to a command does."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does: it says what is kept, and ends the processes that it started."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
