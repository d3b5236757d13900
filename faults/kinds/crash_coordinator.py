"""Crash the coordinator."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Ends, Fault, Wait
from barrier_tck.faults.fields import MaybeDuration
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.processes import kill_process
from barrier_tck.faults.targets import SavepointStarter, StorageUser, TargetKind, Targets


class CrashCoordinator(Fault, frozen=True, tag="crash_coordinator"):
    """Kill the coordinator and start a new one from durable storage.

    Contract (COO-6): the job resumes from the last completed checkpoint. On Spark the driver's process dies, with its
    session. ``lose_unsynced``: its host dies, and with it what it wrote and did not sync. ``unreadable_ms``: for this
    long after it starts again, its reads of durable storage fail. Contract (REC-4): nothing is deleted because it
    could not be read then. ``from_savepoint``: the job is started again from its newest savepoint, unless it had
    started from that one before. Contract (COO-4, COO-5): it goes on from there even if newer checkpoints are complete;
    their ids, and those of checkpoints that were under way, are not given out again.
    """

    lose_unsynced: bool = False
    unreadable_ms: MaybeDuration = 0
    from_savepoint: bool = False

    label = "crash coordinator"
    colour = "#7b3fa0"
    needs = TargetKind.COORDINATOR
    drawn_as = (DrawnAs("coordinator", package="kill", weight=2),)
    ends = Ends.COORDINATOR

    @property
    def loses_unsynced(self) -> bool:
        """Whether its host dies with it."""
        return self.lose_unsynced

    def description(self) -> str:
        outage = f", storage unreadable for {self.unreadable_ms} ms" if self.unreadable_ms else ""
        origin = ", started again from the newest savepoint" if self.from_savepoint else ""
        return (
            "crash coordinator" + (", unsynced writes lost" if self.lose_unsynced else "") + outage + origin
        )

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Set how its successor starts, kill it, and prove that it is dead."""
        target = targets.coordinator()
        if target is not None and self.unreadable_ms:
            if not isinstance(target, StorageUser):
                reason = "the system cannot make storage unreadable for a new coordinator"
                return Injection("skipped", target.description, reason)
            target.hide_storage(self.unreadable_ms)
        if target is not None and self.from_savepoint:
            if not isinstance(target, SavepointStarter):
                reason = "the system's job cannot be started again from a savepoint"
                return Injection("skipped", target.description, reason)
            target.start_from_savepoint()
        return kill_process(target, "coordinator", wait, self.lose_unsynced)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw whether unsynced writes are lost, how long storage is unreadable, and from what the job starts again."""
        lose_unsynced = choose.chance(aim.lose_unsynced_per_mille)
        unreadable = choose.chance(aim.unreadable_per_mille)
        unreadable_ms = choose.between(aim.duration_ms) if unreadable else 0
        return cls(lose_unsynced, unreadable_ms, choose.chance(aim.from_savepoint_per_mille))
