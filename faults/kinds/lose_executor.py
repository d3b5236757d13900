"""Lose an executor for good."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Ends, Fault, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.processes import kill_process
from barrier_tck.faults.targets import Damage, TargetKind, Targets


class LoseExecutor(Fault, frozen=True, tag="lose_executor"):
    """Kill the executor that hosts a subtask, and let nothing take its place until the trial is over.

    Its host is gone, too, with its disk and with what was not synced to shared storage. Contract (RSC-2, REC-6): if
    there are slots enough without it, the job recovers on those. If not, an elastic job goes on narrower, from the last
    completed checkpoint, and the output stays as promised; any other job may wait for slots until it fails.
    """

    subtask: Subtask

    label = "lose executor for good"
    colour = "#4a1022"
    needs = TargetKind.CAPACITY
    drawn_as = (DrawnAs("executor-for-good", package="capacity"),)
    ends = Ends.SUBTASKS

    @property
    def copies_hit(self) -> CopiesHit:
        """Return the copies of all subtasks on its host."""
        return CopiesHit(CopyPlace.LOCAL, self.subtask, Damage.MISSING, whole_host=True)

    def description(self) -> str:
        return f"lose executor of {self.subtask} for good"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Kill it, and prove that it is dead and that nothing can take its place."""
        return kill_process(targets.lasting_loss_of(self.subtask), f"spare executor of {self.subtask}", wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Lose the executor of the subtask that the aim names."""
        return cls(aim.subtask)
