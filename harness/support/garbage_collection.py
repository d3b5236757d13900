"""When Python's garbage collector looks for reference cycles."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Switch the garbage collector off for a while: it would scan the same live objects again and again.

    That is the case while a world is simulated, whose memory is freed with its last reference (see
    `SimulatedWorld.release`), while a trial runs on a real cluster, whose coordinator waits as long as this process
    stands still, and while hundreds of thousands of rows are judged. Afterwards there is little to scan.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
