"""Let deletions of the coordinator fail at the first try."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Times
from barrier_tck.faults.injectors.injection import Injection, skipped
from barrier_tck.faults.targets import TargetKind, Targets


class RefuseDeletions(Fault, frozen=True, tag="refuse_deletions"):
    """Let one or more of the coordinator's next deletions of checkpoints fail, of each checkpoint the first only.

    It waits for deletions, so it strikes a little after its trigger. Contract (COO-3, COO-4): no checkpoint and no
    attempt fails because of it. What could not be deleted is deleted later, before the job has finished at the latest.
    """

    times: Times = 1

    label = "refuse deletions"
    colour = "#8a7a5c"
    needs = TargetKind.DELETIONS
    drawn_as = (DrawnAs("refuse-deletions", package="storage"),)
    on_progress = OnProgress.NOTHING

    def description(self) -> str:
        which = "deletion" if self.times == 1 else f"{self.times} deletions"
        return f"the coordinator's next {which} of checkpoints fail" + ("s" if self.times == 1 else "")

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Wait for deletions, which is proved at the end of the run."""
        deletions = targets.deletions()
        if deletions is None:
            return skipped("deletions")
        return Injection("fired", deletions.description, met=deletions.refuse(self.times))

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw how many: a few, or all that follow."""
        return cls(choose.one_of(_TIMES))


_TIMES = (1, 2, 1_000, 1_000)
