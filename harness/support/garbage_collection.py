"""When Python's garbage collector looks for reference cycles."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_OBJECTS_KEPT_MAX = 1_000_000
"""So many objects may be left before cycles among them are looked for: some 100 MB."""


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


@contextlib.contextmanager
def rare_collection() -> Iterator[None]:
    """Let the garbage collector look only when many objects outlived what made them.

    For processes that run simulated trials one after the other. Most of a trial is freed with its last reference, and
    what is left of it is needed until it was counted.
    """
    before = gc.get_threshold()
    if not before[0]:  # it never looks by itself
        yield
        return
    frozen_here = not gc.get_freeze_count()
    if frozen_here:
        gc.freeze()  # what was loaded stays
    gc.set_threshold(_OBJECTS_KEPT_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if frozen_here:
            gc.unfreeze()
