"""How much processor time this process has used, with all that it started."""

from __future__ import annotations

import contextlib
import os

import psutil


def processor_seconds() -> float:
    """Return the processor seconds of this process, of its children that have ended, and of those that still run.

    A child that has ended counts once it was waited for, with the children that it had waited for itself.
    """
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(
            psutil.Error
        ):  # it has ended meanwhile, so it will count when it was waited for
            used = child.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total
