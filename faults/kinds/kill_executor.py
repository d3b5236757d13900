"""Kill an executor."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Ends, Fault, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.processes import kill_process
from barrier_tck.faults.targets import Damage, TargetKind, Targets


class KillExecutor(Fault, frozen=True, tag="kill_executor"):
    """Kill the executor that hosts a subtask, with SIGKILL: every subtask on it dies, its memory is gone.

    Contract: the job recovers from the last completed checkpoint and the output stays as promised.
    ``lose_unsynced``: the whole host dies, and with it what it wrote and did not sync.
    """

    subtask: Subtask
    """The subtask whose executor is hit, as ``vertex[index]``."""
    lose_unsynced: bool = False

    label = "kill executor"
    colour = "#b3261e"
    needs = TargetKind.EXECUTOR
    drawn_as = (DrawnAs("executor", package="kill", weight=3),)
    ends = Ends.SUBTASKS
    plain_failure = True

    @property
    def loses_unsynced(self) -> bool:
        """Whether its host dies with it."""
        return self.lose_unsynced

    @property
    def copies_hit(self) -> CopiesHit | None:
        """Return the copies of a host that dies; some may have been synced."""
        if not self.lose_unsynced:
            return None
        return CopiesHit(CopyPlace.LOCAL, self.subtask, Damage.MISSING, whole_host=True, certain=False)

    def description(self) -> str:
        return f"kill executor of {self.subtask}" + (", unsynced writes lost" if self.lose_unsynced else "")

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Kill it, and prove that it is dead."""
        target, role = targets.executor_of(self.subtask), f"executor of {self.subtask}"
        return kill_process(target, role, wait, self.lose_unsynced)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw whether unsynced writes are lost."""
        return cls(aim.subtask, choose.chance(aim.lose_unsynced_per_mille))
