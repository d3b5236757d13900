"""Let the next writes of checkpoint files fail, find no room, be late, or succeed and say that they failed."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, Wait
from barrier_tck.faults.fields import MaybeDuration, Times
from barrier_tck.faults.injectors.copies import disturb_writes
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import TargetKind, Targets, WriteFault

_TIMES = (1, 3)


class DisturbWrites(Fault, frozen=True, tag="disturb_writes"):
    """Disturb the next write of a checkpoint's files, or several in a row, whichever process writes them.

    ``fails``: nothing is written. ``full``: there is no space left, after a part of it. ``unsure``: the file is there,
    and its writer gets an error. ``slow``: it takes ``latency_ms`` longer. Contract: a writer that is told that a
    write failed tries it again or fails; after that the output is as promised, whether or not the file is there. If no
    write of the system's own comes until the end of the run, the fault did not fire.
    """

    trouble: WriteFault
    times: Times = 1
    latency_ms: MaybeDuration = 0

    label = "disturb writes"
    colour = "#b08d57"
    needs = TargetKind.WRITES
    drawn_as = (DrawnAs("disturb-writes", package="writes"),)

    def description(self) -> str:
        late = f" by {self.latency_ms} ms" if self.latency_ms else ""
        return f"the next {self.times} writes {self.trouble.phrase}{late}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Disturb writes, and prove it by one that was disturbed."""
        return disturb_writes(targets.writes(), self.trouble, self.times, self.latency_ms, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw what happens to how many writes."""
        trouble = choose.one_of(tuple(WriteFault))
        slow = trouble is WriteFault.SLOW
        return cls(trouble, choose.between(_TIMES), choose.between(aim.latency_ms) if slow else 0)

    def problem(self) -> str | None:
        """Refuse a slow write that is not late, and another one that is."""
        if (self.trouble is WriteFault.SLOW) == bool(self.latency_ms):
            return None
        return f"latency_ms is {self.latency_ms}; a write that is slow has one, and no other one"
