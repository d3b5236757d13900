"""When Python's garbage collector looks for rings of references."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector out: of what it would look through, again and again, everything is alive.

    That is so while a world is simulated, which goes with its last reference (see `SimulatedWorld.release`), and
    while hundreds of thousands of rows are judged. Afterwards there is little to look through.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
