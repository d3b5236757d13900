"""Cut one executor off from its peers."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration, Subtask
from barrier_tck.faults.injectors.connections import partition
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import Direction, Peers, TargetKind, Targets


class PartitionExecutor(Fault, frozen=True, tag="partition_executor"):
    """Black-hole all connections between the executor of a subtask and its peers, for a time.

    Contract (REC-2): the partitioned processes live on as zombies; nothing that they do may count. Healing is
    total, and the job makes progress again.
    """

    subtask: Subtask
    peers: Peers
    duration_ms: Duration
    direction: Direction = Direction.BOTH

    label = "partition executor"
    colour = "#a03070"
    needs = TargetKind.PARTITION
    drawn_as = (
        DrawnAs("partition-executor", package="partition", weight=1),
        DrawnAs("zombie-partitioned", package="zombie", weight=1, outlasts_heartbeat=True),
    )
    on_progress = OnProgress.STOPS
    shown_as = "partitioned"

    def description(self) -> str:
        way = "" if self.direction is Direction.BOTH else f", {self.direction.value} only"
        return f"partition executor of {self.subtask} from {self.peers.value}{way} for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Black-hole its connections, all or none, and prove it."""
        links = targets.links_of_executor(self.subtask, self.peers)
        return partition(links, f"connections of the executor of {self.subtask}", self.direction, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw for how long, which way and from which peers; an executor that is to be replaced is cut off from the
        coordinator.
        """
        duration_ms, direction = choose.between(aim.duration_ms), choose.one_of(aim.directions)
        peers = Peers.COORDINATOR if aim.outlasts_heartbeat else choose.one_of(aim.peers)
        return cls(aim.subtask, peers, duration_ms, direction)
