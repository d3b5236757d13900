"""Cut the executors into two halves."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration, Subtask
from barrier_tck.faults.injectors.connections import partition
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import Direction, TargetKind, Targets


class PartitionHalves(Fault, frozen=True, tag="partition_halves"):
    """Black-hole all connections between two halves of the executors, for a time.

    The first half has the executors that host ``subtasks``; the driver stays with the second.
    Contract (REC-2): the partitioned processes live on as zombies; nothing that they do may count. Healing is
    total, and the job makes progress again.
    """

    subtasks: tuple[Subtask, ...]
    duration_ms: Duration

    label = "partition halves"
    colour = "#802050"
    needs = TargetKind.PARTITION
    drawn_as = (DrawnAs("partition-halves", package="partition", weight=1),)
    on_progress = OnProgress.STOPS
    shown_as = "partitioned"

    def problem(self) -> str | None:
        """Refuse an empty half, and one that names a subtask twice."""
        if not self.subtasks:
            return "subtasks is empty; name the subtasks whose executors are the first half"
        for position, subtask in enumerate(self.subtasks):
            if subtask in self.subtasks[:position]:
                return f"subtasks[{position}] is {subtask!r}, which is named already"
        return None

    def description(self) -> str:
        named = ", ".join(self.subtasks)
        return f"partition executors of {named} from the others for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Black-hole the connections between the halves, all or none, and prove it."""
        links = targets.links_between_halves(self.subtasks)
        return partition(links, f"connections around {', '.join(self.subtasks)}", Direction.BOTH, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw for how long; the first half is the executor of the subtask that the aim names."""
        return cls((aim.subtask,), choose.between(aim.duration_ms))
